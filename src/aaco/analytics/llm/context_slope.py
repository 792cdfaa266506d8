"""What the context adds to the time per token, across loads of which each has a context of its own.

The slope is that of least squares over the medians. Its interval is put together from theirs (Zou and Donner 2008,
method of variance estimates recovery): it holds where loads do not share their errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from aaco.core.readings import Estimate, Reading

METRIC, UNIT = "decode_slope_ms_per_1k_tokens", "ms"
ONE = "one context: several --prompt-tokens"


class ContextPoint(NamedTuple):
    """A load: tokens of context in the middle of its answers, and the median time per token, ms."""

    context: float
    tpot: Estimate


def slope_of(points: Sequence[ContextPoint]) -> Reading:
    """Return what 1,000 tokens of context add to a token, ms; absent with fewer than two contexts."""
    if len({point.context for point in points}) < 2:
        return Reading(METRIC, UNIT, None, ONE)
    thousands = np.array([point.context for point in points]) / 1000
    weights = (thousands - thousands.mean()) / ((thousands - thousands.mean()) ** 2).sum()
    middle = np.array([point.tpot.value for point in points])
    slope = float(weights @ middle)
    ends = [(point.tpot.low, point.tpot.high) for point in points]
    if any(low is None or high is None for low, high in ends):
        return Reading(METRIC, UNIT, slope, caveat="without an interval: a median has none")
    low, high = np.array(ends, np.float64).T
    down = np.where(weights > 0, middle - low, high - middle)
    up = np.where(weights > 0, high - middle, middle - low)
    return Reading(METRIC, UNIT, slope, low=slope - float(np.hypot.reduce(weights * down)),
                   high=slope + float(np.hypot.reduce(weights * up)))
