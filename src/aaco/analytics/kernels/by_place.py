"""Kernel time summed by where it is spent in the model: layer, part of a layer, module, operator."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def by_layer(kernels: pa.Table, placed: pa.Table, column: str) -> pa.Table:
    """Return the time of kernels by layer (in order) or by part (largest first); see `_summed`.

    kernels: kernel_id and dur_ns. placed: the serving_kernels table. Kernels in no layer have the place null.
    """
    joined = kernels.join(placed.select(["kernel_id", column]), "kernel_id")
    if column == "layer":
        return _summed(joined[column], joined["dur_ns"]).sort_by("place")
    return _summed(joined[column].cast(pa.string()), joined["dur_ns"])


def by_operator(operators: pa.Table, column: str) -> pa.Table:
    """Return the time of kernels by operator or module of the operators table, the largest first; see `_summed`.

    The place of launches outside any operator is the Python function that made them.
    """
    place = operators[column].cast(pa.string())
    if column == "operator":
        place = pc.coalesce(place, operators["frame"].cast(pa.string()))
    return _summed(place, operators["device_ns"], operators["kernels"])


def _summed(place: pa.ChunkedArray, duration_ns: pa.ChunkedArray, calls: pa.ChunkedArray | None = None) -> pa.Table:
    """Return place, calls, total_ns, mean_ns and pct_of_kernel_time, by place; null is a place of its own."""
    counted = calls if calls is not None else pc.cast(pc.is_valid(duration_ns), pa.int64())
    rows = pa.table({"place": place, "total_ns": duration_ns, "calls": counted})
    summed = rows.group_by("place").aggregate([("calls", "sum"), ("total_ns", "sum")])
    summed = summed.select(["place", "calls_sum", "total_ns_sum"]).rename_columns(["place", "calls", "total_ns"])
    summed = summed.filter(pc.greater(summed["calls"], 0))
    total = pc.sum(summed["total_ns"]).as_py() or 0
    ns = summed["total_ns"].cast(pa.float64(), safe=False)
    shares = pc.divide(pc.multiply(ns, 100.0), float(total)) if total else pa.nulls(summed.num_rows, pa.float64())
    mean = pc.divide(ns, summed["calls"].cast(pa.float64(), safe=False))
    return summed.append_column("mean_ns", mean).append_column("pct_of_kernel_time", shares).sort_by(
        [("total_ns", "descending"), ("place", "ascending")])
