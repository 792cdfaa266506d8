"""The SQLite export of NVIDIA Nsight Systems: kernels, copies, fills, calls, NVTX ranges, memory, GPU metrics.

Tables exist only for recorded data, and their columns depend on the version (2021 to 2026): each is read for the
columns it has. Times count from the start of the session; if the export states that start, they are moved to the
real-time clock. `correlationId` counts for itself in each process. The grid is in blocks. A CUDA graph that was
recorded as a whole (the tool's default) is a range on its device: its kernels are not in the file, and a problem states
that. A table with times that is not read is counted and left out by name. Source: docs.nvidia.com/nsight-systems, User
Guide, SQLite Schema Reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.core.errors import BadCapture
from aaco.core.tables import ALLOCATIONS, API_CALLS, COPIES, KERNELS, SAMPLES
from aaco.core.untimed import NOT_TIMED
from aaco.profiler.capture import TIMED, CapturedDevice, CaptureFacts
from aaco.profiler.formats.nvidia.cupti_kinds import COPY_KINDS, KINDS
from aaco.profiler.io import names, sqlite
from aaco.profiler.io.columns import coded, constant, titled
from aaco.profiler.io.lookup import ProcessScopedIds, Reference
from aaco.profiler.io.record_accounting import ABSENT, DEVICE_WORK, LATEST_NS, RecordAccount, integers
from aaco.profiler.io.sqlite import LONGEST_NAME, ColumnBatch, Database, quoted

FORMAT = "nsys"
RECORD = "export it again: nsys export --type sqlite REPORT.nsys-rep"
CUPTI = "CUPTI_ACTIVITY_KIND_"
KERNEL, COPY, FILL, GRAPH = (CUPTI + kind for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"))
RECORDS = {KERNEL: "kernel", COPY: "copy", FILL: "fill"}  # names of their rows in the account
# Tables of calls, and the domain of each; calls of CUDA are distinguished by their names.
CALLS = {CUPTI + "RUNTIME": "", "OSRT_API": "osrt", "CUDNN_EVENTS": "cudnn", "CUBLAS_EVENTS": "cublas"}
NVTX, METRICS, MEMORY = "NVTX_EVENTS", "GPU_METRICS", "CUDA_GPU_MEMORY_USAGE_EVENTS"
READ = {KERNEL, COPY, FILL, GRAPH, NVTX, METRICS, MEMORY, *CALLS}
WHEN = {"start": "start", "end": "end"}
PLACE = {"device": "deviceid", "context": "contextid", "stream": "streamid", "link": "correlationid",
         "process": "globalpid", "node": "graphnodeid", "graph": "graphid"}
SIZES = {f"{what}_{axis}": f"{what}{axis}" for what in ("grid", "block") for axis in "xyz"}
PINNED, HOST = 1, (0, 1)  # 0 is pageable
RANGES, MARK = (59, 60), 34  # NvtxPushPopRange, NvtxStartEndRange; NvtxMark
OPERATIONS = {0: "allocate", 1: "free"}
# cudaLaunchKernel_v7000: the runtime's version of the function, which no other tool writes.
VERSION = re.compile(r"_v\d{4,5}$")
VERSIONED = re.compile(r"_V\d+$")  # newer exports may append a version to a table's name
FIRST_METADATA = 1000


def recognises(path: Path) -> bool:
    """Return whether the file is a SQLite database with the tables that every export has."""
    table_names = sqlite.table_names(path)
    return "StringIds" in table_names and any(name.startswith((CUPTI, "TARGET_INFO_", NVTX)) for name in table_names)


def kernel_pass(path: Path) -> str | None:
    """Return TIMED if there are kernels: Nsight Systems never runs one for counters. Raise BadCapture."""
    with sqlite.opened(path) as database:
        held = KERNEL in database.tables and database.value(f"SELECT 1 FROM {KERNEL} LIMIT 1")
    return TIMED if held else None


def parse(path: Path) -> Iterator[pa.Table | CaptureFacts]:
    """Yield kernels, copies, calls, allocations and metrics. Raise BadCapture."""
    with sqlite.opened(path) as database:
        export = _NsysExport(database)
        yield from export.kernels()
        yield from export.copies(COPY)
        yield from export.copies(FILL)
        yield from export.graphs()
        for name, domain in CALLS.items():
            yield from export.calls(name, domain)
        yield from export.ranges()
        yield from export.memory()
        yield from export.metrics()
        yield export.facts()


class _NsysExport:
    """An open export and the account of its records."""

    def __init__(self, database: Database) -> None:
        database.refuse_unreadable(name for name in database.unreadable if VERSIONED.sub("", name) in READ)
        _read_versions(database)
        self.database, self.scoped_ids = database, ProcessScopedIds()
        self.account = RecordAccount("kernel", from_zero=True)
        if "StringIds" not in database.tables:
            raise BadCapture(f"{database.path}: no table StringIds", RECORD)
        self.strings = names.read(database, database.tables["StringIds"], ["value"])
        self.has_processes = all("globalpid" in database.tables[name] for name in (KERNEL, COPY, FILL)
                                 if name in database.tables)
        self.origin = self._read_origin()
        self.devices = list(self._read_devices())

    def kernels(self) -> Iterator[pa.Table]:
        """Yield kernel executions, also those of graphs that were recorded node by node."""
        columns = SIZES | {"vgpr": "registersperthread", "name": "demangledname", "short": "shortname",
                           "static": "staticsharedmemory", "dynamic": "dynamicsharedmemory",
                           "scratch": "localmemoryperthread"}
        for rows in self._rows(KERNEL, PLACE | columns):
            sizes = {name: integers(rows[name]) for name in SIZES}
            is_known = np.logical_and.reduce([(size > 0) & (size < 1 << 31) for size in sizes.values()])
            for axis in "xyz":
                sizes[f"grid_{axis}"] = sizes[f"grid_{axis}"] * np.where(is_known, sizes[f"block_{axis}"], 1)
            demangled_rows = self.strings.rows(rows["name"])
            name_rows = np.where(demangled_rows >= 0, demangled_rows, self.strings.rows(rows["short"]))
            self.account.trouble("kernels have no name", int((name_rows < 0).sum()))
            yield KERNELS.build(
                kernel_id=rows["row"], kernel_name=coded(name_rows, self.strings.names), vgpr=rows["vgpr"],
                lds_bytes=_sum_columns(rows["static"], rows["dynamic"]), scratch_bytes=rows["scratch"],
                source=constant(FORMAT, rows.count), timed=constant("execution", rows.count),
                **{name: pa.array(size, mask=~is_known) for name, size in sizes.items()}, **self._where(rows),
                **self._when(rows))

    def copies(self, name: str) -> Iterator[pa.Table]:
        """Yield copies, or fills."""
        columns = {"bytes": "bytes", "kind": "copykind", "from": "srckind", "to": "dstkind", "source": "srcdeviceid",
                   "target": "dstdeviceid"}
        base = int(name == FILL)
        for rows in self._rows(name, PLACE | columns):
            kind = _copy_kinds(rows) if name == COPY else np.full(rows.count, KINDS.index("memset"))
            word = np.array(KINDS)[kind]
            device = integers(rows["device"])
            source, target = (np.where(integers(rows[end]) == ABSENT, device, integers(rows[end]))
                              for end in ("source", "target"))
            yield COPIES.build(
                copy_id=self.database.keys(rows["row"], base), kind=coded(kind, pa.array(KINDS)), bytes=rows["bytes"],
                pinned=_pinned(rows), source=constant(FORMAT, rows.count),
                src_device=_null_unless(source, np.isin(word, ("d2h", "d2d", "p2p"))),
                dst_device=_null_unless(target, np.isin(word, ("h2d", "d2d", "p2p", "memset"))),
                **self._where(rows), **self._when(rows))

    def graphs(self) -> Iterator[pa.Table]:
        """Yield executions of whole graphs, as ranges on their device."""
        base = 6
        for rows in self._rows(GRAPH, PLACE):
            self.account.trouble("graphs were recorded as a whole: their kernels are not in the file (to have them: "
                                 "nsys profile --cuda-graph-trace=node)", rows.count)
            number = rows["graph"].cast(pa.string()).dictionary_encode()
            titles = pa.array([f"cudaGraph {graph}" for graph in number.dictionary.to_pylist()], pa.string())
            codes = number.indices.fill_null(-1).to_numpy(zero_copy_only=False)
            place = self._where(rows)
            yield API_CALLS.build(
                call_id=self.database.keys(rows["row"], base), name=coded(codes, titles),
                domain=constant("gpu_graph", rows.count), **self._when(rows),
                **{name: place[name] for name in ("process_id", "device_id", "stream_id", "correlation_id")})

    def calls(self, name: str, domain: str) -> Iterator[pa.Table]:
        """Yield calls of one table."""
        base = 1 + list(CALLS).index(name)
        words = self.strings.each(lambda text: VERSION.sub("", text))
        kinds = pa.array(["cuda_runtime", "cuda_driver"])
        driver = np.array([not (text or "").startswith("cuda") for text in [*words.names.to_pylist(), None]], np.int64)
        for rows in self._rows(name, {"thread": "globaltid", "link": "correlationid", "name": "nameid"}):
            name_rows = words.rows(rows["name"])
            yield API_CALLS.build(
                call_id=self.database.keys(rows["row"], base), name=coded(name_rows, words.names),
                domain=constant(domain, rows.count) if domain else coded(driver[name_rows], kinds),
                **self._thread(rows, linked=not domain), **self._when(rows))

    def ranges(self) -> Iterator[pa.Table]:
        """Yield NVTX ranges and marks; other NVTX records (names, categories, domains) are left out."""
        table = self.database.tables.get(NVTX)
        if table is None:
            return
        columns = table.chosen("t", WHEN | {"thread": "globaltid", "text": "textid", "type": "eventtype"})
        text_sql = f"coalesce(CAST(substr(t.text, 1, {LONGEST_NAME}) AS TEXT), '')" if "text" in table else "''"
        for batch in self._batches(NVTX, columns, {"message": text_sql}):
            kind = integers(batch["type"]) if "type" in batch else np.full(batch.count, RANGES[0])
            is_range = np.isin(kind, (*RANGES, MARK))
            self.account.skip(NVTX, "it is no range and no mark", int((~is_range).sum()))
            rows = batch.filter(is_range)
            is_mark = kind[is_range] == MARK
            rows["end"] = pc.if_else(pa.array(is_mark), rows["start"], rows["end"])
            rows = rows.filter(self.account.timed(NVTX, rows["start"], rows["end"]))
            if rows.count:
                titles = pc.if_else(pc.equal(rows["message"], ""), None, rows["message"])
                yield API_CALLS.build(
                    call_id=self.database.keys(rows["row"], 5), domain=constant("marker", rows.count),
                    name=titled(titles, self.strings.rows(rows["text"]), self.strings.names),
                    **self._thread(rows, linked=False), **self._when(rows))

    def memory(self) -> Iterator[pa.Table]:
        """Yield allocations and releases of device memory."""
        table = self.database.tables.get(MEMORY)
        if table is None:
            return
        columns = table.chosen("t", {"start": "start", "bytes": "bytes", "address": "address", "device": "deviceid",
                                     "process": "globalpid", "link": "correlationid", "kind": "memoryoperationtype"})
        for batch in self._batches(MEMORY, columns, {}):
            batch["end"] = batch["start"]
            rows = batch.filter(self.account.timed(MEMORY, batch["start"], batch["end"]))
            place, operations = self._where(rows), list(OPERATIONS)
            kind = integers(rows["kind"])
            codes = np.where(np.isin(kind, operations), kind, -1)
            yield ALLOCATIONS.build(
                t_ns=integers(rows["start"]) + self.origin, kind=coded(codes, pa.array(list(OPERATIONS.values()))),
                bytes=rows["bytes"], address=rows["address"],
                **{name: place[name] for name in ("device_id", "process_id", "correlation_id")})

    def metrics(self) -> Iterator[pa.Table]:
        """Yield sampled metrics of the GPU."""
        table = self.database.tables.get(METRICS)
        if table is None or not all(name in table for name in ("timestamp", "metricid", "value")):
            return
        name_by_metric = self._metric_names()
        columns = table.chosen("t", {"start": "timestamp", "type": "typeid", "metric": "metricid"})
        devices = self._metric_devices()
        for batch in self._batches(METRICS, columns, {}, value=f"t.{quoted(table.columns['value'])}"):
            self.account.saw(METRICS, batch.count)
            time, valued = integers(batch["start"]), batch["value"].is_valid().to_numpy(zero_copy_only=False)
            timed = (time >= 0) & (time <= LATEST_NS)
            self.account.leave_out(METRICS, NOT_TIMED, int((~timed).sum()))
            self.account.leave_out(METRICS, "it has no value", int((timed & ~valued).sum()))
            rows = batch.filter(timed & valued)
            gpu = pa.array(integers(rows["type"]) & 0xFF, mask=integers(rows["type"]) == ABSENT)
            yield SAMPLES.build(t_ns=integers(rows["start"]) + self.origin, name=_metric_column(rows, name_by_metric),
                                value=rows["value"], device_id=devices.of(gpu)[0] if devices else gpu)

    def facts(self) -> CaptureFacts:
        """Return the facts of the export, and count the tables in it that are not read."""
        read = READ | {table.name for name, table in self.database.tables.items() if name in READ}
        for name, table in self.database.tables.items():
            if name not in read and ("start" in table or "timestamp" in table) and not name.startswith("TARGET_INFO"):
                count = int(self.database.value(f"SELECT sum(1) FROM {quoted(name)} NOT INDEXED") or 0)
                self.account.skip(name, "records of this table are not read", count)
                if DEVICE_WORK.search(name):
                    self.account.unread(name, count)
                elif name.startswith((NVTX, *CALLS)):
                    self.account.unread(name, count, "calls")
        exported = self._read_values("META_DATA_EXPORT") | self._read_values("META_DATA_CAPTURE")
        host = self._read_values("TARGET_INFO_SYSTEM_ENV", "Hostname").get("Hostname")
        metadata = {"schema_version": exported["EXPORT_SCHEMA_VERSION"]} if "EXPORT_SCHEMA_VERSION" in exported else {}
        return self.account.facts(
            FORMAT, tuple(self.database.problems()), tool="Nsight Systems", host=host, metadata=metadata,
            tool_version=exported.get("EXPORT_PRODUCT_VERSION"), devices=tuple(self.devices),
            clock="realtime" if self.origin else "unknown")

    def _rows(self, name: str, columns: Mapping[str, str]) -> Iterator[ColumnBatch]:
        """Yield the rows of a table that can be placed in time; account for the others."""
        table = self.database.tables.get(name)
        if table is None:
            return
        kind = RECORDS.get(name, name)
        self.account.saw(kind, 0)
        for batch in self._batches(name, table.chosen("t", WHEN | dict(columns)), {}):
            rows = batch.filter(self.account.timed(kind, batch["start"], batch["end"]))
            if rows.count:
                yield rows

    def _batches(self, name: str, columns: Mapping[str, str], words: Mapping[str, str],
                 **values: str) -> Iterator[ColumnBatch]:
        table = self.database.tables[name]
        if table.rowid is None:
            raise BadCapture(f"{self.database.path}: {name} has no row ids", RECORD)
        selected = {"row": f"t.{table.rowid}"} | dict(columns) | values | dict(words)
        kinds = {column: "text" if column in words else "real" if column in values else "int" for column in selected}
        sql = f"SELECT {', '.join(selected.values())} FROM {quoted(table.name)} t NOT INDEXED"
        yield from self.database.batches(sql, kinds, name)

    def _when(self, rows: ColumnBatch) -> dict[str, Any]:
        start, end = integers(rows["start"]), integers(rows["end"])
        return {"t_start_ns": start + self.origin, "t_end_ns": end + self.origin, "dur_ns": end - start}

    def _where(self, rows: ColumnBatch) -> dict[str, Any]:
        """Return device, stream, process, graph and the call it came from. A graph or node 0 is none."""
        process = _process(rows["process"])
        graph, node = integers(rows["graph"]), integers(rows["node"])
        return {"device_id": rows["device"], "queue_id": rows["context"], "stream_id": rows["stream"],
                "process_id": process, "graph_id": pa.array(graph, mask=graph <= 0),
                "graph_node_id": pa.array(node, mask=node <= 0), "correlation_id": self._linked(rows, process)}

    def _thread(self, rows: ColumnBatch, linked: bool) -> dict[str, Any]:
        process, thread = _process(rows["thread"]), integers(rows["thread"])
        link = {"correlation_id": self._linked(rows, process)} if linked else {}
        return {"process_id": process, "thread_id": pa.array(thread & 0xFFFFFF, mask=thread == ABSENT), **link}

    def _linked(self, rows: ColumnBatch, process: pa.Array) -> pa.Array:
        """Return correlation ids: separate for each process, unless an older export does not state the process of
        kernels.
        """
        same_process = np.zeros(rows.count, np.int64)
        return self.scoped_ids.of(integers(rows["link"]), integers(process) if self.has_processes else same_process)

    def _read_origin(self) -> int:
        """Return the session's start on the real-time clock, ns, 0 if the export does not state it."""
        table = self.database.tables.get("TARGET_INFO_SESSION_START_TIME")
        start_ns = self.database.value("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME LIMIT 1") \
            if table and "utcepochns" in table else None
        return start_ns if type(start_ns) is int and 0 < start_ns < 1 << 61 else 0

    def _read_devices(self) -> Iterator[CapturedDevice]:
        for row in self._read_rows("TARGET_INFO_GPU", "id", "cuDevice", "name", "totalMemory", "smCount",
                                   "computeMajor",
                                   "computeMinor", "smMajor", "smMinor"):
            number = row["cuDevice"] if type(row["cuDevice"]) is int else row["id"]
            major, minor = (row[f"compute{part}"] if row[f"compute{part}"] is not None else row[f"sm{part}"]
                            for part in ("Major", "Minor"))
            if type(number) is int and 0 <= number < 1 << 31:
                arch = f"sm_{major}{minor}" if type(major) is int and type(minor) is int else None
                yield CapturedDevice(number, name=row["name"] if isinstance(row["name"], str) else None, arch=arch,
                                     compute_units=_positive_or_none(row["smCount"]),
                                     vram_bytes=_positive_or_none(row["totalMemory"]))

    def _metric_devices(self) -> Reference | None:
        """Return CUDA's numbers of the GPUs by the numbers in metrics."""
        rows = [row for row in self._read_rows("TARGET_INFO_GPU", "pwGpuId", "cuDevice")
                if type(row["pwGpuId"]) is int and type(row["cuDevice"]) is int]
        return Reference([row["pwGpuId"] for row in rows], [row["cuDevice"] for row in rows]) if rows else None

    def _metric_names(self) -> dict[tuple[Any, Any], str]:
        """Return names by type (a kind of GPU) and metric; under None for exports without types."""
        rows = [row for row in self._read_rows("TARGET_INFO_GPU_METRICS", "typeId", "metricId", "metricName")
                if type(row["metricId"]) is int and isinstance(row["metricName"], str)]
        name_by_metric = {(None, row["metricId"]): row["metricName"] for row in rows}
        return name_by_metric | {(row["typeId"], row["metricId"]): row["metricName"] for row in rows}

    def _read_rows(self, name: str, *columns: str) -> list[dict[str, Any]]:
        """Return rows of a small table; a column that the table does not have is None in each."""
        table = self.database.tables.get(name)
        if table is None:
            return []
        selected = [("NULL" if column.lower() not in table else quoted(column) if "name" not in column.lower()
                     else f"substr({quoted(column)}, 1, 256)") for column in columns]
        query = f"SELECT {', '.join(selected)} FROM {quoted(name)} LIMIT 100000"
        return [dict(zip(columns, row, strict=True)) for row in self.database.rows(query)]

    def _read_values(self, name: str, only_name: str = "") -> dict[str, str]:
        """Return a table of names and values, or one name of it: the rest of the target's environment is not read."""
        table = self.database.tables.get(name)
        if table is None or "name" not in table or "value" not in table:
            return {}
        where = f"WHERE name = '{only_name}'" if only_name else ""
        query = f"SELECT name, substr(value, 1, 256) FROM {quoted(name)} {where} LIMIT {FIRST_METADATA}"
        return {key: str(value) for key, value in self.database.rows(query) if isinstance(key, str)}


def _read_versions(database: Database) -> None:
    """Add tables that have a version in their name under the plain name, unless that table exists."""
    for name in sorted(database.tables, key=len):
        plain = VERSIONED.sub("", name)
        if plain in READ:
            database.tables.setdefault(plain, database.tables[name])


def _copy_kinds(rows: ColumnBatch) -> np.ndarray:
    numbers = integers(rows["kind"])
    codes = np.zeros(max(COPY_KINDS) + 1, np.int64)
    for number, kind in COPY_KINDS.items():
        codes[number] = KINDS.index(kind)
    return np.where((numbers >= 0) & (numbers < len(codes)), codes[np.clip(numbers, 0, len(codes) - 1)], 0)


def _pinned(rows: ColumnBatch) -> pa.Array:
    """Return whether the host's side is page-locked; null if neither side is the host."""
    source, target = integers(rows["from"]), integers(rows["to"])
    host = np.isin(source, HOST) | np.isin(target, HOST)
    return pa.array((source == PINNED) | (target == PINNED), mask=~host)


def _metric_column(rows: ColumnBatch, name_by_metric: Mapping[tuple[Any, Any], str]) -> pa.Array:
    pairs = np.stack((integers(rows["type"]), integers(rows["metric"])), axis=1)
    distinct_pairs, codes = np.unique(pairs, axis=0, return_inverse=True)
    metric_names = [name_by_metric.get((kind, metric), name_by_metric.get((None, metric)))
                    for kind, metric in distinct_pairs.tolist()]
    return coded(codes, pa.array(metric_names, pa.string()))


def _null_unless(values: np.ndarray, mask: np.ndarray) -> pa.Array:
    return pa.array(values, mask=~mask | (values == ABSENT))


def _sum_columns(*columns: pa.Array) -> pa.Array:
    values = [integers(column) for column in columns]
    absent = np.logical_or.reduce([(column_values < 0) | (column_values >= 1 << 61) for column_values in values])
    return pa.array(np.add.reduce([np.where(absent, 0, column_values) for column_values in values]), mask=absent)


def _process(identity: pa.Array) -> pa.Array:
    """Return the process in a serialised id of 8 bits of host, 8 of virtual machine, 24 of process, 24 of thread."""
    values = integers(identity)
    return pa.array((values >> 24) & 0xFFFFFF, mask=values == ABSENT)


def _positive_or_none(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None
