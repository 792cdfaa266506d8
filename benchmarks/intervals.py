"""95 % intervals of shares, as benchmarks state them: SciPy's, and (0, 1) where nothing was counted."""

from __future__ import annotations

from scipy.stats import binomtest


def exact_share(right: int, count: int, level: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of a share from `right` of `count` (Clopper and Pearson 1934)."""
    return _interval(right, count, level, "exact")


def wilson(right: int, count: int, level: float = 0.95) -> tuple[float, float]:
    """Return the interval of a share from `right` of `count` by its score (Wilson 1927)."""
    return _interval(right, count, level, "wilson")


def _interval(right: int, count: int, level: float, method: str) -> tuple[float, float]:
    if not count:
        return 0.0, 1.0
    found = binomtest(right, count).proportion_ci(level, method)
    return float(found.low), float(found.high)
