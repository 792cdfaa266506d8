"""When requests are due: at a constant rate, as a Poisson process, or as a trace has it; ns since the start."""

from __future__ import annotations

import numpy as np

from aaco.core.arrays import Ints
from aaco.core.errors import UsageError

NS = 1e9
LONGEST_S = 1e7  # of a load: 115 days


def constant(rate_per_s: float, count: int) -> Ints:
    """Return equally spaced times. Raise UsageError, as the others do, where the last is too far."""
    _refuse((count - 1) / rate_per_s)
    return np.asarray(np.arange(count) * (NS / rate_per_s), np.int64)


def poisson(rate_per_s: float, count: int, seed: int) -> Ints:
    """Return times with exponential gaps; the first is at 0."""
    _refuse((count - 1) / rate_per_s)
    gaps = np.random.default_rng(seed).exponential(NS / rate_per_s, count)
    return np.asarray(np.cumsum(gaps) - gaps[:1], np.int64)


def trace(milliseconds: list[float]) -> Ints:
    """Return the times of a trace since its first, in order."""
    times = np.sort(np.asarray(milliseconds, np.float64))
    _refuse((times[-1] - times[0]) / 1e3)
    return np.asarray((times - times[:1]) * 1e6, np.int64)


def _refuse(seconds: float) -> None:
    """Raise UsageError for a load that takes too long."""
    if seconds > LONGEST_S:
        raise UsageError(f"the last request would be due after {seconds:.3g} s",
                         f"at most {LONGEST_S:,.0f} s: a higher rate, or fewer requests (-n)")
