"""How often a verdict is right, by how clearly its evidence holds: a calibrated probability.

The margin of a verdict is the distance, in points of the wall time, by which its narrowest essential piece of evidence
holds. Labelled recordings, each judged with thresholds fitted on the other workloads, say how often verdicts of such a
margin were right; with n of them, r right, the probability is (r + 1) / (n + 2) (Laplace's rule of succession), so few
recordings never make a certainty.
"""

from __future__ import annotations

from dataclasses import dataclass

from aaco.core.readings import Verdict


@dataclass(frozen=True)
class Bin:
    """Verdicts whose margin is at least `margin`, up to the next bin: how many, and how many of them were right."""

    margin: float
    judged: int
    right: int

    @property
    def probability(self) -> float:
        """That a verdict of this bin is right."""
        return (self.right + 1) / (self.judged + 2)


def margin(verdict: Verdict) -> float | None:
    """Points by which the narrowest essential evidence holds; None where it does not stand, or rests on other than
    shares of the time budget, on which alone the calibration was made."""
    essential = [item for item in verdict.evidence if item.essential]
    if not verdict.stands or not essential or any("budget" not in item.reading.source for item in essential):
        return None
    return min(abs((item.reading.value or 0.0) - item.threshold) for item in essential)


def probability(found: float | None, bins: tuple[Bin, ...]) -> float | None:
    """That a verdict of this margin is right; None where there is no margin, or no bin."""
    mine = [each for each in bins if found is not None and found >= each.margin]
    return mine[-1].probability if mine else None
