"""Small traces with a known truth, as the tables of one capture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from aaco.core.tables import API_CALLS, COPIES, KERNELS
from benchmarks.losses import nested

LAYER = ("gemm", "bias", "gelu", "gemm2", "norm")


def healthy(repeats: int = 40, layer: Sequence[str] = LAYER, launch: str = "hipLaunchKernel") -> dict[str, Any]:
    """Columns of a trace in which everything pairs up: kernels of 20 us, launched 30 us before, 25 us apart.

    Each launch is one operation of the framework; after every repeat the host waits for the device.
    """
    count = repeats * len(layer)
    step = np.arange(count)
    launched = 1_000_000 + 25_000 * step
    start = launched + 30_000
    ids = 1 + 2 * step  # the operations take the ids between
    return {
        "kernels": {"kernel_name": list(layer) * repeats, "t_start_ns": start, "t_end_ns": start + 20_000,
                    "correlation_id": ids, "device_id": 0 * step, "stream_id": 0 * step, "dispatch_id": step + 1},
        "copies": {"t_start_ns": step[:0], "correlation_id": step[:0]},
        "api_calls": {"name": ["op"] * count + [launch] * count,
                      "t_start_ns": np.concatenate((launched - 1_000, launched)),
                      "t_end_ns": np.concatenate((launched + 6_000, launched + 5_000)),
                      "thread_id": np.zeros(2 * count, np.int64),
                      "correlation_id": [None] * count + ids.tolist(),
                      "external_id": np.concatenate((step + 1, step + 1))},
    }


def tables(columns: dict[str, Any]) -> dict[str, pa.Table]:
    """The columns as tables, sorted by start, with keys and durations."""
    kernels, copies, calls = (dict(columns[name]) for name in ("kernels", "copies", "api_calls"))
    kernels["dur_ns"] = np.asarray(kernels["t_end_ns"]) - np.asarray(kernels["t_start_ns"])
    return {"kernels": _sorted(KERNELS, "kernel_id", kernels), "copies": _sorted(COPIES, "copy_id", copies),
            "api_calls": nested(_sorted(API_CALLS, "call_id", calls))}


def without(columns: dict[str, Any], rows: Sequence[int]) -> dict[str, Any]:
    """One table's columns without these rows."""
    keep = np.setdiff1d(np.arange(len(columns["t_start_ns"])), rows)
    return {name: [values[row] for row in keep] for name, values in columns.items()}


def _sorted(spec: Any, key: str, columns: dict[str, Any]) -> pa.Table:
    table = spec.build(**columns).sort_by("t_start_ns")
    position = table.schema.get_field_index(key)
    return table.set_column(position, table.schema.field(position), pa.array(np.arange(table.num_rows), pa.int64()))
