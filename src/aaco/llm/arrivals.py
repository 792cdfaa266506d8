"""When requests are due: at a constant rate, as a Poisson process, or as a trace has it; ns since the start."""

from __future__ import annotations

import numpy as np

from aaco.core.arrays import Ints

NS = 1e9


def constant(rate_per_s: float, count: int) -> Ints:
    """Return equally spaced times."""
    return np.asarray(np.arange(count) * (NS / rate_per_s), np.int64)


def poisson(rate_per_s: float, count: int, seed: int) -> Ints:
    """Return times with exponential gaps; the first is at 0."""
    gaps = np.random.default_rng(seed).exponential(NS / rate_per_s, count)
    return np.asarray(np.cumsum(gaps) - gaps[:1], np.int64)


def trace(milliseconds: list[float]) -> Ints:
    """Return the times of a trace since its first, in order."""
    times = np.sort(np.asarray(milliseconds, np.float64))
    return np.asarray((times - times[:1]) * 1e6, np.int64)
