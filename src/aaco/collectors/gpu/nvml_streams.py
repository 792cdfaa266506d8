"""NVML's readings of a device besides single values: its history of power, and GPM's shares of use over a time.

The driver keeps some seconds of power at 20 ms (nvmlDeviceGetSamples), one call of 0.3 ms for all of it. GPM (nvmlGpm*,
Hopper and newer) compares two snapshots: how busy SMs, tensor cores, DRAM and links were between them. At less than 100
ms between them most reads are stale zeros (our measurements of an H200), so closer ones are not compared.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from ctypes import byref, c_char_p, c_double, c_int, c_longlong, c_uint, c_ulonglong, c_void_p

from aaco.collectors.gpu.device_samples import CODES, Record

TOTAL_POWER_SAMPLES = 0  # nvml.h: nvmlSamplingType_t
NOTHING_NEW = (0, 6)  # nvml.h: NVML_SUCCESS, NVML_ERROR_NOT_FOUND
POWER_INSTANT = 186  # nvml.h: NVML_FI_DEV_POWER_INSTANT
MOST_SAMPLES = 4096
POWER_EVERY_NS, GPM_EVERY_NS = 1_000_000_000, 100_000_000
FAR_NS = 10_000_000_000  # a sample further from now is of a clock that is not the system's
# nvml.h: nvmlGpmMetricId_t -> our name.
GPM = {2: "sm_pct", 3: "occupancy_pct", 5: "tensor_pct", 10: "dram_pct", 12: "fp32_pct", 20: "pcie_sent",
       21: "pcie_received", 60: "nvlink_received", 61: "nvlink_sent"}
GPM_VERSION, GPM_ROOM = 1, 512  # of metrics: more than any version of the structure holds


class _Sample(ctypes.Structure):
    _fields_ = (("time_us", c_ulonglong), ("value", c_ulonglong))


class _NvmlField(ctypes.Structure):
    _fields_ = (("id", c_uint), ("scope", c_uint), ("time_us", c_longlong), ("latency_us", c_longlong),
                ("kind", c_uint), ("code", c_int), ("value", c_ulonglong))


class _Support(ctypes.Structure):
    _fields_ = (("version", c_uint), ("supported", c_uint))


class _Metric(ctypes.Structure):
    _fields_ = (("id", c_uint), ("code", c_int), ("value", c_double), ("short", c_char_p), ("long", c_char_p),
                ("unit", c_char_p))


class _Metrics(ctypes.Structure):
    _fields_ = (("version", c_uint), ("count", c_uint), ("older", c_void_p), ("newer", c_void_p),
                ("metrics", _Metric * GPM_ROOM))


class PowerHistory:
    """The driver's samples of power, each yielded once; if it keeps none, its instantaneous power at each call."""

    def __init__(self, nvml: ctypes.CDLL, index: int, handle: c_void_p) -> None:
        self._get = getattr(nvml, "nvmlDeviceGetSamples", None)
        self._fields = getattr(nvml, "nvmlDeviceGetFieldValues", None)
        self.index, self.handle, self._seen_us, self._read_ns = index, handle, 0, 0
        self._room = (_Sample * MOST_SAMPLES)()

    def samples(self, last: bool = False) -> Iterator[Record]:
        """Yield the samples since the previous call, about once a second; `last`: now."""
        now = time.monotonic_ns()
        if self._get is None:
            yield from self._read_instant(now)
            return
        if now - self._read_ns < POWER_EVERY_NS and not last:
            return
        self._read_ns, count, kind = now, c_uint(MOST_SAMPLES), c_uint()
        code = self._get(self.handle, c_uint(TOTAL_POWER_SAMPLES), c_ulonglong(self._seen_us), byref(kind),
                         byref(count), self._room)
        if code:
            self._get = self._get if code in NOTHING_NEW else None
            return
        ahead = time.time_ns() - time.monotonic_ns()
        for sample in self._room[:min(count.value, MOST_SAMPLES)]:
            t_ns = sample.time_us * 1000 - ahead
            if sample.time_us > self._seen_us and abs(now - t_ns) < FAR_NS:
                self._seen_us = sample.time_us
                yield t_ns, self.index, CODES["device_power"], (sample.value & 0xFFFFFFFF) / 1e3


    def _read_instant(self, now: int) -> Iterator[Record]:
        asked = _NvmlField(POWER_INSTANT)
        if self._fields and not self._fields(self.handle, c_int(1), byref(asked)) and not asked.code:
            yield now, self.index, CODES["device_power"], (asked.value & 0xFFFFFFFF) / 1e3


class Shares:
    """GPM of one device; `why_not` if it has none."""

    def __init__(self, nvml: ctypes.CDLL, index: int, handle: c_void_p) -> None:
        self._nvml, self.index, self.handle = nvml, index, handle
        self._older, self._newer, self._at = c_void_p(), c_void_p(), 0
        self.why_not = self._take_first()

    def samples(self) -> Iterator[Record]:
        """Yield each share over the time since the previous call, which must be 100 ms or more ago."""
        now = time.monotonic_ns()
        if self.why_not or now - self._at < GPM_EVERY_NS:
            return
        if self._nvml.nvmlGpmSampleGet(self.handle, self._newer):
            return
        asked = _Metrics(GPM_VERSION, len(GPM), self._older, self._newer)
        for place, number in enumerate(GPM):
            asked.metrics[place].id = number
        code = self._nvml.nvmlGpmMetricsGet(byref(asked))
        self._older, self._newer, self._at = self._newer, self._older, now
        if code == 0:
            yield from ((now, self.index, CODES[name], asked.metrics[place].value)
                        for place, name in enumerate(GPM.values()) if asked.metrics[place].code == 0)

    def close(self) -> None:
        """Free the snapshots."""
        for snapshot in (self._older, self._newer):
            if snapshot:
                self._nvml.nvmlGpmSampleFree(snapshot)

    def _take_first(self) -> str:
        """Take the first snapshot. Return why there can be none."""
        if not hasattr(self._nvml, "nvmlGpmQueryDeviceSupport"):
            return "the driver's library has no GPM"
        support = _Support(GPM_VERSION, 0)
        if self._nvml.nvmlGpmQueryDeviceSupport(self.handle, byref(support)) or not support.supported:
            return "the device has no GPM"
        if self._nvml.nvmlGpmSampleAlloc(byref(self._older)) or self._nvml.nvmlGpmSampleAlloc(byref(self._newer)):
            return "no memory for GPM's snapshots"
        if code := self._nvml.nvmlGpmSampleGet(self.handle, self._older):
            return f"GPM takes no snapshot: error {code}"
        self._at = time.monotonic_ns()
        return ""
