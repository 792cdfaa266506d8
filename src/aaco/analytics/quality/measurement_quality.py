"""The measurement quality score: 0-100 over what was measured of a measurement, and never without its reasons.

The weights are AACO's choice (docs/concepts/measuring.md). Each part falls in a straight line from 1, where nothing is
wrong, to 0, where the session is unstable, contaminated or worthless.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from aaco.core.readings import Absent, Reading

NEEDED = 0.6  # of the weight, as the compute health index asks


class ScorePart(Struct, frozen=True):
    """One part of the score: its weight, the reading it rests on, and the values of that worth 1 and 0."""

    weight: float
    metric: str
    best: float
    worst: float

    def worth(self, value: float) -> float:
        """Return the worth of a value, 0-1."""
        return min(1.0, max(0.0, (value - self.worst) / (self.best - self.worst)))


PARTS = {
    "clean": ScorePart(0.25, "clean_pct", 100, 50),
    "interference": ScorePart(0.20, "noise_impact_pct", 0, 10),
    "steadiness": ScorePart(0.15, "latency_cov_pct", 1, 10),
    "warm-up": ScorePart(0.10, "warmup_shortfall", 0, 20),
    "drift": ScorePart(0.10, "latency_drift_size_pct", 1, 10),
    "independence": ScorePart(0.05, "latency_autocorrelation", 0.2, 0.9),
    "modes": ScorePart(0.05, "latency_modes", 1, 2),
    "replication": ScorePart(0.10, "measured_processes", 5, 0),
}


class MeasurementQuality(Struct, frozen=True):
    """The score, the share of the weight that was measured, and the worth of each part that was."""

    score: float | None
    coverage: float
    parts: Mapping[str, float]

    @property
    def described(self) -> str:
        """Return the parts, the worst first, and the coverage."""
        listed = ", ".join(f"{name} {100 * worth:.0f}" for name, worth in
                           sorted(self.parts.items(), key=lambda item: (item[1], item[0])))
        return f"{listed or 'nothing'}; {100 * self.coverage:.0f} % of the weight measured"


def of_values(values: Mapping[str, float | None], weighed: Mapping[str, ScorePart] = PARTS) -> MeasurementQuality:
    """Return the quality from the parts' readings by metric name; what is missing or None was not measured."""
    parts = {name: part.worth(value) for name, part in weighed.items()
             if (value := values.get(part.metric)) is not None}
    coverage = sum(weighed[name].weight for name in parts)
    if coverage < NEEDED - 1e-9:
        return MeasurementQuality(None, coverage, parts)
    return MeasurementQuality(100 * sum(weighed[name].weight * worth for name, worth in parts.items()) / coverage,
                              coverage, parts)


def of_readings(readings: Mapping[str, Reading]) -> MeasurementQuality:
    """Return the quality of a session's readings."""
    return of_values({name: reading.value for name, reading in readings.items()})


def score(values: Mapping[str, float | None]) -> float:
    """Return the score. Raise Absent if too little was measured."""
    quality = of_values(values)
    if quality.score is None:
        raise Absent(f"insufficient data: {quality.described}; {100 * NEEDED:.0f} % is needed")
    return quality.score
