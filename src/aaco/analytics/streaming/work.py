"""The work of devices in one slice of a trace: kernels, copies and fills together, in start order, as plain columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from aaco.analytics.streaming import communication
from aaco.analytics.streaming.stream_ids import NONE, NameIds, TupleIds, ValueByName, integers, is_name
from aaco.core.arrays import ArrayRows, Flags, Ints, find_sorted

COMPUTE, COMMUNICATION, COPY, FILL = 0, 1, 2, 3  # kinds of work; what is below COPY is a kernel
MEMSET = "memset"  # the kind of a row of the copies table that fills
FARTHEST_NS = 2**61  # 73 years; the difference of two times within it fits an int64
KERNEL_COLUMNS = ("kernel_id", "kernel_name", "device_id", "queue_id", "stream_id", "correlation_id", "launch_id",
                  "t_start_ns", "t_end_ns", "iteration", "capture")
COPY_COLUMNS = ("kind", "device_id", "queue_id", "stream_id", "correlation_id", "launch_id", "t_start_ns", "t_end_ns",
                "capture")


class WorkRows(ArrayRows, frozen=True):
    """Rows of device work in start order. Integers; NONE means null.

    kind: COMPUTE, COMMUNICATION, COPY or FILL. device and stream: numbers of WorkReader. link: as link_launches.py
    defines it. name: number of the kernel's name.
    """

    start: Ints
    end: Ints
    kind: Ints
    device: Ints
    stream: Ints
    capture: Ints
    link: Ints
    name: Ints
    kernel_id: Ints
    iteration: Ints


def join(parts: Sequence[WorkRows]) -> WorkRows:
    """Return the rows of all parts, in start order; rows that start together keep the order given."""
    whole = WorkRows(*(np.concatenate([getattr(part, name) for part in parts]) for name in WorkRows.__struct_fields__))
    ordered = bool((whole.start[1:] >= whole.start[:-1]).all())
    return whole if ordered else whole.take(np.argsort(whole.start, kind="stable"))


def has_launches(*tables: pa.Table | None) -> bool:
    """Return whether any row of these tables of work has a launch_id; older sessions and runs do not."""
    return any(table is not None and table["launch_id"].null_count < table.num_rows for table in tables)


def links(rows: pa.Table | pa.RecordBatch, with_launches: bool) -> Ints:
    """Return the link of each row of kernels or copies to its launch (link_launches.py)."""
    return integers(rows["launch_id"]) + 1 if with_launches else integers(rows["correlation_id"])


class WorkReader:
    """Reads WorkRows from table slices and keeps the meaning of their numbers.

    devices: (capture, device_id) by number. streams: (capture, device_id, queue_id, stream_id); a source that has
    streams fills queue_id too when it knows it, so a stream number is that of a stream if there is one, else of a
    queue. names: kernel names. left_out: rows that cannot be placed in time: they end before they start, have no times,
    or impossible ones.
    """

    def __init__(self, collective_kernels: Ints | None = None, with_launches: bool = False) -> None:
        """with_launches: whether the rows have launch_id (has_launches)."""
        self._with_launches = with_launches
        self.devices, self.streams, self.names = TupleIds(), TupleIds(), NameIds()
        self.host_kernels = 0
        self.left_out = 0
        self._collective = np.sort(collective_kernels) if collective_kernels is not None else np.zeros(0, np.int64)
        self._communicates = ValueByName(self.names, communication.communicates, False)

    def work(self, kernels: pa.Table | pa.RecordBatch, copies: pa.Table | pa.RecordBatch | None) -> WorkRows:
        """Return the device work among these rows of the kernels and copies tables. Kernels of the host CPU are counted
        only.

        Needs the columns KERNEL_COLUMNS and COPY_COLUMNS.
        """
        parts = [self._kernels(kernels)]
        if copies is not None and copies.num_rows:
            parts.append(self._copies(copies))
        return join(parts)

    def _kernels(self, rows: pa.Table | pa.RecordBatch) -> WorkRows:
        name = self.names.numbers(rows["kernel_name"])
        kernel_id = integers(rows["kernel_id"])
        on_device = integers(rows["device_id"]) != NONE
        self.host_kernels += int((~on_device).sum())
        return self._placed(rows, self._kinds(name, kernel_id), name, kernel_id, integers(rows["iteration"]), on_device)

    def _copies(self, rows: pa.Table | pa.RecordBatch) -> WorkRows:
        none = np.full(rows.num_rows, NONE)
        kind = np.where(is_name(rows["kind"], MEMSET), FILL, COPY)
        return self._placed(rows, kind, none, none, none, integers(rows["device_id"]) != NONE)

    def _placed(self, rows: pa.Table | pa.RecordBatch, kind: Ints, name: Ints, kernel_id: Ints, iteration: Ints,
                on_device: Flags) -> WorkRows:
        start, end = integers(rows["t_start_ns"]), integers(rows["t_end_ns"])
        placeable = (start > -FARTHEST_NS) & (end >= start) & (end < FARTHEST_NS)
        self.left_out += int((on_device & ~placeable).sum())
        capture, device, queue, stream = (integers(rows[column])
                                          for column in ("capture", "device_id", "queue_id", "stream_id"))
        queue = np.where(stream != NONE, NONE, queue)
        all_work = WorkRows(start, end, kind, device, stream, capture, links(rows, self._with_launches), name,
                            kernel_id, iteration)
        mask = on_device & placeable
        kept = all_work if mask.all() else all_work.take(mask)
        queue = queue if mask.all() else queue[mask]
        devices = self.devices.numbers(kept.capture, kept.device)
        streams = self.streams.numbers(kept.capture, kept.device, queue, kept.stream)
        return WorkRows(kept.start, kept.end, kept.kind, devices, streams, kept.capture, kept.link, kept.name,
                        kept.kernel_id, kept.iteration)

    def _kinds(self, name: Ints, kernel_id: Ints) -> Ints:
        by_name = self._communicates.of(name)
        if len(self._collective):
            by_name = by_name | (find_sorted(self._collective, kernel_id) >= 0)
        return np.where(by_name, COMMUNICATION, COMPUTE)
