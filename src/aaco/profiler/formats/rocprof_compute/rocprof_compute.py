"""A workload folder of rocprof-compute (Omniperf): dispatches with hundreds of counters, counted in separate passes.

The tool runs the program once per pass, so a dispatch was executed once per pass. It is one row of kernels here, with
the times of one execution, and its counters name their passes: counters of different passes may contradict each other.
The other executions are left out and counted. Times come from timestamps.csv, the run without counters; if that is
missing or rounded, from the first pass that has them; a mean over passes is not a time.
Correlation ids are dropped: they differ from pass to pass and there are no calls to link.
Dispatches are the same by kernel, grid and the number of equal ones before, as the tool itself joins them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from aaco.core.arrays import Ints
from aaco.core.errors import BadCapture
from aaco.core.key_index import NONE, KeyIndex
from aaco.core.tables import COUNTERS, KERNELS
from aaco.profiler import capture
from aaco.profiler.capture import CaptureFacts
from aaco.profiler.formats.rocprof_compute import workload_files, workload_machine
from aaco.profiler.formats.rocprof_compute.workload_files import DispatchFile, times
from aaco.profiler.io import csvstream
from aaco.profiler.io.columns import bare, constant, encoded
from aaco.profiler.io.csvstream import CsvTally
from aaco.profiler.io.record_accounting import ABSENT, RecordAccount, integers, total

FORMAT = "rocprof_compute"
TOOL = "rocprof-compute"
FIX = "profile it again: rocprof-compute profile -n NAME -- PROGRAM"
JOINED, TIMED, MACHINE = "pmc_perf.csv", "timestamps.csv", "sysinfo.csv"
KERNEL, COUNTER, PASS = "kernel", "counter", "pass"
NO_VALUE = "no number stands there"
AGAIN = "a dispatch executed again, for the counters of another pass"
UNKNOWN = "of a dispatch that the joined file has not"
COPIED_COLUMNS = ("dispatch_id", "device_id", "grid_x", "block_x", "lds_bytes", "scratch_bytes", "vgpr", "agpr", "sgpr")
_PASS_FILE = re.compile(r"(pmc_perf_\d{1,4}|SQ_\w{1,60})\.csv", re.ASCII)
_MEMBER = re.compile(r"(pmc_perf|timestamps|pmc_dispatch_info|sysinfo|roofline)\.csv|log\.txt|profiling_config\.yaml",
                     re.ASCII)


def recognises(path: Path) -> bool:
    """Return whether the file is a workload's joined file, or its machine description if nothing is joined."""
    if path.name == JOINED:
        return workload_machine.recognises(path.parent / MACHINE) and workload_files.source(path) is not None
    return (path.name == MACHINE and workload_machine.recognises(path) and bool(_pass_files(path.parent))
            and workload_files.source(path.parent / JOINED) is None)


def members(path: Path) -> Sequence[Path]:
    """Return every file of the workload, the one to parse first."""
    try:
        files = [file for file in path.parent.iterdir()
                 if _MEMBER.fullmatch(file.name) or _PASS_FILE.fullmatch(file.name)]
        lists = list((path.parent / "perfmon").iterdir()) if (path.parent / "perfmon").is_dir() else []
    except OSError as error:
        raise BadCapture(f"{path}: {error.strerror or error}", "check the folder and its permissions") from error
    return (path, *(file for file in sorted([*files, *lists]) if file != path))


def kernel_pass(_: Path) -> str:
    """Return TIMED: a dispatch is one kernel, however often it was executed."""
    return capture.TIMED


def parse(path: Path) -> Iterator[pa.Table | CaptureFacts]:
    """Yield kernels, counters and device_facts of the workload, and its CaptureFacts. Raise BadCapture."""
    workload = _Workload(path)
    yield from workload.dispatches()
    for number, source in enumerate(workload.passes, start=workload.next_pass):
        yield from workload.more_counters(source, number)
    yield workload.machine.table(sorted(workload.devices) or [0])
    yield workload.facts()


def _pass_files(folder: Path) -> list[DispatchFile]:
    paths = sorted(file for file in folder.glob("*.csv") if _PASS_FILE.fullmatch(file.name))
    return [source for source in map(workload_files.source, paths) if source]


class _DispatchNumbers(Struct):
    """Numbers dispatches so that the same one has the same number in every file of the workload."""

    codes: dict[tuple[str | None, int | None], int] = field(default_factory=dict)

    def of(self, seen_by_code: Counter[int], block: pa.Table) -> Ints:
        """Return the numbers of a block's rows; `seen_by_code` counts the rows before it in the same file."""
        numbers = []
        for name, grid in zip(block["kernel_name"].to_pylist(), _texts(block, "grid_x"), strict=True):
            code = self.codes.setdefault((bare(name or ""), grid), len(self.codes))
            numbers.append(code << 32 | seen_by_code[code])
            seen_by_code[code] += 1
        return np.array(numbers, np.int64)


class _DispatchTimes(Struct):
    """Time and place of each dispatch, by its number."""

    name: str
    places: KeyIndex = field(default_factory=KeyIndex)
    columns: dict[str, list[Ints]] = field(default_factory=dict)
    rows: int = 0

    def add(self, numbers: Ints, **columns: Ints) -> None:
        """Add a block of dispatches."""
        self.places.add(numbers, np.arange(self.rows, self.rows + len(numbers)))
        self.rows += len(numbers)
        for name, values in columns.items():
            self.columns.setdefault(name, []).append(values)

    def find(self, numbers: Ints, name: str) -> Ints:
        """Return a column at these dispatches, ABSENT if there is none."""
        at = self.places.find(numbers)
        values = np.concatenate([*self.columns.get(name, []), np.array([ABSENT])])
        return values[np.where(at == NONE, len(values) - 1, at)]


class _Workload:
    """Reads the files of a workload in order and keeps the account."""

    def __init__(self, path: Path) -> None:
        self.folder = path.parent
        csvstream.header(path, {})  # an unreadable file is reported by the user's path
        self.machine = workload_machine.read(self.folder)
        self.passes = _pass_files(self.folder)
        joined = workload_files.source(self.folder / JOINED)
        if joined is None and not self.passes:
            raise BadCapture(f"{path}: not a workload of rocprof-compute: no file of dispatches is there", FIX)
        self.main = joined or self.passes.pop(0)
        self.next_pass = 1 + max((counter.replay for counter in self.main.counters), default=0)
        self.account, self.problems = RecordAccount(KERNEL), list[str]()
        self.no_times: dict[str, list[str]] = {}  # why times are invalid -> the files with such times
        self.numbers, self.devices = _DispatchNumbers(), set[int]()
        self.sums: dict[str, float] = {}
        self.kernels = KeyIndex()
        self.next_id = 0

    def dispatches(self) -> Iterator[pa.Table]:
        """Yield kernels and counters of the main file."""
        tally = CsvTally()
        blocks = csvstream.read(self.main.path, self.main.head, self.main.layout, tally)
        if self.main.long:
            yield from _LongFileReader(self).tables(blocks)
        else:
            yield from self._read_wide(blocks, self._time_source())
        self.count_rows(KERNEL, self.main, tally)

    def _read_wide(self, blocks: Iterator[pa.Table], timed: _DispatchTimes | None) -> Iterator[pa.Table]:
        seen: Counter[int] = Counter()
        all_reasons: set[str] = set()
        for block in blocks:
            numbers, ids = self.numbers.of(seen, block), self.new_ids(block.num_rows)
            self.kernels.add(numbers, ids)
            if timed:
                times_by_name = {name: timed.find(numbers, name) for name in timed.columns}
            else:
                times_by_name, reasons = _block_times(block)
                all_reasons |= reasons
            yield self.kernel_table(block, ids, times_by_name)
            yield self.count(block, self.main, ids, shift=0)
            for counter in self.main.counters:
                self.sums[counter.column] = self.sums.get(counter.column, 0.0) + _sum_column(block[counter.column])
        self.reject_times(self.main, all_reasons)

    def more_counters(self, source: DispatchFile, number: int) -> Iterator[pa.Table]:
        """Yield the counters of a pass with a file of its own; of a pass that was joined, only count the records."""
        tally, seen = CsvTally(), Counter[int]()
        joined, executed_ns = self._is_joined(source), 0
        for block in csvstream.read(source.path, source.head, source.layout, tally):
            executed_ns += _sum_durations(_block_times(block)[0])
            ids = self.kernels.find(self.numbers.of(seen, block))
            if not joined:
                yield self.count(block, source, ids, shift=number)
        self.account.skip(PASS, AGAIN, tally.rows, executed_ns)
        self.count_rows(PASS, source, tally)

    def _is_joined(self, source: DispatchFile) -> bool:
        """Return whether the joined file holds this very pass: its counters, with the same sums."""
        if self.main.path.name != JOINED or not {counter.column for counter in source.counters} <= self.sums.keys():
            return False
        sums: Counter[str] = Counter()
        for block in csvstream.read(source.path, source.head, source.layout, CsvTally()):
            sums.update({counter.column: _sum_column(block[counter.column]) for counter in source.counters})
        return all(counter_sum == self.sums[column] for column, counter_sum in sums.items())

    def new_ids(self, count: int) -> Ints:
        """Return keys for new rows of kernels."""
        self.next_id += count
        return np.arange(self.next_id - count, self.next_id)

    def kernel_table(self, block: pa.Table, ids: Ints, times_by_name: dict[str, Ints]) -> pa.Table:
        """Return a row per dispatch."""
        self.account.saw(KERNEL, len(ids))
        edges = (pa.array(times_by_name[name]) for name in ("t_start_ns", "t_end_ns"))
        when = self.account.times(KERNEL, *edges)
        columns: dict[str, Any] = {name: block[name] for name in COPIED_COLUMNS if name in block.column_names}
        self.devices |= set(_texts(block, "device_id")) - {None}
        columns |= {name: _nullable(times_by_name[name]) for name in ("process_id", "thread_id", "queue_id")
                    if name in times_by_name}
        return KERNELS.build(
            kernel_id=ids, kernel_name=encoded([bare(name or "") for name in block["kernel_name"].to_pylist()]),
            source=constant(FORMAT, len(ids)), **columns, **when)

    def count(self, block: pa.Table, source: DispatchFile, ids: Ints, shift: int) -> pa.Table:
        """Return a row per counter of each dispatch that has a kernel; `shift` is added to the pass of the column."""
        counters = source.counters
        values = np.array([_reals(block[counter.column]) for counter in counters]).reshape(len(counters), len(ids)).T
        kept = np.isfinite(values) & (ids != NONE)[:, None]
        self.account.saw(COUNTER, values.size)
        self.account.leave_out(COUNTER, UNKNOWN, int((ids == NONE).sum()) * len(counters))
        self.account.leave_out(COUNTER, NO_VALUE, int((~np.isfinite(values) & (ids != NONE)[:, None]).sum()))
        rows, columns = np.nonzero(kept)
        names = pa.array([counter.name for counter in counters], pa.string())
        replays = np.array([counter.replay for counter in counters], np.int64) + shift
        return COUNTERS.build(
            kernel_id=ids[rows], value=values[kept], **{"pass": replays[columns]},
            counter=pa.DictionaryArray.from_arrays(pa.array(columns, pa.int32()), names))

    def reject_times(self, source: DispatchFile, reasons: set[str]) -> None:
        """Record why a file's times are invalid."""
        for reason in sorted(reasons):
            self.no_times[reason] = list(dict.fromkeys([*self.no_times.get(reason, []), source.path.name]))

    def count_rows(self, kind: str, source: DispatchFile, tally: CsvTally) -> None:
        """Count the outcome of a file's rows."""
        self.account.skip(kind, csvstream.BROKEN, tally.broken)
        self.problems += [f"{source.path.name}: {problem}" for problem in tally.problems(source.head)]

    def _time_source(self) -> _DispatchTimes | None:
        """Return the first file whose times are those of one execution each: the run without counters, else a pass."""
        timed = workload_files.source(self.folder / TIMED)
        for source in ([timed] if timed else []) + self.passes:
            dispatch_times, reasons = self._read_times(source)
            self.reject_times(source, reasons)
            if not reasons and dispatch_times.rows:
                if source.path.name != TIMED:
                    self.problems.append(f"the times are those of one pass, {source.path.name}")
                return dispatch_times
        return None

    def _read_times(self, source: DispatchFile) -> tuple[_DispatchTimes, set[str]]:
        dispatch_times, all_reasons, seen = _DispatchTimes(source.path.name), set[str](), Counter[int]()
        for block in csvstream.read(source.path, source.head, source.layout, CsvTally()):
            columns, reasons = _block_times(block)
            all_reasons |= reasons
            places = {name: integers(block[name].combine_chunks()) for name in ("process_id", "thread_id", "queue_id")
                      if name in block.column_names}
            dispatch_times.add(self.numbers.of(seen, block), **columns, **places)
        return dispatch_times, all_reasons

    def facts(self) -> CaptureFacts:
        """Return the facts of the workload."""
        system = self.machine.system
        devices = tuple(self.machine.device(number) for number in sorted(self.devices) or [0])
        metadata = {name: system[name] for name in ("rocm_version", "gpu_series") if system.get(name)}
        times_missing = [f"times are {why} in {', '.join(names[:3])}" + f" and {len(names) - 3} more" * (len(names) > 3)
                         for why, names in self.no_times.items()]
        return self.account.facts(
            FORMAT, (*self.problems, *times_missing, *self.machine.problems), tool=TOOL,
            clock="boottime" if system.get("version") == "3"
            else "unknown",  # rocprofv3's; the clock of older ones is unknown
            devices=devices, host=system.get("hostname") or None,
            metadata=metadata | {"schema_version": system.get("version")})


class _LongFileReader:
    """Reads a joined file with a row per counter, as the tool's rocpd output has it.

    The rows of one execution are consecutive; the n-th execution of a dispatch is its n-th pass.
    """

    def __init__(self, workload: _Workload) -> None:
        self.workload = workload
        self.last: tuple[Any, ...] | None = None
        self.kernel, self.replay, self.pending = NONE, 0, 0
        self.executions: dict[tuple[Any, ...], list[int]] = {}  # dispatch -> its kernel, and its executions so far

    def tables(self, blocks: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Yield kernels and counters."""
        for block in blocks:
            begins = self._begins(block)
            kernels, replays, new = np.full(block.num_rows, self.kernel), np.full(block.num_rows, self.replay), []
            for row in np.flatnonzero(begins).tolist():
                if self._count_execution(block.slice(row, 1)):
                    new.append(row)
                kernels[row:], replays[row:] = self.kernel, self.replay
            yield from self._new_kernels(block.take(pa.array(new, pa.int64())))
            yield self._counters(block, kernels, replays)

    def _begins(self, block: pa.Table) -> np.ndarray:
        """Return the mask of the rows that begin another execution than that of the row before."""
        rows = list(zip(*(_texts(block, name) for name in ("dispatch_id", "start", "end", "kernel_name")), strict=True))
        rows_before = [self.last, *rows][:len(rows)]
        self.last = rows[-1] if rows else self.last
        return np.array([row != row_before for row, row_before in zip(rows, rows_before, strict=True)], bool)

    def _count_execution(self, row: pa.Table) -> bool:
        """Count an execution; return whether it is the first of its dispatch."""
        account = self.workload.account
        dispatch = tuple(_texts(row, name)[0] for name in ("dispatch_id", "kernel_name", "grid_x", "device_id"))
        kernel_and_count = self.executions.get(dispatch)
        if kernel_and_count is None:
            self.kernel, self.replay = self.workload.next_id + self.pending, 0
            self.pending += 1
            self.executions[dispatch] = [self.kernel, 1]
            return True
        self.kernel, self.replay = kernel_and_count
        kernel_and_count[1] += 1
        account.skip(PASS, AGAIN, 1, _sum_durations(_block_times(row)[0]))
        return False

    def _new_kernels(self, rows: pa.Table) -> Iterator[pa.Table]:
        times_by_name, reasons = _block_times(rows)
        self.workload.reject_times(self.workload.main, reasons)
        self.pending = 0
        if rows.num_rows:
            yield self.workload.kernel_table(rows, self.workload.new_ids(rows.num_rows), times_by_name)

    def _counters(self, block: pa.Table, kernels: Ints, replays: Ints) -> pa.Table:
        account, values = self.workload.account, _reals(block["counter_value"])
        kept = np.isfinite(values)
        account.saw(COUNTER, len(values))
        account.leave_out(COUNTER, NO_VALUE, int((~kept).sum()))
        names = encoded(block["counter_name"].filter(pa.array(kept)).to_pylist())
        return COUNTERS.build(kernel_id=kernels[kept], counter=names, value=values[kept], **{"pass": replays[kept]})


def _block_times(block: pa.Table) -> tuple[dict[str, Ints], set[str]]:
    start, no_start = times(block["start"] if "start" in block.column_names else None, block.num_rows)
    end, no_end = times(block["end"] if "end" in block.column_names else None, block.num_rows)
    return {"t_start_ns": start, "t_end_ns": end}, no_start | no_end


def _sum_durations(times_by_name: dict[str, Ints]) -> int:
    start, end = times_by_name["t_start_ns"], times_by_name["t_end_ns"]
    is_timed = (start != ABSENT) & (end >= start)
    return total((end - np.where(is_timed, start, 0))[is_timed])


def _texts(block: pa.Table, name: str) -> list[Any]:
    return block[name].to_pylist() if name in block.column_names else [None] * block.num_rows


def _reals(column: pa.ChunkedArray) -> np.ndarray:
    reals: np.ndarray = column.combine_chunks().to_numpy(zero_copy_only=False).astype(np.float64)
    return reals


def _sum_column(column: pa.ChunkedArray) -> float:
    return float(np.nansum(_reals(column)))


def _nullable(values: Ints) -> pa.Array:
    return pa.array(values, mask=values == ABSENT)
