"""Collectives that wait: time on the device in which a rank does nothing but wait for another one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.roofline.limiters import COMMUNICATION_FAMILIES
from aaco.analytics.streaming import communication
from aaco.analytics.streaming.growing_column import GrowingColumn
from aaco.analytics.streaming.stream_ids import NameIds, ValueByName
from aaco.analytics.timeline import lone_waits
from aaco.analytics.truth.finding import Finding, Slice
from aaco.core.words import in_time, plural

FAMILIES = pa.array(sorted(COMMUNICATION_FAMILIES))
MUCH = 0.05  # of the time of all kernels


class CollectiveCheck:
    """The first collective of a device against all that follow it there, and each against others of its kind."""

    def __init__(self) -> None:
        self._names = NameIds()
        self._communicates = ValueByName(self._names, communication.communicates, False)
        self._columns = [GrowingColumn() for _ in range(6)]  # kernel id, start, end, device, name, grid
        self._kernel_ns, self._count = 0, 0

    def add(self, piece: Slice) -> None:
        """Take the times of the collectives of the slice."""
        kernels = piece.kernels
        timed = kernels.known("t_start_ns") & kernels.known("dur_ns")
        self._kernel_ns += int(kernels["dur_ns"][timed].sum())
        families = np.asarray(pc.is_in(kernels.table["family"].cast("string"), FAMILIES), bool)
        names = self._names.numbers(kernels.table["kernel_name"])
        rows = np.flatnonzero((families | self._communicates.of(names)) & timed)
        start, took = kernels["t_start_ns"][rows], kernels["dur_ns"][rows]
        number = self._count + np.arange(len(rows))
        self._count += len(rows)
        for column, values in zip(self._columns, (number, start, start + took, kernels["device_id"][rows], names[rows],
                                                  kernels["grid_x"][rows]), strict=True):
            column.append(values)

    def findings(self) -> Iterator[Finding]:
        """Yield a note per device with a first collective far longer than any later one, and one for other waits."""
        number, start, end, device, *kind = (column.all for column in self._columns)
        if not len(number):
            return
        waits = lone_waits.find(number, start, end, device, kind)
        for key, (began, ended) in sorted(waits.first.items()):
            others = int((device == key).sum()) - 1
            yield Finding("first_collective_waits", "note", 1, others + 1,
                          f"the first collective of device {key} took {in_time(ended - began)}, far longer than each "
                          f"of the {others} after it: it waited for a rank that was not there yet",
                          "read the steps after it, and start the profilers of all ranks behind a barrier",
                          ended - began)
        later = ~np.isin(start[waits.kernel_id], [began for began, _ in waits.first.values()])
        waited_ns = int((waits.arrived - start[waits.kernel_id])[later].sum())
        if waited_ns > MUCH * self._kernel_ns:
            count = int(later.sum())
            verb, whose = ("takes", "its") if count == 1 else ("take", "their")
            yield Finding("collectives_wait", "note", count, len(number),
                          f"{plural(count, 'collective')} {verb} more than {lone_waits.FAR} times as long as is usual "
                          f"for {whose} kind: {in_time(waited_ns)} of that are waiting for other ranks, not work",
                          "captures of all ranks in one import show which rank is late", waited_ns)
