"""Many tests at once: of what is called changed, the share that is not is kept small."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from aaco.core.errors import UsageError


def benjamini_hochberg(p_values: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the q-value of each test, in the order given: the smallest false-discovery rate at which it is called
    changed.

    Benjamini and Hochberg 1995, q_(i) = min over j >= i of p_(j) m / j, capped at 1; valid for independent tests and
    for positively dependent ones, which latencies of one session are (Benjamini and Yekutieli 2001). Where nothing
    changed at all, calling those with q <= a changed makes a mistake in at most a share `a` of all families. Raise
    UsageError for what is no probability.
    """
    p = np.asarray(p_values, np.float64)
    if not len(p):
        return p
    if not ((p >= 0) & (p <= 1)).all():  # NaN is neither
        raise UsageError("a p-value outside 0..1", "leave out what was not tested")
    order = np.argsort(p)
    scaled = p[order] * len(p) / np.arange(1, len(p) + 1)
    found = np.empty_like(p)
    found[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return found


def shared_level(alpha: float, tests: int) -> float:
    """Return the level at which each of so many intervals is made, so that all of them hold together with probability
    1 - alpha at least, however they depend on each other (Bonferroni). Raise UsageError for what cannot be.
    """
    if not 0 < alpha < 1 or tests < 1:
        raise UsageError(f"{tests} intervals at a joint alpha of {alpha:g}", "at least one, and 0 < alpha < 1")
    return 1 - alpha / tests
