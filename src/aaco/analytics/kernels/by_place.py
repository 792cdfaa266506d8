"""Kernel time summed by where it is spent in the model: layer, part of a layer, module, operator."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.costs.operator_work import summed


def by_layer(kernels: pa.Table, placed: pa.Table, column: str) -> pa.Table:
    """Return the time of kernels by layer (in order) or by part (largest first); see `_summed`.

    kernels: kernel_id and dur_ns. placed: the serving_kernels table. Kernels in no layer have the place null.
    """
    joined = kernels.join(placed.select(["kernel_id", column]), "kernel_id")
    if column == "layer":
        return _summed(joined[column], joined["dur_ns"]).sort_by("place")
    return _summed(joined[column].cast(pa.string()), joined["dur_ns"])


def by_operator(operators: pa.Table, column: str) -> pa.Table:
    """Return the time of kernels by operator or module as `operator_work.summed` sums it; columns as of `_summed`."""
    groups = [group for group in summed(operators, column) if group.kernels]
    return pa.table({"place": pa.array([group.names[0] for group in groups], pa.string()),
                     "calls": [group.kernels for group in groups], "total_ns": [group.device_ns for group in groups],
                     "mean_ns": [group.device_ns / group.kernels for group in groups],
                     "pct_of_kernel_time": [100 * group.share for group in groups]})


def _summed(place: pa.ChunkedArray, duration_ns: pa.ChunkedArray) -> pa.Table:
    """Return place, calls, total_ns, mean_ns and pct_of_kernel_time, by place; null is a place of its own."""
    rows = pa.table({"place": place, "total_ns": duration_ns, "calls": pc.cast(pc.is_valid(duration_ns), pa.int64())})
    totals = rows.group_by("place").aggregate([("calls", "sum"), ("total_ns", "sum")])
    totals = totals.select(["place", "calls_sum", "total_ns_sum"]).rename_columns(["place", "calls", "total_ns"])
    totals = totals.filter(pc.greater(totals["calls"], 0))
    total = pc.sum(totals["total_ns"]).as_py() or 0
    ns = totals["total_ns"].cast(pa.float64(), safe=False)
    shares = pc.divide(pc.multiply(ns, 100.0), float(total)) if total else pa.nulls(totals.num_rows, pa.float64())
    mean = pc.divide(ns, totals["calls"].cast(pa.float64(), safe=False))
    return totals.append_column("mean_ns", mean).append_column("pct_of_kernel_time", shares).sort_by(
        [("total_ns", "descending"), ("place", "ascending")])
