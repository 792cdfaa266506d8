"""Name the bottleneck from readings, or say "unknown" with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from aaco.analytics import rules
from aaco.analytics.advice.floors import Floors
from aaco.analytics.advice.recommend import Recommendation, Withheld, bounded, gaining, together, withheld, worth_trying
from aaco.analytics.bottleneck import calibration, stretch
from aaco.analytics.bottleneck.confidence import margin, probability
from aaco.analytics.truth import trust as traces
from aaco.analytics.truth.trust import Trust
from aaco.analytics.workload.device_use import NOT_RUN
from aaco.core import registry
from aaco.core.advice import FactValues, Step, fact_is, offered
from aaco.core.documents import encode
from aaco.core.readings import Evidence, Reading, Verdict
from aaco.tracelake.document_schemas.answers import Bottleneck, JudgedClass, Recommended, Together, WeighedSignal

UNKNOWN = "unknown"
# What would tell the limits of kernels.
TELLING = (Step("shapes (torch.profiler.profile(record_shapes=True))", (fact_is("framework", "pytorch"),),
                (fact_is("shapes", "recorded"),)), Step("counters"))
COUNTED = "counted_"  # metrics of kernels by their counters
MUCH_PCT = 20.0  # of the wall: with so much untold no class of the device can be named
ENDS = {">=": "or more", "<=": "or less"}
UNCHECKED = Trust()
IS_CAPTURE = fact_is("device_graph", NOT_RUN)
ONLY_CAPTURED = ("the trace is of a graph's capture: its launches ran nothing, so it has no times of the work; "
                 "import it with a trace of the replay: aaco import REPLAY --capture FILE")


class Diagnosis(Struct, frozen=True):
    """The class that is diagnosed, the others with their evidence, and the conditions that hold as well.

    trust: what the trace check says of the recording that all of it was read from.
    """

    bottleneck: Verdict | None
    abstained_because: str
    considered: tuple[Verdict, ...]
    conditions: tuple[Verdict, ...]
    recommendations: tuple[Recommendation, ...] = ()
    withheld: tuple[Withheld, ...] = ()  # what facts of the workload speak against
    trust: Trust = UNCHECKED
    together: Together | None = None

    @property
    def label(self) -> str:
        """The class, or unknown."""
        return self.bottleneck.label if self.bottleneck else UNKNOWN

    @property
    def of_kernels(self) -> bool:
        """Return whether the class is that of counted kernels only, in a capture without the program's time."""
        return self.bottleneck is not None and any(item.reading.metric.startswith(COUNTED) and item.essential
                                                   for item in self.bottleneck.evidence)

    @property
    def confidence(self) -> float | None:
        """The calibrated probability that the class is right; None if it has none."""
        if not self.bottleneck or self._is_harmed or self.of_kernels:
            return None
        covered, bins = calibration.of_verdict(self.bottleneck)
        return probability(margin(self.bottleneck), bins) if self.label in covered else None

    @property
    def why_no_confidence(self) -> str:
        """Return why there is no probability. A class has its support count."""
        if not self.bottleneck:
            return "no class is named"
        if self._is_harmed:
            return "it was calibrated on recordings that nothing speaks against; the support count stands in"
        return "no labelled run calibrates this rule; the support count stands in"

    @property
    def _is_harmed(self) -> bool:
        return self.trust.harm("times", "records", "calls") is not None

    @property
    def rule_advice(self) -> tuple[str, ...]:
        """Return the advice of the class's rule, which knows no gains: only where nothing else does."""
        known = self.recommendations or any(action.by_gain for action in self.withheld)
        return self.bottleneck.advice if self.bottleneck and not known else ()

    @property
    def _advice(self) -> list[Recommended]:
        return [Recommended(action=self.label, title=title, gain_pct=None) for title in self.rule_advice]

    def document(self) -> dict[str, Any]:
        """Return the content of bottleneck.json. `confidence` is null if the rule is not calibrated on labelled
        runs.
        """
        top = self.bottleneck or (self.considered[0] if self.considered else None)
        answer = Bottleneck(
            bottleneck_class=self.label, confidence=self.confidence,
            confidence_why_absent=None if self.confidence is not None else self.why_no_confidence,
            support=self.bottleneck.tally if self.bottleneck else None,
            top_evidence=[_evidence(item) for item in top.evidence] if top else [],
            secondary=[_verdict(verdict) for verdict in self.considered if verdict is not self.bottleneck],
            conditions=[_verdict(verdict) for verdict in self.conditions],
            optimization_priority=[recommendation.entry() for recommendation in self.recommendations] or self._advice,
            not_offered=[action.entry() for action in self.withheld],
            together=self.together,
            abstained_because=self.abstained_because or None)
        return encode(answer if self.trust.trusted else answer.model_copy(update={"trust": self.trust.entry()}))


def diagnose(readings: Mapping[str, Reading], facts: FactValues | None = None, trust: Trust = UNCHECKED,
             floors: Floors | None = None) -> Diagnosis:
    """Return the diagnosis by every rule. The best-supported class that holds wins; a tie gives no class.

    facts: of the workload; advice that they contradict is not offered. None if nobody looked for them. trust: of the
    trace that the readings are of. A class is not named if the trace check takes its evidence away. floors: what must
    stay of a step, which bounds advice.
    """
    registry.load(rules, "aaco.rules")
    classes = _judge("class", readings, facts)
    conditions = tuple(verdict for verdict in _judge("condition", readings, facts) if verdict.stands)
    advised, spent = bounded(tuple(advice for advice in gaining(readings, facts, floors)
                                   if traces.gains_stand(advice.confirm, trust)), floors)
    standing = [verdict for verdict in classes if verdict.stands]
    if IS_CAPTURE.holds(facts or {}):
        return Diagnosis(None, ONLY_CAPTURED, classes, conditions, trust=trust)
    why = _why_not_the_first(standing, classes, readings, facts, trust)
    return Diagnosis(None if why else standing[0], why, classes, conditions, advised,
                     (*withheld(readings, facts, floors), *spent), trust,
                     together(advised, floors))


def _why_not_the_first(standing: list[Verdict], classes: tuple[Verdict, ...], readings: Mapping[str, Reading],
                       facts: FactValues | None, trust: Trust) -> str:
    """Return why no class is named; empty if the first of those that stand is."""
    if not standing:
        return traces.against(UNKNOWN, trust, readings) or _why_none(classes, readings, facts)
    if len(standing) > 1 and standing[0].support == standing[1].support:
        names = " and ".join(verdict.label for verdict in standing if verdict.support == standing[0].support)
        return f"{names} are supported equally"
    return traces.against(standing[0].label, trust, readings)


def _judge(kind: str, readings: Mapping[str, Reading], facts: FactValues | None) -> tuple[Verdict, ...]:
    """Return the verdicts of the rules that apply, the best supported first. A rule without evidence does not apply."""
    rules_of_kind = (rule for rule in registry.RULES.values() if rule.kind == kind)
    verdicts = [rule.verdict(*(readings[name] for name in rule.inputs),
                             advice=worth_trying(rule.steps, readings, facts)) for rule in rules_of_kind]
    verdicts = [verdict for verdict in verdicts if verdict.evidence]
    return tuple(sorted(verdicts, key=lambda verdict: (-verdict.stands, -verdict.support, verdict.label)))


def _why_none(classes: tuple[Verdict, ...], readings: Mapping[str, Reading], facts: FactValues | None) -> str:
    unplaced_pct = readings["unplaced_kernel_pct"].value
    if unplaced_pct is not None and unplaced_pct >= MUCH_PCT:
        return (f"{unplaced_pct:.0f} % of the wall time is in kernels of which nothing tells what limits them; record "
                f"{' or '.join(offered(TELLING, facts))}")
    if reason := stretch.why_undecided(readings["host_limited_pct"], readings["launch_tax_pct"]):
        return reason
    open_ = [verdict for verdict in classes
             if not any(item.essential and item.holds is False for item in verdict.evidence)]
    unknown = {item.reading.metric: item.reading.why_absent for verdict in open_ for item in verdict.evidence
               if item.essential and item.holds is None}
    if unknown:
        reasons = "; ".join(list(dict.fromkeys(unknown.values()))[:3])
        return f"no class has its essential evidence ({reasons})"
    return f"every class is contradicted by a reading{_against_the_best(classes)}"


def _against_the_best(classes: tuple[Verdict, ...]) -> str:
    """Return by which reading the class is contradicted that most evidence speaks for; empty if none contradicts it."""
    contradicts = [item for best in classes[:1] for item in best.evidence if item.essential and item.holds is False]
    for item in contradicts[:1]:
        reading, unit = item.reading, " %" * (item.reading.unit == "pct")
        label = classes[0].label.replace("_", "-")
        value, threshold = _told_apart(reading.value or 0.0, item.threshold)
        return (f"; the best supported, {label}, would need that {item.because} ({reading.metric}: {value}{unit}, not "
                f"{threshold}{unit} {ENDS[item.direction]})")
    return ""


def _told_apart(*numbers: float) -> list[str]:
    """Return numbers with three digits, or as many more as tell them apart."""
    written = ([f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.{digits}g}" for number in numbers]
               for digits in range(3, 18))
    return next((texts for texts in written if len({*texts}) == len(numbers)), [str(number) for number in numbers])


def _verdict(verdict: Verdict) -> JudgedClass:
    return JudgedClass(label=verdict.label, stands=verdict.stands, support=verdict.tally,
                       evidence=[_evidence(item) for item in verdict.evidence], advice=list(verdict.advice))


def _evidence(item: Evidence) -> WeighedSignal:
    reading = item.reading
    return WeighedSignal(
        signal=reading.metric, value=reading.value, unit=reading.unit, why_absent=reading.why_absent or None,
        caveat=reading.caveat or None, method=reading.method or None, threshold=item.threshold,
        direction=item.direction, weight=item.weight, essential=item.essential, holds=item.holds,
        because=item.because, source=reading.source)
