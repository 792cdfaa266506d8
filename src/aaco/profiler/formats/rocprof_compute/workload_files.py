"""The CSV files of a rocprof-compute workload: their columns, the pass of each counter, and exact times.

pmc_perf.csv joins the files of all passes column by column. pandas numbers the columns that the n-th file repeats:
`Wave_Size_3` or `Kernel_ID_3` means that the columns from there on are of pass 3. Checked against the lists of counters
that the tool keeps of each pass (perfmon/*.txt): all 129 joined files of the tool's own test data agree.
Its times are the means of all passes' times, which is the time of no execution unless they were overwritten before.
Source: rocm-systems, projects/rocprofiler-compute/src/rocprof_compute_profile/profiler_base.py (join_prof).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from aaco.core.arrays import Ints
from aaco.core.tables import INT, REAL, TEXT
from aaco.profiler.io import csvstream
from aaco.profiler.io.csvstream import GREATEST, Header, Layout
from aaco.profiler.io.record_accounting import ABSENT

ALIASES = {
    "index": "dispatch_id", "kernelname": "kernel_name", "gpu_id": "device_id", "pid": "process_id", "tid": "thread_id",
    "grd": "grid_x", "grid_size": "grid_x", "wgr": "block_x", "workgroup_size": "block_x",
    "lds": "lds_bytes", "lds_per_workgroup": "lds_bytes", "scr": "scratch_bytes",
    "scratch_per_workitem": "scratch_bytes",
    "arch_vgpr": "vgpr", "accum_vgpr": "agpr", "beginns": "start", "start_timestamp": "start", "endns": "end",
    "end_timestamp": "end",
}
NUMBERS = ("dispatch_id", "device_id", "queue_id", "process_id", "thread_id", "grid_x", "block_x", "lds_bytes",
           "scratch_bytes", "vgpr", "agpr", "sgpr")
TEXTS = ("kernel_name", "start", "end")
OTHERS = frozenset(("queue_index", "fbar", "wave_size", "sig", "obj", "dispatchns", "completens", "durationns",
                    "correlation_id", "kernel_id", "xcc_index", "key"))
KNOWN = frozenset((*NUMBERS, *TEXTS, *OTHERS, "counter_name", "counter_value"))
NEVER, ROUNDED, MEAN, NONE = "0", "rounded", "the mean of several passes", "no time"
_NUMBERED = re.compile(r"(.+)_(\d{1,4})", re.ASCII)
_WHOLE = r"^\d{1,19}(\.0*)?$"
_SCIENTIFIC = re.compile(r"(\d)(?:\.(\d*))?[eE]\+?(\d{1,3})", re.ASCII)


class CounterColumn(Struct, frozen=True):
    """A column of counts: its name in our reader, the tool's name of the counter, and its pass."""

    column: str
    name: str
    replay: int


class DispatchFile(Struct, frozen=True):
    """A file of dispatches with its header. long: one row per counter, not one per dispatch."""

    path: Path
    head: Header
    counters: tuple[CounterColumn, ...]

    @property
    def long(self) -> bool:
        return "counter_name" in self.head

    @property
    def layout(self) -> Layout:
        """Return how its rows are read."""
        counts = {"counter_name": TEXT, "counter_value": REAL} if self.long else {
            counter.column: REAL for counter in self.counters}
        return Layout(dict.fromkeys(NUMBERS, INT) | dict.fromkeys(TEXTS, TEXT) | counts,
                      required=frozenset(("dispatch_id",)), free="kernel_name")


def source(path: Path) -> DispatchFile | None:
    """Return the file of dispatches at a path, or None if it is none. Never raise."""
    head = csvstream.sniff(path, ALIASES)
    if head is None or not all(name in head for name in ("dispatch_id", "kernel_name", "device_id")):
        return None
    return DispatchFile(path, head, () if "counter_name" in head else tuple(_find_counters(head.written)))


def _find_counters(written: Sequence[str]) -> list[CounterColumn]:
    counter_by_column: dict[str, CounterColumn] = {}
    replay = 0
    for name in written:
        column = csvstream.plain(name)
        numbered = _NUMBERED.fullmatch(column)
        if numbered and ALIASES.get(numbered[1], numbered[1]) in KNOWN:
            replay = int(numbered[2])
        elif column and ALIASES.get(column, column) not in KNOWN:
            is_repeated = numbered is not None and numbered[1] in counter_by_column and int(numbered[2]) == replay
            counter_by_column.setdefault(column, CounterColumn(column, name[:name.rindex("_")] if is_repeated
                                                               else name.strip(), replay))
    return list(counter_by_column.values())


def times(column: pa.ChunkedArray | None, count: int) -> tuple[Ints, set[str]]:
    """Return times in ns, from the digits of the file (ABSENT if invalid), and the reasons why some are invalid.

    A number in scientific notation with fewer digits than places was rounded, for example by a spreadsheet.
    """
    if column is None:
        return np.full(count, ABSENT), {NONE}
    texts = pc.fill_null(column.combine_chunks(), "")
    whole = pc.match_substring_regex(texts, _WHOLE)
    digits = pc.if_else(whole, pc.replace_substring_regex(texts, r"\.0*$", ""), "0")
    values = pc.cast(pc.if_else(pc.less(pc.utf8_length(digits), 19), digits, "0"), INT).to_numpy(zero_copy_only=False)
    times_ns = np.where(values > 0, values, ABSENT)
    reasons = {NEVER} if (whole.to_numpy(zero_copy_only=False) & (values == 0)).any() else set[str]()
    for row in np.flatnonzero(~whole.to_numpy(zero_copy_only=False)).tolist():
        times_ns[row], reason = _parse_odd_time(texts[row].as_py())
        reasons |= {reason} if reason else set()
    return times_ns, reasons


def _parse_odd_time(text: str) -> tuple[int, str]:
    """Return a time that is not a plain integer, or ABSENT and the reason."""
    match = _SCIENTIFIC.fullmatch(text.strip())
    if match is None:
        return ABSENT, MEAN if re.fullmatch(r"\d{1,19}\.\d+", text.strip()) else NONE
    fraction, places = match[2] or "", int(match[3])
    if len(fraction) < places:
        return ABSENT, ROUNDED
    ns = int(match[1] + fraction[:places]) if places < 19 else GREATEST
    return (ns, "") if ns < GREATEST and not fraction[places:].strip("0") else (ABSENT, NONE)
