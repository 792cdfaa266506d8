"""Collective operations over ranks: how long they take, who comes last, and what bandwidth they reach.

One operation is the kernels of one (process group, operation, sequence number), one per participant: a device of a
capture. Where a capture gives no sequence number it is the order of occurrence, which is right when all captures begin
at the same operation.

latency = least duration over participants: who arrives last waits for no one (so do NCCL's own tests count).
start skew = last start - first start; end skew likewise. straggler = who starts last.
algorithm bandwidth = size / latency; bus bandwidth = algorithm bandwidth x factor, which is comparable with the speed
of a link whatever the number n of ranks (nccl-tests, doc/PERFORMANCE.md):

    allreduce 2(n-1)/n of the message; allgather, reduce_scatter, alltoall, gather, scatter (n-1)/n of the whole over
    all ranks; broadcast, reduce, send, recv 1.

Skews need one clock. Everyone must have arrived before anyone can leave: where participants of different captures do
not overlap, their clocks differ; each capture is then brought to the first one's clock by the ends of the operations
they share (clockfit.py: offset and drift), and the residual says how well. Ends agree by construction after that, so
the end skew is absent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aaco.analytics import clockfit
from aaco.analytics.clockfit import ClockFit
from aaco.analytics.lanes import NONE, Flags, Ints, Names, integers
from aaco.analytics.work import COPY, Work

COLUMNS = ("kernel_id", "operation", "group", "group_size", "sequence", "bytes_in", "bytes_out")
FACTORS = {"allreduce": (2.0, "bytes_in"), "allgather": (1.0, "bytes_out"), "reduce_scatter": (1.0, "bytes_in"),
           "alltoall": (1.0, "bytes_in"), "gather": (1.0, "bytes_out"), "scatter": (1.0, "bytes_in")}
PLAIN = ("broadcast", "reduce", "send", "recv")  # factor 1, of the larger of in and out
BETWEEN_TWO = ("send", "recv")  # whatever the size of the group
MOST_ROWS = 60
WORST = 10
DISAGREE = 0.01  # of the operations that captures share; more that do not overlap means their clocks differ
UNNAMED = "(unnamed)"


@dataclass(frozen=True)
class Operation:
    """All operations of one kind, group size and message size. ns: kernel time over all participants.

    complete: operations all ranks of which are in the captures; latency and skew are theirs. Where there is none,
    bounded is True: latency is then of the ranks at hand, which may have waited for others, so it is an upper bound
    and the bandwidths are lower ones.
    """

    operation: str
    group_size: int | None
    bytes: int | None
    count: int
    complete: int
    bounded: bool
    ns: int
    latency_p50_ns: float
    latency_min_ns: int
    latency_max_ns: int
    start_skew_p50_ns: float | None
    start_skew_max_ns: int | None
    end_skew_p50_ns: float | None
    algorithm_bytes_per_s: float | None
    bus_bytes_per_s: float | None
    imbalance: float | None  # largest over mean message of the ranks, median


@dataclass(frozen=True)
class Participant:
    """One device of a capture. last: operations in which it started last. waited_ns: how long it waited for others."""

    capture: int | None
    device_id: int
    rank: int | None
    operations: int
    ns: int
    last: int | None
    waited_ns: int | None


@dataclass(frozen=True)
class Late:
    """One of the operations with the largest start skew, and who came last."""

    operation: str
    group: str
    sequence: int
    start_skew_ns: int
    straggler: int  # index into participants


@dataclass(frozen=True)
class Shift:
    """How a capture's times were brought to the first one's clock: offset at its first operation (origin_ns), and
    drift, from how many common operations. residual_ns: the spread that is left; worst_ns: the farthest."""

    capture: int | None
    origin_ns: int
    offset_ns: int
    drift_ppm: float
    operations: int
    residual_ns: float
    worst_ns: int


@dataclass(frozen=True)
class Collectives:
    """What the collectives table and the kernels say together."""

    kernels: int
    operations: tuple[Operation, ...]
    more_operations: int  # rows beyond MOST_ROWS
    participants: tuple[Participant, ...]
    latest: tuple[Late, ...]
    shifts: tuple[Shift, ...]
    incomplete: int  # operations some ranks of which are in no capture


class Gathering:
    """Keeps the times of the kernels that the collectives table names; 32 bytes each."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table.select(COLUMNS)
        ids = integers(table["kernel_id"])
        self._order = np.argsort(ids, kind="stable")
        self._ids = ids[self._order]
        self._found: list[Ints] = []

    @property
    def kernel_ids(self) -> Ints:
        """The kernels named, sorted."""
        return self._ids

    def feed(self, work: Work) -> None:
        """Rows of device work."""
        if not len(self._ids):
            return
        at = np.minimum(np.searchsorted(self._ids, work.kernel_id), len(self._ids) - 1)
        rows = np.flatnonzero((self._ids[at] == work.kernel_id) & (work.kind < COPY))
        if len(rows):
            self._found.append(np.stack([self._order[at[rows]], work.start[rows], work.end[rows], work.device[rows]]))

    def result(self, devices: Sequence[tuple[int, ...]], ranks: Mapping[int, int]) -> Collectives | None:
        """The answer, None without collectives. devices: (capture, device) by number. ranks: by capture."""
        if not self._found:
            return None
        row, start, end, device = np.concatenate(self._found, axis=1)
        return _Kernels(self._table.take(pa.array(row)), start, end, device).answer(devices, ranks)


def matched(table: pa.Table, kernel_id: Ints, start: Ints, device: Ints) -> Ints:
    """Per kernel the number of the collective operation that it is part of together with other devices; -1 for none.

    table: the collectives table. device: a number per (capture, device).
    """
    ids = integers(table["kernel_id"])
    order = np.argsort(ids, kind="stable")
    ids = ids[order]
    at = np.minimum(np.searchsorted(ids, kernel_id), max(len(ids) - 1, 0))
    rows = np.flatnonzero(ids[at] == kernel_id) if len(ids) else np.zeros(0, np.int64)
    found = np.full(len(kernel_id), -1)
    if len(rows):
        chosen = _Kernels(table.take(pa.array(order[at[rows]])), start[rows], start[rows], device[rows])
        several = np.flatnonzero(np.bincount(chosen.each) > 1)
        number = np.full(len(chosen.first), -1)
        number[several] = np.arange(len(several))
        found[rows[chosen.order]] = number[chosen.each]
    return found


class _Kernels:
    """The kernels of collectives as columns, sorted by operation."""

    def __init__(self, table: pa.Table, start: Ints, end: Ints, device: Ints) -> None:
        names, groups = Names(), Names()
        operation = names.numbers(table["operation"])
        group = groups.numbers(table["group"].combine_chunks().dictionary_encode())
        sequence = _sequences(integers(table["sequence"]), operation, group, device, start)
        self.order = order = np.lexsort((start, sequence, operation, group))
        self.start, self.end, self.device = start[order], end[order], device[order]
        self.operation, self.group, self.sequence = operation[order], group[order], sequence[order]
        self.bytes_in, self.bytes_out = integers(table["bytes_in"])[order], integers(table["bytes_out"])[order]
        self.size = integers(table["group_size"])[order]
        self.names, self.groups = names.known, groups.known
        key = np.stack([self.group, self.operation, self.sequence])
        self.first = np.flatnonzero(np.r_[True, (key[:, 1:] != key[:, :-1]).any(axis=0)])
        self.each = np.repeat(np.arange(len(self.first)), np.diff(np.r_[self.first, len(order)]))

    def answer(self, devices: Sequence[tuple[int, ...]], ranks: Mapping[int, int]) -> Collectives:
        """Every operation and participant, on one clock; devices: the keys of the numbers here, ranks: of captures."""
        capture = np.array([key[0] for key in devices], np.int64)[self.device]
        fits = self._fits(capture)
        for each, found in fits.items():
            self.start, self.end = (np.where(capture == each, found.to_reference(times), times)
                                    for times in (self.start, self.end))
        shifts = tuple(Shift(_or_none(each), found.origin_ns, found.offset_ns, found.drift_ppm, found.moments,
                             found.residual_ns, found.worst_ns) for each, found in fits.items())
        facts = _Facts(self)
        if shifts:
            facts.end_skew = np.full(len(self.first), NONE)
        operations = sorted(self._operations(facts), key=lambda one: (-one.ns, one.operation, one.bytes or 0))
        order = sorted(np.unique(self.device).tolist(), key=lambda one: (ranks.get(devices[one][0], -1), devices[one]))
        participants = tuple(self._participant(facts, number, devices[number], ranks) for number in order)
        return Collectives(len(self.start), tuple(operations[:MOST_ROWS]), max(0, len(operations) - MOST_ROWS),
                           participants, tuple(self._latest(facts, order)), shifts, int((~facts.complete).sum()))

    def _fits(self, capture: Ints) -> dict[int, ClockFit]:
        """How to bring captures to one clock, if they are not on one already: to that of the first capture."""
        captures = np.unique(capture).tolist()
        several = np.minimum.reduceat(capture, self.first) != np.maximum.reduceat(capture, self.first)
        apart = np.maximum.reduceat(self.start, self.first) >= np.minimum.reduceat(self.end, self.first)
        if not several.any() or (apart & several).sum() <= DISAGREE * several.sum():
            return {}
        reference = self._ends(capture == captures[0])
        fits = {}
        for each in captures[1:]:
            ends = self._ends(capture == each)
            both = (reference != NONE) & (ends != NONE)
            if both.any():
                fits[each] = clockfit.fit(reference[both], ends[both])
        return fits

    def _ends(self, chosen: Flags) -> Ints:
        """Per operation the last end among the chosen kernels, NONE where there is none."""
        found = np.full(len(self.first), NONE)
        np.maximum.at(found, self.each[chosen], self.end[chosen])
        return found

    def _operations(self, facts: _Facts) -> Iterator[Operation]:
        kinds = np.stack([self.operation[self.first], facts.size, facts.bytes])
        order = np.lexsort(kinds[::-1])
        changes = np.r_[True, (kinds[:, order][:, 1:] != kinds[:, order][:, :-1]).any(axis=0)]
        for rows in np.split(order, np.flatnonzero(changes)[1:]):
            yield self._row(facts, rows)

    def _row(self, facts: _Facts, rows: Ints) -> Operation:
        name = self._name(int(self.operation[self.first[rows[0]]]))
        size, sent = (_or_none(int(values[rows[0]])) for values in (facts.size, facts.bytes))
        whole = rows[facts.complete[rows]]
        chosen = whole if len(whole) else rows
        latency, skew, ends = facts.latency[chosen], facts.start_skew[chosen], facts.end_skew[chosen]
        middle, together = float(np.median(latency)), bool(facts.several[chosen].all())
        speed = 1e9 * sent / middle if sent is not None and middle else None
        factor = _factor(name, size)
        return Operation(
            name, size, sent, len(rows), len(whole), not len(whole), int(facts.ns[rows].sum()), middle,
            int(latency.min()), int(latency.max()), float(np.median(skew)) if together else None,
            int(skew.max()) if together else None,
            float(np.median(ends)) if together and (ends != NONE).all() else None,
            speed, speed * factor if speed is not None and factor else None,
            float(np.median(facts.imbalance[chosen])) if sent and together else None)

    def _participant(self, facts: _Facts, number: int, key: tuple[int, ...], ranks: Mapping[int, int]) -> Participant:
        mine = self.device == number
        shared = mine & facts.several[self.each]
        waited, last = None, None
        if shared.any():
            waited = int((facts.last_start[self.each] - self.start)[shared].sum())
            last = int((self.device[facts.straggler[facts.several]] == number).sum())
        return Participant(_or_none(key[0]), key[1], ranks.get(key[0]), int(mine.sum()),
                           int((self.end - self.start)[mine].sum()), last, waited)

    def _latest(self, facts: _Facts, order: list[int]) -> Iterator[Late]:
        """The operations with the largest start skew. order: the participants by the number of their device."""
        several = np.flatnonzero(facts.several)
        for each in several[np.argsort(-facts.start_skew[several], kind="stable")][:WORST].tolist():
            row = int(self.first[each])
            group = int(self.group[row])
            yield Late(self._name(int(self.operation[row])), UNNAMED if group == NONE else self.groups[group],
                       int(self.sequence[row]), int(facts.start_skew[each]),
                       order.index(int(self.device[facts.straggler[each]])))

    def _name(self, number: int) -> str:
        return UNNAMED if number == NONE else self.names[number]


class _Facts:
    """One value per operation."""

    def __init__(self, kernels: _Kernels) -> None:
        first, duration = kernels.first, kernels.end - kernels.start
        count = np.diff(np.r_[first, len(kernels.start)])
        self.several = count > 1
        stated = np.maximum.reduceat(kernels.size, first)
        self.size = np.where(stated == NONE, np.where(self.several, count, NONE), stated)
        pair = np.isin(kernels.operation[first], [kernels.names.index(one) for one in BETWEEN_TWO
                                                  if one in kernels.names])
        self.complete = pair | ((self.size != NONE) & (count >= self.size))
        self.ns = np.add.reduceat(duration, first)
        self.latency = np.minimum.reduceat(duration, first)
        self.last_start = np.maximum.reduceat(kernels.start, first)
        self.start_skew = self.last_start - np.minimum.reduceat(kernels.start, first)
        self.end_skew = np.maximum.reduceat(kernels.end, first) - np.minimum.reduceat(kernels.end, first)
        message = _messages(kernels)
        self.bytes = np.maximum.reduceat(message, first)
        self.imbalance = _imbalance(np.where(message == NONE, 0, message), first, count)
        self.straggler = _last_of(kernels.start, kernels.each, first)


def _sequences(given: Ints, operation: Ints, group: Ints, device: Ints, start: Ints) -> Ints:
    """The sequence number of each kernel; where none is given, its turn among those of its device alike."""
    order = np.lexsort((start, operation, group, device))
    key = np.stack([device, group, operation])[:, order]
    new = np.r_[True, (key[:, 1:] != key[:, :-1]).any(axis=0)]
    head = np.flatnonzero(new)
    turn = np.empty(len(given), np.int64)
    turn[order] = np.arange(len(given)) - np.repeat(head, np.diff(np.r_[head, len(given)]))
    return np.where(given == NONE, turn, given)


def _messages(kernels: _Kernels) -> Ints:
    """The size that bandwidth is counted by, of each kernel."""
    larger = np.maximum(kernels.bytes_in, kernels.bytes_out)
    size = larger
    for number, name in enumerate(kernels.names):
        column = FACTORS.get(name, (0.0, ""))[1]
        if column:
            size = np.where(kernels.operation == number, getattr(kernels, column), size)
    return size


def _imbalance(message: Ints, first: Ints, count: Ints) -> NDArray[np.float64]:
    mean = np.add.reduceat(message, first) / count
    return np.divide(np.maximum.reduceat(message, first), mean, out=np.ones(len(first)), where=mean > 0)


def _last_of(start: Ints, each: Ints, first: Ints) -> Ints:
    """Per operation the row that starts last; of several the first of those."""
    order = np.lexsort((-np.arange(len(start)), start, each))
    return np.asarray(order[np.r_[first[1:], len(start)] - 1], np.int64)


def _factor(name: str, size: int | None) -> float | None:
    """Bus bandwidth per algorithm bandwidth; None where the operation or the number of ranks is not known."""
    if name in PLAIN:
        return 1.0
    if name not in FACTORS or size is None or size < 2:
        return None
    return FACTORS[name][0] * (size - 1) / size


def _or_none(value: int) -> int | None:
    return None if value == NONE else value
