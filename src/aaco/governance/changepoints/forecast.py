"""Where a series is going: its trend since the last change, and when it reaches a limit, with an interval or a reason.

Least squares on the logarithm of the values, by innovations (Prais & Winsten 1954), so that a wandering noise does not
pass for a trend. A trend that is not significant is not extrapolated, nor is any trend beyond its own length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from aaco.core import statistics
from aaco.core.arrays import Reals
from aaco.core.readings import Absent, Estimate
from aaco.governance.changepoints import changes, noise

FEWEST = 12  # values of a trend
SIGNIFICANT = 0.01
LEVEL = 0.95
REACH = 1.0  # lengths of the stretch that a trend may be extrapolated by


class Trend(Struct, frozen=True):
    """The trend of a stretch of `count` values from `begin`: per cent per value, with its interval and p-value."""

    begin: int
    count: int
    slope_pct: float
    low_pct: float
    high_pct: float
    p_value: float
    rho: float
    level: float
    degrees: float
    _fit: _Fit

    @property
    def significant(self) -> bool:
        """Whether there is a trend at all, beyond chance."""
        return self.p_value <= SIGNIFICANT

    @property
    def now(self) -> float:
        """The level at the last value."""
        return math.exp(self._fit.at(0, self.level)[0])

    def predict(self, ahead: float) -> Estimate:
        """Return the value `ahead` of the last one, with the interval for a single new value. Raise Absent too far
        ahead.
        """
        if not 0 < ahead <= REACH * self.count:
            raise Absent(f"{ahead:g} values ahead of {self.count}: a trend is not extrapolated beyond its own length")
        middle, low, high = map(math.exp, self._fit.at(ahead, self.level, single=True))
        return Estimate(middle, low, high)

    def reaches(self, limit: float) -> Estimate:
        """In how many values the level reaches the limit, with its interval.

        The ends are where the level's interval reaches it; the later one is None beyond what may be extrapolated. Raise
        Absent where the trend is not significant, leads away, is there already, or reaches it too late.
        """
        if not (math.isfinite(limit) and limit > 0):
            raise Absent(f"the limit {limit:g} is not a positive number")
        if not self.significant:
            raise Absent(f"no significant trend (p = {self.p_value:.2g}): nothing to extrapolate")
        now = self._fit.at(0, self.level)[0]
        distance = math.log(limit) - now
        if distance * self._fit.slope <= 0:
            raise Absent("the level is beyond the limit already" if (distance < 0) == (self._fit.slope > 0)
                         and self._passed(limit) else "the trend leads away from the limit")
        ahead, most = distance / self._fit.slope, REACH * self.count
        if ahead > most:
            raise Absent(f"not within {most:.0f} values, the length of the trend itself: too far to extrapolate")
        side = 2 if self._fit.slope > 0 else 1
        early = self._fit.crossing(math.log(limit), self.level, side, most)
        late = self._fit.crossing(math.log(limit), self.level, 3 - side, most)
        return Estimate(ahead, 0.0 if early is None else early, late)

    def _passed(self, limit: float) -> bool:
        first = self._fit.at(1 - self.count, self.level)[0]
        return (first - math.log(limit)) * (self._fit.at(0, self.level)[0] - math.log(limit)) <= 0


class _Fit(Struct, frozen=True):
    """A line through logarithms over places 0..count-1; covariance of (level, slope); sigma of a single value."""

    count: int
    intercept: float
    slope: float
    covariance: Reals
    sigma: float
    degrees: float

    def at(self, ahead: float, level: float, single: bool = False) -> tuple[float, float, float]:
        """Return the line `ahead` of the last value, with its interval: of the level, or of a single value."""
        place = np.array([1.0, self.count - 1 + ahead])
        variance = float(place @ self.covariance @ place) + (self.sigma**2 if single else 0.0)
        middle = self.intercept + self.slope * place[1]
        half = statistics.t_quantile(0.5 + level / 2, self.degrees) * math.sqrt(variance)
        return float(middle), float(middle - half), float(middle + half)

    def crossing(self, target: float, level: float, side: int, most: float) -> float | None:
        """Return how far ahead one end of the level's interval reaches the target; None beyond `most`."""
        upward = self.slope > 0

        def short(ahead: float) -> bool:
            return (self.at(ahead, level)[side] < target) == upward

        if not short(0.0):
            return 0.0
        if short(most):
            return None
        low, high = 0.0, most
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if short(middle) else (low, middle)
        return high


def trend(values: Sequence[float] | Reals, begin: int = 0, level: float = LEVEL) -> Trend:
    """Return the trend of the values from `begin` on. Raise Absent for fewer than 12, a constant, and values without
    ratios.

    Spikes are drawn in first. The memory of the noise is read from what a first line leaves.
    """
    raw = changes.checked(values)[begin:]
    if len(raw) < FEWEST:
        raise Absent(f"{len(raw)} values since the last change: a trend takes {FEWEST}")
    logs = noise.tamed(np.log(raw))
    rest = logs - np.polyval(np.polyfit(np.arange(len(logs)), logs, 1), np.arange(len(logs)))
    if noise.scale(rest) <= noise.FLAT:
        raise Absent("the values have no scatter: nothing says how sure a trend would be")
    rho = _memory(rest)
    fit = _fitted(logs, rho)
    error = math.sqrt(float(fit.covariance[1, 1]))
    half = statistics.t_quantile(0.5 + level / 2, fit.degrees) * error
    ends = [100 * math.expm1(min(fit.slope + sign * half, 700.0)) for sign in (0, -1, 1)]
    p_value = 2 * statistics.t_cdf(-abs(fit.slope) / error, fit.degrees)
    return Trend(begin, len(raw), ends[0], ends[1], ends[2], p_value, rho, level, fit.degrees, fit)


def _memory(rest: Reals) -> float:
    """Return the first autocorrelation of the residuals of a line, its bias put back and one standard error added.

    The bias, (2 + 4 rho) / n, is Marriott & Pope's (1954) for a mean, with the line's second parameter. Without the
    standard error trends are seen in noise with memory two to three times as often as the level says (`python -m
    benchmarks.governance --only forecast`).
    """
    raw = float(rest[1:] @ rest[:-1] / (rest @ rest))
    likely = np.clip(raw + (2 + 4 * raw) / len(rest), 0.0, noise.MOST_MEMORY)
    return float(min(likely + np.sqrt((1 - likely**2) / len(rest)), noise.MOST_MEMORY))


def _fitted(logs: Reals, rho: float) -> _Fit:
    """Generalised least squares of a line for noise of memory rho."""
    place = np.arange(len(logs), dtype=np.float64)
    design, response = np.column_stack((np.ones_like(place), place)), logs[:, None]
    first = math.sqrt(1 - rho**2)
    design, response = (np.concatenate((first * table[:1], table[1:] - rho * table[:-1]))
                        for table in (design, response))
    inverse = np.linalg.inv(design.T @ design)
    intercept, slope = (float(found) for found in (inverse @ design.T @ response)[:, 0])
    degrees = max(1.0, noise.effective(len(logs), rho) - 2)
    innovation = float(((response[:, 0] - design @ np.array([intercept, slope])) ** 2).sum()) / (len(logs) - 2)
    covariance = np.asarray(innovation * inverse, np.float64)
    return _Fit(len(logs), intercept, slope, covariance, math.sqrt(innovation) / first, degrees)
