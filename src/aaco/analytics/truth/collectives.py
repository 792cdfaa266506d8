"""Profilers of several ranks start one after the other: the first collective then waits for a rank not yet there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.roofline.limiters import COMMUNICATION_FAMILIES
from aaco.analytics.truth.finding import Finding, Slice

FAMILIES = pa.array(sorted(COMMUNICATION_FAMILIES))
# Times the longest later one. Of 14 recordings of ranks on H100 the first took 383 and 3894 times as long in two, up to
# 4 times in the others.
FAR = 10
LATER = 4  # collectives that tell how long one takes


class FirstCollectiveCheck:
    """The first collective of a device, against all that follow it there."""

    def __init__(self) -> None:
        self._first: dict[int, int] = {}  # by device, ns
        self._later: dict[int, tuple[int, int]] = {}  # by device: how many, and the longest in ns

    def add(self, piece: Slice) -> None:
        """Take the durations of the collectives of the slice."""
        families = piece.kernels.table["family"].cast("string")
        rows = np.flatnonzero(np.asarray(pc.is_in(families, FAMILIES), bool) & piece.kernels.known("t_start_ns")
                              & piece.kernels.known("dur_ns"))
        devices, took_ns = piece.kernels["device_id"][rows], piece.kernels["dur_ns"][rows]
        for device in np.unique(devices).tolist():
            of_device = took_ns[devices == device]
            if device not in self._first:
                self._first[device], self._later[device] = int(of_device[0]), (0, 0)
                of_device = of_device[1:]
            count, longest_ns = self._later[device]
            self._later[device] = count + len(of_device), max(longest_ns, int(of_device.max(initial=0)))

    def findings(self) -> Iterator[Finding]:
        """Yield a note for each device on which the first collective lasted far longer than any after it."""
        for device, first_ns in sorted(self._first.items()):
            count, longest_ns = self._later[device]
            if count >= LATER and first_ns > FAR * longest_ns:
                yield Finding("first_collective_waits", "note", 1, count + 1,
                              f"the first collective of device {device} took {first_ns} ns, none of the {count} after "
                              f"it more than {longest_ns} ns: it waited for a rank that was not there yet",
                              "read the steps after it, and start the profilers of all ranks behind a barrier",
                              first_ns)
