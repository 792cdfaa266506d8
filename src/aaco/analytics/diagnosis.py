"""Readings -> what kind of bottleneck this is, or an honest "unknown" with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aaco.analytics import rules
from aaco.analytics.bottleneck import calibration
from aaco.analytics.bottleneck.confidence import margin, probability
from aaco.analytics.bottleneck.recommend import Recommendation, ranked
from aaco.core import registry
from aaco.core.readings import Evidence, Reading, Verdict

SCHEMA_VERSION = 1
UNKNOWN = "unknown"
MUCH_PCT = 20.0  # of the wall: with so much untold no class of the device can be named


@dataclass(frozen=True)
class Diagnosis:
    """The class that stands, the others with their evidence, and the conditions that hold beside it."""

    bottleneck: Verdict | None
    abstained_because: str
    considered: tuple[Verdict, ...]
    conditions: tuple[Verdict, ...]
    recommendations: tuple[Recommendation, ...] = ()

    @property
    def label(self) -> str:
        """The class, or unknown."""
        return self.bottleneck.label if self.bottleneck else UNKNOWN

    @property
    def confidence(self) -> float | None:
        """The calibrated probability that the class is right; None where it has none."""
        if not self.bottleneck or self.label not in calibration.COVERED:
            return None
        found = margin(self.bottleneck)
        return probability(found, calibration.RELIABILITY)

    @property
    def _why_no_confidence(self) -> str:
        if not self.bottleneck:
            return "no class is named"
        return "no labelled run calibrates this rule; the support count stands in"

    @property
    def _advice(self) -> list[dict[str, Any]]:
        """What the class's rule advises, where no time budget says what it would gain."""
        return [{"action": self.label, "title": each, "gain_pct": None} for each in
                (self.bottleneck.advice if self.bottleneck else ())]

    def document(self) -> dict[str, Any]:
        """The content of bottleneck.json. `confidence` is null where the rule is not calibrated on labelled runs."""
        top = self.bottleneck or (self.considered[0] if self.considered else None)
        return {
            "schema_version": SCHEMA_VERSION,
            "bottleneck_class": self.label,
            "confidence": self.confidence,
            "confidence_why_absent": None if self.confidence is not None else self._why_no_confidence,
            "support": self.bottleneck.tally if self.bottleneck else None,
            "top_evidence": [_evidence(item) for item in top.evidence] if top else [],
            "secondary": [_verdict(verdict) for verdict in self.considered if verdict is not self.bottleneck],
            "conditions": [_verdict(verdict) for verdict in self.conditions],
            "optimization_priority": [one.document() for one in self.recommendations] or self._advice,
            "abstained_because": self.abstained_because or None,
        }


def diagnose(readings: Mapping[str, Reading]) -> Diagnosis:
    """Judge every rule over the readings. The best-supported class that stands wins; a tie between two is no answer."""
    registry.load(rules, "aaco.rules")
    classes = _judge("class", readings)
    conditions = tuple(verdict for verdict in _judge("condition", readings) if verdict.stands)
    advised = ranked(readings)
    standing = [verdict for verdict in classes if verdict.stands]
    if not standing:
        return Diagnosis(None, _why_none(classes, readings), classes, conditions, advised)
    if len(standing) > 1 and standing[0].support == standing[1].support:
        names = " and ".join(verdict.label for verdict in standing if verdict.support == standing[0].support)
        return Diagnosis(None, f"{names} are supported equally", classes, conditions, advised)
    return Diagnosis(standing[0], "", classes, conditions, advised)


def _judge(kind: str, readings: Mapping[str, Reading]) -> tuple[Verdict, ...]:
    """The verdicts of the rules that apply, the best supported first; a rule without evidence does not apply."""
    chosen = (rule for rule in registry.RULES.values() if rule.kind == kind)
    verdicts = [rule.verdict(*(readings[name] for name in rule.inputs)) for rule in chosen]
    verdicts = [verdict for verdict in verdicts if verdict.evidence]
    return tuple(sorted(verdicts, key=lambda verdict: (-verdict.stands, -verdict.support, verdict.label)))


def _why_none(classes: tuple[Verdict, ...], readings: Mapping[str, Reading]) -> str:
    untold = readings["unplaced_kernel_pct"].value
    if untold is not None and untold >= MUCH_PCT:
        return (f"{untold:.0f} % of the wall time is in kernels of which nothing tells what limits them; record shapes "
                "(torch.profiler.profile(record_shapes=True)) or counters")
    open_ = [verdict for verdict in classes
             if not any(item.essential and item.holds is False for item in verdict.evidence)]
    unknown = {item.reading.metric: item.reading.why_absent for verdict in open_ for item in verdict.evidence
               if item.essential and item.holds is None}
    if unknown:
        listed = "; ".join(f"{name}: {why}" for name, why in list(unknown.items())[:3])
        return f"no class has its essential evidence ({listed})"
    return "no class has its essential evidence: every candidate is contradicted by a reading"


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {"label": verdict.label, "stands": verdict.stands, "support": verdict.tally,
            "evidence": [_evidence(item) for item in verdict.evidence], "advice": list(verdict.advice)}


def _evidence(item: Evidence) -> dict[str, Any]:
    reading = item.reading
    return {"signal": reading.metric, "value": reading.value, "unit": reading.unit,
            "why_absent": reading.why_absent or None, "caveat": reading.caveat or None,
            "method": reading.method or None, "threshold": item.threshold, "direction": item.direction,
            "weight": item.weight, "essential": item.essential, "holds": item.holds, "because": item.because,
            "source": reading.source}
