"""CSV files of rocprof (v1) and rocprofv2: kernels with their counters; summaries (`*stats.csv`) as facts.

The columns drift from release to release and by what was asked for: with counters and no times, with times and no
counters, registers or none. What is no column of the tool's own is a counter. Sizes are totals: they stand in grid_x
and block_x, the other two null. v1 gives no correlation id. A barrier packet is a row of the queue and no kernel.
A name may hold commas that nobody quoted. `results.csv` and the summaries beside it are one capture.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.core.errors import BadCapture
from aaco.core.tables import COUNTERS, INT, KERNELS, NAME, REAL, TEXT
from aaco.profiler import csvstream, workload_machine
from aaco.profiler.capture import Facts
from aaco.profiler.columns import bare, coded, constant, renamed
from aaco.profiler.csvstream import Header, Layout, Tally
from aaco.profiler.ledger import Ledger, integers, total

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
# A dispatch is known by when it ran, or by where and how large; and rocprofv3 has columns that these tools have not.
TIMED = TIMES | {"kernel_name"}
COUNTED = frozenset({"kernel_name", "dispatch_id", "device_id", "grid_x", "block_x"})
NOT_KERNELS = frozenset({"kind", "agent_id", "counter_name", "guid"})
SUMMARY_NEEDS = frozenset({"name", "calls", "total_ns", "percentage"})
NOT_SUMMARY = frozenset({"minns", "stddev"})  # rocprofv3's
FILE = re.compile(r"(?P<run>.+?)(?:\.(?P<what>(?:[a-z]+_)?stats))?\.csv", re.IGNORECASE)


@dataclass(frozen=True)
class _Source:
    path: Path
    head: Header
    summary: bool


def recognises(path: Path) -> bool:
    """Whether the file's header is one that rocprof or rocprofv2 writes, and no rocprof-compute ran it."""
    return _source(path) is not None


def members(path: Path) -> Sequence[Path]:
    """The kernels and the summaries of one run, the kernels first."""
    return [each.path for each in _run_of(path)]


def parse(path: Path) -> Iterator[pa.Table | Facts]:
    """`kernels` and `counters` of the run that the file belongs to, and its Facts. Raises BadCapture."""
    sources = _run_of(path)
    if not sources:
        head = csvstream.header(path, ALIASES)
        raise BadCapture(f"{path}: not a CSV file of rocprof: its columns are {', '.join(head.written[:8])[:200]}", FIX)
    run = _Run(any(not each.summary for each in sources))
    for each in sources:
        yield from run.summary(each) if each.summary else run.kernels(each)
    yield run.facts()


def _source(path: Path) -> _Source | None:
    head = csvstream.sniff(path, ALIASES)
    if head and head.at.keys() >= SUMMARY_NEEDS:
        return None if head.at.keys() & NOT_SUMMARY else _Source(path, head, True)
    if head and "kernel_name" not in head:  # as in a dump of the database
        head = csvstream.sniff(path, ALIASES | {"name": "kernel_name"})
    if head is None or head.at.keys() & NOT_KERNELS or not (head.at.keys() >= TIMED or head.at.keys() >= COUNTED):
        return None
    return None if workload_machine.in_workload(path) else _Source(path, head, False)


def _run_of(path: Path) -> list[_Source]:
    """The files of the run, kernels before summaries."""
    named = FILE.fullmatch(path.name)
    names = {path.name}
    if named:
        names |= {f"{named['run']}{end}" for end in (
            ".csv", ".stats.csv", ".hip_stats.csv", ".hsa_stats.csv", ".copy_stats.csv", ".kfd_stats.csv")}
    found = [each for each in map(_source, (path.with_name(name) for name in sorted(names))) if each]
    return sorted(found, key=lambda each: each.summary)


class _Run:
    """Reads the files of one run."""

    def __init__(self, has_kernels: bool) -> None:
        self.ledger = Ledger("kernel" if has_kernels else None)
        self.count = 0
        self.sums: dict[str, list[dict[str, Any]]] = {}
        self.problems: list[str] = []

    def kernels(self, source: _Source) -> Iterator[pa.Table]:
        """The rows of a results file."""
        known = {name: INT for name in NUMBERS if name in source.head} | {"kernel_name": NAME}
        counters = {name: source.head.written[at].strip() for name, at in source.head.at.items()
                    if name not in known and name not in IGNORED}
        layout = Layout(known | dict.fromkeys(counters, REAL),
                        TIMES | {"dispatch_id"}, "kernel_name")
        tally = Tally()
        for table in csvstream.read(source.path, source.head, layout, tally):
            yield from self._pieces(self._without_barriers(table), counters)
        self.ledger.saw("kernel", tally.broken)
        self.ledger.leave_out("kernel", csvstream.BROKEN, tally.broken)
        self._tell(source, tally)

    def summary(self, source: _Source) -> Iterator[pa.Table]:
        """The rows of a stats file: no table, but facts."""
        named, tally = FILE.fullmatch(source.path.name), Tally()
        rows = self.sums.setdefault((named and named["what"]) or "stats", [])
        layout = Layout({"name": TEXT, "calls": INT, "total_ns": INT}, frozenset({"calls", "total_ns"}), "name")
        for table in csvstream.read(source.path, source.head, layout, tally):
            rows += table.to_pylist()
        self.ledger.saw("statistic", tally.rows + tally.broken)
        self.ledger.leave_out("statistic", SUMMARY, tally.rows)
        self.ledger.leave_out("statistic", csvstream.BROKEN, tally.broken)
        self._tell(source, tally)
        yield from ()

    def facts(self) -> Facts:
        """What the files say of themselves."""
        said = self.sums.get("stats")
        if said and self.ledger.kernel:
            calls, ns = sum(row["calls"] for row in said), sum(row["total_ns"] for row in said)
            if (calls, ns) != (self.count, self.ledger.kernel_ns):
                self.problems.append(f"the summary beside the kernels counts {calls} in {ns} ns, the file holds "
                                     f"{self.count} in {self.ledger.kernel_ns} ns")
        return self.ledger.facts(FORMAT, tuple(self.problems), tool="rocprof",
                                 metadata={"statistics": self.sums} if self.sums else {})

    def _without_barriers(self, table: pa.Table) -> pa.Table:
        barrier = pc.equal(table["kernel_name"].cast(TEXT), BARRIER)
        count = pc.sum(barrier).as_py() or 0
        if count:
            times = _when(table.filter(barrier))
            self.ledger.saw("barrier", count)
            self.ledger.leave_out("barrier", NO_KERNEL, count, total(integers(times["dur_ns"])) if times else 0)
            table = table.filter(pc.invert(barrier))
        return table

    def _pieces(self, table: pa.Table, counters: dict[str, str]) -> Iterator[pa.Table]:
        if not table.num_rows:
            return
        ids = np.arange(self.count, self.count + table.num_rows)
        self.count += table.num_rows
        self.ledger.saw("kernel", table.num_rows)
        times = _when(table)
        if times:
            self._check(table, times)
        given = {name: table[name] for name in NUMBERS if name in KERNELS.columns and name in table.column_names}
        yield KERNELS.build(**{
            **given, **times, "kernel_id": ids, "kernel_name": renamed(table["kernel_name"].combine_chunks(), bare),
            "source": constant(FORMAT, len(ids)), "timed": constant("execution", len(ids))})
        if counters:
            yield _long(table, ids, counters)

    def _check(self, table: pa.Table, times: dict[str, pa.Array]) -> None:
        """Enter the kernels' times into the account, and say what cannot be right about them."""
        start, end, took = (integers(times[name]) for name in ("t_start_ns", "t_end_ns", "dur_ns"))
        self.ledger.kernel_ns += total(took)
        self.ledger.trouble("kernels end before they start", int((end < start).sum()))
        self.ledger.trouble("kernels start or end at time 0", int(((start == 0) | (end == 0)).sum()))
        if "duration_ns" in table.column_names:
            said = pc.not_equal(table["duration_ns"], times["dur_ns"])
            self.ledger.trouble("kernels have another duration than from their start to their end",
                                pc.sum(said).as_py() or 0)

    def _tell(self, source: _Source, tally: Tally) -> None:
        self.problems += [f"{source.path.name}: {problem}" for problem in tally.problems(source.head)]


def _long(table: pa.Table, ids: np.ndarray, counters: dict[str, str]) -> pa.Table:
    """One row per counter of a dispatch; those that a dispatch was not counted on are left away."""
    values = pa.concat_arrays([chunk for column in counters for chunk in table[column].chunks])
    kept = np.flatnonzero(values.is_valid())
    codes = np.repeat(np.arange(len(counters)), len(ids))
    return COUNTERS.build(kernel_id=np.tile(ids, len(counters))[kept], value=values.take(pa.array(kept)),
                          counter=coded(codes[kept], pa.array(list(counters.values()))))


def _when(table: pa.Table) -> dict[str, pa.Array]:
    """Start, end and duration of the rows, as far as the file has them."""
    if not TIMES.issubset(table.column_names):
        return {}
    start, end = (table[name].combine_chunks() for name in ("t_start_ns", "t_end_ns"))
    return {"t_start_ns": start, "t_end_ns": end, "dur_ns": pc.subtract(end, start)}
