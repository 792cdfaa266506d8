"""NVIDIA GPUs through NVML (libnvidia-ml.so.1, by ctypes): application clocks and the power limit.

Locked clocks (nvmlDeviceSetGpuLockedClocks) have no getter, so an earlier lock could not be restored. Application
clocks can be read, so they fix the clocks.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_uint, c_void_p

from aaco.core.host import Host
from aaco.core.readings import Absent
from aaco.laboratory.knobs.knob import Knob, NotHere, Want

LIBRARY = "libnvidia-ml.so.1"
GRAPHICS, MEMORY = 0, 2  # nvmlClockType_t
MOST_CLOCKS = 1024


class Nvml:
    """The library, initialised. Raises NotHere if there is no driver, Absent for what it refuses."""

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise NotHere(f"no NVIDIA driver: {error}") from None
        self.call("nvmlInit_v2")

    def call(self, function: str, *arguments: object) -> None:
        """Call a function. Raise Absent with the library's message."""
        call = getattr(self.library, function, None)
        if call is None:
            raise Absent(f"{LIBRARY} has no {function}")
        if code := call(*arguments):
            self.library.nvmlErrorString.restype = ctypes.c_char_p
            raise Absent(f"{function}: {(self.library.nvmlErrorString(code) or b'unknown error').decode()}")

    def number(self, function: str, *arguments: object) -> int:
        """Return the unsigned int in a function's last argument."""
        value = c_uint()
        self.call(function, *arguments, byref(value))
        return value.value

    def device(self, target: str) -> c_void_p:
        """Return the device of a target "nvml:INDEX"."""
        handle = c_void_p()
        self.call("nvmlDeviceGetHandleByIndex_v2", c_uint(int(target.removeprefix("nvml:"))), byref(handle))
        return handle

    def targets(self) -> list[str]:
        """Return a target per device. Raise NotHere."""
        count = self.number("nvmlDeviceGetCount_v2")
        if not count:
            raise NotHere("the NVIDIA driver shows no GPU")
        return [f"nvml:{index}" for index in range(count)]

    def supported_memory(self, device: c_void_p) -> list[int]:
        """Return the memory clocks in MHz."""
        count, clocks = c_uint(MOST_CLOCKS), (c_uint * MOST_CLOCKS)()
        self.call("nvmlDeviceGetSupportedMemoryClocks", device, byref(count), clocks)
        return list(clocks[:count.value])

    def supported(self, device: c_void_p, memory_mhz: int) -> list[int]:
        """Return the graphics clocks in MHz that go with a memory clock."""
        count, clocks = c_uint(MOST_CLOCKS), (c_uint * MOST_CLOCKS)()
        self.call("nvmlDeviceGetSupportedGraphicsClocks", device, c_uint(memory_mhz), byref(count), clocks)
        return list(clocks[:count.value])


class NvidiaKnob(Knob):
    """A setting of every NVIDIA GPU."""

    scope = "host"

    def __init__(self, host: Host | None = None) -> None:
        super().__init__(host)
        self._nvml: Nvml | None = None

    @property
    def nvml(self) -> Nvml:
        """Return the library, opened on first use."""
        if self._nvml is None:
            self._nvml = Nvml()
        return self._nvml


class NvidiaClock(NvidiaKnob):
    """Application clocks; the value is "MEMORY GRAPHICS" in MHz."""

    name = "nvidia_clock"
    meaning = "the GPU asks for one clock"

    def wishes(self, want: Want) -> dict[str, str]:
        return {target: self._wish(target, want.gpu_clock_mhz, want.gpu_memory_clock_mhz)
                for target in self.nvml.targets()}

    def _wish(self, target: str, mhz: int | None, memory_mhz: int | None) -> str:
        device = self.nvml.device(target)
        if memory_mhz is not None and memory_mhz not in (memory_clocks := self.nvml.supported_memory(device)):
            raise Absent(f"{target}: offers memory clocks of {', '.join(map(str, memory_clocks))} MHz, "
                         f"not {memory_mhz}")
        memory = memory_mhz or self.nvml.number("nvmlDeviceGetApplicationsClock", device, c_uint(MEMORY))
        offered = self.nvml.supported(device, memory)
        if mhz is not None and mhz not in offered:
            raise Absent(f"{target}: offers {min(offered)} to {max(offered)} MHz in steps, not {mhz}")
        return f"{memory} {mhz or max(offered)}"

    def read(self, target: str) -> str:
        device = self.nvml.device(target)
        return " ".join(str(self.nvml.number("nvmlDeviceGetApplicationsClock", device, c_uint(kind)))
                        for kind in (MEMORY, GRAPHICS))

    def write(self, target: str, value: str) -> None:
        memory, graphics = map(int, value.split())
        self.nvml.call("nvmlDeviceSetApplicationsClocks", self.nvml.device(target), c_uint(memory), c_uint(graphics))

    def command(self, target: str, value: str) -> str:
        return f"sudo nvidia-smi -i {target.removeprefix('nvml:')} -ac {value.replace(' ', ',')}"


class NvidiaPower(NvidiaKnob):
    """The power limit in mW."""

    name = "nvidia_power"
    meaning = "the GPU's power cap"

    def wishes(self, want: Want) -> dict[str, str]:
        assert want.gpu_power_w is not None
        asked = 1000 * want.gpu_power_w
        for target in self.nvml.targets():
            low, high = c_uint(), c_uint()
            self.nvml.call("nvmlDeviceGetPowerManagementLimitConstraints", self.nvml.device(target), byref(low),
                           byref(high))
            if not low.value <= asked <= high.value:
                raise Absent(f"{target}: takes {low.value // 1000} to {high.value // 1000} W, not {want.gpu_power_w}")
        return dict.fromkeys(self.nvml.targets(), str(asked))

    def read(self, target: str) -> str:
        return str(self.nvml.number("nvmlDeviceGetPowerManagementLimit", self.nvml.device(target)))

    def write(self, target: str, value: str) -> None:
        self.nvml.call("nvmlDeviceSetPowerManagementLimit", self.nvml.device(target), c_uint(int(value)))

    def command(self, target: str, value: str) -> str:
        return f"sudo nvidia-smi -i {target.removeprefix('nvml:')} -pl {int(value) // 1000}"
