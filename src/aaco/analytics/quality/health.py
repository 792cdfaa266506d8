"""The compute health index: 0-100 over the parts of a session that were measured, and its trend.

Each part falls in a straight line from 1 where there is nothing to complain about to 0 where the session is unstable,
critical or contaminated. Under 60 % of the weight there is no index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from aaco.analytics.quality import measurement_quality
from aaco.analytics.quality.measurement_quality import NEEDED, MeasurementQuality, ScorePart
from aaco.analytics.quality.thermal import WARM_C
from aaco.core.readings import Absent, Estimate
from aaco.core.words import plural

PARTS = {
    "stability": ScorePart(0.25, "latency_cov_pct", 0, 10),
    "efficiency": ScorePart(0.25, "hardware_envelope_utilization", 1, 0),
    "launch": ScorePart(0.15, "launch_tax_pct", 0, 20),
    "clock": ScorePart(0.15, "device_clock_variation_pct", 0, 5),
    "thermal": ScorePart(0.10, "device_temperature_max_c", WARM_C, 95),
    "system": ScorePart(0.10, "scheduler_interference", 0, 0.05),
}
MOST = 10  # sessions that a trend looks at
FEWEST = 3
STEADY = 1.0  # points per session; a smaller slope is no trend


class HealthTrend(Struct, frozen=True):
    """The median slope of the index from session to session (Theil and Sen), over how many sessions."""

    points_per_session: float
    sessions: int

    @property
    def direction(self) -> str:
        """Return improving, declining or steady."""
        if abs(self.points_per_session) < STEADY:
            return "steady"
        return "improving" if self.points_per_session > 0 else "declining"


def of_values(values: Mapping[str, float | None]) -> MeasurementQuality:
    """Return the index from readings by metric name, with the worth of each part and the share of the weight measured.
    """
    return measurement_quality.of_values(values, PARTS)


def index(values: Mapping[str, float | None]) -> Estimate:
    """Return the index; its method says the parts and the coverage. Raise Absent if too little was measured."""
    quality = of_values(values)
    if quality.score is None:
        raise Absent(f"insufficient data: {quality.described}; {100 * NEEDED:.0f} % is needed")
    return Estimate(quality.score, method=quality.described)


def trend(scores: Sequence[float]) -> HealthTrend:
    """Return the trend of the index over the latest sessions, in their order, at most MOST. Raise Absent for too few.
    """
    points = np.asarray(scores[-MOST:], float)
    if len(points) < FEWEST:
        raise Absent(f"{plural(len(points), 'session')} of this model and backend scored; a trend needs {FEWEST}")
    later, earlier = np.tril_indices(len(points), -1)
    return HealthTrend(float(np.median((points[later] - points[earlier]) / (later - earlier))), len(points))
