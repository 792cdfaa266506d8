"""The compute health index part by part with its trend, as text; and the documents of it and of a summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from aaco.analytics.explanation import Explanation
from aaco.analytics.quality import health
from aaco.analytics.quality.health import HealthTrend
from aaco.core.readings import Absent, Reading, or_why
from aaco.core.records import as_dict
from aaco.report import format
from aaco.report.sections import content

SCHEMA_VERSION = 1
INDEX = "compute_health_index"


class Health(Struct, frozen=True):
    """A session's index and its parts; before: the indices of the sessions before it, the oldest first."""

    explanation: Explanation
    before: Sequence[float]

    @property
    def reading(self) -> Reading:
        """The index, or why there is none."""
        return self.explanation.readings[INDEX]

    def trend(self) -> HealthTrend:
        """From session to session. Raises Absent."""
        if self.reading.value is None:
            raise Absent("this session has no index")
        return health.trend([*self.before, self.reading.value])

    def document(self) -> dict[str, Any]:
        """What `aaco chi --json` prints."""
        found = health.of_values({name: one.value for name, one in self.explanation.readings.items()})
        parts = {name: {"weight": part.weight, "metric": part.metric, "worth": found.parts.get(name),
                        "value": self._of(part.metric).value, "why_absent": self._of(part.metric).why_absent or None}
                 for name, part in health.PARTS.items()}
        trend, why_no_trend = or_why(self.trend)
        return {"schema_version": SCHEMA_VERSION, "session_id": self.explanation.session_id,
                "value": self.reading.value, "band": self.reading.band or None,
                "why_absent": self.reading.why_absent or None,
                "coverage": found.coverage, "parts": parts,
                "trend": {**as_dict(trend), "direction": trend.direction} if trend else None,
                "why_no_trend": why_no_trend or None}

    def lines(self) -> Iterator[str]:
        """What `aaco chi` prints."""
        document = self.document()
        value = format.NA if self.reading.value is None else f"{self.reading.value:.0f} ({self.reading.band})"
        yield f"COMPUTE HEALTH INDEX: {value}, {100 * document['coverage']:.0f} % of the weight measured"
        for name, part in document["parts"].items():
            worth = "  -" if part["worth"] is None else f"{100 * part['worth']:3.0f}"
            about = format.reading(self._of(part["metric"]))
            yield from format.hung(f"  {name:<12}{worth}  weight {100 * part['weight']:2.0f} %  ",
                                   f"{part['metric']} {about}")
        if self.reading.value is None:
            yield from format.hung("  ", self.reading.why_absent)
        trend, why = or_why(self.trend)
        yield from format.hung("  ", f"trend: {trend.points_per_session:+.1f} points per session over "
                               f"{format.plural(trend.sessions, 'session')} ({trend.direction})" if trend
                               else f"no trend: {why}")

    def _of(self, metric: str) -> Reading:
        return self.explanation.readings[metric]


def summary_document(explanation: Explanation) -> dict[str, Any]:
    """What `aaco summary --json` prints: the summary of latencies, the diagnosis, and the headline readings."""
    shown = (*content.summary(explanation), *content.bottleneck(explanation))
    readings = {row.metric: explanation.readings[row.metric].value for row in shown
                if row.metric in explanation.readings}
    return {"schema_version": SCHEMA_VERSION, "session_id": explanation.session_id, "status": explanation.status,
            "trust": explanation.trust.entry().model_dump(),
            "latency": dict(explanation.summary), "readings": readings,
            "bottleneck": explanation.diagnosis.document(),
            "kernel_headline": content.kernel_headline(explanation) or None,
            "next": [{"because": label, "step": step} for label, step in content.next_steps(explanation)]}
