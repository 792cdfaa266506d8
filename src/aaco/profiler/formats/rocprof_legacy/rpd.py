"""RPD, the database of rocmProfileData (`rocpd_op`, `rocpd_api`, `rocpd_string`; .rpd, also gzipped), schemas 2 and 3.

Operations become kernels and copies, API calls and user markers calls, monitored values samples. Kernels of a captured
graph are operations of type Task: they are kernels too. `correlation_id` is the id of the API call, which is unique in
the file. Device and process ids are the file's own (on several nodes RPD adds node x gpu_stride and node x pid_stride);
the devices of monitored values are numbered by the SMI library and need not be the same.

Sizes are those of the launching call, and are used only if it launched this very kernel. They depend on the recorder
(rocmProfileData, rpd_tracer): roctracer and CUPTI record the grid in workgroups, except in calls that take a global
work size, and of local memory only the dynamic part; rocprofiler-sdk records the dispatch packet.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.core.errors import BadCapture
from aaco.core.tables import API_CALLS, CALL_ARGUMENTS, COPIES, COUNTERS, KERNELS, SAMPLES
from aaco.core.untimed import NOT_TIMED
from aaco.profiler.capture import MIXED, CapturedDevice, CaptureFacts
from aaco.profiler.formats.rocprofv3.rocm_labels import direction
from aaco.profiler.io import names, sqlite
from aaco.profiler.io.columns import bare, coded, constant, titled
from aaco.profiler.io.dispatches import GLOBAL_SIZE
from aaco.profiler.io.record_accounting import ABSENT, DEVICE_WORK, LATEST_NS, RecordAccount, integers, time_columns
from aaco.profiler.io.sqlite import LONGEST_NAME, ColumnBatch, Database, SqliteTable, joined, quoted

FORMAT = "rpd"
TABLES = {"rocpd_op", "rocpd_api", "rocpd_string"}
RECORD = "record it with: runTracer.sh -o trace.rpd PROGRAM"
KERNEL, COPY, OTHER = "kernel", "copy", "other operation"
KERNEL_TYPES = {"KernelExecution", "Task"}
# Words of an operation's type; if it has no direction, the kind argument of hipMemcpy or cudaMemcpy decides.
COPY_WORDS = ("Copy", "COPY", "Memcpy", "Fill", "Memset")
KINDS = ("h2h", "h2d", "d2h", "d2d", "unknown", "memset")  # the first four as those calls number them
MARKER = "UserMarker"
UNITS = {"sclk": "MHz", "mclk": "MHz", "power": "W", "temp": "C"}
DOMAINS = {"hip": "hip", "hsa": "hsa", "roc": "marker", "cud": "cuda_runtime", "nvt": "marker"}
TRACER_DOMAIN = "rpd"  # the domain of the tracer's records of its own work
LONGEST_ARGUMENTS = 4096


def recognises(path: Path) -> bool:
    """Return whether the file is a SQLite database with RPD's tables."""
    return sqlite.table_names(path) >= TABLES


def parse(path: Path) -> Iterator[pa.Table | CaptureFacts]:
    """Yield kernels, copies, calls with their arguments, counters and monitored values. Raise BadCapture."""
    with sqlite.opened(path) as database:
        trace = _RpdReader(database)
        yield from trace.operations()
        yield from trace.calls()
        yield from trace.counters()
        yield from trace.monitored()
        yield trace.facts()


def kernel_pass(path: Path) -> str | None:
    """Return MIXED if the file has counters. Raise BadCapture."""
    with sqlite.opened(path) as database:
        counted = "rocpd_counter" in database.tables and database.value("SELECT 1 FROM rocpd_counter LIMIT 1")
    return MIXED if counted else None


class _StringMeanings:
    """The meaning of each string as the type of an operation or the name of a call; the last row is for no string.

    packets: whether rocprofiler-sdk recorded the file.
    """

    def __init__(self, words: list[str]) -> None:
        strings = [*words, ""]
        self.packets = any(word.startswith(("RocprofDataSource", "MEMORY_COPY_")) for word in words)
        self.empty = np.array([not word for word in strings])
        self.kernel = np.array([word in KERNEL_TYPES for word in strings])
        self.copy = np.array([any(part in word for part in COPY_WORDS) for word in strings]) & ~self.kernel
        self.direction = np.array([KINDS.index(direction(word)) for word in strings])
        self.global_size = np.array([word in GLOBAL_SIZE for word in strings])
        domains = ["marker" if word == MARKER else DOMAINS.get(word[:3].lower(), TRACER_DOMAIN) for word in strings]
        self.domains, self.domain = np.unique(np.array(domains), return_inverse=True)


class _RpdReader:
    """An open RPD file and the account of its records."""

    def __init__(self, database: Database) -> None:
        self.database, self.account = database, RecordAccount(KERNEL)
        database.refuse_unreadable([*TABLES, "rocpd_api_ops", "rocpd_kernelapi", "rocpd_copyapi"])
        missing = TABLES - set(database.tables)
        if missing:
            raise BadCapture(f"{database.path}: no table {min(missing)}", RECORD)
        self.strings = names.read(database, database.tables["rocpd_string"], ["string"])
        self.kernels = self.strings.each(bare)
        self.words = _StringMeanings([name or "" for name in self.strings.names.to_pylist()])
        self.devices: set[int] = set()

    def table(self, name: str) -> SqliteTable | None:
        """Return a table of the schema, if this file has it."""
        return self.database.tables.get(f"rocpd_{name}")

    def operations(self) -> Iterator[pa.Table]:
        """Yield kernels and copies."""
        for kind in (KERNEL, COPY, OTHER):
            self.account.saw(kind, 0)
        sql, kinds = self._operation_query()
        for batch in self.database.batches(sql, kinds, "rocpd_op"):
            types = self.strings.rows(batch["type"])
            kernel, copy = self.words.kernel[types], self.words.copy[types]
            for mask, kind, build in ((kernel, KERNEL, self._kernel_table), (copy, COPY, self._copy_table)):
                rows = batch.filter(mask)
                fit = self.account.timed(kind, rows["start"], rows["end"])
                if fit.any():
                    yield build(rows.filter(fit))
            self._leave_out_others(batch.filter(~kernel & ~copy))

    def calls(self) -> Iterator[pa.Table]:
        """Yield API calls and user markers, then their arguments."""
        api = self.database.tables["rocpd_api"]
        marker = ", ".join(map(str, self.strings.ids_of(MARKER))) or "NULL"
        named = f"a.{_column(api, 'apiName_id')}"
        text = f"CASE WHEN {named} IN ({marker}) THEN {self._text('u', LONGEST_NAME)} ELSE '' END"
        columns = {"id": f"a.{self._key(api)}"} | api.chosen("a", {
            "start": "start", "end": "end", "pid": "pid", "tid": "tid", "name": "apiname_id", "domain": "domain_id"})
        kinds = dict.fromkeys(columns, "int") | {"message": "text"}
        sql = f"SELECT {', '.join((*columns.values(), text))} FROM rocpd_api a NOT INDEXED {self._argument_join(api)}"
        for batch in self.database.batches(sql, kinds, "rocpd_api"):
            fit = self.account.timed("call", batch["start"], batch["end"])
            if fit.any():
                yield self._call_table(batch.filter(fit))
        yield from self._arguments(api, marker)

    def counters(self) -> Iterator[pa.Table]:
        """Yield counters of kernels, from schema 3 on."""
        table = self.table("counter")
        if table is None or not all(name in table for name in ("value", "op_id", "name_id")):
            return
        op = self.database.tables["rocpd_op"]
        join = joined(op, "o", "id", "c.op_id", ["start", "end", "opType_id"])
        sql = f'SELECT o.id, c.name_id, c.value, o.start, o."end", o.opType_id FROM rocpd_counter c NOT INDEXED {join}'
        kinds = {"op": "int", "name": "int", "value": "real", "start": "int", "end": "int", "type": "int"}
        for batch in self.database.batches(sql, kinds, "rocpd_counter"):
            self.account.saw("counter", batch.count)
            timed = self.account.placeable(KERNEL, batch["start"], batch["end"])
            kernel = timed & self.words.kernel[self.strings.rows(batch["type"])]
            has_value = ~batch["value"].is_null().to_numpy(zero_copy_only=False)
            self.account.leave_out("counter", "no kernel of the tables is its operation", int((~kernel).sum()))
            self.account.leave_out("counter", "it has no value", int((kernel & ~has_value).sum()))
            kept = batch.filter(kernel & has_value)
            yield COUNTERS.build(kernel_id=kept["op"], counter=self.strings.of(kept["name"]), value=kept["value"])

    def monitored(self) -> Iterator[pa.Table]:
        """Yield clocks and other monitored values, at the time when they took the value."""
        table = self.table("monitor")
        if table is None:
            return
        columns = table.chosen("m", {"start": "start", "device": "deviceid"})
        words = {name: f"coalesce(CAST(substr(m.{_column(table, column)}, 1, 64) AS TEXT), '')"
                 for name, column in (("name", "monitorType"), ("value", "value"))}
        sql = f"SELECT {', '.join((*columns.values(), *words.values()))} FROM rocpd_monitor m NOT INDEXED"
        kinds = dict.fromkeys(columns, "int") | dict.fromkeys(words, "text")
        for batch in self.database.batches(sql, kinds, "rocpd_monitor"):
            yield self._sample_table(batch)

    def facts(self) -> CaptureFacts:
        """Return the facts of the file."""
        tags = self.table("metadata")
        value_by_tag = {str(tag)[:64]: str(value)[:256] for tag, value in self.database.rows(
            "SELECT tag, value FROM rocpd_metadata LIMIT 1000")} if tags and "tag" in tags and "value" in tags else {}
        metadata = {name: value_by_tag[name] for name in ("schema_version", "session_count", "gpu_stride", "pid_stride")
                    if name in value_by_tag}
        return self.account.facts(
            FORMAT, tuple(self.database.problems()), tool="rocmProfileData",
            clock="boottime" if self.words.packets else "monotonic", metadata=metadata,
            devices=tuple(CapturedDevice(number) for number in sorted(self.devices)))

    def _operation_query(self) -> tuple[str, dict[str, str]]:
        op = self.database.tables["rocpd_op"]
        columns = {"id": f"o.{self._key(op)}"} | op.chosen("o", {
            "start": "start", "end": "end", "device": "gpuid", "queue": "queueid", "text": "description_id",
            "type": "optype_id"})
        joins, streams = [], []
        link, api = self.table("api_ops"), self.database.tables["rocpd_api"]
        if link and "op_id" in link and "api_id" in link and "id" in op:
            joins.append(joined(link, "x", "op_id", "o.id", ["api_id"]))
            columns["api"] = "x.api_id"
            for alias, table, file_names in (
                    ("a", api, {"pid": "pid", "tid": "tid", "call": "apiname_id"}),
                    ("k", self.table("kernelapi"), _SIZES),
                    ("c", self.table("copyapi"), {"bytes": "size", "kind": "kind"})):
                key = "id" if alias == "a" else "api_ptr_id"
                if table and key in table:
                    present = table.chosen(alias, file_names)
                    joins.append(joined(table, alias, key, "x.api_id", [
                        *(file_names[name] for name in present), *(["stream"] if "stream" in table else [])]))
                    columns |= present
                    streams += [f"{alias}.stream"] if "stream" in table else []
        if "bytes" in columns:
            columns["bytes"] = f"nullif({columns['bytes']}, '')"  # how older tracers write that there is none
        stream = f"coalesce({', '.join((*streams, repr(''), repr('')))})"
        sql = (f"SELECT {', '.join(columns.values())}, CAST(substr({stream}, 1, 64) AS TEXT) "
               f"FROM rocpd_op o NOT INDEXED {' '.join(joins)}")
        return sql, dict.fromkeys(columns, "int") | {"stream": "text"}

    def _leave_out_others(self, batch: ColumnBatch) -> None:
        self.account.saw(OTHER, batch.count)
        rows, counts = np.unique(self.strings.rows(batch["type"]), return_counts=True)
        for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
            name = ((self.strings.names[row].as_py() if row >= 0 else None) or "of no type")[:64]
            self.account.leave_out(OTHER, f"{name} is no kernel, copy or fill", count)
            if DEVICE_WORK.search(name):
                self.account.unread(name, count)

    def _kernel_table(self, batch: ColumnBatch) -> pa.Table:
        text = self.kernels.rows(batch["text"])
        is_unnamed = self.words.empty[text]
        names = np.where(is_unnamed, self.kernels.rows(batch["kernel"]), text)
        self.account.trouble("kernels have no name", int((names < 0).sum()))
        is_same_kernel = integers(batch["kernel"]) == integers(batch["text"])
        return KERNELS.build(
            kernel_id=batch["id"], kernel_name=coded(names, self.kernels.names), source=constant(FORMAT, batch.count),
            timed=constant("execution", batch.count), device_id=self._device(batch),
            **self._grid(batch, is_same_kernel | is_unnamed), **self._linked(batch, "kernels"), **time_columns(batch))

    def _grid(self, batch: ColumnBatch, launched: np.ndarray) -> dict[str, Any]:
        """Return sizes, if the call that launched the kernel states them; a size of 0 is none."""
        sizes = {name: integers(batch[name]) for name in (*_GRID, *_BLOCK, "lds_bytes", "scratch_bytes")}
        is_known = launched & np.logical_and.reduce([sizes[name] > 0 for name in (*_GRID, *_BLOCK)])
        is_known &= np.logical_and.reduce([sizes[name] < 1 << 31 for name in (*_GRID, *_BLOCK)])
        is_in_items = self.words.packets | self.words.global_size[self.strings.rows(batch["call"])]
        for grid, block in zip(_GRID, _BLOCK, strict=True):
            sizes[grid] = sizes[grid] * np.where(is_in_items | ~is_known, 1, sizes[block])
        columns = {name: pa.array(sizes[name], mask=~is_known) for name in (*_GRID, *_BLOCK)}
        if self.words.packets:
            columns |= {name: pa.array(sizes[name], mask=~is_known | (sizes[name] == ABSENT))
                        for name in ("lds_bytes", "scratch_bytes")}
        return columns

    def _copy_table(self, batch: ColumnBatch) -> pa.Table:
        kind = self._copy_kinds(batch)
        # rocprofiler-sdk's source writes 0 for every copy, whatever its device.
        device = pa.nulls(batch.count, pa.int64()) if self.words.packets else self._device(batch)
        numbers = integers(device)
        return COPIES.build(
            copy_id=batch["id"], kind=coded(kind, pa.array(KINDS)), bytes=_null_unless_positive(batch["bytes"]),
            src_device=pa.array(numbers, mask=(kind != 2) | (numbers == ABSENT)),
            dst_device=pa.array(numbers, mask=~np.isin(kind, (1, 5)) | (numbers == ABSENT)), device_id=device,
            source=constant(FORMAT, batch.count), **self._linked(batch, "copies"), **time_columns(batch))

    def _copy_kinds(self, batch: ColumnBatch) -> np.ndarray:
        """Return the index into KINDS, by the operation's type; if that has no direction, by the call's kind argument.
        """
        by_type = self.words.direction[self.strings.rows(batch["type"])]
        by_call = integers(batch["kind"])
        return np.where((by_type == KINDS.index("unknown")) & (by_call >= 0) & (by_call < 4), by_call, by_type)

    def _device(self, batch: ColumnBatch) -> pa.Array:
        self.devices |= set(pc.unique(batch["device"].drop_null()).to_pylist()[:1024])
        return batch["device"]

    def _linked(self, batch: ColumnBatch, what: str) -> dict[str, Any]:
        unlinked_count = batch["api"].null_count
        self.account.trouble(f"{what} have no call that launched them", unlinked_count)
        return {"correlation_id": batch["api"], "process_id": batch["pid"], "thread_id": batch["tid"],
                "queue_id": batch["queue"], "stream_id": _parse_handles(batch["stream"])}

    def _call_table(self, batch: ColumnBatch) -> pa.Table:
        rows, texts = self.strings.rows(batch["name"]), batch["message"]
        messages = pc.if_else(pc.equal(texts, ""), None, texts)
        return API_CALLS.build(
            call_id=batch["id"], name=titled(messages, rows, self.strings.names), process_id=batch["pid"],
            domain=coded(self.words.domain[rows], pa.array(self.words.domains.tolist())), thread_id=batch["tid"],
            correlation_id=batch["id"], **time_columns(batch))

    def _arguments(self, api: SqliteTable, marker: str) -> Iterator[pa.Table]:
        join = self._argument_join(api)
        if not join:
            return
        cut = self._text("u", LONGEST_ARGUMENTS)
        arguments = (f"CASE WHEN length(u.string) <= {LONGEST_ARGUMENTS} AND substr(u.string, 1, 1) = '{{' AND "
                     f"json_valid({cut}) THEN {cut} ELSE json_object('args', {cut}) END")
        sql = (f"SELECT a.{self._key(api)}, length(u.string) > {LONGEST_ARGUMENTS}, {arguments} "
               f"FROM rocpd_api a NOT INDEXED {join} WHERE u.string <> '' "
               f"AND a.{_column(api, 'apiName_id')} NOT IN ({marker if marker != 'NULL' else '-1'})")
        kinds = {"id": "int", "cut": "int", "arguments": "text"}
        for batch in self.database.batches(sql, kinds, "rocpd_api"):
            self.account.trouble(f"arguments are longer than {LONGEST_ARGUMENTS} characters: cut",
                                 int((integers(batch["cut"]) == 1).sum()))
            yield CALL_ARGUMENTS.build(call_id=batch["id"], arguments=batch["arguments"])

    def _argument_join(self, api: SqliteTable) -> str:
        texts = self.table("ustring") or self.database.tables["rocpd_string"]
        if "args_id" not in api or not {"id", "string"} <= set(texts.columns):
            return ""
        return joined(texts, "u", "id", f"a.{_column(api, 'args_id')}", ["string"])

    def _text(self, alias: str, most: int) -> str:
        join = self._argument_join(self.database.tables["rocpd_api"])
        return f"coalesce(CAST(substr({alias}.string, 1, {most}) AS TEXT), '')" if join else "''"

    def _sample_table(self, batch: ColumnBatch) -> pa.Table:
        self.account.saw("monitor", batch.count)
        time, value = integers(batch["start"]), _parse_numbers(batch["value"])
        timed = (time > 0) & (time <= LATEST_NS)
        self.account.leave_out("monitor", NOT_TIMED, int((~timed).sum()))
        self.account.leave_out("monitor", "its value is no number", int((timed & np.isnan(value)).sum()))
        kept = timed & ~np.isnan(value)
        rows, named = batch.filter(kept), batch["name"].filter(pa.array(kept)).dictionary_encode()
        units = [UNITS.get(name) for name in named.dictionary.to_pylist()]
        return SAMPLES.build(t_ns=rows["start"], name=named, value=value[kept], device_id=rows["device"],
                             unit=coded(named.indices.to_numpy(), pa.array(units, pa.string())))

    def _key(self, table: SqliteTable) -> str:
        if table.key != "id":
            raise BadCapture(f"{self.database.path}: {table.name} has no primary key id", RECORD)
        return "id"


_GRID, _BLOCK = ("grid_x", "grid_y", "grid_z"), ("block_x", "block_y", "block_z")
_SIZES = {"grid_x": "gridx", "grid_y": "gridy", "grid_z": "gridz", "block_x": "workgroupx", "block_y": "workgroupy",
          "block_z": "workgroupz", "lds_bytes": "groupsegmentsize", "scratch_bytes": "privatesegmentsize",
          "kernel": "kernelname_id"}


def _column(table: SqliteTable, name: str) -> str:
    return quoted(table.columns.get(name.lower(), name))


def _null_unless_positive(column: pa.Array) -> pa.Array:
    values = integers(column)
    return pa.array(values, mask=values <= 0)


def _parse_handles(texts: pa.Array) -> pa.Array:
    """Return stream handles, which are hexadecimal text, as integers; null if there is none."""
    distinct = texts.dictionary_encode()
    numbers = [_parse_handle(text) for text in distinct.dictionary.to_pylist()]
    return pa.array(numbers, pa.int64()).take(distinct.indices)


def _parse_handle(text: str) -> int | None:
    try:
        number = int(text, 0)
    except ValueError:
        return None
    return number if 0 <= number < 1 << 63 else None


def _parse_numbers(texts: pa.Array) -> np.ndarray:
    """Return texts as numbers, NaN for other texts."""
    distinct = texts.dictionary_encode()
    numbers = np.array([_parse_number(text) for text in distinct.dictionary.to_pylist()], np.float64)
    column: np.ndarray = numbers[distinct.indices.to_numpy()]
    return column


def _parse_number(text: str) -> float:
    try:
        return float(text) if len(text) < 32 and "_" not in text else float("nan")
    except ValueError:
        return float("nan")
