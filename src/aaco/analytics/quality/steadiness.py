"""The series of latencies of each process, and the warm-up that was made; when it ends is core.settling's."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


def per_process(inference_iters: pa.Table) -> list[NDArray[np.float64]]:
    """Return the latencies of each process in order, warm-up included."""
    process = inference_iters["process"].to_numpy()
    latencies = inference_iters["latency_ms"].to_numpy()
    return [latencies[process == index] for index in np.unique(process)]


def warmup_made(inference_iters: pa.Table) -> int:
    """Return the warm-up iterations of the process that made fewest."""
    warm = pc.equal(inference_iters["phase"].cast(pa.string()), "warmup").to_numpy()
    process = inference_iters["process"].to_numpy()
    return int(min(warm[process == index].sum() for index in np.unique(process)))
