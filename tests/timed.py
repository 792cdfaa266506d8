"""Small traces for the tests of the analytics over them: tables from short rows, and how a lake would slice them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from aaco.core import tables
from aaco.core.tables import TableSpec


def table(spec: TableSpec, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """A table of the spec from rows that name only the columns they fill, in start order."""
    rows = sorted(rows, key=lambda row: row["t_start_ns"])
    given = {name for row in rows for name in row}
    columns = {name: [row.get(name) for row in rows] for name in spec.columns if name in given}
    if rows:
        columns["dur_ns"] = [row["t_end_ns"] - row["t_start_ns"] for row in rows]
    return spec.build(**columns)


def kernels(*rows: Mapping[str, Any]) -> pa.Table:
    """Kernels; unless a row says otherwise, named `k` on stream 7 of device 0."""
    known = {"kernel_name": "k", "device_id": 0, "stream_id": 7}
    ordered = sorted(rows, key=lambda row: row["t_start_ns"])
    return table(tables.KERNELS, [known | {"kernel_id": number} | dict(row) for number, row in enumerate(ordered)])


def copies(*rows: Mapping[str, Any]) -> pa.Table:
    """Copies; unless a row says otherwise, to device 0 on its stream 7."""
    return table(tables.COPIES, [{"kind": "h2d", "device_id": 0, "stream_id": 7} | dict(row) for row in rows])


def calls(*rows: Mapping[str, Any]) -> pa.Table:
    """Calls; unless a row says otherwise, cudaLaunchKernel by thread 1 of process 1."""
    known = {"name": "cudaLaunchKernel", "domain": "cuda_runtime", "process_id": 1, "thread_id": 1}
    return table(tables.API_CALLS, [known | dict(row) for row in rows])


def at(start: int, end: int, **more: Any) -> dict[str, Any]:
    """A row from start to end, in ns."""
    return {"t_start_ns": start, "t_end_ns": end, **more}


def sliced(found: Mapping[str, pa.Table], cuts: Sequence[int]) -> Iterator[tuple[int, dict[str, pa.Table]]]:
    """The tables' rows by start: up to each cut, and the rest; with the end of each slice."""
    low = -(2**62)
    for high in (*sorted(set(cuts)), 2**62):
        yield high, {name: _between(rows, low, high) for name, rows in found.items()}
        low = high


def _between(rows: pa.Table, low: int, high: int) -> pa.Table:
    start = rows["t_start_ns"]
    return rows.filter(pc.and_(pc.greater_equal(start, low), pc.less(start, high)))
