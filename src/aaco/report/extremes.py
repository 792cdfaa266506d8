"""A long series made short enough to draw: of each stretch its extremes, so that no peak is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_POINTS = 3000


def extremes(values: NDArray[Any], most: int = MOST_POINTS) -> NDArray[np.int64]:
    """Indices of the least and the greatest value of each stretch; all indices of a series of at most `most`."""
    if len(values) <= most:
        return np.arange(len(values))
    stretches = np.array_split(np.arange(len(values)), most // 2)
    ends = [(part[values[part].argmin()], part[values[part].argmax()]) for part in stretches]
    return np.unique(np.array(ends))
