"""The compute health index: 0-100 over the parts of a session that were measured (METHODS section 1), and its trend.

Each part falls in a straight line from 1 where there is nothing to complain about to 0 where METHODS calls it unstable,
critical or contaminated. Under 60 % of the weight there is no index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from aaco.analytics import measurement_quality
from aaco.analytics.heat import WARM_C
from aaco.analytics.measurement_quality import NEEDED, Part, Quality
from aaco.core.readings import Absent, Estimate

PARTS = {
    "stability": Part(0.25, "latency_cov_pct", 0, 10),
    "efficiency": Part(0.25, "hardware_envelope_utilization", 1, 0),
    "launch": Part(0.15, "launch_tax_pct", 0, 20),
    "clock": Part(0.15, "device_clock_variation_pct", 0, 5),
    "thermal": Part(0.10, "device_temperature_max_c", WARM_C, 95),
    "system": Part(0.10, "scheduler_interference", 0, 0.05),
}
MOST = 10  # sessions that a trend looks at
FEWEST = 3
STEADY = 1.0  # points per session; a smaller slope is no trend


@dataclass(frozen=True)
class Trend:
    """The median slope of the index from session to session (Theil and Sen), over how many sessions."""

    points_per_session: float
    sessions: int

    @property
    def direction(self) -> str:
        """improving, declining or steady."""
        if abs(self.points_per_session) < STEADY:
            return "steady"
        return "improving" if self.points_per_session > 0 else "declining"


def of_values(values: Mapping[str, float | None]) -> Quality:
    """The index from readings by metric name, with the worth of each part and the share of the weight measured."""
    return measurement_quality.of_values(values, PARTS)


def index(values: Mapping[str, float | None]) -> Estimate:
    """The index; its method says the parts and the coverage. Raises Absent where too little was measured."""
    found = of_values(values)
    if found.score is None:
        raise Absent(f"insufficient data: {found.described}; {100 * NEEDED:.0f} % is needed")
    return Estimate(found.score, method=found.described)


def trend(scores: Sequence[float]) -> Trend:
    """Of the index of the latest sessions, in their order; of more than MOST the last. Raises Absent for too few."""
    points = np.asarray(scores[-MOST:], float)
    if len(points) < FEWEST:
        raise Absent(f"{len(points)} sessions of this model and backend have an index; a trend needs {FEWEST}")
    later, earlier = np.tril_indices(len(points), -1)
    return Trend(float(np.median((points[later] - points[earlier]) / (later - earlier))), len(points))
