"""What each device did with its time: computed, only communicated, only copied, only filled, or nothing.

Busy = union of all work; exposed communication = communication minus compute; exposed copy = copies
minus compute minus communication; and so exposed fill (memset) = fills minus all of those. The parts and the idle time
sum to the span exactly, in whole ns. Intervals are half-open. The span of a device is from the first start to the last
end of its own work.

Nested unions give all of it: of compute, of compute and communication, of those and copies, of everything. Rows come in
start order, so a union grows by what each interval adds beyond the latest end before it, and that end is all that is
carried from slice to slice. A zero-length execution counts, occupies nothing and may extend the span.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from aaco.analytics.streaming.stream_ids import NONE, first_rows, grow, latest_end_before, rows_by_stream
from aaco.analytics.streaming.work import COMMUNICATION, COMPUTE, COPY, FILL, WorkRows
from aaco.core.arrays import Ints

SETS = (COMPUTE, COMMUNICATION, COPY, FILL)  # the nested sets: each holds the kinds up to its own
BINS = 480
FIRST_WIDTH_NS = 64
MOST_SERIES = 64  # devices with a utilisation timeline


class UtilizationTimeline(Struct, frozen=True):
    """A device's time in equal bins from its first start: ns of each kind in each bin; what is missing to the bin's
    width (or to the end of the span in the last one) is idle."""

    bin_ns: int
    compute_ns: tuple[int, ...]
    exposed_communication_ns: tuple[int, ...]
    exposed_copy_ns: tuple[int, ...]
    exposed_fill_ns: tuple[int, ...]


class DeviceTime(Struct, frozen=True):
    """One device of one capture. compute + exposed communication, copy and fill + idle = span, exactly."""

    capture: int | None
    device_id: int
    t_start_ns: int
    t_end_ns: int
    compute_ns: int
    exposed_communication_ns: int
    exposed_copy_ns: int
    exposed_fill_ns: int
    idle_ns: int
    kernels: int
    kernel_ns: int  # sum of durations, communication included
    communications: int
    communication_ns: int
    copies: int
    copy_ns: int
    fills: int
    fill_ns: int
    course: UtilizationTimeline | None = None

    @property
    def span_ns(self) -> int:
        """Return the time from the first start to the last end."""
        return self.t_end_ns - self.t_start_ns

    @property
    def busy_ns(self) -> int:
        """Return the time in which at least one kernel, copy or fill ran."""
        return self.span_ns - self.idle_ns

    @property
    def kernel_union_ns(self) -> int:
        """Return the time in which at least one kernel ran."""
        return self.compute_ns + self.exposed_communication_ns


class Timeline:
    """Takes in the device work of a trace, slice by slice in start order, and says at the end what each device did.

    since_ns: where each device's span begins; None: at the first start of its work.
    """

    def __init__(self, since_ns: int | None = None) -> None:
        self._since = since_ns
        self._reach = np.zeros((0, len(SETS)), np.int64)
        self._union = np.zeros((0, len(SETS)), np.int64)
        self._count = np.zeros((0, len(SETS)), np.int64)
        self._sum = np.zeros((0, len(SETS)), np.int64)
        self._first = np.zeros(0, np.int64)
        self._courses: dict[int, _TimelineBins] = {}

    def feed(self, work: WorkRows) -> None:
        """Add rows that start no earlier than any row fed before, in start order."""
        if not len(work):
            return
        self._make_room(int(work.device.max()) + 1)
        grouped = work if (work.device == work.device[0]).all() else work.take(rows_by_stream(work.device))
        self._begin(grouped)
        place = grouped.device * len(SETS) + grouped.kind
        np.add.at(self._count.reshape(-1), place, 1)
        np.add.at(self._sum.reshape(-1), place, grouped.end - grouped.start)
        for set_number in SETS:
            self._extend(set_number, grouped.take(grouped.kind <= set_number))

    def _extend(self, set_number: int, rows: WorkRows) -> None:
        """Grow the union of one nested set by what these rows add to it."""
        carried = self._reach[:, set_number].copy()
        before = latest_end_before(rows.device, rows.end, carried)
        self._reach[:, set_number] = carried
        begin = np.maximum(rows.start, before)
        added = np.maximum(0, rows.end - begin)
        np.add.at(self._union[:, set_number], rows.device, added)
        for device, course in self._courses.items():
            low, high = np.searchsorted(rows.device, [device, device + 1])
            course.add(set_number, begin[low:high], added[low:high])

    def _make_room(self, devices: int) -> None:
        self._reach = grow(self._reach, devices, NONE)
        self._union, self._count, self._sum = (grow(kept, devices, 0)
                                               for kept in (self._union, self._count, self._sum))
        self._first = grow(self._first, devices, NONE)

    def _begin(self, grouped: WorkRows) -> None:
        """Note the first start of devices that were not seen before."""
        head = first_rows(grouped.device)
        new = head[self._first[grouped.device[head]] == NONE]
        for device, started in zip(grouped.device[new].tolist(), grouped.start[new].tolist(), strict=True):
            start = started if self._since is None else self._since
            self._first[device] = start
            if len(self._courses) < MOST_SERIES:
                self._courses[device] = _TimelineBins(start)

    def devices(self, keys: list[tuple[int, ...]]) -> tuple[DeviceTime, ...]:
        """Return what each device did, in the order of captures and devices. keys: its (capture, device_id), by the
        number it has in the work."""
        all_devices = [self._device(number, *key) for number, key in enumerate(keys[:len(self._first)])
                       if self._first[number] != NONE]
        return tuple(sorted(all_devices, key=lambda row: (-1 if row.capture is None else row.capture, row.device_id)))

    def _device(self, number: int, capture: int, device_id: int) -> DeviceTime:
        compute, kernels, copied, busy = self._union[number].tolist()
        start, end = int(self._first[number]), int(self._reach[number, FILL])
        count, total = self._count[number].tolist(), self._sum[number].tolist()
        course = self._courses.get(number)
        return DeviceTime(
            capture=None if capture == NONE else capture, device_id=device_id, t_start_ns=start, t_end_ns=end,
            compute_ns=compute, exposed_communication_ns=kernels - compute, exposed_copy_ns=copied - kernels,
            exposed_fill_ns=busy - copied,
            idle_ns=end - start - busy, kernels=count[COMPUTE] + count[COMMUNICATION],
            kernel_ns=total[COMPUTE] + total[COMMUNICATION], communications=count[COMMUNICATION],
            communication_ns=total[COMMUNICATION], copies=count[COPY], copy_ns=total[COPY],
            fills=count[FILL], fill_ns=total[FILL], course=course.made() if course else None)


class _TimelineBins:
    """Time covered per bin, for each nested set. The bins double in width when the trace outgrows them."""

    def __init__(self, origin: int) -> None:
        self.origin = origin
        self.width = FIRST_WIDTH_NS
        self.covered = np.zeros((len(SETS), BINS), np.int64)

    def add(self, set_number: int, start: Ints, length: Ints) -> None:
        """Add pieces of a union: disjoint and in order."""
        if not len(start):
            return
        start = start - self.origin
        self._reach_to(int((start + length).max()))
        edges = self.width * np.arange(BINS + 1)
        self.covered[set_number] += np.diff(covered_until(edges, start, length))

    def _reach_to(self, end: int) -> None:
        while self.width * BINS < end:
            folded = self.covered.reshape(len(SETS), BINS // 2, 2).sum(axis=2)
            self.covered = np.concatenate([folded, np.zeros_like(folded)], axis=1)
            self.width *= 2

    def made(self) -> UtilizationTimeline:
        compute, kernels, copied, busy = self.covered
        used = int(np.flatnonzero(busy)[-1]) + 1 if busy.any() else 0
        return UtilizationTimeline(self.width, tuple(compute[:used].tolist()),
                                   tuple((kernels - compute)[:used].tolist()),
                                   tuple((copied - kernels)[:used].tolist()), tuple((busy - copied)[:used].tolist()))


def covered_until(times: Ints, start: Ints, length: Ints) -> Ints:
    """Return how much of the pieces is before each time."""
    whole = np.r_[0, np.cumsum(length)]
    began = np.searchsorted(start, times, side="right")
    covered = np.asarray(whole[began], np.int64)
    ends = np.r_[times.min(initial=0), start + length]  # before all pieces nothing is left of any
    left = ends[began]
    left -= times
    covered -= np.maximum(0, left, out=left)
    return covered
