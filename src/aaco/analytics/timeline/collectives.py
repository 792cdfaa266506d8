"""Collective operations over ranks: how long they take, who comes last, and what bandwidth they reach.

One operation is the kernels of one (process group, operation, sequence number), one per participant: a device of a
capture. If a capture gives no sequence number, the order of occurrence replaces it; that is right if all captures begin
at the same operation.

latency = least duration over participants: the last to arrive waits for none (as in NCCL's own tests).
start skew = last start - first start; end skew in the same way. straggler = the participant that starts last.
algorithm bandwidth = size / latency; bus bandwidth = algorithm bandwidth x factor, which is comparable with the speed
of a link for any number n of ranks (nccl-tests, doc/PERFORMANCE.md):

    allreduce 2(n-1)/n of the message; allgather, reduce_scatter, alltoall, gather, scatter (n-1)/n of the whole over
    all ranks; broadcast, reduce, send, recv 1.

Skews need one clock. Everyone must have arrived before anyone can leave: where participants of different captures do
not overlap, their clocks differ. So they do where the ends of operations that all leave together (TOGETHER) are
SKEW_NS or more apart in the median, as on several hosts; each capture is then shifted to the first one's clock by the
ends of the operations they share (clockfit.py: offset and drift), and the residual says how well. Ends agree by
construction after that, so the end skew is absent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from aaco.analytics.streaming import clockfit
from aaco.analytics.streaming.clockfit import ClockFit
from aaco.analytics.streaming.stream_ids import NONE, NameIds, integers, or_none
from aaco.analytics.streaming.work import COPY, WorkRows
from aaco.core import documents
from aaco.core.arrays import Flags, Ints, find_sorted
from aaco.core.records import as_dict
from aaco.tracelake import layout

COLUMNS = ("kernel_id", "operation", "group", "group_size", "sequence", "bytes_in", "bytes_out")
FACTORS = {"allreduce": (2.0, "bytes_in"), "allgather": (1.0, "bytes_out"), "reduce_scatter": (1.0, "bytes_in"),
           "alltoall": (1.0, "bytes_in"), "gather": (1.0, "bytes_out"), "scatter": (1.0, "bytes_in")}
PLAIN = ("broadcast", "reduce", "send", "recv")  # factor 1, of the larger of in and out
BETWEEN_TWO = ("send", "recv")  # at any size of the group
TOGETHER = ("allreduce", "allgather", "reduce_scatter", "alltoall")  # no rank can leave before all have arrived
MOST_ROWS = 60
WORST = 10
DISAGREE = 0.01  # of the operations that captures share; more that do not overlap means their clocks differ
UNNAMED = "(unnamed)"
Nanoseconds = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]  # what a column of a table can hold


class Operation(Struct, frozen=True):
    """All operations of one kind, group size and message size. ns: kernel time over all participants.

    complete: operations with all ranks in the captures; latency and skew are of these. If there is none, bounded is
    True: latency is then of the recorded ranks, which may have waited for others, so it is an upper bound and the
    bandwidths are lower ones.
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


class Participant(Struct, frozen=True):
    """One device of a capture. last: operations in which it started last. waited_ns: how long it waited for others."""

    capture: int | None
    device_id: int
    rank: int | None
    operations: int
    ns: int
    last: int | None
    waited_ns: int | None


class Late(Struct, frozen=True):
    """One of the operations with the largest start skew, and who came last."""

    operation: str
    group: str
    sequence: int
    start_skew_ns: int
    straggler: int  # index into participants


class Shift(Struct, frozen=True):
    """How a capture's times are shifted to the first one's clock: offset at its first operation (origin_ns), drift, and
    the number of common operations. residual_ns: the spread that is left; worst_ns: the farthest."""

    capture: int | None
    origin_ns: Nanoseconds
    offset_ns: Nanoseconds
    drift_ppm: float
    operations: int
    residual_ns: float
    worst_ns: Nanoseconds


@documents.document(layout.TRACE["collectives"], version=1)
class Collectives(Struct, frozen=True):
    """What the collectives table and the kernels say together."""

    kernels: int
    operations: tuple[Operation, ...]
    more_operations: int  # rows beyond MOST_ROWS
    participants: tuple[Participant, ...]
    latest: tuple[Late, ...]
    shifts: tuple[Shift, ...]
    incomplete: int  # operations some ranks of which are in no capture


def shifts_of(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the fields of each shift of collectives.json; none where there is no such document. Raise BadBundle."""
    return [as_dict(shift) for shift in documents.decode(document, Collectives).shifts] if document else []


class CollectiveCollector:
    """Keeps the times of the kernels that the collectives table names; 32 bytes each."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table.select(COLUMNS)
        ids = integers(table["kernel_id"])
        self._order = np.argsort(ids, kind="stable")
        self._ids = ids[self._order]
        self._found: list[Ints] = []

    @property
    def kernel_ids(self) -> Ints:
        """Return the kernels named, sorted."""
        return self._ids

    def feed(self, work: WorkRows) -> None:
        """Keep the times of the collectives among these rows."""
        at = find_sorted(self._ids, work.kernel_id)
        rows = np.flatnonzero((at >= 0) & (work.kind < COPY))
        if len(rows):
            self._found.append(np.stack([self._order[at[rows]], work.start[rows], work.end[rows], work.device[rows]]))

    def result(self, devices: Sequence[tuple[int, ...]], ranks: Mapping[int, int]) -> Collectives | None:
        """Return the answer, None without collectives. devices: (capture, device) by number. ranks: by capture."""
        if not self._found:
            return None
        row, start, end, device = np.concatenate(self._found, axis=1)
        return CollectiveKernels(self._table.take(pa.array(row)), start, end, device).answer(devices, ranks)


def matched(table: pa.Table, kernel_id: Ints, start: Ints, device: Ints) -> Ints:
    """Return, per kernel, the number of the collective operation that it shares with other devices; -1 for none.

    table: the collectives table. device: a number per (capture, device).
    """
    ids = integers(table["kernel_id"])
    order = np.argsort(ids, kind="stable")
    at = find_sorted(ids[order], kernel_id)
    rows = np.flatnonzero(at >= 0)
    operation_numbers = np.full(len(kernel_id), -1)
    if len(rows):
        kernels = CollectiveKernels(table.take(pa.array(order[at[rows]])), start[rows], start[rows], device[rows])
        several = np.flatnonzero(np.bincount(kernels.operation_index) > 1)
        number = np.full(len(kernels.first), -1)
        number[several] = np.arange(len(several))
        operation_numbers[rows[kernels.order]] = number[kernels.operation_index]
    return operation_numbers


class CollectiveKernels:
    """The kernels of collectives as columns, sorted by operation."""

    def __init__(self, table: pa.Table, start: Ints, end: Ints, device: Ints) -> None:
        names, groups = NameIds(), NameIds()
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
        self.operation_index = np.repeat(np.arange(len(self.first)), np.diff(np.r_[self.first, len(order)]))

    def answer(self, devices: Sequence[tuple[int, ...]], ranks: Mapping[int, int]) -> Collectives:
        """Return every operation and participant, on one clock; devices: the keys of the numbers here, ranks: of
        captures."""
        capture = np.array([key[0] for key in devices], np.int64)[self.device]
        fits = self.fits(capture)
        for capture_id, fit in fits.items():
            self.start, self.end = (np.where(capture == capture_id, fit.to_reference(times), times)
                                    for times in (self.start, self.end))
        shifts = tuple(Shift(or_none(capture_id), fit.origin_ns, fit.offset_ns, fit.drift_ppm, fit.moments,
                             fit.residual_ns, fit.worst_ns) for capture_id, fit in fits.items())
        facts = _Facts(self)
        if shifts:
            facts.end_skew = np.full(len(self.first), NONE)
        operations = sorted(self._operations(facts), key=lambda row: (-row.ns, row.operation, row.bytes or 0))
        order = sorted(np.unique(self.device).tolist(),
                       key=lambda number: (ranks.get(devices[number][0], -1), devices[number]))
        participants = tuple(self._participant(facts, number, devices[number], ranks) for number in order)
        return Collectives(len(self.start), tuple(operations[:MOST_ROWS]), max(0, len(operations) - MOST_ROWS),
                           participants, tuple(self._latest(facts, order)), shifts, int((~facts.complete).sum()))

    def fits(self, capture: Ints) -> dict[int, ClockFit]:
        """Return how to bring captures to one clock, if they are not on one already: to that of the first capture."""
        captures = np.unique(capture).tolist()
        several = np.minimum.reduceat(capture, self.first) != np.maximum.reduceat(capture, self.first)
        apart = np.maximum.reduceat(self.start, self.first) >= np.minimum.reduceat(self.end, self.first)
        overlapping = (apart & several).sum() <= DISAGREE * several.sum()
        if not several.any() or (overlapping and self.end_difference_ns(capture) < clockfit.SKEW_NS):
            return {}
        reference = self._ends(capture == captures[0])
        fits = {}
        for capture_id in captures[1:]:
            ends = self._ends(capture == capture_id)
            both = (reference != NONE) & (ends != NONE)
            if both.any():
                fits[capture_id] = clockfit.fit(reference[both], ends[both])
        return fits

    def end_difference_ns(self, capture: Ints) -> int:
        """Return how far the ends of operations that all leave together are apart between captures: the largest
        median distance from the first capture, 0 if captures share none. On one clock it is small."""
        together = [number for number, name in enumerate(self.names) if name in TOGETHER]
        leave = np.isin(self.operation, together)
        captures = np.unique(capture).tolist()
        reference, farthest = self._ends(leave & (capture == captures[0])), 0
        for capture_id in captures[1:]:
            ends = self._ends(leave & (capture == capture_id))
            both = (reference != NONE) & (ends != NONE)
            if both.any():
                farthest = max(farthest, abs(int(np.median(reference[both] - ends[both]))))
        return farthest

    def _ends(self, mask: Flags) -> Ints:
        """Return the last end of each operation among the kernels of the mask, NONE if there is none."""
        last_ends = np.full(len(self.first), NONE)
        np.maximum.at(last_ends, self.operation_index[mask], self.end[mask])
        return last_ends

    def _operations(self, facts: _Facts) -> Iterator[Operation]:
        kinds = np.stack([self.operation[self.first], facts.size, facts.bytes])
        order = np.lexsort(kinds[::-1])
        changes = np.r_[True, (kinds[:, order][:, 1:] != kinds[:, order][:, :-1]).any(axis=0)]
        for rows in np.split(order, np.flatnonzero(changes)[1:]):
            yield self._row(facts, rows)

    def _row(self, facts: _Facts, rows: Ints) -> Operation:
        name = self.name(int(self.operation[self.first[rows[0]]]))
        size, sent = (or_none(int(values[rows[0]])) for values in (facts.size, facts.bytes))
        whole = rows[facts.complete[rows]]
        judged = whole if len(whole) else rows
        latency, skew, ends = facts.latency[judged], facts.start_skew[judged], facts.end_skew[judged]
        middle, together = float(np.median(latency)), bool(facts.several[judged].all())
        speed = 1e9 * sent / middle if sent is not None and middle else None
        factor = _factor(name, size)
        return Operation(
            name, size, sent, len(rows), len(whole), not len(whole), int(facts.ns[rows].sum()), middle,
            int(latency.min()), int(latency.max()), float(np.median(skew)) if together else None,
            int(skew.max()) if together else None,
            float(np.median(ends)) if together and (ends != NONE).all() else None,
            speed, speed * factor if speed is not None and factor else None,
            float(np.median(facts.imbalance[judged])) if sent and together else None)

    def _participant(self, facts: _Facts, number: int, key: tuple[int, ...], ranks: Mapping[int, int]) -> Participant:
        mine = self.device == number
        shared = mine & facts.several[self.operation_index]
        waited, last = None, None
        if shared.any():
            waited = int((facts.last_start[self.operation_index] - self.start)[shared].sum())
            last = int((self.device[facts.straggler[facts.several]] == number).sum())
        return Participant(or_none(key[0]), key[1], ranks.get(key[0]), int(mine.sum()),
                           int((self.end - self.start)[mine].sum()), last, waited)

    def _latest(self, facts: _Facts, order: list[int]) -> Iterator[Late]:
        """Yield the operations with the largest start skew. order: the participants by the number of their device."""
        several = np.flatnonzero(facts.several)
        for number in several[np.argsort(-facts.start_skew[several], kind="stable")][:WORST].tolist():
            row = int(self.first[number])
            group = int(self.group[row])
            yield Late(self.name(int(self.operation[row])), UNNAMED if group == NONE else self.groups[group],
                       int(self.sequence[row]), int(facts.start_skew[number]),
                       order.index(int(self.device[facts.straggler[number]])))

    def name(self, number: int) -> str:
        """Return the name of an operation by its number."""
        return UNNAMED if number == NONE else self.names[number]


class _Facts:
    """One value per operation."""

    def __init__(self, kernels: CollectiveKernels) -> None:
        first, duration = kernels.first, kernels.end - kernels.start
        count = np.diff(np.r_[first, len(kernels.start)])
        self.several = count > 1
        stated = np.maximum.reduceat(kernels.size, first)
        self.size = np.where(stated == NONE, np.where(self.several, count, NONE), stated)
        pair = np.isin(kernels.operation[first], [kernels.names.index(name) for name in BETWEEN_TWO
                                                  if name in kernels.names])
        self.complete = pair | ((self.size != NONE) & (count >= self.size))
        self.ns = np.add.reduceat(duration, first)
        self.latency = np.minimum.reduceat(duration, first)
        self.last_start = np.maximum.reduceat(kernels.start, first)
        self.start_skew = self.last_start - np.minimum.reduceat(kernels.start, first)
        self.end_skew = np.maximum.reduceat(kernels.end, first) - np.minimum.reduceat(kernels.end, first)
        message = _messages(kernels)
        self.bytes = np.maximum.reduceat(message, first)
        self.imbalance = _imbalance(np.where(message == NONE, 0, message), first, count)
        self.straggler = last_of(kernels.start, kernels.operation_index, first)


def _sequences(sequence: Ints, operation: Ints, group: Ints, device: Ints, start: Ints) -> Ints:
    """Return the sequence number of each kernel; if it has none, its turn among the same operations of its device."""
    order = np.lexsort((start, operation, group, device))
    key = np.stack([device, group, operation])[:, order]
    new = np.r_[True, (key[:, 1:] != key[:, :-1]).any(axis=0)]
    head = np.flatnonzero(new)
    turn = np.empty(len(sequence), np.int64)
    turn[order] = np.arange(len(sequence)) - np.repeat(head, np.diff(np.r_[head, len(sequence)]))
    return np.where(sequence == NONE, turn, sequence)


def _messages(kernels: CollectiveKernels) -> Ints:
    """Return the size that bandwidth is counted by, of each kernel."""
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


def last_of(start: Ints, operation: Ints, first: Ints) -> Ints:
    """Return the row of each operation that starts last; of several the first."""
    order = np.lexsort((-np.arange(len(start)), start, operation))
    return np.asarray(order[np.r_[first[1:], len(start)] - 1], np.int64)


def _factor(name: str, size: int | None) -> float | None:
    """Return the bus bandwidth per algorithm bandwidth; None if the operation or the number of ranks is not known."""
    if name in PLAIN:
        return 1.0
    if name not in FACTORS or size is None or size < 2:
        return None
    return FACTORS[name][0] * (size - 1) / size
