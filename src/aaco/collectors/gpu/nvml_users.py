"""The share of a device's multiprocessors that the measured processes have, and that all others have: by NVML, two
sums.

nvmlDeviceGetProcessUtilization (nvml.h) has, for each process that worked lately, the share of time in which one of its
kernels ran. nvmlDeviceGetComputeRunningProcesses lists the processes that hold the device; only ours are counted
(collectors/gpu/own_processes.py defines which). No number or name of another process is kept. If one of them is not
visible from here (it has ended, or this is a container with a PID namespace), there is no share for that moment.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from ctypes import byref, c_uint, c_ulonglong, c_void_p

from aaco.collectors.gpu.device_samples import CODES, Record
from aaco.collectors.gpu.own_processes import OwnProcesses

SUCCESS, NOT_FOUND, INSUFFICIENT_SIZE = 0, 6, 7  # nvml.h; NOT_FOUND: nobody worked
EVERY_NS = 200_000_000
NOT_AVAILABLE = (1 << 64) - 1  # nvml.h: NVML_VALUE_NOT_AVAILABLE, of a process's memory
WINDOW_US = 1_000_000  # an H200's driver samples a process every 0.2 to 0.8 s: what is older is over
MORE = 16  # processes that may begin between two calls


class _Use(ctypes.Structure):
    """nvml.h: nvmlProcessUtilizationSample_t."""

    _fields_ = (("pid", c_uint), ("time_us", c_ulonglong), ("sm", c_uint), ("memory", c_uint), ("encoder", c_uint),
                ("decoder", c_uint))


class _Holder(ctypes.Structure):
    """nvml.h: nvmlProcessInfo_v2_t."""

    _fields_ = (("pid", c_uint), ("memory", c_ulonglong), ("gpu_instance", c_uint), ("compute_instance", c_uint))


class NvmlUsers:
    """The shares of one device."""

    def __init__(self, nvml: ctypes.CDLL, index: int, handle: c_void_p, ours: OwnProcesses) -> None:
        self._get = getattr(nvml, "nvmlDeviceGetProcessUtilization", None)
        self._list = getattr(nvml, "nvmlDeviceGetComputeRunningProcesses_v3", None)
        self.index, self.handle, self._ours, self._at = index, handle, ours, 0

    def samples(self) -> Iterator[Record]:
        """Yield our share and that of others, %, how many of our processes hold the device, and the bytes of it that
        they hold, about five times a second.
        """
        now = time.monotonic_ns()
        if now - self._at < EVERY_NS:
            return
        self._at = now
        amounts = self._sum_shares()
        # None of ours holds it, or this process does not see those that do.
        if held := [holder.memory for holder in self._list_holders() if self._ours.has(holder.pid)]:
            amounts["own_processes"] = len(held)
            if NOT_AVAILABLE not in held:
                amounts["own_vram_bytes"] = sum(held)
        yield from ((now, self.index, CODES[kind], float(value)) for kind, value in amounts.items())

    def _sum_shares(self) -> dict[str, int]:
        """Return the shares; empty if the driver reports none, or one of the processes is not visible."""
        shares = {True: 0, False: 0}
        worked = self._read_shares()
        for pid, share in worked.items() if worked is not None else ():
            if (ours := self._ours.has(pid)) is None:
                return {}
            shares[ours] += share
        return {} if worked is None else {"own_sm_pct": shares[True], "others_sm_pct": shares[False]}

    def _list_holders(self) -> list[_Holder]:
        """Return the processes that hold the device, as far as the driver lists them."""
        count = c_uint(MORE)
        while self._list is not None:
            room = (_Holder * count.value)()
            code = self._list(self.handle, byref(count), room)
            if code != INSUFFICIENT_SIZE or count.value <= len(room):
                return room[:count.value] if code == SUCCESS else []
            count = c_uint(count.value + MORE)
        return []

    def _read_shares(self) -> dict[int, int] | None:
        """Return the latest share of each process that worked; None if the driver does not report it."""
        if self._get is None:
            return None
        since, count = time.time_ns() // 1000 - WINDOW_US, c_uint(0)
        code = self._get(self.handle, None, byref(count), c_ulonglong(since))
        if code == INSUFFICIENT_SIZE:
            count = c_uint(count.value + MORE)
            room = (_Use * count.value)()
            code = self._get(self.handle, room, byref(count), c_ulonglong(since))
            if code == SUCCESS:
                uses = sorted((use.time_us, use.pid, use.sm) for use in room if use.pid and use.time_us > since)
                return {pid: share for _, pid, share in uses if share <= 100}  # more is no share: a record not filled
        if code in (SUCCESS, NOT_FOUND):
            return {}
        if code != INSUFFICIENT_SIZE:
            self._get = None  # not of this device, or not for this user
        return None
