"""NVML's errors of a device: its counts of memory errors, and the XIDs that the driver reports, as they come.

An XID is NVIDIA's number of a fault that the driver saw (https://docs.nvidia.com/deploy/xid-errors).
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from ctypes import byref, c_uint, c_ulonglong, c_void_p

from aaco.collectors.gpu.device_samples import CODES, Record

# nvml.h: nvmlMemoryErrorType_t, nvmlEccCounterType_t, nvmlEventTypeXidCriticalError.
ECC = {"corrected_errors": 0, "uncorrected_errors": 1}
SINCE_LOADED = 0
XID = 8
MOST_AT_ONCE = 64  # XIDs of one look: a device that reports without end must not keep us


class _Event(ctypes.Structure):
    _fields_ = (("device", c_void_p), ("kind", c_ulonglong), ("number", c_ulonglong), ("gpu_instance", c_uint),
                ("compute_instance", c_uint))


class Faults:
    """The errors of one device. What its driver does not report is left out."""

    def __init__(self, nvml: ctypes.CDLL, index: int, handle: c_void_p) -> None:
        self._nvml, self.index, self.handle, self._counted = nvml, index, handle, False
        self._events = self._watch()

    def samples(self, last: bool = False) -> Iterator[Record]:
        """Yield the XIDs since the previous call; at the first and the `last` one also the counts of errors."""
        if not self._counted or last:
            self._counted = True
            yield from self._counts()
        event = _Event()
        for _ in range(MOST_AT_ONCE if self._events else 0):
            if self._nvml.nvmlEventSetWait_v2(self._events, byref(event), c_uint(0)):
                return
            if event.kind == XID:
                yield time.monotonic_ns(), self.index, CODES["xid"], float(event.number)

    def close(self) -> None:
        """End the watch for XIDs."""
        if self._events:
            self._nvml.nvmlEventSetFree(self._events)
            self._events = c_void_p()

    def _counts(self) -> Iterator[Record]:
        count_errors = getattr(self._nvml, "nvmlDeviceGetTotalEccErrors", None)
        for name, kind in ECC.items():
            count = c_ulonglong()
            if count_errors and not count_errors(self.handle, c_uint(kind), c_uint(SINCE_LOADED), byref(count)):
                yield time.monotonic_ns(), self.index, CODES[name], float(count.value)

    def _watch(self) -> c_void_p:
        """Return the driver's set of events for XIDs; a null one where it has none."""
        events = c_void_p()
        if not hasattr(self._nvml, "nvmlEventSetWait_v2") or self._nvml.nvmlEventSetCreate(byref(events)):
            return c_void_p()
        if self._nvml.nvmlDeviceRegisterEvents(self.handle, c_ulonglong(XID), events):
            self._nvml.nvmlEventSetFree(events)
            return c_void_p()
        return events
