"""Split the devices' time by what limits it, and the time of the host's calls: one pass over a trace's tables.

Seven nested unions, one per Limiter, as in analytics/timeline/timeline.py: if kernels or copies of a device overlap,
the limiter named first takes the time. The parts sum to the time in which the device did anything, exactly, in whole
ns.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field
from numpy.typing import NDArray

from aaco.analytics.bottleneck.kernel_limits import budget_parts
from aaco.analytics.kernels import families
from aaco.analytics.roofline import limiters
from aaco.analytics.roofline.limiters import Limiter
from aaco.analytics.streaming import communication
from aaco.analytics.streaming.calls import CallKind, call_kind, is_runtime
from aaco.analytics.streaming.stream_ids import (
    NONE,
    NameIds,
    TupleIds,
    ValueByName,
    grow,
    integers,
    latest_end_before,
)
from aaco.analytics.streaming.work import FARTHEST_NS
from aaco.core import distinct, documents, tables
from aaco.core.arrays import Ints
from aaco.core.inputs import refuse_dispatches
from aaco.core.readings import Absent
from aaco.tracelake import layout

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "kernels": ("kernel_id", "kernel_name", "family", "device_id", "t_start_ns", "t_end_ns", "occupancy_pct",
                "grid_x", "grid_y", "grid_z", "capture"),
    "copies": ("kind", "bytes", "pinned", "device_id", "t_start_ns", "t_end_ns", "capture"),
    "api_calls": ("name", "domain", "t_start_ns", "t_end_ns", "capture")}
TRANSFERS = ("h2d", "d2h", "p2p", "h2h", "unknown")
TOLD_BY = ("counters", "shapes", "names")
UNDECIDED = -1
_TOLD = {"counters": 0, "shapes": 1}
CALLS = ("launch", "copy", "synchronise", "allocate")
_OF = {CallKind.LAUNCH: "launch", CallKind.GRAPH: "launch", CallKind.COPY: "copy", CallKind.FILL: "launch",
       CallKind.SYNC: "synchronise",
       CallKind.WAIT: "synchronise"}
# Calls that ask the driver for memory or give it back: CUDA and HIP API references, modules Memory Management.
_ALLOCATES = re.compile(r"(cuda|hip)(Ext)?(Malloc|Free)|cuMem(Alloc|Free|Create|Map|Unmap|Release)"
                        r"|hsa_amd_memory_pool_(allocate|free)")


class Copied(Struct, frozen=True):
    """Copies of one kind. pinned: whether the host's side is page-locked, None if the capture does not say."""

    kind: str
    pinned: bool | None
    count: int
    bytes: int
    ns: int


@documents.document(layout.finding("device_work"), version=1)
class DeviceWork(Struct, frozen=True):
    """The work of all devices together.

    parts_ns: by limiter, exclusive, summing to the busy time. family_ns: kernel durations by family. call_ns: by part
    of CALLS, how long some thread was in such a call. host_ns: from the first to the last of the host's calls.
    told_by_ns: kernel durations by the source of the limiter, of TOLD_BY. skew_ns: first collectives that waited for a
    rank that had not started; part of communication.
    """

    parts_ns: Mapping[str, int]
    kernels: int
    kernel_ns: int
    family_ns: Mapping[str, int]
    copies: tuple[Copied, ...]
    call_ns: Mapping[str, int]
    host_ns: int
    occupancy_known_ns: int = field(default=0)
    told_by_ns: Mapping[str, int] = field(default_factory=dict)
    skew_ns: int = 0

    @property
    def busy_ns(self) -> int:
        """Time in which devices did anything."""
        return sum(self.parts_ns.values())

    def __post_init__(self) -> None:
        if self.parts_ns.keys() != {limiter.name.lower() for limiter in Limiter}:
            raise ValueError("parts_ns")


class Working:
    """Takes in slices of a trace in time order and returns the split of the time at the end."""

    def __init__(self, limits: Mapping[str, tuple[str, str]] | None = None) -> None:
        """limits: by kernel name the part of the budget and its source, as kernel_groups has them. Kernels that are
        not in it count by their names and launches.
        """
        self._devices, self._names, self._families, self._kinds = TupleIds(), NameIds(), NameIds(), NameIds()
        self._limits = limits or {}
        self._decided = ValueByName(self._names, self._decision, (UNDECIDED, len(TOLD_BY) - 1))
        self._of_family = ValueByName(self._families, limiters.of_family, Limiter.KERNEL)
        self._communicates = ValueByName(self._names, communication.communicates, False)
        self._spins = ValueByName(self._names, limiters.spins, False)
        self._products: dict[tuple[int, int], Limiter] = {}
        self._device = _Nested(len(Limiter))
        self._family_ns: dict[str, int] = defaultdict(int)
        self._copies: dict[tuple[str, bool | None], list[int]] = defaultdict(lambda: [0, 0, 0])
        self._kernels, self._kernel_ns = 0, 0
        self._told_by = np.zeros(len(TOLD_BY), np.int64)
        self._host = _Host()

    def feed(self, kernels: pa.Table, copies: pa.Table, api_calls: pa.Table) -> None:
        """Take the rows that start next, each table in start order, with COLUMNS."""
        parts = [self._of_kernels(kernels), self._of_copies(copies)]
        start, end, device, limiter = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.lexsort((start, device))
        self._device.feed(device[order], limiter[order], start[order], end[order])
        self._host.feed(api_calls)

    def _of_kernels(self, rows: pa.Table) -> tuple[Ints, Ints, Ints, Ints]:
        rows = rows.filter(_placeable(rows))
        start, end = integers(rows["t_start_ns"]), integers(rows["t_end_ns"])
        family, name = self._families.numbers(rows["family"]), self._names.numbers(rows["kernel_name"])
        limiter, source = self._limited(rows, family, name, end - start)
        np.add.at(self._told_by, source, end - start)
        self._kernels += len(start)
        self._kernel_ns += int((end - start).sum())
        for number in distinct.values(family).tolist():
            called = "unknown" if number == NONE else self._families.known[number]
            self._family_ns[called] += int((end - start)[family == number].sum())
        return start, end, self._device_of(rows), limiter

    def _limited(self, rows: pa.Table, family: Ints, name: Ints, length: Ints) -> tuple[Ints, Ints]:
        """Return the limiter of each kernel, and its place in TOLD_BY."""
        by_family = self._of_products(self._of_family.of(family), family, name)
        occupancy = pc.cast(rows["occupancy_pct"], pa.float64()).to_numpy().astype(float)
        launched = limiters.of_launch(by_family, occupancy, _items(rows), length)
        launched = np.where(self._spins.of(name), by_family, launched)
        decided, source = self._decided.of(name).T
        limiter = np.where(decided == UNDECIDED, launched, decided)
        return np.where(self._communicates.of(name), int(Limiter.COMMUNICATION), limiter), source

    def _of_copies(self, rows: pa.Table) -> tuple[Ints, Ints, Ints, Ints]:
        rows = rows.filter(_placeable(rows))
        start, end = integers(rows["t_start_ns"]), integers(rows["t_end_ns"])
        kinds = [str(kind or "unknown") for kind in rows["kind"].cast(pa.string()).to_pylist()]
        sizes = pc.fill_null(rows["bytes"], 0).to_pylist()
        copies = zip(kinds, rows["pinned"].to_pylist(), sizes, (end - start).tolist(), strict=True)
        for kind, pinned, size, ns in copies:
            sums = self._copies[kind, pinned]
            sums[0], sums[1], sums[2] = sums[0] + 1, sums[1] + size, sums[2] + ns
        limiter = np.array([Limiter.TRANSFER if kind in TRANSFERS else Limiter.LOCAL_COPY for kind in kinds], np.int64)
        return start, end, self._device_of(rows), limiter

    def _device_of(self, rows: pa.Table) -> Ints:
        return self._devices.numbers(integers(rows["capture"]), integers(rows["device_id"]))

    def _of_products(self, by_family: Ints, family: Ints, name: Ints) -> Ints:
        """Return the limiters, with those of products corrected by kernel name and family."""
        corrected = by_family.copy()
        products = [number for number, text in enumerate(self._families.known) if text in ("gemm", "attention")]
        rows = np.flatnonzero(np.isin(family, products))
        pair, first = distinct.coded(family[rows], name[rows])
        limiter = [self._product(int(family[row]), int(name[row])) for row in rows[first].tolist()]
        corrected[rows] = np.array(limiter, np.int64)[pair]
        return corrected

    def _product(self, family: int, name: int) -> Limiter:
        """Return the limiter of products of this family and name."""
        if (family, name) not in self._products:
            tile = None if name == NONE else families.decode(self._names.known[name]).tile
            self._products[family, name] = limiters.of_name(self._families.known[family], tile)
        return self._products[family, name]

    def _decision(self, name: str) -> tuple[int, int]:
        """Return the limiter of a name, and the place in TOLD_BY."""
        part, source = self._limits.get(name, ("", ""))
        limiter = Limiter[part.upper()] if part.upper() in Limiter.__members__ else UNDECIDED
        return int(limiter), _TOLD.get(source, len(TOLD_BY) - 1)

    def result(self) -> DeviceWork | None:
        """Return the work; None if no device did anything."""
        if not len(self._devices):
            return None
        parts = self._device.parts()
        copies = tuple(Copied(kind, pinned, *sums) for (kind, pinned), sums in sorted(self._copies.items(), key=str))
        return DeviceWork({limiter.name.lower(): parts[limiter] for limiter in Limiter}, self._kernels, self._kernel_ns,
                          dict(self._family_ns), copies, self._host.parts(), self._host.span_ns,
                          told_by_ns=dict(zip(TOLD_BY, self._told_by.tolist(), strict=True)))


class _Nested:
    """Unions of nested sets of intervals, per lane. Set k holds the levels up to k."""

    def __init__(self, levels: int) -> None:
        self._levels = levels
        self._reach = np.zeros((0, levels), np.int64)
        self._union = np.zeros(levels, np.int64)

    def feed(self, lane: Ints, level: Ints, start: Ints, end: Ints) -> None:
        """Take rows grouped by lane, in start order within it, none before those of the last call."""
        if not len(lane):
            return
        self._reach = grow(self._reach, int(lane.max()) + 1, NONE)
        for upper in range(self._levels):
            rows = level <= upper
            carried = self._reach[:, upper].copy()
            before = latest_end_before(lane[rows], end[rows], carried)
            self._reach[:, upper] = carried
            self._union[upper] += int(np.maximum(0, end[rows] - np.maximum(start[rows], before)).sum())

    def parts(self) -> list[int]:
        """Return what each level adds to those before it, ns."""
        return [int(added) for added in np.diff(self._union, prepend=0)]


class _Host:
    """How long the host was in calls of each part, over all threads together."""

    def __init__(self) -> None:
        self._names, self._domains = NameIds(), NameIds()
        self._reach = np.full(len(CALLS), NONE)
        self._union = np.zeros(len(CALLS), np.int64)
        self._first, self._last = FARTHEST_NS, -FARTHEST_NS

    def feed(self, rows: pa.Table) -> None:
        """Take a piece of api_calls, in start order."""
        rows = rows.filter(_times_known(rows))
        if not rows.num_rows:
            return
        start, end = integers(rows["t_start_ns"]), integers(rows["t_end_ns"])
        self._first, self._last = min(self._first, int(start.min())), max(self._last, int(end.max()))
        name, domain = self._names.numbers(rows["name"]), self._domains.numbers(rows["domain"])
        part = np.array([*map(_part, self._names.known), -1])[np.where(name == NONE, -1, name)]
        into_runtime = np.array([*map(is_runtime, self._domains.known), True])
        part = np.where(into_runtime[np.where(domain == NONE, -1, domain)], part, -1)
        for each in range(len(CALLS)):
            rows_ = part == each
            before = latest_end_before(np.full(int(rows_.sum()), each), end[rows_], self._reach)
            self._union[each] += int(np.maximum(0, end[rows_] - np.maximum(start[rows_], before)).sum())

    @property
    def span_ns(self) -> int:
        """First start to last end of the calls."""
        return max(0, self._last - self._first)

    def parts(self) -> dict[str, int]:
        """Return the ns of each part."""
        return dict(zip(CALLS, self._union.tolist(), strict=True)) if self.span_ns else {}


@lru_cache(1 << 16)
def _part(name: str) -> int:
    if _ALLOCATES.match(name):
        return CALLS.index("allocate")
    part = _OF.get(call_kind(name))
    return -1 if part is None else CALLS.index(part)


def device_work(kernels: pa.Table, copies: pa.Table | None = None, api_calls: pa.Table | None = None,
                kernel_groups: pa.Table | None = None) -> DeviceWork:
    """Return the split of the devices' time, from tables in memory. Raise Absent if no device did anything.

    kernel_groups: the limit of each kernel name.
    """
    refuse_dispatches(kernels)
    working = Working(None if kernel_groups is None else budget_parts(kernel_groups.to_pylist()))
    by_name = {"kernels": kernels, "copies": copies, "api_calls": api_calls}
    ran, moved, called = ((tables.ALL[name].build() if table is None else table).sort_by("t_start_ns")
                          for name, table in by_name.items())
    working.feed(ran, moved, called)
    work = working.result()
    if work is None:
        raise Absent("no device work: the session's kernels have no times that can be placed")
    return work


def _items(rows: pa.Table) -> NDArray[np.float64]:
    """Return the work-items of each launch, NaN if its grid is unknown."""
    axes = [integers(rows[f"grid_{axis}"]).astype(float) for axis in "xyz"]
    return np.where(axes[0] > 0, axes[0], np.nan) * np.maximum(axes[1], 1) * np.maximum(axes[2], 1)


def _placeable(rows: pa.Table) -> pa.Array:
    return pa.array((integers(rows["device_id"]) != NONE) & np.asarray(_times_known(rows)))


def _times_known(rows: pa.Table) -> pa.Array:
    start, end = integers(rows["t_start_ns"]), integers(rows["t_end_ns"])
    return pa.array((start > -FARTHEST_NS) & (end >= start) & (end < FARTHEST_NS))
