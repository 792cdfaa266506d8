"""Watches NVIDIA devices through the driver's own library: clocks, power, temperature, memory, what holds a clock down.

NVML (https://docs.nvidia.com/deploy/nvml-api) comes with the driver as libnvidia-ml.so.1 and is called through ctypes:
no package, no privilege, only reads. Calls that take milliseconds (the energy counter, the highest clock) are made once
at the begin and once at the end of a recording, the others at every sample. What a device does not tell is null.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from ctypes import byref, c_char_p, c_uint, c_ulonglong, c_void_p
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from aaco.collectors import device_samples
from aaco.collectors.device_sampler import Sampler as DeviceSampler
from aaco.collectors.nvml_streams import PowerHistory, Shares
from aaco.collectors.nvml_users import Users
from aaco.collectors.ours import Ours, own_mark
from aaco.collectors.recording import Format
from aaco.collectors.visible import Seen, visible
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
# Of a sample, in its order; -1 stands for null.
FIELDS = (
    "device_id", "gpu_util_pct", "mem_util_pct", "temp_c", "power_mw", "power_cap_mw", "energy_mj", "sclk_mhz",
    "sclk_max_mhz", "mclk_mhz", "vram_used_bytes", "vram_total_bytes", "reasons", "processes")
# Columns of gpu_events that are a field in another unit: the field, and how many of its units are one of ours.
SCALED = {"power_w": ("power_mw", 1e3), "power_cap_w": ("power_cap_mw", 1e3), "energy_j": ("energy_mj", 1e3)}
SOURCE = "NVML"
FORMAT = Format(f"{SOURCE} sampler", "aaco run --telemetry", b"AACONVML", 2,
                np.dtype([(name, "<i8") for name in ("t_ns", *FIELDS)]))
WITHOUT_PROCESSES = Format(FORMAT.writer, FORMAT.again, FORMAT.magic, 1,
                           np.dtype([(name, "<i8") for name in ("t_ns", *FIELDS[:-1])]))


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


@dataclass(frozen=True)
class Device:
    """A device of this host, as NVML numbers it."""

    index: int
    name: str
    handle: c_void_p


class Driver:
    """The open library. Raises Absent with the reason where there is none, or no device behind it."""

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self._nvml = ctypes.CDLL(library)
        except OSError as error:
            raise Absent(f"{library} does not load: {error}") from error
        self._nvml.nvmlErrorString.restype = c_char_p
        self._refused, self._ours = SUCCESS, Ours(os.getppid(), own_mark())
        self._demand("nvmlInit_v2")

    def close(self) -> None:
        """Shut the library down; another user in this process keeps it open."""
        self._nvml.nvmlShutdown()

    def devices(self) -> list[Device]:
        """Every device that this user may see."""
        count = c_uint()
        self._demand("nvmlDeviceGetCount_v2", byref(count))
        return [self._device(index) for index in range(count.value)]

    def number_at(self, bus_id: str) -> int:
        """The number of the device in a place on PCI. Raises Absent."""
        handle, number = c_void_p(), c_uint()
        self._demand("nvmlDeviceGetHandleByPciBusId_v2", bus_id.encode(), byref(handle))
        self._demand("nvmlDeviceGetIndex", handle, byref(number))
        return number.value

    def sample(self, device: Device, slow: bool = True) -> tuple[int, ...]:
        """One record, without its time: what is not told is -1. slow: ask also for what takes long."""
        self._refused = SUCCESS
        used, memory = _Utilization(), _Memory()
        known = self._told("nvmlDeviceGetUtilizationRates", device, byref(used))
        sized = self._told("nvmlDeviceGetMemoryInfo", device, byref(memory))
        return (device.index, used.gpu if known else -1, used.memory if known else -1,
                self._number("nvmlDeviceGetTemperature", device, TEMPERATURE_GPU),
                self._number("nvmlDeviceGetPowerUsage", device),
                self._number("nvmlDeviceGetEnforcedPowerLimit", device),
                self._number("nvmlDeviceGetTotalEnergyConsumption", device, kind=c_ulonglong) if slow else -1,
                self._number("nvmlDeviceGetClockInfo", device, CLOCK_SM),
                self._number("nvmlDeviceGetMaxClockInfo", device, CLOCK_SM) if slow else -1,
                self._number("nvmlDeviceGetClockInfo", device, CLOCK_MEMORY),
                memory.used if sized else -1, memory.total if sized else -1, self._reasons(device),
                self._processes(device))

    def gone(self) -> str | None:
        """Why the device that was sampled last can be read no more; None where it can."""
        return self._said(self._refused) if self._refused in GONE else None

    def seen(self, device: Device) -> Seen:
        """How a program may name the device, and whether it is divided."""
        uuid, now, later = ctypes.create_string_buffer(96), c_uint(), c_uint()  # NVML_DEVICE_UUID_V2_BUFFER_SIZE
        self._told("nvmlDeviceGetUUID", device, uuid, c_uint(len(uuid)))
        divided = self._told("nvmlDeviceGetMigMode", device, byref(now), byref(later)) and bool(now.value)
        return Seen(device.index, device.name, uuid.value.decode(errors="replace"), divided)

    def streams(self, device: Device) -> tuple[PowerHistory, Shares, Users]:
        """What the device tells beside single values."""
        told = self._nvml, device.index, device.handle
        return PowerHistory(*told), Shares(*told), Users(*told, self._ours)

    def _device(self, index: int) -> Device:
        handle, name = c_void_p(), ctypes.create_string_buffer(96)  # NVML_DEVICE_NAME_V2_BUFFER_SIZE
        self._demand("nvmlDeviceGetHandleByIndex_v2", c_uint(index), byref(handle))
        self._demand("nvmlDeviceGetName", handle, name, c_uint(len(name)))
        return Device(index, name.value.decode(errors="replace"), handle)

    def _reasons(self, device: Device) -> int:
        for function in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            if (found := self._number(function, device, kind=c_ulonglong)) >= 0:
                return found
        return -1

    def _processes(self, device: Device) -> int:
        """How many processes compute on the device."""
        call, count = getattr(self._nvml, "nvmlDeviceGetComputeRunningProcesses_v3", None), c_uint(0)
        if call is None or call(device.handle, byref(count), None) not in (SUCCESS, INSUFFICIENT_SIZE):
            return -1
        return count.value

    def _number(self, function: str, device: Device, *which: int, kind: type[Any] = c_uint) -> int:
        value = kind()
        return int(value.value) if self._told(function, device, *map(c_uint, which), byref(value)) else -1

    def _told(self, function: str, device: Device, *arguments: Any) -> bool:
        call = getattr(self._nvml, function, None)  # an older driver's library lacks some
        code = SUCCESS + 1 if call is None else call(device.handle, *arguments)
        if code in GONE:
            self._refused = code
        return bool(code == SUCCESS)

    def _said(self, code: int) -> str:
        why = self._nvml.nvmlErrorString(code)
        return why.decode(errors="replace") if why else f"error {code}"

    def _demand(self, function: str, *arguments: Any) -> None:
        code = getattr(self._nvml, function)(*arguments)
        if code != SUCCESS:
            raise Absent(f"{function}: {self._said(code)}")


@contextmanager
def kept_open(library: str = LIBRARY) -> Iterator[None]:
    """The library stays open until the end of the block, if there is one: whoever opens it meanwhile need not wait.

    To open it starts devices that nobody else uses, which takes up to seconds; `aaco doctor` says why there is none.
    """
    with ExitStack() as held:
        with suppress(Absent):
            held.callback(Driver(library).close)
        yield


def answered(ask: Callable[[], T]) -> T:
    """What a call of the driver returns. One that hangs is left behind in its thread: raises Absent."""
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
    """Why no NVIDIA device can be watched here; None where one can."""
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
    """NVML's number of the device in a place on PCI. Raises Absent."""
    driver = Driver(library)
    try:
        return driver.number_at(bus_id)
    finally:
        driver.close()


class Sampler(DeviceSampler):
    """Samples every device until `stop`; `raw` is written as it goes. Times are CLOCK_MONOTONIC.

    Raises Absent where there is none.
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
        """One record per device; the energy counter in the first and the last of them."""
        found = []
        for device in self._devices:
            if device.index in self.lost:
                continue
            first = device.index not in self._highest
            at, told = time.monotonic_ns(), list(self._driver.sample(device, slow=first or self.last))
            if why := self._driver.gone():
                self.lose(device.index, why)
                continue
            clock = FIELDS.index("sclk_max_mhz")
            told[clock] = self._highest.setdefault(device.index, told[clock])
            found.append((at, *told))
        return found

    def samples(self) -> Sequence[device_samples.Record]:
        """The driver's history of power, GPM's shares, and whose work it was."""
        return [one for index, (history, shares, users) in self._streams.items() if index not in self.lost
                for one in (*history.samples(self.last), *shares.samples(), *users.samples())]

    def close(self) -> None:
        """Shut the library down."""
        for index, (_, shares, _) in self._streams.items():
            if index not in self.lost:
                shares.close()
        self._driver.close()


def parse(raw: Path) -> pa.Table:
    """The gpu_events of a sampler's file; an unfinished last record is left out. Raises BadCapture."""
    try:
        records = FORMAT.read(raw)
    except BadCapture:
        records = WITHOUT_PROCESSES.read(raw)
    plain = {name: _known(records[name]) for name in records.dtype.names if name in GPU_EVENTS.columns}
    real = {name: _known(records[field], units) for name, (field, units) in SCALED.items()}
    reasons = [None if bits < 0 else named(bits) for bits in records["reasons"].tolist()]
    return GPU_EVENTS.build(**plain, **real, throttle_reasons=reasons, source=["nvml"] * len(records))


def columns(told: Mapping[str, int]) -> dict[str, Any]:
    """What a device tells (FIELDS; -1 for what it does not) as columns of gpu_events; what it does not is left out."""
    known = {name: value for name, value in told.items() if value >= 0}
    plain = {name: value for name, value in known.items() if name in GPU_EVENTS.columns}
    real = {name: known[field] / units for name, (field, units) in SCALED.items() if field in known}
    return plain | real | ({"throttle_reasons": named(known["reasons"])} if "reasons" in known else {})


def named(bits: int) -> list[str]:
    """The clock event reasons in a mask, by the driver's names; a bit that is not known here by its number."""
    unknown = [f"bit_{1 << place:#x}" for place in range(bits.bit_length())
               if bits >> place & 1 and 1 << place not in REASONS]
    return [name for bit, name in REASONS.items() if bits & bit] + unknown


def _known(values: Any, scale: float = 1.0) -> pa.Array:
    return pa.array(values if scale == 1.0 else values / scale, mask=values < 0)
