"""rocprofv3's CSV files of one run: kernels, API calls, copies, allocations, counters; summaries as facts.

The files of a run have one prefix (`1234_kernel_trace.csv`, `1234_hip_api_trace.csv`) and are one capture. Files that
name different processes are of different runs, with any name, and each is a capture by itself.

A dispatch in both a kernel trace and a counter collection is one kernel: they are joined by Dispatch_Id. Each replay
pass of a counter collection without a kernel trace is an execution of its own; the pass is Replay_Pass, or the number
of the `pass_N` folder that rocprofv3 writes a pass into.

Correlation ids are those of the file; if one file holds several processes (`rocpd convert`, column Guid), those of the
n-th process are moved up by n x 2^48. If a file has only the total of a size, grid_x and block_x hold it, and the other
two are null. A CPU agent is the host: device null; without agent_info.csv CPUs are unknown, and the agent's number is
the device. What was never timed is left out and counted; a dispatch with counters stays, without times.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.core.arrays import Ints
from aaco.core.errors import BadCapture
from aaco.core.key_index import NONE
from aaco.core.tables import ALLOCATIONS, API_CALLS, COPIES, COUNTERS, INT, KERNELS, TEXT, TableSpec
from aaco.profiler.capture import COUNTED, MIXED, TIMED, CaptureFacts
from aaco.profiler.formats.rocprofv3 import rocprofv3_layout as files
from aaco.profiler.formats.rocprofv3.rocm_labels import RocmAgents, allocation, direction, domain
from aaco.profiler.formats.rocprofv3.rocprofv3_layout import TIMES, CsvSource
from aaco.profiler.io import csvstream
from aaco.profiler.io.columns import bare, constant, renamed
from aaco.profiler.io.csvstream import CsvTally, Layout
from aaco.profiler.io.dispatches import CounterRows, Dispatches
from aaco.profiler.io.record_accounting import ABSENT, RecordAccount, integers, total

FORMAT = "rocprofv3_csv"
TOOL = "rocprofv3"
CLOCK = "boottime"  # rocprofiler-sdk, lib/common/utility.hpp: default_clock_id
FIX = "record it again: rocprofv3 --runtime-trace --output-format csv -- PROGRAM"
PER_PROCESS = 1 << 48
SUMMARY = "a summary of executions, not an execution"
PASS = re.compile(r"pass_(\d{1,6})", re.IGNORECASE | re.ASCII)


def recognises(path: Path) -> bool:
    """Return whether the file's header is one that rocprofv3 writes."""
    return files.source(path) is not None


def members(path: Path) -> Sequence[Path]:
    """Return the files of the run, the file with the kernels first."""
    return [source.path for source in _sources_of_run(path)]


def kernel_pass(path: Path) -> str | None:
    """Return what the run's kernels were run for, by the kinds of its files. Raise BadCapture."""
    sources = _sources_of_run(path)
    kinds = [source.kind for source in sources]
    several = files.KERNEL in kinds or any({"replay_pass", "guid"} & source.head.at.keys() for source in sources)
    if files.COUNTER in kinds:
        return MIXED if several else COUNTED
    return TIMED if files.KERNEL in kinds else None


def parse(path: Path) -> Iterator[pa.Table | CaptureFacts]:
    """Yield the tables of the run that the file belongs to, and its CaptureFacts. Raise BadCapture."""
    sources = _sources_of_run(path)
    if not sources:
        head = csvstream.header(path, files.ALIASES)
        raise BadCapture(f"{path}: not a CSV file of rocprofv3: its columns are {', '.join(head.written[:8])[:200]}",
                         FIX)
    run = _Rocprofv3Run(sources)
    for source in sorted(sources, key=lambda file: files.KINDS.index(file.kind)):
        yield from run.tables(source)
    yield run.facts()


def _sources_of_run(path: Path) -> list[CsvSource]:
    """Return the sources of the run, the one with the kernels first; only the file itself if others name other
    processes.
    """
    sources = files.siblings(path)
    processes = {process for source in sources if "guid" not in source.head
                 for process in [_first_process(source)]} - {None}
    if len(processes) > 1:
        sources = [source for source in sources if source.path == path]
    order = (files.KERNEL, files.COUNTER, *files.KINDS)
    return sorted(sources, key=lambda source: order.index(source.kind))


def _first_process(source: CsvSource) -> int | None:
    """Return the process that the file's first row names."""
    if "process_id" not in source.head:
        return None
    try:
        for table in csvstream.read(source.path, source.head, Layout({"process_id": INT}), CsvTally()):
            if table.num_rows:
                return table["process_id"][0].as_py()
    except BadCapture:
        pass  # parsing the file reports it
    return None


class _Rocprofv3Run:
    """Reads the files of one run, in the order of files.KINDS."""

    def __init__(self, sources: Sequence[CsvSource]) -> None:
        kinds = {source.kind.record for source in sources}
        self.account = RecordAccount(files.KERNEL.record if kinds & {files.KERNEL.record, files.COUNTER.record}
                                     else None)
        self.dispatches = Dispatches() if files.COUNTER.record in kinds else None
        named = {_first_process(source) for source in sources if "guid" not in source.head} - {None}
        self.process = named.pop() if len(named) == 1 else None
        self.folder_pass = _folder_pass(sources[0].path)
        self.next_id = dict.fromkeys((KERNELS.name, COPIES.name, API_CALLS.name), 0)
        self.guids: dict[str | None, int] = {}
        self.threads: set[int] = set()  # of the kernel trace
        self.agents = RocmAgents()
        self.traced: Counter[str] = Counter()
        self.traced_ns: Counter[str] = Counter()
        self.summaries: dict[str, list[dict[str, Any]]] = {}
        self.problems: list[str] = []

    def tables(self, source: CsvSource) -> Iterator[pa.Table]:
        """Yield the rows of one file as tables."""
        make: dict[str, Callable[[CsvSource, pa.Table], Sequence[pa.Table]]] = {
            "agent": self._agent, "kernel": self._kernel, "counter": self._counter, "copy": self._copy,
            "allocation": self._allocation, "scratch": self._allocation, "call": self._call,
            "statistic": self._statistic}
        tally = CsvTally()
        for table in csvstream.read(source.path, source.head, source.kind.layout, tally):
            table = self._placed(source, table)
            if table.num_rows:
                yield from make[source.kind.record](source, table)
        if source.kind is not files.AGENT:
            self.account.saw(source.kind.record, tally.rows + tally.broken)
            self.account.leave_out(source.kind.record, csvstream.BROKEN, tally.broken)
        self.problems += [f"{source.path.name}: {problem}" for problem in tally.problems(source.head)]

    def facts(self) -> CaptureFacts:
        """Return the facts of the run's files."""
        metadata: dict[str, Any] = {} if self.folder_pass is None else {"pass": self.folder_pass}
        if self.summaries:
            metadata["statistics"] = self.summaries
        return self.account.facts(FORMAT, (*self.problems, *self._contradictions()), tool=TOOL, clock=CLOCK,
                                  devices=self.agents.devices(), metadata=metadata)

    def _agent(self, _: CsvSource, table: pa.Table) -> Sequence[pa.Table]:
        self.agents.describe(table.to_pylist())
        return ()

    def _kernel(self, source: CsvSource, table: pa.Table) -> Sequence[pa.Table]:
        ids = self._ids(KERNELS.name, table.num_rows)
        if self.dispatches and "dispatch_id" in table.column_names:
            self.dispatches.trace(self._processes(table), integers(_whole_column(table, "dispatch_id")), ids)
            self.threads.update(_distinct(table, "thread_id"))
        self._trace(source, table)
        return [self._kernels(table, ids)]

    def _kernels(self, table: pa.Table, ids: Ints) -> pa.Table:
        """Return the rows as kernels, counted in the account."""
        when = self.account.times(files.KERNEL.record, *_edges(table)) if _has_times(table) else {}
        sizes = {f"{size}_x": table[f"{size}_total"] for size in ("grid", "block")
                 if f"{size}_total" in table.column_names}
        return KERNELS.build(**{
            **sizes, **_columns(table, KERNELS), **when, **self._source_columns(table), "kernel_id": ids,
            "kernel_name": renamed(_whole_column(table, "kernel_name"), bare),
            "device_id": self._device(table, "agent"),
            "source": constant(FORMAT, len(ids)), "timed": constant("execution", len(ids))})

    def _counter(self, source: CsvSource, table: pa.Table) -> Sequence[pa.Table]:
        assert self.dispatches is not None
        self._check_same_run(source, table)
        passes = self._passes(table)
        rows = CounterRows(self._processes(table), passes, integers(_whole_column(table, "dispatch_id")))
        ids, first = self.dispatches.kernels(rows, lambda count: self._ids(KERNELS.name, count))
        counters = COUNTERS.build(kernel_id=ids, counter=table["counter_name"], value=table["counter_value"],
                                  **{"pass": pa.array(passes, mask=passes < 0)})
        self.account.saw(files.KERNEL.record, len(first))
        return [self._kernels(table.take(first), ids[first]), counters]

    def _check_same_run(self, source: CsvSource, table: pa.Table) -> None:
        """Drop the kernel trace if it shares no thread with the counters."""
        threads = _distinct(table, "thread_id")
        if self.threads and threads and not self.threads & threads:
            assert self.dispatches is not None
            self.dispatches.forget()
            self.problems.append(f"{source.path.name}: no thread in common with its kernel trace: from another run, "
                                 "its dispatches are kernels of their own")
        self.threads.clear()

    def _copy(self, source: CsvSource, table: pa.Table) -> Sequence[pa.Table]:
        self._trace(source, table)
        kinds = renamed(_whole_column(table, "direction"), direction).cast(TEXT)
        start, end = self._device(table, "source"), self._device(table, "destination")
        from_host, to_host = (pc.is_in(kinds, pa.array(host_kinds)) for host_kinds in (["h2d", "h2h"], ["d2h", "h2h"]))
        nothing = pa.scalar(None, INT)
        src, dst = pc.if_else(from_host, nothing, start), pc.if_else(to_host, nothing, end)
        p2p = pc.and_(pc.equal(kinds, "d2d"), pc.fill_null(pc.not_equal(src, dst), False))
        return [COPIES.build(**{
            **_columns(table, COPIES), **_time_columns(table), **self._source_columns(table),
            "copy_id": self._ids(COPIES.name, table.num_rows),
            "kind": pc.if_else(p2p, "p2p", kinds).dictionary_encode(), "src_device": src, "dst_device": dst,
            "device_id": pc.coalesce(pc.if_else(pc.is_in(kinds, pa.array(["d2h", "d2d"])), src, dst), src),
            "source": constant(FORMAT, table.num_rows)})]

    def _allocation(self, source: CsvSource, table: pa.Table) -> Sequence[pa.Table]:
        self._trace(source, table)
        when = _time_columns(table)
        return [ALLOCATIONS.build(**{
            **_columns(table, ALLOCATIONS), **self._source_columns(table), "t_ns": when["t_start_ns"],
            "dur_ns": when["dur_ns"],
            "kind": renamed(_whole_column(table, "operation"), allocation), "device_id": self._device(table, "agent")})]

    def _call(self, source: CsvSource, table: pa.Table) -> Sequence[pa.Table]:
        self._trace(source, table)
        return [API_CALLS.build(**{
            **_columns(table, API_CALLS), **_time_columns(table), **self._source_columns(table),
            "call_id": self._ids(API_CALLS.name, table.num_rows), "name": table["function"],
            "domain": renamed(_whole_column(table, "domain"), domain)})]

    def _statistic(self, source: CsvSource, table: pa.Table) -> Sequence[pa.Table]:
        self.account.leave_out(source.kind.record, SUMMARY, table.num_rows)
        self.summaries.setdefault(source.subject or source.path.stem, []).extend(table.to_pylist())
        return ()

    def _contradictions(self) -> Iterator[str]:
        """Yield the summaries that differ from the trace of the same run."""
        for subject in self.summaries.keys() & self.traced.keys():
            rows = self.summaries[subject]
            summed = sum(row["calls"] or 0 for row in rows), sum(row["total_ns"] for row in rows)
            traced = self.traced[subject], self.traced_ns[subject]
            if summed != traced:
                yield (f"{subject}: the summary file counts {summed[0]:,} in {summed[1]:,} ns, the trace holds "
                       f"{traced[0]:,} in {traced[1]:,} ns")

    def _trace(self, source: CsvSource, table: pa.Table) -> None:
        self.traced[source.subject] += table.num_rows
        self.traced_ns[source.subject] += total(integers(_time_columns(table)["dur_ns"]))

    def _ids(self, table: str, count: int) -> Ints:
        first = self.next_id[table]
        self.next_id[table] += count
        return np.arange(first, first + count)

    def _placed(self, source: CsvSource, table: pa.Table) -> pa.Table:
        """Return the rows that can be placed in time; those of counters all."""
        if source.kind is files.COUNTER or not _has_times(table):
            return table
        start, end = map(integers, _edges(table))
        fit = self.account.placed(source.kind.record, start, end)
        return table if fit.all() else table.filter(pa.array(fit))

    def _source_columns(self, table: pa.Table) -> dict[str, pa.Array]:
        """Return process and correlation id of the rows."""
        process = table["process_id"] if "process_id" in table.column_names else pa.array(
            np.full(table.num_rows, self.process or 0), INT, mask=np.full(table.num_rows, self.process is None))
        return {"process_id": process, **self._correlation(table)}

    def _correlation(self, table: pa.Table) -> dict[str, pa.Array]:
        process = self._processes(table)
        if "correlation_id" not in table.column_names or not process.any():
            return _columns(table, API_CALLS, ("correlation_id",))
        ids = integers(_whole_column(table, "correlation_id"))
        movable = (process == 0) | ((ids >= 0) & (ids < PER_PROCESS))
        return {"correlation_id": pa.array(np.where(movable, ids + process * PER_PROCESS, 0),
                                           mask=~movable | (ids == ABSENT))}

    def _processes(self, table: pa.Table) -> Ints:
        """Return the number of each row's process among those of the run."""
        if "guid" not in table.column_names:
            return np.zeros(table.num_rows, np.int64)
        column = _whole_column(table, "guid")
        numbers = [self.guids.setdefault(guid, len(self.guids)) for guid in column.dictionary.to_pylist()]
        return np.array([*numbers, 0], np.int64)[np.asarray(column.indices.fill_null(len(numbers)))]

    def _passes(self, table: pa.Table) -> Ints:
        """Return the replay pass of each row, NONE if nothing states it."""
        if "replay_pass" in table.column_names:
            return np.asarray(_whole_column(table, "replay_pass").fill_null(NONE))
        return np.full(table.num_rows, NONE if self.folder_pass is None else self.folder_pass, np.int64)

    def _device(self, table: pa.Table, column: str) -> pa.Array | None:
        if column not in table.column_names:
            return None
        labels = _whole_column(table, column)
        return pa.array(map(self.agents.id, labels.dictionary.to_pylist()), INT).take(labels.indices)


def _has_times(table: pa.Table) -> bool:
    return set(table.column_names) >= TIMES


def _edges(table: pa.Table) -> tuple[pa.Array, pa.Array]:
    return _whole_column(table, "t_start_ns"), _whole_column(table, "t_end_ns")


def _time_columns(table: pa.Table) -> dict[str, pa.Array]:
    """Return start, end and duration of rows that are placed in time, as far as the file has them."""
    if not _has_times(table):
        return {}
    start, end = _edges(table)
    return {"t_start_ns": start, "t_end_ns": end, "dur_ns": pc.subtract(end, start)}


def _whole_column(table: pa.Table, name: str) -> pa.Array:
    column = table[name]
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()  # which would copy even one


def _columns(table: pa.Table, spec: TableSpec, names: Iterable[str] | None = None) -> dict[str, pa.Array]:
    return {name: _whole_column(table, name) for name in names or spec.columns if name in table.column_names}


def _distinct(table: pa.Table, name: str) -> set[int]:
    return set(pc.unique(table[name]).drop_null().to_pylist()) if name in table.column_names else set()


def _folder_pass(path: Path) -> int | None:
    matches = [PASS.fullmatch(match) for match in path.absolute().parts[-3:-1]]
    return next((int(match[1]) for match in matches if match), None)
