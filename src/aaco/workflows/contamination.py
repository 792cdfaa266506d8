"""What the conditions of a comparison's sessions say against them, before any cause of a change is named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from aaco.analytics.explanation import Explanation
from aaco.core.readings import Verdict
from aaco.governance.compare import CONTAMINATED, POOR, Side
from aaco.report import format

SideName = Literal["baseline", "session"]
# Conditions of the measurement itself (analytics/rules/quality.py), the gravest first: they change times by themselves.
CONDITIONS = ("interference", "throttled_clock", "shared_device", "drifting_latency", "warmup_instability",
              "noisy_latency", "several_modes")


class Contamination(Struct, frozen=True):
    """A condition under which a side was measured, and the reading that shows it; without value: what was found."""

    side: SideName
    session_id: str
    condition: str
    text: str
    metric: str | None = None
    value: float | None = None
    threshold: float | None = None


def of_side(side: SideName, sessions: Sequence[Explanation], measured: Side | None) -> Iterator[Contamination]:
    """Yield every condition against the sessions of a side. measured: what `aaco diff` knows of it."""
    for explained in sessions:
        if not explained.trust.trusted:
            yield Contamination(side, explained.session_id, "trace_check", explained.trust.line)
    for replicate in measured.contaminated if measured else ():
        disturbed_pct = 100 * (replicate.disturbed or 0.0)
        yield Contamination(side, replicate.session_id, "interference_on_median",
                            f"its median was slowed by {disturbed_pct:.1f} % (limit {100 * CONTAMINATED:g} %)",
                            "noise_on_median_pct", disturbed_pct, 100 * CONTAMINATED)
    for replicate in measured.badly_measured if measured else ():
        yield Contamination(side, replicate.session_id, "measured_badly",
                            f"measurement quality {replicate.quality:.0f} of 100 (limit {POOR:g}): "
                            f"{replicate.quality_parts}", "measurement_quality", replicate.quality, POOR)
    for explained in sessions:
        yield from _conditions(side, explained)


def _conditions(side: SideName, explained: Explanation) -> Iterator[Contamination]:
    standing = {verdict.label: verdict for verdict in explained.diagnosis.conditions}
    for label in CONDITIONS:
        if label in standing:
            yield _of_verdict(side, explained.session_id, standing[label])


def _of_verdict(side: SideName, session_id: str, verdict: Verdict) -> Contamination:
    """Return the condition with the reading that shows it most: the last of its essential evidence."""
    shown = [evidence for evidence in verdict.evidence if evidence.essential][-1]
    return Contamination(side, session_id, verdict.label,
                         f"{shown.because} {format.reading(shown.reading)} (limit {format.limit(shown)})",
                         shown.reading.metric, shown.reading.value, shown.threshold)
