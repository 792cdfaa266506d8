"""The curves that times are held against: a fixed cost and a slope that add up, or hide behind each other."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
ROUNDS = 25  # reweightings of a fit: it moves by less than 1e-9 after about ten
FLAT = 0.1  # a device that is idle for less of the time than this is what bounds it (METHODS: >= 0.9 device-bound)
POWERS = (1, 1.25, 1.5, 2, 3, 4, 6, 8, 16)  # at the last no time is more than 4.5 % above the longer of the two
# The least where the device works while the host goes on. Not theory: on an H200 latencies of the host's disturbed
# times were nearest to a sum, and batches beyond them up to 26 % longer; with 2 up to 13 % (benchmarks.twin).
BESIDE = 2


@dataclass(frozen=True)
class Curve:
    """time = (fixed^power + (slope x)^power)^(1 / power), by which Churchill and Usagi (1972) blend two limits.

    power 1: one after the other, the sum; infinity: beside each other, the longer of the two decides.
    """

    fixed: float
    slope: float
    power: float = 1.0

    def __call__(self, x: Floats | float) -> Floats:
        """The time of each x, in the unit of `fixed`."""
        sloped = self.slope * np.asarray(x, np.float64)
        longer, shorter = np.maximum(self.fixed, sloped), np.minimum(self.fixed, sloped)
        share = np.divide(shorter, longer, out=np.zeros_like(longer), where=longer > 0)
        return np.asarray(longer * (1 + share**self.power) ** (1 / self.power))

    def misfit(self, x: Floats, time: Floats) -> float:
        """The mean square of the logarithm of measured / fitted."""
        return float(np.mean(np.log(time / self(x)) ** 2))


def affine(x: Floats, time: Floats) -> Curve:
    """Fixed cost and slope, neither below 0, by reweighted least squares with weights 1 / (time x fit): relative, and
    as hard on a fit that is twice too long as on one that is half too short.

    x: 0 or more; time: above 0; both of n >= 1. Without two different x the slope alone.
    """
    if len(np.unique(x)) < 2:
        return Curve(0.0, float(np.exp(np.mean(np.log(time / x))))) if x[0] > 0 else _constant(time)
    scale = float(x.max())
    unit, fit = x / scale, time
    for _ in range(ROUNDS):
        fixed, slope = _bounded(unit, time, 1 / (time * fit))
        fit = fixed + slope * unit
    return Curve(fixed, slope / scale)


def through(x: Floats, time: Floats, beside: bool) -> Curve:
    """The curve of any power that is nearest to three or more measured times; of equals, and of two, the lowest power.

    beside: the device works while the host goes on.
    """
    powers = [power for power in POWERS if power >= BESIDE or not beside]
    return min((_blended(x, time, power) for power in (powers if len(x) > 2 else powers[:1])),
               key=lambda curve: curve.misfit(x, time))


def _blended(x: Floats, time: Floats, power: float) -> Curve:
    """A curve of this power is a sum of powers: the same fit finds it."""
    far, late = float(x.max()), float(time.max())
    found = affine((x / far) ** power, (time / late) ** power)
    return Curve(late * found.fixed ** (1 / power), late / far * found.slope ** (1 / power), power)


def from_one(x: float, time: float, beside: bool) -> Curve:
    """The curve of a single measurement: what the device's time x does not explain is the host's, and stays.

    beside: the device works while the host goes on, so that the longer of the two decides.
    """
    if x >= time * (1 - FLAT * beside):
        return Curve(0.0, time / x)
    return Curve(time, 1.0, math.inf) if beside else Curve(time - x, 1.0)


def _bounded(x: Floats, time: Floats, weight: Floats) -> tuple[float, float]:
    """Weighted least squares of time = a + b x with a >= 0 and b >= 0."""
    total, mean_x, mean_t = weight.sum(), np.average(x, weights=weight), np.average(time, weights=weight)
    slope = float((weight * (x - mean_x) * (time - mean_t)).sum() / (weight * (x - mean_x) ** 2).sum())
    fixed = float(mean_t - slope * mean_x)
    if slope < 0:
        return float((weight * time).sum() / total), 0.0
    if fixed < 0:
        return 0.0, float((weight * x * time).sum() / (weight * x**2).sum())
    return fixed, slope


def _constant(time: Floats) -> Curve:
    return Curve(_centre(time), 0.0)


def _centre(values: Floats) -> float:
    return float(np.exp(np.mean(np.log(values))))
