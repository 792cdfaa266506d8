"""The SQLite export of NVIDIA Nsight Systems: kernels, copies, fills, calls, NVTX ranges, memory, GPU metrics.

Tables are made only for what was recorded, and their columns drift from version to version (2021 to 2026): each is read
for the columns it has. Times count from the start of the session; where the export says when that was, they are moved
to the real-time clock. `correlationId` counts for itself in each process. The grid is in blocks. A CUDA graph that was
recorded as a whole (the tool's default) is a range on its device: its kernels are not in the file, which is said.
A table with times that is not read is counted and left out by name. Source: docs.nvidia.com/nsight-systems, User Guide,
SQLite Schema Reference.
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
from aaco.profiler import names, sqlite
from aaco.profiler.capture import Device, Facts
from aaco.profiler.columns import coded, constant, titled
from aaco.profiler.cupti.kinds import COPY_KINDS, KINDS
from aaco.profiler.ledger import ABSENT, LATEST_NS, NOT_TIMED, Ledger, integers
from aaco.profiler.lookup import Apart, Reference
from aaco.profiler.sqlite import LONGEST_NAME, Batch, Database, quoted

FORMAT = "nsys"
RECORD = "export it again: nsys export --type sqlite REPORT.nsys-rep"
CUPTI = "CUPTI_ACTIVITY_KIND_"
KERNEL, COPY, FILL, GRAPH = (CUPTI + kind for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"))
RECORDS = {KERNEL: "kernel", COPY: "copy", FILL: "fill"}  # what their rows are called in the account
# Tables of calls, and the domain of what is in each; calls of CUDA are told apart by their names.
CALLS = {CUPTI + "RUNTIME": "", "OSRT_API": "osrt", "CUDNN_EVENTS": "cudnn", "CUBLAS_EVENTS": "cublas"}
NVTX, METRICS, MEMORY = "NVTX_EVENTS", "GPU_METRICS", "CUDA_GPU_MEMORY_USAGE_EVENTS"
READ = {KERNEL, COPY, FILL, GRAPH, NVTX, METRICS, MEMORY, *CALLS}
WHEN = {"start": "start", "end": "end"}
PLACE = {"device": "deviceid", "context": "contextid", "stream": "streamid", "link": "correlationid",
         "process": "globalpid", "node": "graphnodeid", "graph": "graphid"}
SIZES = {f"{what}_{axis}": f"{what}{axis}" for what in ("grid", "block") for axis in "xyz"}
PAGEABLE, PINNED, HOST = 0, 1, (0, 1)
RANGES, MARK = (59, 60), 34  # NvtxPushPopRange, NvtxStartEndRange; NvtxMark
OPERATIONS = {0: "allocate", 1: "free"}
# cudaLaunchKernel_v7000: the runtime's own version of the function, which no other tool writes.
VERSION = re.compile(r"_v\d{4,5}$")
FIRST_METADATA = 1000


def recognises(path: Path) -> bool:
    """Whether the file is a SQLite database with the tables that every export has."""
    found = sqlite.table_names(path)
    return "StringIds" in found and (any(name.startswith((CUPTI, "TARGET_INFO_")) for name in found) or NVTX in found)


def parse(path: Path) -> Iterator[pa.Table | Facts]:
    """Kernels, copies, calls, allocations and metrics. Raises BadCapture."""
    with sqlite.opened(path) as database:
        export = _Export(database)
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


class _Export:
    """An open export and the account of its records."""

    def __init__(self, database: Database) -> None:
        self.database, self.ledger, self.apart = database, Ledger("kernel"), Apart()
        if "StringIds" not in database.tables:
            raise BadCapture(f"{database.path}: no table StringIds", RECORD)
        self.strings = names.read(database, database.tables["StringIds"], ["value"])
        self.told_apart = all("globalpid" in database.tables[name] for name in (KERNEL, COPY, FILL)
                              if name in database.tables)
        self.origin = self._origin()
        self.devices = list(self._devices())

    def kernels(self) -> Iterator[pa.Table]:
        """Kernel executions, also those of graphs that were recorded node by node."""
        more = SIZES | {"vgpr": "registersperthread", "name": "demangledname", "short": "shortname",
                        "static": "staticsharedmemory", "dynamic": "dynamicsharedmemory",
                        "scratch": "localmemoryperthread"}
        for rows in self._rows(KERNEL, PLACE | more):
            sizes = {name: integers(rows[name]) for name in SIZES}
            known = np.logical_and.reduce([(size > 0) & (size < 1 << 31) for size in sizes.values()])
            for axis in "xyz":
                sizes[f"grid_{axis}"] = sizes[f"grid_{axis}"] * np.where(known, sizes[f"block_{axis}"], 1)
            long = self.strings.rows(rows["name"])
            named = np.where(long >= 0, long, self.strings.rows(rows["short"]))
            self.ledger.trouble("kernels have no name", int((named < 0).sum()))
            yield KERNELS.build(
                kernel_id=rows["row"], kernel_name=coded(named, self.strings.names), vgpr=rows["vgpr"],
                lds_bytes=_sum(rows["static"], rows["dynamic"]), scratch_bytes=rows["scratch"],
                source=constant(FORMAT, rows.count), timed=constant("execution", rows.count),
                **{name: pa.array(size, mask=~known) for name, size in sizes.items()}, **self._where(rows),
                **self._when(rows))

    def copies(self, name: str) -> Iterator[pa.Table]:
        """Copies, or fills."""
        more = {"bytes": "bytes", "kind": "copykind", "from": "srckind", "to": "dstkind", "source": "srcdeviceid",
                "target": "dstdeviceid"}
        base = int(name == FILL)
        for rows in self._rows(name, PLACE | more):
            kind = _copy_kinds(rows) if name == COPY else np.full(rows.count, KINDS.index("memset"))
            word = np.array(KINDS)[kind]
            device = integers(rows["device"])
            source, target = (np.where(integers(rows[end]) == ABSENT, device, integers(rows[end]))
                              for end in ("source", "target"))
            yield COPIES.build(
                copy_id=self.database.keys(rows["row"], base), kind=coded(kind, pa.array(KINDS)), bytes=rows["bytes"],
                pinned=_pinned(rows), source=constant(FORMAT, rows.count),
                src_device=_where_true(source, np.isin(word, ("d2h", "d2d", "p2p"))),
                dst_device=_where_true(target, np.isin(word, ("h2d", "d2d", "p2p", "memset"))),
                **self._where(rows), **self._when(rows))

    def graphs(self) -> Iterator[pa.Table]:
        """Executions of whole graphs, as ranges on their device."""
        base = 6
        for rows in self._rows(GRAPH, PLACE):
            self.ledger.trouble("graphs were recorded as a whole: their kernels are not in the file (to have them: "
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
        """Calls of one table."""
        base = 1 + list(CALLS).index(name)
        words = self.strings.each(lambda text: VERSION.sub("", text))
        kinds = pa.array(["cuda_runtime", "cuda_driver"])
        driver = np.array([not (text or "").startswith("cuda") for text in [*words.names.to_pylist(), None]], np.int64)
        for rows in self._rows(name, {"thread": "globaltid", "link": "correlationid", "name": "nameid"}):
            at = words.rows(rows["name"])
            yield API_CALLS.build(
                call_id=self.database.keys(rows["row"], base), name=coded(at, words.names),
                domain=constant(domain, rows.count) if domain else coded(driver[at], kinds),
                **self._thread(rows, linked=not domain), **self._when(rows))

    def ranges(self) -> Iterator[pa.Table]:
        """NVTX ranges and marks; other NVTX records (names, categories, domains) are left out."""
        table = self.database.tables.get(NVTX)
        if table is None:
            return
        chosen = table.chosen("t", WHEN | {"thread": "globaltid", "text": "textid", "type": "eventtype"})
        said = f"coalesce(CAST(substr(t.text, 1, {LONGEST_NAME}) AS TEXT), '')" if "text" in table else "''"
        for batch in self._batches(NVTX, chosen, {"said": said}):
            kind = integers(batch["type"]) if "type" in batch else np.full(batch.count, RANGES[0])
            ours = np.isin(kind, (*RANGES, MARK))
            self.ledger.saw(NVTX, int((~ours).sum()))
            self.ledger.leave_out(NVTX, "it is no range and no mark", int((~ours).sum()))
            rows = batch.filter(ours)
            mark = kind[ours] == MARK
            rows["end"] = pc.if_else(pa.array(mark), rows["start"], rows["end"])
            rows = rows.filter(self.ledger.timed(NVTX, rows["start"], rows["end"]))
            if rows.count:
                titles = pc.if_else(pc.equal(rows["said"], ""), None, rows["said"])
                yield API_CALLS.build(
                    call_id=self.database.keys(rows["row"], 5), domain=constant("marker", rows.count),
                    name=titled(titles, self.strings.rows(rows["text"]), self.strings.names),
                    **self._thread(rows, linked=False), **self._when(rows))

    def memory(self) -> Iterator[pa.Table]:
        """Allocations and releases of device memory."""
        table = self.database.tables.get(MEMORY)
        if table is None:
            return
        chosen = table.chosen("t", {"start": "start", "bytes": "bytes", "address": "address", "device": "deviceid",
                                    "process": "globalpid", "link": "correlationid", "kind": "memoryoperationtype"})
        for batch in self._batches(MEMORY, chosen, {}):
            batch["end"] = batch["start"]
            rows = batch.filter(self.ledger.timed(MEMORY, batch["start"], batch["end"]))
            place, known = self._where(rows), list(OPERATIONS)
            kind = integers(rows["kind"])
            codes = np.where(np.isin(kind, known), kind, -1)
            yield ALLOCATIONS.build(
                t_ns=integers(rows["start"]) + self.origin, kind=coded(codes, pa.array(list(OPERATIONS.values()))),
                bytes=rows["bytes"], address=rows["address"],
                **{name: place[name] for name in ("device_id", "process_id", "correlation_id")})

    def metrics(self) -> Iterator[pa.Table]:
        """Sampled metrics of the GPU."""
        table = self.database.tables.get(METRICS)
        if table is None or not all(name in table for name in ("timestamp", "metricid", "value")):
            return
        known = self._metric_names()
        chosen = table.chosen("t", {"start": "timestamp", "type": "typeid", "metric": "metricid"})
        devices = self._metric_devices()
        for batch in self._batches(METRICS, chosen, {}, value=f"t.{quoted(table.columns['value'])}"):
            self.ledger.saw(METRICS, batch.count)
            time, valued = integers(batch["start"]), batch["value"].is_valid().to_numpy(zero_copy_only=False)
            timed = (time >= 0) & (time <= LATEST_NS)
            self.ledger.leave_out(METRICS, NOT_TIMED, int((~timed).sum()))
            self.ledger.leave_out(METRICS, "it has no value", int((timed & ~valued).sum()))
            rows = batch.filter(timed & valued)
            gpu = pa.array(integers(rows["type"]) & 0xFF, mask=integers(rows["type"]) == ABSENT)
            yield SAMPLES.build(t_ns=integers(rows["start"]) + self.origin, name=_metric_column(rows, known),
                                value=rows["value"], device_id=devices.of(gpu)[0] if devices else gpu)

    def facts(self) -> Facts:
        """What the export says of itself, and of the tables in it that are not read."""
        for name, table in self.database.tables.items():
            if name not in READ and ("start" in table or "timestamp" in table) and not name.startswith("TARGET_INFO"):
                count = int(self.database.value(f"SELECT sum(1) FROM {quoted(name)} NOT INDEXED") or 0)
                self.ledger.saw(name, count)
                self.ledger.leave_out(name, "records of this table are not read", count)
        told = self._told("META_DATA_EXPORT") | self._told("META_DATA_CAPTURE")
        host = self._told("TARGET_INFO_SYSTEM_ENV", "Hostname").get("Hostname")
        metadata = {"schema_version": told["EXPORT_SCHEMA_VERSION"]} if "EXPORT_SCHEMA_VERSION" in told else {}
        return self.ledger.facts(
            FORMAT, tuple(self.database.problems()), tool="Nsight Systems", host=host, metadata=metadata,
            tool_version=told.get("EXPORT_PRODUCT_VERSION"), devices=tuple(self.devices),
            clock="realtime" if self.origin else "unknown")

    def _rows(self, name: str, columns: Mapping[str, str]) -> Iterator[Batch]:
        """The rows of a table that can be placed in time; the others are accounted for."""
        table = self.database.tables.get(name)
        if table is None:
            return
        kind = RECORDS.get(name, name)
        self.ledger.saw(kind, 0)
        for batch in self._batches(name, table.chosen("t", WHEN | dict(columns)), {}):
            rows = batch.filter(self.ledger.timed(kind, batch["start"], batch["end"]))
            if rows.count:
                yield rows

    def _batches(self, name: str, chosen: Mapping[str, str], words: Mapping[str, str],
                 **values: str) -> Iterator[Batch]:
        table = self.database.tables[name]
        if table.rowid is None:
            raise BadCapture(f"{self.database.path}: {name} has no row ids", RECORD)
        every = {"row": f"t.{table.rowid}"} | dict(chosen) | values | dict(words)
        kinds = {column: "text" if column in words else "real" if column in values else "int" for column in every}
        sql = f"SELECT {', '.join(every.values())} FROM {quoted(table.name)} t NOT INDEXED"
        yield from self.database.batches(sql, kinds, name)

    def _when(self, rows: Batch) -> dict[str, Any]:
        start, end = integers(rows["start"]), integers(rows["end"])
        return {"t_start_ns": start + self.origin, "t_end_ns": end + self.origin, "dur_ns": end - start}

    def _where(self, rows: Batch) -> dict[str, Any]:
        """Device, stream, process, graph and the call it came from. A graph or node 0 is none."""
        process = _process(rows["process"])
        graph, node = integers(rows["graph"]), integers(rows["node"])
        return {"device_id": rows["device"], "queue_id": rows["context"], "stream_id": rows["stream"],
                "process_id": process, "graph_id": pa.array(graph, mask=graph <= 0),
                "graph_node_id": pa.array(node, mask=node <= 0), "correlation_id": self._linked(rows, process)}

    def _thread(self, rows: Batch, linked: bool) -> dict[str, Any]:
        process, thread = _process(rows["thread"]), integers(rows["thread"])
        link = {"correlation_id": self._linked(rows, process)} if linked else {}
        return {"process_id": process, "thread_id": pa.array(thread & 0xFFFFFF, mask=thread == ABSENT), **link}

    def _linked(self, rows: Batch, process: pa.Array) -> pa.Array:
        """Correlation ids: of each process apart, unless older exports do not say whose process a kernel is."""
        one = np.zeros(rows.count, np.int64)
        return self.apart.of(integers(rows["link"]), integers(process) if self.told_apart else one)

    def _origin(self) -> int:
        """The session's start on the real-time clock, 0 if the export does not say it."""
        table = self.database.tables.get("TARGET_INFO_SESSION_START_TIME")
        found = self.database.value("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME LIMIT 1") \
            if table and "utcepochns" in table else None
        return found if type(found) is int and 0 < found < 1 << 61 else 0

    def _devices(self) -> Iterator[Device]:
        for row in self._info("TARGET_INFO_GPU", "id", "cuDevice", "name", "totalMemory", "smCount", "computeMajor",
                              "computeMinor", "smMajor", "smMinor"):
            number = row["cuDevice"] if type(row["cuDevice"]) is int else row["id"]
            major, minor = (row[f"compute{part}"] if row[f"compute{part}"] is not None else row[f"sm{part}"]
                            for part in ("Major", "Minor"))
            if type(number) is int and 0 <= number < 1 << 31:
                arch = f"sm_{major}{minor}" if type(major) is int and type(minor) is int else None
                yield Device(number, name=row["name"] if isinstance(row["name"], str) else None, arch=arch,
                             compute_units=_count(row["smCount"]), vram_bytes=_count(row["totalMemory"]))

    def _metric_devices(self) -> Reference | None:
        """CUDA's numbers of the GPUs by those that metrics have."""
        rows = [row for row in self._info("TARGET_INFO_GPU", "pwGpuId", "cuDevice")
                if type(row["pwGpuId"]) is int and type(row["cuDevice"]) is int]
        return Reference([row["pwGpuId"] for row in rows], [row["cuDevice"] for row in rows]) if rows else None

    def _metric_names(self) -> dict[tuple[Any, Any], str]:
        """Names by type (a kind of GPU) and metric; under None for exports that do not tell types apart."""
        rows = [row for row in self._info("TARGET_INFO_GPU_METRICS", "typeId", "metricId", "metricName")
                if type(row["metricId"]) is int and isinstance(row["metricName"], str)]
        found = {(None, row["metricId"]): row["metricName"] for row in rows}
        return found | {(row["typeId"], row["metricId"]): row["metricName"] for row in rows}

    def _info(self, name: str, *columns: str) -> list[dict[str, Any]]:
        """Rows of a small table; a column that it lacks is None in each."""
        table = self.database.tables.get(name)
        if table is None:
            return []
        chosen = [("NULL" if column.lower() not in table else quoted(column) if "name" not in column.lower()
                   else f"substr({quoted(column)}, 1, 256)") for column in columns]
        query = f"SELECT {', '.join(chosen)} FROM {quoted(name)} LIMIT 100000"
        return [dict(zip(columns, row, strict=True)) for row in self.database.rows(query)]

    def _told(self, name: str, only: str = "") -> dict[str, str]:
        """A table of names and values, or one name of it: what else is in the target's environment stays there."""
        table = self.database.tables.get(name)
        if table is None or "name" not in table or "value" not in table:
            return {}
        where = f"WHERE name = '{only}'" if only else ""
        query = f"SELECT name, substr(value, 1, 256) FROM {quoted(name)} {where} LIMIT {FIRST_METADATA}"
        return {key: str(value) for key, value in self.database.rows(query) if isinstance(key, str)}


def _copy_kinds(rows: Batch) -> np.ndarray:
    told = integers(rows["kind"])
    codes = np.zeros(max(COPY_KINDS) + 1, np.int64)
    for number, kind in COPY_KINDS.items():
        codes[number] = KINDS.index(kind)
    return np.where((told >= 0) & (told < len(codes)), codes[np.clip(told, 0, len(codes) - 1)], 0)


def _pinned(rows: Batch) -> pa.Array:
    """Whether the host's side is page-locked; null where neither side is the host."""
    source, target = integers(rows["from"]), integers(rows["to"])
    host = np.isin(source, HOST) | np.isin(target, HOST)
    return pa.array((source == PINNED) | (target == PINNED), mask=~host)


def _metric_column(rows: Batch, known: Mapping[tuple[Any, Any], str]) -> pa.Array:
    pairs = np.stack((integers(rows["type"]), integers(rows["metric"])), axis=1)
    each, codes = np.unique(pairs, axis=0, return_inverse=True)
    found = [known.get((kind, metric), known.get((None, metric))) for kind, metric in each.tolist()]
    return coded(codes, pa.array(found, pa.string()))


def _where_true(values: np.ndarray, wanted: np.ndarray) -> pa.Array:
    return pa.array(values, mask=~wanted | (values == ABSENT))


def _sum(*columns: pa.Array) -> pa.Array:
    values = [integers(column) for column in columns]
    absent = np.logical_or.reduce([(value < 0) | (value >= 1 << 61) for value in values])
    return pa.array(np.add.reduce([np.where(absent, 0, value) for value in values]), mask=absent)


def _process(identity: pa.Array) -> pa.Array:
    """The process in a serialised id of 8 bits of host, 8 of virtual machine, 24 of process, 24 of thread."""
    values = integers(identity)
    return pa.array((values >> 24) & 0xFFFFFF, mask=values == ABSENT)


def _count(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None
