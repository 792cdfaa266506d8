"""When a series of latencies has warmed up."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aaco.core.readings import Absent

BATCH = 5
SMALLEST = 20


def settled_at(latencies: NDArray[np.float64]) -> int:
    """Index at which the warm-up ends: the first five whose median is among those of the second half.

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


def per_process(inference_iters: pa.Table) -> list[NDArray[np.float64]]:
    """The latencies of each process in order, warm-up included."""
    process = inference_iters["process"].to_numpy()
    latencies = inference_iters["latency_ms"].to_numpy()
    return [latencies[process == index] for index in np.unique(process)]


def warmup_made(inference_iters: pa.Table) -> int:
    """Warm-up iterations of the process that made fewest."""
    warm = pc.equal(inference_iters["phase"].cast(pa.string()), "warmup").to_numpy()
    process = inference_iters["process"].to_numpy()
    return int(min(warm[process == index].sum() for index in np.unique(process)))
