"""Student's t, chi-square, and the derivatives of log gamma, by numpy.

To import scipy.special takes a quarter of a second, which a short command would wait for.
tests/property/test_special.py holds these against it.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from aaco.core.arrays import Reals

POWERS = 100  # of the series within the border: enough for any t and degrees, as are
TERMS = 36  # of the fraction beyond it
SHIFT = 16  # by how much the argument of an asymptotic series is raised; the series below are then exact to a double
MOST_STEPS = 100  # of Newton's method, which takes about 10
LARGEST = 1e300  # degrees of freedom, as good as infinitely many
LOG_FARTHEST = 345.0  # of t: its square is no double beyond
# sqrt(w) times this polynomial in 1 / w^2 is gamma(w + 3/4) / gamma(w + 1/4), asymptotically.
GAMMA_RATIO = (1.0, 1 / 64, -19 / 8192, 631 / 524288, -174317 / 134217728, 20491783 / 2**33)
# psi(x) - log(x) + 1 / 2x as a polynomial in 1 / x^2; x (psi'(x) - 1 / x - 1 / 2x^2) as another: Bernoulli's numbers.
PSI = (0.0, -1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132, 691 / 32760, -1 / 12)
PSI_1 = (0.0, 1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)


def t_cdf(t: float, degrees: float) -> float:
    """Return P(T <= t) for Student's t with `degrees` of freedom; NaN where either is NaN, or degrees are not above 0.
    """
    if not degrees > 0 or math.isnan(t):
        return math.nan
    size, degrees = float(abs(t)), float(min(degrees, LARGEST))
    if math.isinf(t):
        upper = 0.0
    elif size > _border(degrees):
        upper = float(_beyond(size, degrees))
    else:
        upper = 0.5 - float(_within(size, degrees))
    return upper if t < 0 else 1 - upper


def t_cdfs(t: Reals, degrees: Reals) -> Reals:
    """Return the same elementwise, of two arrays of one shape."""
    size, degrees = np.abs(t), np.minimum(degrees, LARGEST)
    upper = np.full(len(size), np.nan)
    with np.errstate(invalid="ignore"):
        border = _border(degrees)
    far, near = (size > border) & (degrees > 0) & np.isfinite(size), size <= border
    upper[far] = _beyond(size[far], degrees[far])
    upper[near] = 0.5 - _within(size[near], degrees[near])
    upper[np.isinf(size) & (degrees > 0)] = 0.0
    return np.where(t < 0, upper, 1 - upper)


@lru_cache(1 << 12)  # groups of a history, blocks of a load: of about one size
def t_quantile(p: float, degrees: float) -> float:
    """Return the p-quantile of Student's t with `degrees` of freedom; NaN for p outside 0..1, or degrees not above 0.

    By Newton's method on a concave function, which after its first step comes to the root from one side: on
    P(0 < T < t) or, where the tail is small, on the logarithm of P(T > t) over that of t.
    """
    if not degrees > 0 or not 0 <= p <= 1:
        return math.nan
    degrees, inner = float(min(degrees, LARGEST)), float(abs(p - 0.5))
    tail = float(min(p, 1 - p))
    if not tail:
        size = math.inf
    elif inner <= _within(_border(degrees), degrees):
        size = _from_inner(inner, degrees)
    else:
        size = _from_tail(tail, degrees)
    return math.copysign(size, p - 0.5)


def chi_square_upper(value: float, degrees: int) -> float:
    """Return P(X > value) for chi-square with so many degrees of freedom, one or more: a sum of half as many terms."""
    if not value > 0:
        return math.nan if math.isnan(value) else 1.0
    half, is_odd = min(value, LARGEST) / 2, degrees % 2
    powers = np.arange(is_odd / 2, degrees / 2).tolist()
    terms = (math.exp(power * math.log(half) - half - math.lgamma(power + 1)) for power in powers)
    return math.fsum(terms) + (math.erfc(math.sqrt(half)) if is_odd else 0.0)


def _from_inner(inner: float, degrees: float) -> float:
    t = inner / float(_top(degrees))  # as if the density stayed at its top
    for _ in range(MOST_STEPS if t else 0):
        before, t = t, t + (inner / float(_within(t, degrees)) - 1) * float(_series(t, degrees)) * t
        if abs(t - before) <= 1e-15 * t:
            break
    return t


def _from_tail(tail: float, degrees: float) -> float:
    log_t = math.log(_border(degrees))
    for _ in range(MOST_STEPS):
        t = math.exp(log_t)
        share = 0.5 / float(_fraction(t, degrees))
        step = (float(_log_mass(t, degrees)) + math.log(share / tail)) * share
        before, log_t = log_t, min(log_t + step, LOG_FARTHEST)
        if abs(log_t - before) <= 1e-15:
            break
    return math.exp(log_t) if log_t < LOG_FARTHEST else math.inf


def _border(degrees: Any) -> Any:
    """Return the |t| from which on the fraction of the tail converges faster than the series of what is within."""
    return (2 * degrees / (degrees / 2 + 1)) ** 0.5


def _beyond(t: Any, degrees: Any) -> Any:
    """Return P(T > t) for t above the border."""
    return np.exp(_log_mass(t, degrees)) * 0.5 / _fraction(t, degrees)


def _within(t: Any, degrees: Any) -> Any:
    """Return P(0 < T < t) for t up to the border."""
    return t * _top(degrees) * np.exp(_log_fall(t, degrees)) * _series(t, degrees)


def _log_mass(t: Any, degrees: Any) -> Any:
    """Return the logarithm of t times the density at t."""
    return np.log(t * _top(degrees)) + _log_fall(t, degrees)


def _log_fall(t: Any, degrees: Any) -> Any:
    """Return the logarithm of the density at t over that at 0."""
    return -(degrees + 1) / 2 * np.log1p(t / degrees * t)


def _top(degrees: Any) -> Any:
    """Return the density at 0."""
    return _gamma_ratio(degrees / 2) / (math.sqrt(math.pi) * degrees**0.5)


def _series(t: Any, degrees: Any) -> Any:
    """Return P(0 < T < t) over t times the density at t: powers of x, none of them negative (DLMF 8.17.8)."""
    x = t * t / (degrees + t * t)
    total = 1.0
    for n in range(POWERS, -1, -1):
        total = 1 + (degrees + 1 + 2 * n) * x / (3 + 2 * n) * total
    return total


def _fraction(t: Any, degrees: Any) -> Any:
    """Return t times the density at t over 2 P(T > t), as a continued fraction in which nothing cancels for many
    degrees of freedom: every other convergent of DLMF 8.17.22 (Didonato and Morris 1992)."""
    a, x, y = degrees / 2, 1 / (1 + t / degrees * t), 1 / (1 + degrees / t / t)

    def whole(m: int) -> Any:
        return (m + m * (0.5 - m) * x / (a + 2 * m - 1) if m else 0) + (
            (a + m) / (a + 2 * m + 1) * (a * y - 0.5 * x + 1 + m * (2 - x)))

    denominator = whole(TERMS)
    for m in range(TERMS, 0, -1):
        scale = a + 2 * m - 1
        denominator = whole(m - 1) + (a + m - 1) / scale * ((a + m - 0.5) / scale) * m * (0.5 - m) * x * x / denominator
    return denominator


def _gamma_ratio(a: Any) -> Any:
    """Return gamma(a + 1/2) / gamma(a)."""
    ratio, w = 1.0, a + (SHIFT - 0.25)
    for k in range(SHIFT):
        ratio = ratio * ((a + k) / (a + k + 0.5))
    return ratio * w**0.5 * _polynomial(GAMMA_RATIO, 1 / w / w)


def digamma(x: ArrayLike) -> Reals:
    """Return the derivative of the logarithm of the gamma function at x > 0, elementwise."""
    low = np.asarray(x, np.float64)
    high = low + SHIFT
    raised = sum(1 / (low + k) for k in range(SHIFT))
    return np.asarray(np.log(high) - 0.5 / high + _polynomial(PSI, 1 / high**2) - raised)


def trigamma(x: ArrayLike) -> Reals:
    """Return the derivative of digamma at x > 0, elementwise: the variance of the logarithm of a gamma variate."""
    low = np.asarray(x, np.float64)
    high = low + SHIFT
    raised = sum(1 / (low + k) ** 2 for k in range(SHIFT))
    return np.asarray(raised + 1 / high + 0.5 / high**2 + _polynomial(PSI_1, 1 / high**2) / high)


def _polynomial(coefficients: tuple[float, ...], x: Any) -> Any:
    total = 0.0
    for coefficient in reversed(coefficients):
        total = total * x + coefficient
    return total
