"""Compute how often a verdict is right, by its margin: a calibrated probability.

The margin of a verdict is the distance, in points of the wall time, by which its narrowest essential piece of evidence
holds. Labelled recordings, each judged with thresholds fitted on the other workloads, show how often verdicts of such a
margin were right. With r right of n, the probability is (r + 1) / (n + 2) (Laplace's rule of succession), so few
recordings never give certainty.
"""

from __future__ import annotations

from aaco.analytics.bottleneck.budget import PROFILED, UNPROFILED
from aaco.analytics.bottleneck.calibration import ReliabilityBin
from aaco.core.readings import Reading, Verdict


def margin(verdict: Verdict) -> float | None:
    """Return the points by which the narrowest essential evidence holds.

    None if it does not hold, or rests on anything but shares of the time budget, the only ones that are calibrated.
    """
    essential = [evidence for evidence in verdict.evidence if evidence.essential]
    if not verdict.stands or not essential or not all(_is_a_share(evidence.reading) for evidence in essential):
        return None
    return min(abs((evidence.reading.value or 0.0) - evidence.threshold) for evidence in essential)


def _is_a_share(reading: Reading) -> bool:
    """Return whether a reading is a share of a time budget, by its source or its method."""
    return "budget" in reading.source or reading.method.startswith((PROFILED, UNPROFILED))


def probability(points: float | None, bins: tuple[ReliabilityBin, ...]) -> float | None:
    """Return the probability that a verdict with this margin is right; None without a margin or a bin."""
    reached = [row for row in bins if points is not None and points >= row.margin]
    return reached[-1].probability if reached else None
