"""The error of a prediction, from held-out measurements: no interval is derived from the quality of a fit.

Whole inferences: each measured batch is left out in turn and predicted from the others. The logarithms of measured /
predicted, each divided by its distance to the nearest other batch in doublings (one at least), are taken for draws of a
normal distribution of mean 0 and unknown spread, so Student's t gives the interval (a prediction interval: Hahn and
Meeker 1991, section 4.2; scaled residuals: Lei et al. 2018, section 5.2). Beyond the measured batches that is no test:
there each batch counts as it is predicted only from those on one side (rolling origins: Tashman 2000), and the wider
interval is reported. Kernels, of which there are many, need no distribution: split conformal prediction (Lei et al.
2018, algorithm 2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from aaco.core.readings import Absent
from aaco.core.statistics import Sample, t_quantile

LEVEL = 0.9
FEWEST = 3  # measured batches: one is left out, and a curve needs two
NEAREST = 1.0  # doublings: sweeps double, so no held-out batch is nearer than that
MOST = 50.0  # of the logarithm: what is not known at all shall still be a number
METHOD = "leave-one-batch-out residuals, Student's t"


class ResidualSpread(Struct, frozen=True):
    """Held-out residuals, log(measured / predicted) per doubling: of each batch from all others; of those predicted
    only from the smaller ones (above), or only from the larger ones (below)."""

    residuals: tuple[float, ...]
    above: tuple[float, ...] = ()
    below: tuple[float, ...] = ()

    def factor(self, distance: float, noise: float = 0.0, beyond: tuple[float, ...] = ()) -> float:
        """Return by how much a prediction may be too short or too long: the interval is [value / factor, value x
        factor].

        distance: doublings to the nearest measured batch. noise: log half-width of what was measured there, which a
        measurement of the prediction would have, too. beyond: `above` or `below`, where the prediction is.
        """
        half = max(_half(drawn) for drawn in (self.residuals, beyond) if drawn) * max(NEAREST, distance)
        return math.exp(min(MOST, math.hypot(half, noise, noise)))


def _half(residuals: Sequence[float]) -> float:
    """Return the half the prediction interval of another draw; their mean is taken to be 0."""
    count = len(residuals)
    size = math.sqrt(sum(residual**2 for residual in residuals) / count)
    return t_quantile(0.5 + LEVEL / 2, count) * size * math.sqrt(1 + 1 / count)


def doublings(batch: float, others: Sequence[int]) -> float:
    """Return the distance to the nearest of the other batches, in doublings."""
    return min(abs(math.log2(batch / measured_batch)) for measured_batch in others)


def conformal(scores: Sample, level: float = LEVEL) -> float:
    """Return what a new score does not exceed with probability `level`, if it is exchangeable with these: the ceil((n +
    1) level)-th smallest. Raise Absent if n is too small for that level."""
    rank = math.ceil((len(scores) + 1) * level - 1e-9)
    if rank > len(scores):
        raise Absent(f"an interval of {100 * level:g} % needs {math.ceil(level / (1 - level) - 1e-9)} held-out times, "
                     f"there are {len(scores)}")
    return float(np.sort(np.asarray(scores, np.float64))[rank - 1])
