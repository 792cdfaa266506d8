"""CSV files of rocprof (v1) and rocprofv2: kernels with their counters; summaries (`*stats.csv`) as facts.

The columns depend on the release and on the options: with counters and no times, with times and no counters, with
registers or without. A column that is not the tool's own is a counter. Sizes are totals: they are in grid_x and
block_x, the other two null. v1 writes no correlation id. A barrier packet is a row of the queue and not a kernel.
A name may hold unquoted commas. `results.csv` and the summaries next to it are one capture.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from aaco.core.errors import BadCapture
from aaco.core.tables import COUNTERS, INT, KERNELS, NAME, REAL, TEXT
from aaco.profiler.capture import COUNTED, TIMED, CaptureFacts
from aaco.profiler.formats.rocprof_compute import workload_machine
from aaco.profiler.io import csvstream
from aaco.profiler.io.columns import bare, coded, constant, renamed
from aaco.profiler.io.csvstream import CsvTally, Header, Layout
from aaco.profiler.io.record_accounting import RecordAccount, integers, total

FORMAT = "rocprof_csv"
FIX = "record it again: rocprof --timestamp on -o results.csv PROGRAM"
BARRIER = "<barrier packet>"
NO_KERNEL = "it orders the queue and is no kernel"
SUMMARY = "a summary of executions, not an execution"
ALIASES = {
    "kernelname": "kernel_name", "index": "dispatch_id", "gpu_id": "device_id", "dev_id": "device_id",
    "pid": "process_id", "tid": "thread_id",
    "grd": "grid_x", "grid_size": "grid_x", "wgr": "block_x", "workgroup_size": "block_x", "lds": "lds_bytes",
    "lds_per_workgroup": "lds_bytes", "scr": "scratch_bytes", "scratch_per_workitem": "scratch_bytes",
    "arch_vgpr": "vgpr", "accum_vgpr": "agpr", "beginns": "t_start_ns", "start_timestamp": "t_start_ns",
    "endns": "t_end_ns", "end_timestamp": "t_end_ns", "durationns": "duration_ns", "totaldurationns": "total_ns",
}
NUMBERS = ("dispatch_id", "device_id", "queue_id", "process_id", "thread_id", "grid_x", "block_x", "lds_bytes",
           "scratch_bytes", "vgpr", "agpr", "sgpr", "t_start_ns", "t_end_ns", "duration_ns", "correlation_id",
           "stream_id")
IGNORED = frozenset({"queue_index", "fbar", "wave_size", "sig", "obj", "dispatchns", "completens", "kernel_id",
                     "xcc_index", "args", "data", "roctx_range", "__section", "__lane"})
TIMES = frozenset({"t_start_ns", "t_end_ns"})
# A dispatch is identified by its times, or by place and size; rocprofv3 has columns that these tools do not have.
TIMED_HEADER = TIMES | {"kernel_name"}
COUNTED_HEADER = frozenset({"kernel_name", "dispatch_id", "device_id", "grid_x", "block_x"})
NOT_KERNELS = frozenset({"kind", "agent_id", "counter_name", "guid"})
SUMMARY_NEEDS = frozenset({"name", "calls", "total_ns", "percentage"})
NOT_SUMMARY = frozenset({"minns", "stddev"})  # rocprofv3's
FILE = re.compile(r"(?P<run>.+?)(?:\.(?P<what>(?:[a-z]+_)?stats))?\.csv", re.IGNORECASE)


class _RocprofCsvFile(Struct, frozen=True):
    """A CSV file with its header. summary: whether its rows are sums."""

    path: Path
    head: Header
    summary: bool


def recognises(path: Path) -> bool:
    """Return whether the file's header is one that rocprof or rocprofv2 writes, and no rocprof-compute ran it."""
    return _recognise_file(path) is not None


def members(path: Path) -> Sequence[Path]:
    """Return the kernels and the summaries of one run, the kernels first."""
    return [file.path for file in _files_of_run(path)]


def kernel_pass(path: Path) -> str | None:
    """Return what the kernels were run for: whether the header of a results file has counters."""
    heads = [source.head for source in _files_of_run(path) if not source.summary]
    return COUNTED if any(map(_counter_columns, heads)) else TIMED if heads else None


def parse(path: Path) -> Iterator[pa.Table | CaptureFacts]:
    """Yield `kernels` and `counters` of the run that the file belongs to, and its CaptureFacts. Raise BadCapture."""
    sources = _files_of_run(path)
    if not sources:
        head = csvstream.header(path, ALIASES)
        raise BadCapture(f"{path}: not a CSV file of rocprof: its columns are {', '.join(head.written[:8])[:200]}", FIX)
    run = _RocprofRun(any(not source.summary for source in sources))
    for source in sources:
        yield from run.summary(source) if source.summary else run.kernels(source)
    yield run.facts()


def run_of(path: Path) -> tuple[Path, str | None]:
    """Return the folder and the name that identify the run of a file: -o NAME.csv leaves NAME.db and NAME.json too."""
    match = FILE.fullmatch(path.name)
    return path.parent, match["run"] if match else path.stem


def _recognise_file(path: Path) -> _RocprofCsvFile | None:
    head = csvstream.sniff(path, ALIASES)
    if head and head.at.keys() >= SUMMARY_NEEDS:
        return None if head.at.keys() & NOT_SUMMARY else _RocprofCsvFile(path, head, True)
    if head and "kernel_name" not in head:  # as in a dump of the database
        head = csvstream.sniff(path, ALIASES | {"name": "kernel_name"})
    if head is None or head.at.keys() & NOT_KERNELS or not any(
            head.at.keys() >= needs for needs in (TIMED_HEADER, COUNTED_HEADER)):
        return None
    return None if workload_machine.in_workload(path) else _RocprofCsvFile(path, head, False)


def _files_of_run(path: Path) -> list[_RocprofCsvFile]:
    """Return the files of the run, kernels before summaries."""
    match = FILE.fullmatch(path.name)
    names = {path.name}
    if match:
        names |= {f"{match['run']}{end}" for end in (
            ".csv", ".stats.csv", ".hip_stats.csv", ".hsa_stats.csv", ".copy_stats.csv", ".kfd_stats.csv")}
    files = [file for file in map(_recognise_file, (path.with_name(name) for name in sorted(names))) if file]
    return sorted(files, key=lambda file: file.summary)


class _RocprofRun:
    """Reads the files of one run."""

    def __init__(self, has_kernels: bool) -> None:
        self.account = RecordAccount("kernel" if has_kernels else None)
        self.count = 0
        self.sums: dict[str, list[dict[str, Any]]] = {}
        self.problems: list[str] = []

    def kernels(self, source: _RocprofCsvFile) -> Iterator[pa.Table]:
        """Yield the rows of a results file as tables."""
        types = {name: INT for name in NUMBERS if name in source.head} | {"kernel_name": NAME}
        counters = _counter_columns(source.head)
        layout = Layout(types | dict.fromkeys(counters, REAL),
                        TIMES | {"dispatch_id"}, "kernel_name")
        tally = CsvTally()
        for table in csvstream.read(source.path, source.head, layout, tally):
            yield from self._pieces(self._without_barriers(table), counters)
        self.account.skip("kernel", csvstream.BROKEN, tally.broken)
        self._collect_problems(source, tally)

    def summary(self, source: _RocprofCsvFile) -> Iterator[pa.Table]:
        """Read the rows of a stats file: no table, but facts."""
        match, tally = FILE.fullmatch(source.path.name), CsvTally()
        rows = self.sums.setdefault((match and match["what"]) or "stats", [])
        layout = Layout({"name": TEXT, "calls": INT, "total_ns": INT}, frozenset({"calls", "total_ns"}), "name")
        for table in csvstream.read(source.path, source.head, layout, tally):
            rows += table.to_pylist()
        self.account.saw("statistic", tally.rows + tally.broken)
        self.account.leave_out("statistic", SUMMARY, tally.rows)
        self.account.leave_out("statistic", csvstream.BROKEN, tally.broken)
        self._collect_problems(source, tally)
        yield from ()

    def facts(self) -> CaptureFacts:
        """Return the facts of the files."""
        rows = self.sums.get("stats")
        if rows and self.account.kernel:
            calls, ns = sum(row["calls"] for row in rows), sum(row["total_ns"] for row in rows)
            if (calls, ns) != (self.count, self.account.kernel_ns):
                self.problems.append(f"the summary file counts {calls:,} in {ns:,} ns, the file holds "
                                     f"{self.count:,} in {self.account.kernel_ns:,} ns")
        return self.account.facts(FORMAT, tuple(self.problems), tool="rocprof",
                                  metadata={"statistics": self.sums} if self.sums else {})

    def _without_barriers(self, table: pa.Table) -> pa.Table:
        barrier = pc.equal(table["kernel_name"].cast(TEXT), BARRIER)
        count = pc.sum(barrier).as_py() or 0
        if count:
            self.account.skip("barrier", NO_KERNEL, count, self._timed_ns(table.filter(barrier)))
            table = table.filter(pc.invert(barrier))
        return table

    def _pieces(self, table: pa.Table, counters: dict[str, str]) -> Iterator[pa.Table]:
        self.account.saw("kernel", table.num_rows)
        if _has_times(table) and not counters:
            start, end = map(integers, _edges(table))
            table = table.filter(pa.array(self.account.placed("kernel", start, end)))
        if not table.num_rows:
            return
        ids = np.arange(self.count, self.count + table.num_rows)
        self.count += table.num_rows
        times = self._times(table) if _has_times(table) else {}
        columns = {name: table[name] for name in NUMBERS if name in KERNELS.columns and name in table.column_names}
        yield KERNELS.build(**{
            **columns, **times, "kernel_id": ids, "kernel_name": renamed(table["kernel_name"].combine_chunks(), bare),
            "source": constant(FORMAT, len(ids)), "timed": constant("execution", len(ids))})
        if counters:
            yield _counter_rows(table, ids, counters)

    def _timed_ns(self, table: pa.Table) -> int:
        """Return the sum of the durations of barriers that were timed."""
        if not _has_times(table):
            return 0
        fit = self.account.placeable("barrier", *_edges(table))
        return total((integers(_edges(table)[1]) - integers(_edges(table)[0]))[fit])

    def _times(self, table: pa.Table) -> dict[str, pa.Array]:
        """Return the columns of the kernels' times, and report durations that contradict them."""
        times = self.account.times("kernel", *_edges(table))
        if "duration_ns" in table.column_names:
            is_different = pc.not_equal(table["duration_ns"], times["dur_ns"])
            self.account.trouble("kernels have another duration than from their start to their end",
                                 pc.sum(is_different).as_py() or 0)
        return times

    def _collect_problems(self, source: _RocprofCsvFile, tally: CsvTally) -> None:
        self.problems += [f"{source.path.name}: {problem}" for problem in tally.problems(source.head)]


def _counter_columns(head: Header) -> dict[str, str]:
    """Return the columns that are not the tool's own, and how the file writes them."""
    return {name: head.written[index].strip() for name, index in head.at.items()
            if name not in (*NUMBERS, "kernel_name") and name not in IGNORED}


def _counter_rows(table: pa.Table, ids: np.ndarray, counters: dict[str, str]) -> pa.Table:
    """Return one row per counter of a dispatch; values that were not collected are dropped."""
    values = pa.concat_arrays([chunk for column in counters for chunk in table[column].chunks])
    kept = np.flatnonzero(values.is_valid())
    codes = np.repeat(np.arange(len(counters)), len(ids))
    return COUNTERS.build(kernel_id=np.tile(ids, len(counters))[kept], value=values.take(pa.array(kept)),
                          counter=coded(codes[kept], pa.array(list(counters.values()))))


def _has_times(table: pa.Table) -> bool:
    return TIMES.issubset(table.column_names)


def _edges(table: pa.Table) -> tuple[pa.Array, pa.Array]:
    return table["t_start_ns"].combine_chunks(), table["t_end_ns"].combine_chunks()
