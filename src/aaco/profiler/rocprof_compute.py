"""A workload folder of rocprof-compute (Omniperf): dispatches with hundreds of counters, counted in separate passes.

The tool runs the program once per pass, so a dispatch was executed as often as there are passes. It is one row of
kernels here, with the times of one execution, and its counters name their passes: two of different passes may well
contradict each other. The other executions are left out, counted. Times come from timestamps.csv, the run without
counters; where that is missing or rounded, from the first pass that has them; a mean over passes is no time.
Correlation ids are left away: they differ from pass to pass and there are no calls to link.
Dispatches are the same by kernel, grid and how many of these came before, as the tool itself joins them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from aaco.core.errors import BadCapture
from aaco.core.tables import COUNTERS, KERNELS
from aaco.profiler import csvstream, workload_files, workload_machine
from aaco.profiler.capture import Facts
from aaco.profiler.columns import bare, constant, encoded
from aaco.profiler.csvstream import Tally
from aaco.profiler.dispatches import NONE, Places
from aaco.profiler.ledger import ABSENT, Ledger, integers, total
from aaco.profiler.workload_files import Ints, Source, times

FORMAT = "rocprof_compute"
TOOL = "rocprof-compute"
FIX = "profile it again: rocprof-compute profile -n NAME -- PROGRAM"
JOINED, TIMED, MACHINE = "pmc_perf.csv", "timestamps.csv", "sysinfo.csv"
KERNEL, COUNTER, PASS = "kernel", "counter", "pass"
NO_VALUE = "no number stands there"
AGAIN = "a dispatch executed again, for the counters of another pass"
UNKNOWN = "of a dispatch that the joined file has not"
GIVEN = ("dispatch_id", "device_id", "grid_x", "block_x", "lds_bytes", "scratch_bytes", "vgpr", "agpr", "sgpr")
_PASS_FILE = re.compile(r"(pmc_perf_\d{1,4}|SQ_\w{1,60})\.csv", re.ASCII)
_MEMBER = re.compile(r"(pmc_perf|timestamps|pmc_dispatch_info|sysinfo|roofline)\.csv|log\.txt|profiling_config\.yaml",
                     re.ASCII)


def recognises(path: Path) -> bool:
    """Whether the file is a workload's joined file, or its machine description where nothing is joined."""
    if path.name == JOINED:
        return workload_machine.recognises(path.parent / MACHINE) and workload_files.source(path) is not None
    return (path.name == MACHINE and workload_machine.recognises(path) and bool(_pass_files(path.parent))
            and workload_files.source(path.parent / JOINED) is None)


def members(path: Path) -> Sequence[Path]:
    """Every file of the workload, the one to parse first."""
    try:
        here = [file for file in path.parent.iterdir()
                if _MEMBER.fullmatch(file.name) or _PASS_FILE.fullmatch(file.name)]
        lists = list((path.parent / "perfmon").iterdir()) if (path.parent / "perfmon").is_dir() else []
    except OSError as error:
        raise BadCapture(f"{path}: {error.strerror or error}", "check the folder and its permissions") from error
    return (path, *(file for file in sorted([*here, *lists]) if file != path))


def parse(path: Path) -> Iterator[pa.Table | Facts]:
    """kernels, counters and device_facts of the workload, and its Facts. Raises BadCapture."""
    workload = _Workload(path)
    yield from workload.dispatches()
    for number, source in enumerate(workload.passes, start=workload.next_pass):
        yield from workload.more_counters(source, number)
    yield workload.machine.table(sorted(workload.devices) or [0])
    yield workload.facts()


def _pass_files(folder: Path) -> list[Source]:
    found = sorted(file for file in folder.glob("*.csv") if _PASS_FILE.fullmatch(file.name))
    return [source for source in map(workload_files.source, found) if source]


@dataclass
class _Numbers:
    """Numbers dispatches so that the same one has the same number in every file of the workload."""

    codes: dict[tuple[str | None, int | None], int] = field(default_factory=dict)

    def of(self, seen: Counter[int], block: pa.Table) -> Ints:
        """The numbers of a block's rows; `seen` counts what came before in the same file."""
        found = []
        for name, grid in zip(block["kernel_name"].to_pylist(), _texts(block, "grid_x"), strict=True):
            code = self.codes.setdefault((bare(name or ""), grid), len(self.codes))
            found.append(code << 32 | seen[code])
            seen[code] += 1
        return np.array(found, np.int64)


@dataclass
class _Times:
    """When each dispatch ran, by its number, and where."""

    name: str
    places: Places = field(default_factory=Places)
    columns: dict[str, list[Ints]] = field(default_factory=dict)
    rows: int = 0

    def add(self, numbers: Ints, **columns: Ints) -> None:
        """Enter a block of dispatches."""
        self.places.add(numbers, np.arange(self.rows, self.rows + len(numbers)))
        self.rows += len(numbers)
        for name, values in columns.items():
            self.columns.setdefault(name, []).append(values)

    def find(self, numbers: Ints, name: str) -> Ints:
        """A column at these dispatches, ABSENT where there is none."""
        at = self.places.find(numbers)
        values = np.concatenate([*self.columns.get(name, []), np.array([ABSENT])])
        return values[np.where(at == NONE, len(values) - 1, at)]


class _Workload:
    """Reads the files of a workload in their order and keeps the account."""

    def __init__(self, path: Path) -> None:
        self.folder = path.parent
        csvstream.header(path, {})  # what may not be read is said of the file that was named
        self.machine = workload_machine.read(self.folder)
        self.passes = _pass_files(self.folder)
        joined = workload_files.source(self.folder / JOINED)
        if joined is None and not self.passes:
            raise BadCapture(f"{path}: not a workload of rocprof-compute: no file of dispatches is there", FIX)
        self.main = joined or self.passes.pop(0)
        self.next_pass = 1 + max((counter.replay for counter in self.main.counters), default=0)
        self.ledger, self.problems = Ledger(KERNEL), list[str]()
        self.no_times: dict[str, list[str]] = {}  # why times cannot be taken -> the files in which they stand
        self.numbers, self.devices = _Numbers(), set[int]()
        self.sums: dict[str, float] = {}
        self.kernels = Places()
        self.next_id = 0

    def dispatches(self) -> Iterator[pa.Table]:
        """kernels and counters of the main file."""
        tally = Tally()
        blocks = csvstream.read(self.main.path, self.main.head, self.main.layout, tally)
        if self.main.long:
            yield from _Long(self).tables(blocks)
        else:
            yield from self._wide(blocks, self._time_source())
        self.account(KERNEL, self.main, tally)

    def _wide(self, blocks: Iterator[pa.Table], timed: _Times | None) -> Iterator[pa.Table]:
        seen: Counter[int] = Counter()
        why: set[str] = set()
        for block in blocks:
            numbers, ids = self.numbers.of(seen, block), self.new_ids(block.num_rows)
            self.kernels.add(numbers, ids)
            if timed:
                found = {name: timed.find(numbers, name) for name in timed.columns}
            else:
                found, reasons = _own_times(block)
                why |= reasons
            yield self.kernel_table(block, ids, found)
            yield self.count(block, self.main, ids, shift=0)
            for counter in self.main.counters:
                self.sums[counter.column] = self.sums.get(counter.column, 0.0) + _sum(block[counter.column])
        self.reject_times(self.main, why)

    def more_counters(self, source: Source, number: int) -> Iterator[pa.Table]:
        """The counters of a pass whose file stands by itself; of a pass that was joined, only the account."""
        tally, seen = Tally(), Counter[int]()
        joined, executed_ns = self._is_joined(source), 0
        for block in csvstream.read(source.path, source.head, source.layout, tally):
            executed_ns += _duration(_own_times(block)[0])
            ids = self.kernels.find(self.numbers.of(seen, block))
            if not joined:
                yield self.count(block, source, ids, shift=number)
        self.ledger.saw(PASS, tally.rows)
        self.ledger.leave_out(PASS, AGAIN, tally.rows, executed_ns)
        self.account(PASS, source, tally)

    def _is_joined(self, source: Source) -> bool:
        """Whether the joined file holds this very pass: its counters, with the same sums."""
        if self.main.path.name != JOINED or not {counter.column for counter in source.counters} <= self.sums.keys():
            return False
        sums: Counter[str] = Counter()
        for block in csvstream.read(source.path, source.head, source.layout, Tally()):
            sums.update({counter.column: _sum(block[counter.column]) for counter in source.counters})
        return all(value == self.sums[column] for column, value in sums.items())

    def new_ids(self, count: int) -> Ints:
        """Keys for new rows of kernels."""
        self.next_id += count
        return np.arange(self.next_id - count, self.next_id)

    def kernel_table(self, block: pa.Table, ids: Ints, found: dict[str, Ints]) -> pa.Table:
        """A row per dispatch."""
        start, end = found["t_start_ns"], found["t_end_ns"]
        known = (start != ABSENT) & (end != ABSENT) & (end >= start)
        duration = np.where(known, end - np.where(known, start, 0), ABSENT)
        self.ledger.saw(KERNEL, len(ids))
        self.ledger.kernel_ns += total(duration[known])
        self.ledger.trouble("dispatches have no time", int((~known).sum()))
        columns: dict[str, Any] = {name: block[name] for name in GIVEN if name in block.column_names}
        self.devices |= set(_texts(block, "device_id")) - {None}
        columns |= {name: _nullable(np.where(known, found[name], ABSENT)) for name in ("t_start_ns", "t_end_ns")}
        columns |= {name: _nullable(found[name]) for name in ("process_id", "thread_id", "queue_id") if name in found}
        return KERNELS.build(
            kernel_id=ids, kernel_name=encoded([bare(name or "") for name in block["kernel_name"].to_pylist()]),
            dur_ns=_nullable(duration), source=constant(FORMAT, len(ids)), **columns)

    def count(self, block: pa.Table, source: Source, ids: Ints, shift: int) -> pa.Table:
        """A row per counter of each dispatch that has a kernel; `shift` is added to the pass of the column."""
        counters = source.counters
        values = np.array([_reals(block[counter.column]) for counter in counters]).reshape(len(counters), len(ids)).T
        kept = np.isfinite(values) & (ids != NONE)[:, None]
        self.ledger.saw(COUNTER, values.size)
        self.ledger.leave_out(COUNTER, UNKNOWN, int((ids == NONE).sum()) * len(counters))
        self.ledger.leave_out(COUNTER, NO_VALUE, int((~np.isfinite(values) & (ids != NONE)[:, None]).sum()))
        rows, columns = np.nonzero(kept)
        names = pa.array([counter.name for counter in counters], pa.string())
        replays = np.array([counter.replay for counter in counters], np.int64) + shift
        return COUNTERS.build(
            kernel_id=ids[rows], value=values[kept], **{"pass": replays[columns]},
            counter=pa.DictionaryArray.from_arrays(pa.array(columns, pa.int32()), names))

    def reject_times(self, source: Source, why: set[str]) -> None:
        """Enter that a file's times cannot be taken."""
        for reason in sorted(why):
            self.no_times[reason] = list(dict.fromkeys([*self.no_times.get(reason, []), source.path.name]))

    def account(self, kind: str, source: Source, tally: Tally) -> None:
        """Enter what became of a file's rows."""
        self.ledger.saw(kind, tally.broken)
        self.ledger.leave_out(kind, csvstream.BROKEN, tally.broken)
        self.problems += [f"{source.path.name}: {said}" for said in tally.problems(source.head)]

    def _time_source(self) -> _Times | None:
        """The first file whose times are those of one execution each: the run without counters, else a pass."""
        timed = workload_files.source(self.folder / TIMED)
        for source in ([timed] if timed else []) + self.passes:
            found, why = self._read_times(source)
            self.reject_times(source, why)
            if not why and found.rows:
                if source.path.name != TIMED:
                    self.problems.append(f"the times are those of one pass, {source.path.name}")
                return found
        return None

    def _read_times(self, source: Source) -> tuple[_Times, set[str]]:
        found, why, seen = _Times(source.path.name), set[str](), Counter[int]()
        for block in csvstream.read(source.path, source.head, source.layout, Tally()):
            columns, reasons = _own_times(block)
            why |= reasons
            where = {name: integers(block[name].combine_chunks()) for name in ("process_id", "thread_id", "queue_id")
                     if name in block.column_names}
            found.add(self.numbers.of(seen, block), **columns, **where)
        return found, why

    def facts(self) -> Facts:
        """What the workload says of itself."""
        said = self.machine.said
        devices = tuple(self.machine.device(number) for number in sorted(self.devices) or [0])
        metadata = {name: said[name] for name in ("rocm_version", "gpu_series") if said.get(name)}
        times_missing = [f"times are {why} in {', '.join(names[:3])}{' ...' * (len(names) > 3)}"
                         for why, names in self.no_times.items()]
        return self.ledger.facts(
            FORMAT, (*self.problems, *times_missing, *self.machine.problems), tool=TOOL,
            clock="boottime" if said.get("version") == "3" else "unknown",  # rocprofv3's; of the older ones nobody says
            devices=devices, host=said.get("hostname") or None,
            metadata=metadata | {"schema_version": said.get("version")})


class _Long:
    """Reads a joined file with a row per counter, as the rocpd output of the tool has it.

    The rows of one execution stand together; the n-th execution of a dispatch is its n-th pass.
    """

    def __init__(self, workload: _Workload) -> None:
        self.workload = workload
        self.last: tuple[Any, ...] | None = None
        self.kernel, self.replay, self.pending = NONE, 0, 0
        self.known: dict[tuple[Any, ...], list[int]] = {}  # dispatch -> its kernel, and its executions so far

    def tables(self, blocks: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """kernels and counters."""
        for block in blocks:
            begins = self._begins(block)
            kernels, replays, new = np.full(block.num_rows, self.kernel), np.full(block.num_rows, self.replay), []
            for at in np.flatnonzero(begins).tolist():
                if self._execution(block.slice(at, 1)):
                    new.append(at)
                kernels[at:], replays[at:] = self.kernel, self.replay
            yield from self._new_kernels(block.take(pa.array(new, pa.int64())))
            yield self._counters(block, kernels, replays)

    def _begins(self, block: pa.Table) -> np.ndarray:
        """Where another execution begins than that of the row before."""
        rows = list(zip(*(_texts(block, name) for name in ("dispatch_id", "start", "end", "kernel_name")), strict=True))
        before = [self.last, *rows][:len(rows)]
        self.last = rows[-1] if rows else self.last
        return np.array([one != other for one, other in zip(rows, before, strict=True)], bool)

    def _execution(self, row: pa.Table) -> bool:
        """Enter an execution; whether it is the first of its dispatch."""
        ledger = self.workload.ledger
        dispatch = tuple(_texts(row, name)[0] for name in ("dispatch_id", "kernel_name", "grid_x", "device_id"))
        found = self.known.get(dispatch)
        if found is None:
            self.kernel, self.replay = self.workload.next_id + self.pending, 0
            self.pending += 1
            self.known[dispatch] = [self.kernel, 1]
            return True
        self.kernel, self.replay = found
        found[1] += 1
        ledger.saw(PASS, 1)
        ledger.leave_out(PASS, AGAIN, 1, _duration(_own_times(row)[0]))
        return False

    def _new_kernels(self, rows: pa.Table) -> Iterator[pa.Table]:
        found, why = _own_times(rows)
        self.workload.reject_times(self.workload.main, why)
        self.pending = 0
        if rows.num_rows:
            yield self.workload.kernel_table(rows, self.workload.new_ids(rows.num_rows), found)

    def _counters(self, block: pa.Table, kernels: Ints, replays: Ints) -> pa.Table:
        ledger, values = self.workload.ledger, _reals(block["counter_value"])
        kept = np.isfinite(values)
        ledger.saw(COUNTER, len(values))
        ledger.leave_out(COUNTER, NO_VALUE, int((~kept).sum()))
        names = encoded(block["counter_name"].filter(pa.array(kept)).to_pylist())
        return COUNTERS.build(kernel_id=kernels[kept], counter=names, value=values[kept], **{"pass": replays[kept]})


def _own_times(block: pa.Table) -> tuple[dict[str, Ints], set[str]]:
    start, no_start = times(block["start"] if "start" in block.column_names else None, block.num_rows)
    end, no_end = times(block["end"] if "end" in block.column_names else None, block.num_rows)
    return {"t_start_ns": start, "t_end_ns": end}, no_start | no_end


def _duration(found: dict[str, Ints]) -> int:
    start, end = found["t_start_ns"], found["t_end_ns"]
    known = (start != ABSENT) & (end >= start)
    return total((end - np.where(known, start, 0))[known])


def _texts(block: pa.Table, name: str) -> list[Any]:
    return block[name].to_pylist() if name in block.column_names else [None] * block.num_rows


def _reals(column: pa.ChunkedArray) -> np.ndarray:
    found: np.ndarray = column.combine_chunks().to_numpy(zero_copy_only=False).astype(np.float64)
    return found


def _sum(column: pa.ChunkedArray) -> float:
    return float(np.nansum(_reals(column)))


def _nullable(values: Ints) -> pa.Array:
    return pa.array(values, mask=values == ABSENT)
