"""How much of the ranks' time a late rank takes: what they wait for it in collective operations."""

from __future__ import annotations

from aaco.analytics.bottleneck.own_times import ALONE, STRAGGLER
from aaco.analytics.bottleneck.ranks import Windows
from aaco.analytics.timeline.stragglers import Lateness
from aaco.core.readings import Absent, Estimate
from aaco.core.registry import metric


@metric(unit="pct", better="lower", formula="100 x time in which a rank only waits for the last one / its wall, "
        "of the rank that waits most", source="docs/concepts/diagnosis.md")
def straggler_wait_pct(windows: Windows) -> Estimate:
    """Share of the steady state that ranks spend in collectives for the one rank that is late throughout."""
    waits = windows.stragglers
    if waits is None:
        raise Absent(ALONE)
    if waits.late is None:
        raise Absent(waits.why_none)
    shares = [100 * parts[STRAGGLER] / wall for parts in windows.budgets_ns if (wall := sum(parts.values()))]
    return Estimate(max(shares), method=f"for {_name(waits.ranks[waits.late])}")


def _name(late: Lateness) -> str:
    return f"rank {late.rank}" if late.rank is not None else f"device {late.device_id} of capture {late.capture or 0}"
