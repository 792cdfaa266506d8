"""The results.db of rocprof (v1): KERN (dispatches), OPS and COPY (HIP's work on a device), HIP, HSA, rocTX (calls).

Kernels are in KERN if the profiler intercepted the dispatches, with registers and counters, and in OPS if HIP's
activity was traced, with the call that launched them. A file with both has the same executions twice: the fuller table
is read and the other left out. `grd` and `wgr` are products of the three sizes: they are the x sizes here, y and z are
unknown. "Index" links HIP's calls to OPS and COPY, and HSA's to the copies that HSA reports; each counts by itself and
in each process, so ids of HSA, and of the n-th process, are moved to keep them unique.
Source: rocm-systems, projects/rocprofiler/bin/tblextr.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from aaco.core.errors import BadCapture
from aaco.core.tables import API_CALLS, CALL_ARGUMENTS, COPIES, COUNTERS, KERNELS
from aaco.profiler.capture import COUNTED, TIMED, CapturedDevice, CaptureFacts
from aaco.profiler.formats.rocprofv3.rocm_labels import direction
from aaco.profiler.io import sqlite
from aaco.profiler.io.columns import bare, coded, constant
from aaco.profiler.io.lookup import ProcessScopedIds
from aaco.profiler.io.record_accounting import ABSENT, RecordAccount, integers, time_columns, total
from aaco.profiler.io.sqlite import LONGEST_NAME, ColumnBatch, Database, SqliteTable, quoted

FORMAT = "rocprof_db"
RECORD = "record it with: rocprof --timestamp on --hip-trace PROGRAM; or with rocprofv3, which AMD still keeps up"
WHEN = {"start": "beginns", "end": "endns", "pid": "pid", "tid": "tid", "index": "index"}
SIZES = {"grid_x": "grd", "block_x": "wgr", "lds_bytes": "lds", "scratch_bytes": "scr", "agpr": "accum_vgpr",
         "sgpr": "sgpr", "device_id": "gpu-id", "queue_id": "queue-id"}
# Every other column of KERN is a counter.
PROPERTIES = {"index", "kernelname", "gpu-id", "queue-id", "queue-index", "pid", "tid", "grd", "wgr", "lds", "scr",
              "vgpr", "arch_vgpr", "accum_vgpr", "sgpr", "wave_size", "fbar", "sig", "obj", "dispatchns", "beginns",
              "endns", "completens", "durationns"}
CALLS = {"HIP": "hip", "HSA": "hsa", "KFD": "kfd", "rocTX": "marker"}
KERNEL, AGAIN, BARRIER = "kernel", "again", "barrier"
TWICE = "the same execution stands in the file twice"
KINDS = ("unknown", "h2d", "d2h", "d2d", "h2h", "memset")
LONGEST_ARGUMENTS = 4096


def recognises(path: Path) -> bool:
    """Return whether the file is a SQLite database with rocprof's tables; rocprof creates KERN in every file."""
    return "KERN" in sqlite.table_names(path)


def kernel_pass(path: Path) -> str | None:
    """Return what the kernels were run for: whether dispatches have columns of counters. Raise BadCapture."""
    with sqlite.opened(path) as database:
        held = {name: database.value(f"SELECT 1 FROM {name} LIMIT 1") for name in ("KERN", "OPS")
                if name in database.tables}
        if held.get("KERN") and database.tables["KERN"].columns.keys() - PROPERTIES:
            return COUNTED
        return TIMED if any(held.values()) else None


def parse(path: Path) -> Iterator[pa.Table | CaptureFacts]:
    """Yield kernels with counters, copies, and calls with their arguments. Raise BadCapture."""
    with sqlite.opened(path) as database:
        yield from _RocprofDbReader(database).pieces()


class _RocprofDbReader:
    """An open results.db and the account of its records."""

    def __init__(self, database: Database) -> None:
        self.database = database
        database.refuse_unreadable(["KERN", "OPS", "COPY", *CALLS])
        if "KERN" not in database.tables:
            raise BadCapture(f"{database.path}: no table KERN", RECORD)
        counts = {name: self._kernel_count(name) for name in ("KERN", "OPS")}
        self.used = max(counts, key=lambda name: counts[name])
        self.twice = all(counts.values())
        self.account = RecordAccount(KERNEL)
        self.scoped_ids = ProcessScopedIds()
        self.devices: set[int] = set()

    def pieces(self) -> Iterator[pa.Table | CaptureFacts]:
        """Yield every table, and last the CaptureFacts."""
        for kind in (KERNEL, BARRIER):
            self.account.saw(kind, 0)
        yield from self._dispatches()
        yield from self._operations()
        yield from self._copies()
        for name, domain in CALLS.items():
            yield from self._calls(name, domain)
        if self.twice:
            self.account.trouble("tables have the kernels: KERN and OPS; the one with fewer was left out", 2)
        yield self.account.facts(
            FORMAT, tuple(self.database.problems()), tool="rocprof",
            devices=tuple(map(CapturedDevice, sorted(self.devices))),
            clock="monotonic" if self.used == "OPS" else "unknown")

    def _kernel_count(self, name: str) -> int:
        table = self.database.tables.get(name)
        if table is None or "beginns" not in table:
            return 0
        return int(self.database.value(f"SELECT sum(1) FROM {name} NOT INDEXED WHERE BeginNs > 0") or 0)

    def _dispatches(self) -> Iterator[pa.Table]:
        table = self.database.tables["KERN"]
        counters = [column for name, column in table.columns.items() if name not in PROPERTIES]
        registers = {"vgpr": "arch_vgpr" if "arch_vgpr" in table else "vgpr"}
        columns = table.chosen("k", WHEN | SIZES | registers)
        values = {f"counter {index}": f"k.{quoted(column)}" for index, column in enumerate(counters)}
        for batch in self._read_batches(table, "KernelName", columns, values):
            rows = self._kernels("KERN", batch)
            if rows.count:
                yield self._kernel_table(rows, {name: rows[name] for name in (*SIZES, *registers)},
                                         dispatch_id=rows["index"])
                yield from self._counter_tables(rows, counters)

    def _operations(self) -> Iterator[pa.Table]:
        table = self.database.tables.get("OPS")
        if table is None:
            return
        columns = table.chosen("k", WHEN | {"device_id": "dev-id", "queue_id": "queue-id", "stream_id": "stream-id"})
        for batch in self._read_batches(table, "Name", columns):
            rows = self._kernels("OPS", batch)
            if rows.count:
                places = {name: rows[name] for name in ("device_id", "queue_id", "stream_id")}
                yield self._kernel_table(rows, places, correlation_id=self._ids(rows, hsa=False))

    def _kernels(self, table: str, batch: ColumnBatch) -> ColumnBatch:
        """Return the rows of the batch that become kernels; account for the others."""
        distinct = batch["name"].dictionary_encode()
        barrier = np.array(["<barrier packet>" in name for name in distinct.dictionary.to_pylist()], bool)
        is_barrier = barrier[distinct.indices.to_numpy()]
        self._leave_out(BARRIER, "it orders the queue and is no kernel", batch.filter(is_barrier))
        rows = batch.filter(~is_barrier)
        if self.used != table:
            self._leave_out(AGAIN, TWICE, rows)
            return rows.filter(np.zeros(rows.count, bool))
        return rows.filter(self.account.timed(KERNEL, rows["start"], rows["end"]))

    def _leave_out(self, kind: str, reason: str, rows: ColumnBatch) -> None:
        fit = self.account.placeable(kind, rows["start"], rows["end"])
        ns = total((integers(rows["end"]) - integers(rows["start"]))[fit])
        self.account.skip(kind, reason, rows.count, ns)

    def _kernel_table(self, rows: ColumnBatch, columns: Mapping[str, Any], **more: Any) -> pa.Table:
        self.devices |= set(rows["device_id"].drop_null().unique().to_pylist()[:1024])
        return KERNELS.build(
            kernel_id=rows["row"], kernel_name=_kernel_names(rows), source=constant(FORMAT, rows.count),
            timed=constant("execution", rows.count), process_id=rows["pid"], thread_id=rows["tid"], **columns, **more,
            **time_columns(rows))

    def _counter_tables(self, rows: ColumnBatch, counters: list[str]) -> Iterator[pa.Table]:
        for index, name in enumerate(counters):
            values = rows[f"counter {index}"]
            is_valid = values.is_valid()
            self.account.saw("counter", rows.count)
            self.account.leave_out("counter", "it has no value", values.null_count)
            yield COUNTERS.build(kernel_id=rows["row"].filter(is_valid), value=values.drop_null(),
                                 counter=constant(name[:256], rows.count - values.null_count))

    def _copies(self) -> Iterator[pa.Table]:
        table = self.database.tables.get("COPY")
        if table is None:
            return
        columns = table.chosen("k", WHEN | {"device": "dev-id", "queue": "queue-id", "stream": "stream-id"})
        for batch in self._read_batches(table, "Name", columns):
            rows = batch.filter(self.account.timed("copy", batch["start"], batch["end"]))
            if rows.count:
                yield self._copy_table(rows, hsa="dev-id" not in table)

    def _copy_table(self, rows: ColumnBatch, hsa: bool) -> pa.Table:
        distinct = rows["name"].dictionary_encode()
        distinct_kinds = [KINDS.index(direction(name)) for name in distinct.dictionary.to_pylist()]
        kind, device = np.array(distinct_kinds, np.int64)[distinct.indices.to_numpy()], integers(rows["device"])
        source, target = (pa.array(device, mask=~np.isin(kind, device_kinds) | (device == ABSENT))
                          for device_kinds in ((2,), (1, 5)))
        return COPIES.build(
            copy_id=rows["row"], kind=coded(kind, pa.array(KINDS)), src_device=source, dst_device=target,
            device_id=rows["device"], queue_id=rows["queue"], stream_id=rows["stream"], process_id=rows["pid"],
            thread_id=rows["tid"], correlation_id=self._ids(rows, hsa), source=constant(FORMAT, rows.count),
            **time_columns(rows))

    def _calls(self, name: str, domain: str) -> Iterator[pa.Table]:
        table = self.database.tables.get(name)
        if table is None or "name" not in table:
            return
        base = list(CALLS).index(name)
        args = {"args": f"json_object('args', CAST(substr(coalesce(k.{quoted(table.columns['args'])}, ''), 1, "
                        f"{LONGEST_ARGUMENTS}) AS TEXT))"} if "args" in table else {}
        for batch in self._read_batches(table, "Name", table.chosen("k", WHEN), words=args):
            rows = batch.filter(self.account.timed(domain, batch["start"], batch["end"]))
            if not rows.count:
                continue
            keys = self.database.keys(rows["row"], base)
            linked = {} if domain == "marker" else {"correlation_id": self._ids(rows, domain != "hip")}
            yield API_CALLS.build(call_id=keys, name=rows["name"].dictionary_encode(), process_id=rows["pid"],
                                  domain=constant(domain, rows.count), thread_id=rows["tid"], **linked,
                                  **time_columns(rows))
            if args:
                has_arguments = integers(rows["length"]) > len('{"args":""}')
                yield CALL_ARGUMENTS.build(call_id=keys[has_arguments],
                                           arguments=rows["args"].filter(pa.array(has_arguments)))

    def _ids(self, rows: ColumnBatch, hsa: bool) -> pa.Array:
        return self.scoped_ids.of(integers(rows["index"]), integers(rows["pid"]), upper=hsa)

    def _read_batches(self, table: SqliteTable, name: str, columns: Mapping[str, str],
                      values: Mapping[str, str] | None = None,
                      words: Mapping[str, str] | None = None) -> Iterator[ColumnBatch]:
        """Yield the table's rows, with `row` and `name`; `values` are real columns and `words` texts, both as SQL."""
        if table.rowid is None or name.lower() not in table:
            raise BadCapture(f"{self.database.path}: {table.name} has no row ids or no {name}", RECORD)
        text = f"coalesce(CAST(substr(k.{quoted(table.columns[name.lower()])}, 1, {LONGEST_NAME}) AS TEXT), '')"
        texts = {"name": text} | dict(words or {})
        lengths = {"length": f"length({texts['args']})"} if words else {}
        selected = {"row": f"k.{table.rowid}"} | dict(columns) | lengths | dict(values or {}) | texts
        kinds = {column: "text" if column in texts else "real" if values and column in values else "int"
                 for column in selected}
        sql = f"SELECT {', '.join(selected.values())} FROM {quoted(table.name)} k NOT INDEXED"
        yield from self.database.batches(sql, kinds, table.name)


def _kernel_names(rows: ColumnBatch) -> pa.Array:
    distinct = rows["name"].dictionary_encode()
    names = pa.array([bare(name) or None for name in distinct.dictionary.to_pylist()], pa.string())
    return coded(distinct.indices.to_numpy(), names)
