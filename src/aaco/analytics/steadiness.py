"""When a series of latencies has warmed up."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aaco.core.readings import Absent

BATCH = 5
SMALLEST = 20
NEARLY = 2.0


def settled_at(latencies: NDArray[np.float64]) -> int:
    """Index at which the steady state begins: the truncation point of MSER-5 (White 1997), on medians of five.

    MSER cuts where the standard error of the mean of the rest is smallest. Two changes make it fit latencies: medians
    instead of means of five, so that one interrupted inference does not look like the end of a warm-up; and the
    earliest cut within a factor NEARLY of the smallest, because on a steady series the minimum wanders. Only a fall in
    latency counts as warming up. Raises Absent for a series too short, or one that has not settled by its half.
    """
    if len(latencies) < SMALLEST:
        raise Absent(f"needs {SMALLEST} iterations per process, there are {len(latencies)}")
    whole = len(latencies) // BATCH * BATCH
    medians = np.median(latencies[:whole].reshape(-1, BATCH), axis=1)
    errors = _standard_errors(medians)
    cut = int(np.argmax(errors <= NEARLY * errors.min()))
    if cut >= len(medians) // 2:
        raise Absent("latency had not settled by the half of the run")
    warm = medians[:cut]
    return cut * BATCH if cut and np.median(warm) > np.median(medians[cut:]) else 0


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


def _standard_errors(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Squared standard error of the mean of values[d:], for every d that leaves at least two values."""
    left = np.arange(len(values), 1, -1)
    total = np.cumsum(values[::-1])[::-1][: len(left)]
    squares = np.cumsum(values[::-1] ** 2)[::-1][: len(left)]
    return np.maximum(0.0, squares - total**2 / left) / left.astype(float) ** 2
