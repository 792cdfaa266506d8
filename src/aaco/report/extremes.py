"""Thinning of a long series for a drawing: the extremes of each stretch, so that every peak remains."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_POINTS = 3000


def extremes(values: NDArray[Any], most: int = MOST_POINTS) -> NDArray[np.int64]:
    """Return the indices of the minimum and maximum of each stretch, sorted; all indices of up to `most` values."""
    if len(values) <= most:
        return np.arange(len(values))
    stretches = np.array_split(np.arange(len(values)), most // 2)
    ends = [(part[values[part].argmin()], part[values[part].argmax()]) for part in stretches]
    return np.unique(np.array(ends))
