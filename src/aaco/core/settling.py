"""When a series of latencies has warmed up."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from aaco.core.readings import Absent

BATCH = 5
SMALLEST = 20


def settled_at(latencies: NDArray[np.float64]) -> int:
    """Return the index at which the warm-up ends: the first five with a median among those of the second half.

    Medians of five keep one interrupted inference from looking like a warm-up. "Among" means no slower than the
    slowest five of the second half, so noise makes the rule lenient, never strict; the variation itself is another
    reading. Raises Absent for a series too short, or one that was still getting faster at its half.
    """
    if len(latencies) < SMALLEST:
        raise Absent(f"needs {SMALLEST} iterations per process, there are {len(latencies)}")
    whole = len(latencies) // BATCH * BATCH
    medians = np.median(latencies[:whole].reshape(-1, BATCH), axis=1)
    half = len(medians) // 2
    slower = medians[:half] > medians[half:].max()
    if slower.all():
        raise Absent("latency was still falling at the half of the run")
    return int(np.argmin(slower)) * BATCH
