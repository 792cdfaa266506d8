"""Watches NVIDIA devices through the driver's library: clocks, power, temperature, memory, throttle reasons.

NVML (https://docs.nvidia.com/deploy/nvml-api) comes with the driver as libnvidia-ml.so.1 and is called through ctypes:
no package, no privilege, only reads. Calls that take milliseconds (the energy counter, the highest clock) are made once
at the begin and once at the end of a recording, the others at every sample. A missing reading is null.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from ctypes import byref, c_char_p, c_uint, c_ulonglong, c_void_p
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from msgspec import Struct

from aaco.collectors.gpu import device_samples
from aaco.collectors.gpu.device_sampler import DeviceSampler
from aaco.collectors.gpu.nvml_faults import Faults
from aaco.collectors.gpu.nvml_streams import PowerHistory, Shares
from aaco.collectors.gpu.nvml_users import NvmlUsers
from aaco.collectors.gpu.own_processes import OwnProcesses, own_mark
from aaco.collectors.gpu.visible import Seen, visible
from aaco.collectors.recording import RecordFormat
from aaco.core.errors import BadCapture
from aaco.core.host import Host
from aaco.core.readings import Absent
from aaco.core.tables import GPU_EVENTS

T = TypeVar("T")
LIBRARY = "libnvidia-ml.so.1"
ANSWER_S = 20.0  # to open the library starts devices that nobody else uses, which takes up to seconds
SUCCESS, INSUFFICIENT_SIZE = 0, 7
# nvml.h: the device is gone, or has to be reset, or its driver was unloaded.
GONE = (9, 15, 16, 28)
TEMPERATURE_GPU, CLOCK_SM, CLOCK_MEMORY = 0, 1, 2  # nvml.h: nvmlTemperatureSensors_t, nvmlClockType_t
# nvml.h: nvmlClocksEventReason*, called nvmlClocksThrottleReason* before driver 535.
REASONS = {0x1: "gpu_idle", 0x2: "applications_clocks_setting", 0x4: "sw_power_cap", 0x8: "hw_slowdown",
           0x10: "sync_boost", 0x20: "sw_thermal_slowdown", 0x40: "hw_thermal_slowdown",
           0x80: "hw_power_brake_slowdown", 0x100: "display_clock_setting"}
# Fields of a sample, in its order; -1 is null.
FIELDS = (
    "device_id", "gpu_util_pct", "mem_util_pct", "temp_c", "power_mw", "power_cap_mw", "energy_mj", "sclk_mhz",
    "sclk_max_mhz", "mclk_mhz", "vram_used_bytes", "vram_total_bytes", "reasons", "processes")
# Columns of gpu_events that are a field in another unit: the field, and how many of its units are one of ours.
SCALED = {"power_w": ("power_mw", 1e3), "power_cap_w": ("power_cap_mw", 1e3), "energy_j": ("energy_mj", 1e3)}
SOURCE = "NVML"
FORMAT = RecordFormat(f"{SOURCE} sampler", "aaco run --telemetry", b"AACONVML", 2,
                      np.dtype([(name, "<i8") for name in ("t_ns", *FIELDS)]))
WITHOUT_PROCESSES = RecordFormat(FORMAT.writer, FORMAT.again, FORMAT.magic, 1,
                                 np.dtype([(name, "<i8") for name in ("t_ns", *FIELDS[:-1])]))


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class NvmlDevice(Struct, frozen=True):
    """A device of this host, as NVML numbers it."""

    index: int
    name: str
    handle: c_void_p


class Driver:
    """The open library. Raises Absent with the reason if there is none, or if it has no device."""

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self._nvml = ctypes.CDLL(library)
        except OSError as error:
            raise Absent(f"{library} does not load: {error}") from error
        self._nvml.nvmlErrorString.restype = c_char_p
        self._refused, self._ours = SUCCESS, OwnProcesses(os.getppid(), own_mark())
        self._check_call("nvmlInit_v2")

    def close(self) -> None:
        """Shut the library down; another user in this process keeps it open."""
        self._nvml.nvmlShutdown()

    def devices(self) -> list[NvmlDevice]:
        """Return every device that this user may see."""
        count = c_uint()
        self._check_call("nvmlDeviceGetCount_v2", byref(count))
        return [self._open_device(index) for index in range(count.value)]

    def number_at(self, bus_id: str) -> int:
        """Return the number of the device at a place on PCI. Raise Absent."""
        handle, number = c_void_p(), c_uint()
        self._check_call("nvmlDeviceGetHandleByPciBusId_v2", bus_id.encode(), byref(handle))
        self._check_call("nvmlDeviceGetIndex", handle, byref(number))
        return number.value

    def sample(self, device: NvmlDevice, slow: bool = True) -> tuple[int, ...]:
        """Return one record, without its time; a missing reading is -1. slow: include the readings that take long."""
        self._refused = SUCCESS
        used, memory = _Utilization(), _Memory()
        has_use = self._succeeds("nvmlDeviceGetUtilizationRates", device, byref(used))
        has_memory = self._succeeds("nvmlDeviceGetMemoryInfo", device, byref(memory))
        return (device.index, used.gpu if has_use else -1, used.memory if has_use else -1,
                self._read_number("nvmlDeviceGetTemperature", device, TEMPERATURE_GPU),
                self._read_number("nvmlDeviceGetPowerUsage", device),
                self._read_number("nvmlDeviceGetEnforcedPowerLimit", device),
                self._read_number("nvmlDeviceGetTotalEnergyConsumption", device, kind=c_ulonglong) if slow else -1,
                self._read_number("nvmlDeviceGetClockInfo", device, CLOCK_SM),
                self._read_number("nvmlDeviceGetMaxClockInfo", device, CLOCK_SM) if slow else -1,
                self._read_number("nvmlDeviceGetClockInfo", device, CLOCK_MEMORY),
                memory.used if has_memory else -1, memory.total if has_memory else -1, self._read_reasons(device),
                self._count_processes(device))

    def energy_mj(self, device: NvmlDevice) -> int:
        """Return the device's counter of energy, mJ. Raise Absent where it has none."""
        counted = self._read_number("nvmlDeviceGetTotalEnergyConsumption", device, kind=c_ulonglong)
        if counted < 0:
            raise Absent(f"device {device.index} reports no counter of energy")
        return counted

    def gone(self) -> str | None:
        """Return why the device that was sampled last can no longer be read; None if it can."""
        return self._error_text(self._refused) if self._refused in GONE else None

    def seen(self, device: NvmlDevice) -> Seen:
        """Return how a program may name the device, and whether it is divided."""
        uuid, now, later = ctypes.create_string_buffer(96), c_uint(), c_uint()  # NVML_DEVICE_UUID_V2_BUFFER_SIZE
        self._succeeds("nvmlDeviceGetUUID", device, uuid, c_uint(len(uuid)))
        divided = self._succeeds("nvmlDeviceGetMigMode", device, byref(now), byref(later)) and bool(now.value)
        return Seen(device.index, device.name, uuid.value.decode(errors="replace"), divided)

    def streams(self, device: NvmlDevice) -> tuple[PowerHistory, Shares, NvmlUsers, Faults]:
        """Return the device's streams of readings besides single values."""
        source = self._nvml, device.index, device.handle
        return PowerHistory(*source), Shares(*source), NvmlUsers(*source, self._ours), Faults(*source)

    def _open_device(self, index: int) -> NvmlDevice:
        handle, name = c_void_p(), ctypes.create_string_buffer(96)  # NVML_DEVICE_NAME_V2_BUFFER_SIZE
        self._check_call("nvmlDeviceGetHandleByIndex_v2", c_uint(index), byref(handle))
        self._check_call("nvmlDeviceGetName", handle, name, c_uint(len(name)))
        return NvmlDevice(index, name.value.decode(errors="replace"), handle)

    def _read_reasons(self, device: NvmlDevice) -> int:
        for function in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            if (mask := self._read_number(function, device, kind=c_ulonglong)) >= 0:
                return mask
        return -1

    def _count_processes(self, device: NvmlDevice) -> int:
        """Return how many processes compute on the device."""
        call, count = getattr(self._nvml, "nvmlDeviceGetComputeRunningProcesses_v3", None), c_uint(0)
        if call is None or call(device.handle, byref(count), None) not in (SUCCESS, INSUFFICIENT_SIZE):
            return -1
        return count.value

    def _read_number(self, function: str, device: NvmlDevice, *which: int, kind: type[Any] = c_uint) -> int:
        value = kind()
        return int(value.value) if self._succeeds(function, device, *map(c_uint, which), byref(value)) else -1

    def _succeeds(self, function: str, device: NvmlDevice, *arguments: Any) -> bool:
        call = getattr(self._nvml, function, None)  # an older driver's library misses some
        code = SUCCESS + 1 if call is None else call(device.handle, *arguments)
        if code in GONE:
            self._refused = code
        return bool(code == SUCCESS)

    def _error_text(self, code: int) -> str:
        why = self._nvml.nvmlErrorString(code)
        return why.decode(errors="replace") if why else f"error {code}"

    def _check_call(self, function: str, *arguments: Any) -> None:
        code = getattr(self._nvml, function)(*arguments)
        if code != SUCCESS:
            raise Absent(f"{function}: {self._error_text(code)}")


@contextmanager
def kept_open(library: str = LIBRARY) -> Iterator[None]:
    """Keep the library open until the end of the block, if there is one: other users then need not wait for it.

    Opening it starts devices that no other process uses, which takes up to seconds. `aaco doctor` says why there is
    none.
    """
    with ExitStack() as held:
        with suppress(Absent):
            held.callback(Driver(library).close)
        yield


def answered(ask: Callable[[], T]) -> T:
    """Return the result of a driver's call. Raise Absent for a call that hangs; its thread is abandoned."""
    answers: SimpleQueue[T | Absent] = SimpleQueue()

    def call() -> None:
        try:
            answers.put(ask())
        except Absent as reason:
            answers.put(reason)

    threading.Thread(target=call, name="aaco-nvml", daemon=True).start()
    try:
        answer = answers.get(timeout=ANSWER_S)
    except Empty:
        raise Absent(f"NVML gives no answer in {ANSWER_S:g} s: a call of the driver hangs") from None
    if isinstance(answer, Absent):
        raise answer
    return answer


def why_not(host: Host | None = None, library: str = LIBRARY) -> str | None:
    """Return why no NVIDIA device can be watched here; None if one can."""
    try:
        driver = Driver(library)
    except Absent as reason:
        return str(reason)
    try:
        return None if driver.devices() else "NVML sees no device"
    except Absent as reason:
        return str(reason)
    finally:
        driver.close()


def number_at(bus_id: str, library: str = LIBRARY) -> int:
    """Return NVML's number of the device at a place on PCI. Raise Absent."""
    driver = Driver(library)
    try:
        return driver.number_at(bus_id)
    finally:
        driver.close()


class NvmlSampler(DeviceSampler):
    """Samples every device until `stop`; writes `raw` as it goes. Times are CLOCK_MONOTONIC.

    Raises Absent if there is none.
    """

    def __init__(self, period_s: float = 0.1, *, raw: Path, library: str = LIBRARY) -> None:
        super().__init__(SOURCE, FORMAT, period_s, raw)
        self._driver = Driver(library)
        self._devices = self._driver.devices()
        if not self._devices:
            self._driver.close()
            raise Absent("NVML sees no device")
        self._streams = {device.index: self._driver.streams(device) for device in self._devices}
        self.facts = {"visible": visible([self._driver.seen(device) for device in self._devices], os.environ)}
        self._highest: dict[int, int] = {}

    def rows(self) -> list[tuple[int, ...]]:
        """Return one record per device; the energy counter is in the first and the last of them."""
        rows = []
        for device in self._devices:
            if device.index in self.lost:
                continue
            first = device.index not in self._highest
            t_ns, reading = time.monotonic_ns(), list(self._driver.sample(device, slow=first or self.last))
            if why := self._driver.gone():
                self.lose(device.index, why)
                continue
            clock = FIELDS.index("sclk_max_mhz")
            reading[clock] = self._highest.setdefault(device.index, reading[clock])
            rows.append((t_ns, *reading))
        return rows

    def samples(self) -> Sequence[device_samples.Record]:
        """Return the driver's history of power, GPM's shares, the shares of our and other processes, and errors."""
        return [sample for index, (history, shares, users, faults) in self._streams.items() if index not in self.lost
                for sample in (*history.samples(self.last), *shares.samples(), *users.samples(),
                               *faults.samples(self.last))]

    def close(self) -> None:
        """Shut the library down."""
        for index, (_, shares, _, faults) in self._streams.items():
            if index not in self.lost:
                shares.close()
                faults.close()
        self._driver.close()


def parse(raw: Path) -> pa.Table:
    """Return the gpu_events of a sampler's file, without an unfinished last record. Raise BadCapture."""
    try:
        records = FORMAT.read(raw)
    except BadCapture:
        records = WITHOUT_PROCESSES.read(raw)
    plain = {name: _mask_missing(records[name]) for name in records.dtype.names if name in GPU_EVENTS.columns}
    real = {name: _mask_missing(records[field], units) for name, (field, units) in SCALED.items()}
    reasons = [None if bits < 0 else named(bits) for bits in records["reasons"].tolist()]
    return GPU_EVENTS.build(**plain, **real, throttle_reasons=reasons, source=["nvml"] * len(records))


def columns(reading: Mapping[str, int]) -> dict[str, Any]:
    """Return a device's readings (FIELDS; -1 for a missing one) as columns of gpu_events, without missing ones."""
    readings = {name: value for name, value in reading.items() if value >= 0}
    plain = {name: value for name, value in readings.items() if name in GPU_EVENTS.columns}
    real = {name: readings[field] / units for name, (field, units) in SCALED.items() if field in readings}
    return plain | real | ({"throttle_reasons": named(readings["reasons"])} if "reasons" in readings else {})


def named(bits: int) -> list[str]:
    """Return the clock event reasons in a mask, by the driver's names; an unknown bit by its number."""
    unknown = [f"bit_{1 << place:#x}" for place in range(bits.bit_length())
               if bits >> place & 1 and 1 << place not in REASONS]
    return [name for bit, name in REASONS.items() if bits & bit] + unknown


def _mask_missing(values: Any, scale: float = 1.0) -> pa.Array:
    return pa.array(values if scale == 1.0 else values / scale, mask=values < 0)
