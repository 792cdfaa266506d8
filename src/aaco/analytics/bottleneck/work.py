"""What the devices' time went to, by what limits it, and what the host's calls took: one pass over a trace's tables.

Seven nested unions, one per Limiter, as in analytics/timeline.py: where kernels or copies of a device overlap, the
limiter named first takes the time. The parts sum to the time in which the device did anything, exactly, in whole ns.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aaco.analytics import communication, families
from aaco.analytics.bottleneck import limiters
from aaco.analytics.bottleneck.by_counters import OWN_WAITS
from aaco.analytics.bottleneck.costs import NO_SIDE
from aaco.analytics.bottleneck.limiters import Limiter
from aaco.analytics.calls import Does, does
from aaco.analytics.inputs import refuse_dispatches
from aaco.analytics.lanes import NONE, Ints, Keys, Names, grow, integers, reach_before
from aaco.analytics.linking import DOMAINS
from aaco.analytics.work import FARTHEST_NS
from aaco.core import tables
from aaco.core.distinct import coded
from aaco.core.errors import BadBundle
from aaco.core.readings import Absent

SCHEMA_VERSION = 1
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "kernels": ("kernel_id", "kernel_name", "family", "device_id", "t_start_ns", "t_end_ns", "occupancy_pct",
                "grid_x", "grid_y", "grid_z", "capture"),
    "copies": ("kind", "bytes", "pinned", "device_id", "t_start_ns", "t_end_ns", "capture"),
    "api_calls": ("name", "domain", "t_start_ns", "t_end_ns", "capture")}
TRANSFERS = ("h2d", "d2h", "p2p", "h2h", "unknown")
TOLD_BY = ("counters", "shapes", "names")
CALLS = ("launch", "copy", "synchronise", "allocate")
_OF = {Does.LAUNCH: "launch", Does.GRAPH: "launch", Does.COPY: "copy", Does.FILL: "launch", Does.SYNC: "synchronise",
       Does.WAIT: "synchronise"}
# Calls that ask the driver for memory or give it back: CUDA and HIP API references, modules Memory Management.
_ALLOCATES = re.compile(r"(cuda|hip)(Ext)?(Malloc|Free)|cuMem(Alloc|Free|Create|Map|Unmap|Release)"
                        r"|hsa_amd_memory_pool_(allocate|free)")


@dataclass(frozen=True)
class Copied:
    """Copies of one kind: pinned says whether the host's side is page-locked, None where the capture does not."""

    kind: str
    pinned: bool | None
    count: int
    bytes: int
    ns: int


@dataclass(frozen=True)
class DeviceWork:
    """All devices together. parts_ns: by limiter, exclusive, summing to the busy time; family_ns: kernel durations by
    family; call_ns: by part of CALLS, how long some thread was in such a call; host_ns: from the first to the last of
    the host's calls; told_by_ns: kernel durations by what told the limiter, of TOLD_BY."""

    parts_ns: Mapping[str, int]
    kernels: int
    kernel_ns: int
    family_ns: Mapping[str, int]
    copies: tuple[Copied, ...]
    call_ns: Mapping[str, int]
    host_ns: int
    occupancy_known_ns: int = field(default=0)
    told_by_ns: Mapping[str, int] = field(default_factory=dict)

    @property
    def busy_ns(self) -> int:
        """Time in which devices did anything."""
        return sum(self.parts_ns.values())

    def document(self) -> dict[str, Any]:
        """The content of device_work.json."""
        return {"schema_version": SCHEMA_VERSION, **msgspec.to_builtins(self)}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> DeviceWork:
        """The work that this document was made of. Raises BadBundle."""
        try:
            found: DeviceWork = msgspec.convert({name: part for name, part in document.items()
                                                 if name != "schema_version"}, cls)
        except msgspec.ValidationError as error:
            raise BadBundle(f"metrics/device_work.json: not as this version writes it: {error}",
                            "aaco analyze SESSION") from error
        if found.parts_ns.keys() != {each.name.lower() for each in Limiter}:
            raise BadBundle("metrics/device_work.json: not as this version writes it: parts_ns", "aaco analyze SESSION")
        return found


class Working:
    """Takes in slices of a trace in time order, and says at the end what the time went to."""

    def __init__(self) -> None:
        self._devices, self._names, self._families, self._kinds = Keys(), Names(), Names(), Names()
        self._of_family, self._communicates = np.zeros(0, np.int64), np.zeros(0, np.bool_)
        self._products: dict[tuple[int, int], Limiter] = {}
        self._device = _Nested(len(Limiter))
        self._family_ns: dict[str, int] = defaultdict(int)
        self._copies: dict[tuple[str, bool | None], list[int]] = defaultdict(lambda: [0, 0, 0])
        self._kernels, self._kernel_ns = 0, 0
        self._told_by = np.zeros(len(TOLD_BY), np.int64)
        self._host = _Host()

    def feed(self, kernels: pa.Table, copies: pa.Table, api_calls: pa.Table, sides: Ints | None = None,
             counted: Ints | None = None) -> None:
        """The rows that start next, each table in start order, with COLUMNS. sides, counted: of each kernel what its
        shapes and what its counters say of its limiter, NO_SIDE where nothing. Counters are believed first; where they
        say OWN_WAITS nothing else is asked."""
        parts = [self._of_kernels(kernels, sides, counted), self._of_copies(copies)]
        start, end, device, limiter = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.lexsort((start, device))
        self._device.feed(device[order], limiter[order], start[order], end[order])
        self._host.feed(api_calls)

    def _of_kernels(self, rows: pa.Table, sides: Ints | None, counted: Ints | None) -> tuple[Ints, Ints, Ints, Ints]:
        placeable = np.asarray(_placeable(rows))
        nothing = np.full(rows.num_rows, NO_SIDE)
        side, by_counters = ((nothing if each is None else each)[placeable] for each in (sides, counted))
        rows = rows.filter(pa.array(placeable))
        start, end = integers(rows["t_start_ns"]), integers(rows["t_end_ns"])
        family, name = self._families.numbers(rows["family"]), self._names.numbers(rows["kernel_name"])
        self._learn()
        known = np.append(self._of_family, Limiter.KERNEL)[np.where(family == NONE, -1, family)]
        known = self._of_products(known, family, name)
        occupancy = pc.cast(rows["occupancy_pct"], pa.float64()).to_numpy().astype(float)
        measured = by_counters != NO_SIDE
        waits = by_counters == OWN_WAITS
        side = np.where(waits, int(Limiter.KERNEL), np.where(measured, by_counters, side))
        far = measured & (side == Limiter.KERNEL) & ~waits  # from every roof: the launch may tell why
        launched = limiters.of_launch(np.where(far, side, known), occupancy, _items(rows), end - start)
        limiter = np.where((side == NO_SIDE) | far, launched, side)
        told = np.select([measured, side != NO_SIDE], [0, 1], len(TOLD_BY) - 1)
        np.add.at(self._told_by, told, end - start)
        communicates = np.append(self._communicates, False)[np.where(name == NONE, -1, name)]
        limiter = np.where(communicates, int(Limiter.COMMUNICATION), limiter)
        self._kernels += len(start)
        self._kernel_ns += int((end - start).sum())
        for number in np.unique(family).tolist():
            called = "unknown" if number == NONE else self._families.known[number]
            self._family_ns[called] += int((end - start)[family == number].sum())
        return start, end, self._device_of(rows), limiter

    def _of_copies(self, rows: pa.Table) -> tuple[Ints, Ints, Ints, Ints]:
        rows = rows.filter(_placeable(rows))
        start, end = integers(rows["t_start_ns"]), integers(rows["t_end_ns"])
        kinds = [str(kind or "unknown") for kind in rows["kind"].cast(pa.string()).to_pylist()]
        sizes = pc.fill_null(rows["bytes"], 0).to_pylist()
        each = zip(kinds, rows["pinned"].to_pylist(), sizes, (end - start).tolist(), strict=True)
        for kind, pinned, size, ns in each:
            found = self._copies[kind, pinned]
            found[0], found[1], found[2] = found[0] + 1, found[1] + size, found[2] + ns
        limiter = np.array([Limiter.TRANSFER if kind in TRANSFERS else Limiter.LOCAL_COPY for kind in kinds], np.int64)
        return start, end, self._device_of(rows), limiter

    def _device_of(self, rows: pa.Table) -> Ints:
        return self._devices.numbers(integers(rows["capture"]), integers(rows["device_id"]))

    def _of_products(self, known: Ints, family: Ints, name: Ints) -> Ints:
        """The limiters with those of products corrected by what each kernel's name says beside its family."""
        found = known.copy()
        told = [number for number, one in enumerate(self._families.known) if one in ("gemm", "attention")]
        rows = np.flatnonzero(np.isin(family, told))
        pair, first = coded(family[rows], name[rows])
        limiter = [self._product(int(family[row]), int(name[row])) for row in rows[first].tolist()]
        found[rows] = np.array(limiter, np.int64)[pair]
        return found

    def _product(self, family: int, name: int) -> Limiter:
        """What limits products of a family and a name."""
        if (family, name) not in self._products:
            tile = None if name == NONE else families.decode(self._names.known[name]).tile
            self._products[family, name] = limiters.of_name(self._families.known[family], tile)
        return self._products[family, name]

    def _learn(self) -> None:
        """Look at families and names that were not there before."""
        new = self._families.known[len(self._of_family):]
        learnt = np.array([limiters.of_family(family) for family in new], np.int64)
        self._of_family = np.concatenate([self._of_family, learnt])
        fresh = self._names.known[len(self._communicates):]
        if fresh:
            self._communicates = np.concatenate([self._communicates, communication.flags(fresh)])

    def result(self) -> DeviceWork | None:
        """The answer; None where no device did anything."""
        if not len(self._devices):
            return None
        parts = self._device.parts()
        copies = tuple(Copied(kind, pinned, *found) for (kind, pinned), found in sorted(self._copies.items(), key=str))
        return DeviceWork({each.name.lower(): parts[each] for each in Limiter}, self._kernels, self._kernel_ns,
                          dict(self._family_ns), copies, self._host.parts(), self._host.span_ns,
                          told_by_ns=dict(zip(TOLD_BY, self._told_by.tolist(), strict=True)))


class _Nested:
    """Unions of nested sets of intervals, per lane: set k holds the levels up to k."""

    def __init__(self, levels: int) -> None:
        self._levels = levels
        self._reach = np.zeros((0, levels), np.int64)
        self._union = np.zeros(levels, np.int64)

    def feed(self, lane: Ints, level: Ints, start: Ints, end: Ints) -> None:
        """Rows grouped by lane, in start order within it, none before those of the last call."""
        if not len(lane):
            return
        self._reach = grow(self._reach, int(lane.max()) + 1, NONE)
        for each in range(self._levels):
            rows = level <= each
            carried = self._reach[:, each].copy()
            before = reach_before(lane[rows], end[rows], carried)
            self._reach[:, each] = carried
            self._union[each] += int(np.maximum(0, end[rows] - np.maximum(start[rows], before)).sum())

    def parts(self) -> list[int]:
        """What each level adds to those before it."""
        return [int(each) for each in np.diff(self._union, prepend=0)]


class _Host:
    """How long the host was in calls of each part, over all threads together."""

    def __init__(self) -> None:
        self._names, self._domains = Names(), Names()
        self._reach = np.full(len(CALLS), NONE)
        self._union = np.zeros(len(CALLS), np.int64)
        self._first, self._last = FARTHEST_NS, -FARTHEST_NS

    def feed(self, rows: pa.Table) -> None:
        """Calls of the table api_calls, a piece of it in start order."""
        rows = rows.filter(_times_known(rows))
        if not rows.num_rows:
            return
        start, end = integers(rows["t_start_ns"]), integers(rows["t_end_ns"])
        self._first, self._last = min(self._first, int(start.min())), max(self._last, int(end.max()))
        name, domain = self._names.numbers(rows["name"]), self._domains.numbers(rows["domain"])
        part = np.array([*map(_part, self._names.known), -1])[np.where(name == NONE, -1, name)]
        into_runtime = np.array([*(each in DOMAINS for each in self._domains.known), True])
        part = np.where(into_runtime[np.where(domain == NONE, -1, domain)], part, -1)
        for each in range(len(CALLS)):
            rows_ = part == each
            before = reach_before(np.full(int(rows_.sum()), each), end[rows_], self._reach)
            self._union[each] += int(np.maximum(0, end[rows_] - np.maximum(start[rows_], before)).sum())

    @property
    def span_ns(self) -> int:
        """First start to last end of the calls."""
        return max(0, self._last - self._first)

    def parts(self) -> dict[str, int]:
        """ns by part."""
        return dict(zip(CALLS, self._union.tolist(), strict=True)) if self.span_ns else {}


@lru_cache(1 << 16)
def _part(name: str) -> int:
    if _ALLOCATES.match(name):
        return CALLS.index("allocate")
    part = _OF.get(does(name))
    return -1 if part is None else CALLS.index(part)


def device_work(kernels: pa.Table, copies: pa.Table | None = None, api_calls: pa.Table | None = None,
                roofline: pa.Table | None = None) -> DeviceWork:
    """What the devices' time went to, from tables in memory. Raises Absent where no device did anything.

    roofline: the executed nodes under the measured roofs; there the kernels of products have the side of their node.
    """
    refuse_dispatches(kernels)
    working = Working()
    given = {"kernels": kernels, "copies": copies, "api_calls": api_calls}
    ran, moved, called = ((tables.ALL[name].build() if table is None else table).sort_by("t_start_ns")
                          for name, table in given.items())
    working.feed(ran, moved, called, None if roofline is None else _of_nodes(ran, roofline))
    found = working.result()
    if found is None:
        raise Absent("no device work: the session's kernels have no times that can be placed")
    return found


def _of_nodes(kernels: pa.Table, roofline: pa.Table) -> Ints:
    """The side of each product's node; NO_SIDE of kernels that pass over memory, whichever node they serve."""
    side: dict[str | None, int] = {"compute": Limiter.COMPUTE, "memory": Limiter.MEMORY}
    bound: dict[str | None, str | None] = dict(
        zip(roofline["name"].to_pylist(), roofline["bound"].to_pylist(), strict=True))
    rows = zip(kernels["executed_node"].to_pylist(), kernels["family"].to_pylist(), strict=True)
    asked = limiters.COMPUTE_FAMILIES | limiters.UNTOLD_FAMILIES
    return np.array([side.get(bound.get(node), NO_SIDE) if family in asked else NO_SIDE for node, family in rows],
                    np.int64)


def _items(rows: pa.Table) -> NDArray[np.float64]:
    """Work-items of each launch; NaN where its grid is not known."""
    axes = [integers(rows[f"grid_{axis}"]).astype(float) for axis in "xyz"]
    return np.where(axes[0] > 0, axes[0], np.nan) * np.maximum(axes[1], 1) * np.maximum(axes[2], 1)


def _placeable(rows: pa.Table) -> pa.Array:
    return pa.array((integers(rows["device_id"]) != NONE) & np.asarray(_times_known(rows)))


def _times_known(rows: pa.Table) -> pa.Array:
    start, end = integers(rows["t_start_ns"]), integers(rows["t_end_ns"])
    return pa.array((start > -FARTHEST_NS) & (end >= start) & (end < FARTHEST_NS))
