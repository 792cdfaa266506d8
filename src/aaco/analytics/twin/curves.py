"""The two curves that times are held against: a fixed cost plus a slope, and a floor that the slope rises out of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
ROUNDS = 25  # reweightings of a fit: it moves by less than 1e-9 after about ten
FLAT = 0.1  # a device that is idle for less of the time than this is what bounds it (METHODS: >= 0.9 device-bound)


@dataclass(frozen=True)
class Curve:
    """time = fixed + slope x, or max(fixed, slope x) where host and device work beside each other."""

    fixed: float
    slope: float
    overlaps: bool = False

    def __call__(self, x: Floats | float) -> Floats:
        """The time of each x, in the unit of `fixed`."""
        sloped = self.slope * np.asarray(x, np.float64)
        return np.asarray(np.maximum(self.fixed, sloped) if self.overlaps else self.fixed + sloped)

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


def hinged(x: Floats, time: Floats) -> Curve | None:
    """The best max(floor, slope x) with something on either side; x rises. None where there is none, as with two x."""
    found = [Curve(_centre(time[:flat]), _centre(time[flat:] / x[flat:]), overlaps=True)
             for flat in range(2, len(x)) if x[flat] > 0]
    return min(found, key=lambda curve: curve.misfit(x, time), default=None)


def through(x: Floats, time: Floats) -> Curve:
    """The curve, of either kind, that is nearer to the measured times; of equals the affine one."""
    plain, other = affine(x, time), hinged(x, time)
    return other if other is not None and other.misfit(x, time) < plain.misfit(x, time) else plain


def from_one(x: float, time: float, beside: bool) -> Curve:
    """The curve of a single measurement: what the device's time x does not explain is the host's, and stays.

    beside: the device works while the host goes on, so that the longer of the two decides.
    """
    if x >= time * (1 - FLAT * beside):
        return Curve(0.0, time / x)
    return Curve(time, 1.0, overlaps=True) if beside else Curve(time - x, 1.0)


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
