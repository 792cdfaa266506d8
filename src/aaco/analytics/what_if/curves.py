"""The curves that are fitted to times: a fixed cost and a slope that add up, or overlap."""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from aaco.core.arrays import Reals

ROUNDS = 25  # reweightings of a fit: it moves by less than 1e-9 after about ten
FLAT = 0.1  # a device that is idle for less of the time than this is what bounds it (>= 0.9: device-bound)
POWERS = (1, 1.25, 1.5, 2, 3, 4, 6, 8, 16)  # at the last no time is more than 4.5 % above the longer of the two
# The least where the device works while the host goes on. Not theory: on an H200 latencies of the host's disturbed
# times were nearest to a sum, and batches beyond them up to 26 % longer; with 2 up to 13 % (benchmarks.twin).
BESIDE = 2


class LatencyCurve(Struct, frozen=True):
    """time = (fixed^power + (slope x)^power)^(1 / power), by which Churchill and Usagi (1972) blend two limits.

    power 1: one after the other, the sum; infinity: both at once, the longer of the two decides.
    """

    fixed: float
    slope: float
    power: float = 1.0

    def __call__(self, x: Reals | float) -> Reals:
        """Return the time of each x, in the unit of `fixed`."""
        sloped = self.slope * np.asarray(x, np.float64)
        longer, shorter = np.maximum(self.fixed, sloped), np.minimum(self.fixed, sloped)
        share = np.divide(shorter, longer, out=np.zeros_like(longer), where=longer > 0)
        return np.asarray(longer * (1 + share**self.power) ** (1 / self.power))

    def misfit(self, x: Reals, time: Reals) -> float:
        """Return the mean square of the logarithm of measured / fitted."""
        return float(np.mean(np.log(time / self(x)) ** 2))


def affine(x: Reals, time: Reals) -> LatencyCurve:
    """Return the curve of fixed cost and slope, neither below 0, by reweighted least squares.

    The weights are 1 / (time x fit): relative, and symmetric between a fit twice too long and one half too short. x: 0
    or more; time: above 0; both of n >= 1. Without two different x the curve has only a slope.
    """
    if len(np.unique(x)) < 2:
        return LatencyCurve(0.0, float(np.exp(np.mean(np.log(time / x))))) if x[0] > 0 else _constant(time)
    scale = float(x.max())
    unit, fit = x / scale, time
    for _ in range(ROUNDS):
        fixed, slope = _bounded(unit, time, 1 / (time * fit))
        fit = fixed + slope * unit
    return LatencyCurve(fixed, slope / scale)


def through(x: Reals, time: Reals, beside: bool) -> LatencyCurve:
    """Return the curve of any power that is nearest to three or more measured times; of equals, and of two, the lowest
    power.

    beside: the device works while the host goes on.
    """
    powers = [power for power in POWERS if power >= BESIDE or not beside]
    return min((_blended(x, time, power) for power in (powers if len(x) > 2 else powers[:1])),
               key=lambda curve: curve.misfit(x, time))


def _blended(x: Reals, time: Reals, power: float) -> LatencyCurve:
    """Return the curve of this power: its powers are a sum, so the same fit finds it."""
    far, late = float(x.max()), float(time.max())
    curve = affine((x / far) ** power, (time / late) ** power)
    return LatencyCurve(late * curve.fixed ** (1 / power), late / far * curve.slope ** (1 / power), power)


def from_one(x: float, time: float, beside: bool) -> LatencyCurve:
    """Return the curve of a single measurement: what the device's time x does not explain is the host's, and stays.

    beside: the device works while the host goes on, so the longer of the two decides.
    """
    if x >= time * (1 - FLAT * beside):
        return LatencyCurve(0.0, time / x)
    return LatencyCurve(time, 1.0, math.inf) if beside else LatencyCurve(time - x, 1.0)


def _bounded(x: Reals, time: Reals, weight: Reals) -> tuple[float, float]:
    """Return the weighted least squares of time = a + b x with a >= 0 and b >= 0."""
    total, mean_x, mean_t = weight.sum(), np.average(x, weights=weight), np.average(time, weights=weight)
    slope = float((weight * (x - mean_x) * (time - mean_t)).sum() / (weight * (x - mean_x) ** 2).sum())
    fixed = float(mean_t - slope * mean_x)
    if slope < 0:
        return float((weight * time).sum() / total), 0.0
    if fixed < 0:
        return 0.0, float((weight * x * time).sum() / (weight * x**2).sum())
    return fixed, slope


def _constant(time: Reals) -> LatencyCurve:
    return LatencyCurve(_centre(time), 0.0)


def _centre(values: Reals) -> float:
    return float(np.exp(np.mean(np.log(values))))
