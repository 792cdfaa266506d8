"""A GPU through its vendor's driver library by ctypes: CUDA's driver API and its HIP counterpart, under one set of
names.

Both take the same arguments in the same order (HIP's module API was modelled on CUDA's), so one binding serves both and
no compiled dependency is needed. Sources: cuda.h of CUDA 13; hip_runtime_api.h of ROCm 6 and 7.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import byref, c_char_p, c_double, c_float, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from aaco.calibration import libraries
from aaco.calibration.work import BLOCK
from aaco.core import host
from aaco.core.errors import AacoError, Missing
from aaco.core.readings import known

Vendor = Literal["NVIDIA", "AMD"]
# What we call it -> what CUDA and HIP call it, and the types of its arguments.
_P, _I, _U, _Z, _H = c_void_p, c_int, c_uint, c_size_t, ctypes.c_uint64
FUNCTIONS: dict[str, tuple[str, str, tuple[Any, ...]]] = {
    "count": ("cuDeviceGetCount", "hipGetDeviceCount", (_P,)),
    "name": ("cuDeviceGetName", "hipDeviceGetName", (_P, _I, _I)),
    "attribute": ("cuDeviceGetAttribute", "hipDeviceGetAttribute", (_P, _I, _I)),
    "bus_id": ("cuDeviceGetPCIBusId", "hipDeviceGetPCIBusId", (_P, _I, _I)),
    "memory": ("cuMemGetInfo_v2", "hipMemGetInfo", (_P, _P)),
    "load": ("cuModuleLoadData", "hipModuleLoadData", (_P, _P)),
    "function": ("cuModuleGetFunction", "hipModuleGetFunction", (_P, _P, c_char_p)),
    "launch": ("cuLaunchKernel", "hipModuleLaunchKernel", (_P, *[_U] * 7, _P, _P, _P)),
    "allocate": ("cuMemAlloc_v2", "hipMalloc", (_P, _Z)),
    "free": ("cuMemFree_v2", "hipFree", (_H,)),
    "pin": ("cuMemHostAlloc", "hipHostMalloc", (_P, _Z, _U)),
    "unpin": ("cuMemFreeHost", "hipHostFree", (_P,)),
    "to_device": ("cuMemcpyHtoD_v2", "hipMemcpyHtoD", (_H, _P, _Z)),
    "to_host": ("cuMemcpyDtoH_v2", "hipMemcpyDtoH", (_P, _H, _Z)),
    "to_device_async": ("cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync", (_H, _P, _Z, _P)),
    "to_host_async": ("cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync", (_P, _H, _Z, _P)),
    "copy_async": ("cuMemcpyDtoDAsync_v2", "hipMemcpyDtoDAsync", (_H, _H, _Z, _P)),
    "fill_async": ("cuMemsetD32Async", "hipMemsetD32Async", (_H, _U, _Z, _P)),
    "fill_stripes": ("cuMemsetD2D8Async", "hipMemset2DAsync", (_H, _Z, ctypes.c_ubyte, _Z, _Z, _P)),
    "stream": ("cuStreamCreate", "hipStreamCreateWithFlags", (_P, _U)),
    "wait": ("cuStreamSynchronize", "hipStreamSynchronize", (_P,)),
    "synchronize": ("cuCtxSynchronize", "hipDeviceSynchronize", ()),
    "event": ("cuEventCreate", "hipEventCreateWithFlags", (_P, _U)),
    "record": ("cuEventRecord", "hipEventRecord", (_P, _P)),
    "elapsed": ("cuEventElapsedTime", "hipEventElapsedTime", (_P, _P, _P)),
    "begin_capture": ("cuStreamBeginCapture_v2", "hipStreamBeginCapture", (_P, _I)),
    "end_capture": ("cuStreamEndCapture", "hipStreamEndCapture", (_P, _P)),
    "instantiate": ("cuGraphInstantiateWithFlags", "hipGraphInstantiateWithFlags", (_P, _P, c_ulonglong)),
    "launch_graph": ("cuGraphLaunch", "hipGraphLaunch", (_P, _P)),
    "launch_extended": ("cuLaunchKernelEx", "hipDrvLaunchKernelEx", (_P, _P, _P, _P)),
    "set_function": ("cuFuncSetAttribute", "hipFuncSetAttribute", (_P, _I, _I)),
    "variable": ("cuModuleGetGlobal_v2", "hipModuleGetGlobal", (_P, _P, _P, c_char_p)),
    "reserve": ("cuMemAddressReserve", "hipMemAddressReserve", (_P, _Z, _Z, _H, c_ulonglong)),
    "release_addresses": ("cuMemAddressFree", "hipMemAddressFree", (_H, _Z)),
    "create_memory": ("cuMemCreate", "hipMemCreate", (_P, _Z, _P, c_ulonglong)),
    "map": ("cuMemMap", "hipMemMap", (_H, _Z, _Z, _H, c_ulonglong)),
    "set_access": ("cuMemSetAccess", "hipMemSetAccess", (_H, _Z, _P, _Z)),
    "version": ("cuDriverGetVersion", "hipDriverGetVersion", (_P,)),
    "register_host": ("cuMemHostRegister_v2", "hipHostRegister", (_H, _Z, _U)),
}
CAPTURE_RELAXED = 2
# CUdevice_attribute, hipDeviceAttribute_t: multiprocessors, bytes of L2, major and minor of the compute capability.
# NVIDIA's also the memory's clock, kHz, and the width of its bus, bits; a driver that no longer says them gives 0.
ATTRIBUTES: dict[Vendor, dict[str, int]] = {"NVIDIA": {"units": 16, "l2": 38, "major": 75, "minor": 76,
                                                       "memory_khz": 36, "bus_bits": 37},
                                            "AMD": {"units": 63, "l2": 19}}
LIBRARIES: dict[Vendor, tuple[str, tuple[str, ...]]] = {"NVIDIA": ("libcuda", ("1",)),
                                                        "AMD": ("libamdhip64", ("7", "6", "5", ""))}
MODULE_VERSION = Path("/sys/module/nvidia/version")
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE, hipErrorNoDevice


def symbol(name: str, vendor: Vendor) -> str:
    """Return the vendor's name of a function of FUNCTIONS."""
    cuda, hip, _ = FUNCTIONS[name]
    return hip if vendor == "AMD" else cuda


class ReadyLaunch(Struct, frozen=True):
    """A launch that is ready: the function, its grid, and its arguments as the driver takes them."""

    arguments: tuple[Any, ...]  # of "launch"
    kept: tuple[Any, ...]  # what they point to


class DriverGpu:
    """A device that this process may use, with a context and one stream. Raises Missing.

    number: as CUDA or HIP number those that this process may use (CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES).
    """

    def __init__(self, vendor: Vendor, number: int = 0) -> None:
        self.vendor: Vendor = vendor
        self.number = number
        self.library = libraries.load(*LIBRARIES[vendor])
        self._calls = dict[str, Any]()
        self._open_context()
        self.stream = self._create("stream", 0)
        self._events = [self._create("event", 0) for _ in range(2)]

    def _function(self, name: str) -> Any:
        """Return a function of FUNCTIONS, bound when it is first used: an older driver serves those that need less."""
        if name not in self._calls:
            self._calls[name] = self._bind(symbol(name, self.vendor), FUNCTIONS[name][2])
        return self._calls[name]

    def _bind(self, symbol: str, arguments: Sequence[Any]) -> Any:
        try:
            call = getattr(self.library, symbol)
        except AttributeError:
            raise Missing(f"the driver of this {self.vendor} GPU is too old: it has no {symbol}",
                          "update the driver") from None
        call.argtypes, call.restype = arguments, c_int
        return call

    def _open_context(self) -> None:
        """Open a context on the device. The stream blocks: what waits for the default stream waits for it, too."""
        count = c_int()
        if self.vendor == "AMD":
            self._check_status("hipInit", self.library.hipInit(c_uint(0)))
            self.call("count", byref(count))
        else:
            self._check_status("cuInit", self.library.cuInit(c_uint(0)))
            self.call("count", byref(count))
        if count.value < 1:
            raise Missing(f"the driver sees no {self.vendor} GPU", "aaco doctor  # says what a GPU machine lacks")
        if self.number >= count.value:
            raise Missing(f"there is no {self.vendor} GPU {self.number}: the driver sees {count.value}, from 0",
                          "CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES may hide some from this process")
        if self.vendor == "AMD":
            self._check_status("hipSetDevice", self.library.hipSetDevice(c_int(self.number)))
        else:
            context = c_void_p()
            self._check_status("cuDevicePrimaryCtxRetain", self.library.cuDevicePrimaryCtxRetain(byref(context),
                                                                                            c_int(self.number)))
            self._check_status("cuCtxSetCurrent", self.library.cuCtxSetCurrent(context))

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function by its name in FUNCTIONS. Raise AacoError with the driver's message."""
        self._check_status(symbol(name, self.vendor), self._function(name)(*arguments))

    def raw(self, name: str) -> Callable[..., int]:
        """Return a function without the test of its status, for loops that are timed."""
        call: Callable[..., int] = self._function(name)
        return call

    def _check_status(self, symbol: str, status: int) -> None:
        if status == NO_DEVICE:
            raise Missing(f"{symbol}: no {self.vendor} GPU that this process may use",
                          "aaco doctor  # says what a GPU machine lacks")
        if status:
            raise AacoError(f"{symbol}: {self._error_text(status)} ({status})")

    def _error_text(self, status: int) -> str:
        if self.vendor == "AMD":
            self.library.hipGetErrorString.restype = c_char_p
            text = self.library.hipGetErrorString(c_int(status))
        else:
            message = c_char_p()
            self.library.cuGetErrorString(c_int(status), byref(message))
            text = message.value
        return text.decode(errors="replace") if text else "unknown error"

    def _create(self, name: str, *arguments: Any) -> c_void_p:
        handle = c_void_p()
        self.call(name, byref(handle), *arguments)
        return handle

    def _read_text(self, name: str) -> str:
        buffer = ctypes.create_string_buffer(256)
        self.call(name, buffer, len(buffer), self.number)
        return buffer.value.decode(errors="replace")

    def attribute(self, name: str) -> int:
        """Return one of ATTRIBUTES."""
        value = c_int()
        self.call("attribute", byref(value), ATTRIBUTES[self.vendor][name], self.number)
        return value.value

    @property
    def device_name(self) -> str:
        """Return the driver's name of the device; AMD's may be empty."""
        return self._read_text("name") or "AMD GPU"

    @property
    def bus_id(self) -> str:
        """Return domain, bus, device and function on PCI."""
        return self._read_text("bus_id")

    @property
    def driver_version(self) -> str:
        """Return the version of NVIDIA's driver."""
        cuda = c_int()
        self.call("version", byref(cuda))
        return nvidia_version(cuda.value)

    def memory(self) -> tuple[int, int]:
        """Return the bytes of device memory: free, and all."""
        free, total = c_size_t(), c_size_t()
        self.call("memory", byref(free), byref(total))
        return free.value, total.value

    def load(self, code: bytes) -> c_void_p:
        """Return a module of compiled code."""
        return self._create("load", code)

    def kernel(self, module: c_void_p, name: str, blocks: int, *arguments: Any) -> ReadyLaunch:
        """Return a launch of BLOCK threads in `blocks` blocks.

        Arguments are ctypes values, or floats and whole numbers for C's float and unsigned.
        """
        function = self._create("function", module, name.encode())
        values = [_as_ctypes(value) for value in arguments]
        pointers = (c_void_p * max(1, len(values)))(*[ctypes.addressof(value) for value in values])
        return ReadyLaunch((function, blocks, 1, 1, BLOCK, 1, 1, 0, self.stream, pointers, None), (*values, pointers))

    def launch(self, kernel: ReadyLaunch) -> None:
        """Queue the launch. Raise AacoError."""
        self.call("launch", *kernel.arguments)

    def allocate(self, size: int) -> int:
        """Return the address of new device memory."""
        return int(self._create("allocate", size).value or 0)

    def pinned(self, size: int) -> int:
        """Return the address of new page-locked host memory."""
        return int(self._create("pin", size, 0).value or 0)

    def wait(self) -> None:
        """Wait until all queued work is done. Errors of kernels appear here."""
        self.call("wait", self.stream)

    def seconds(self, queue: Callable[[], object], times: int) -> float:
        """Return the seconds, by the device's clock, of calling `queue` `times` times while the device has other work
        before.

        An idle device takes the first event as soon as that is queued. The host's time to queue the work would then
        count, too: 4 to 20 us on the host of an H200, up to 2 % of a millisecond and another share in each process.
        """
        start, end = self._events
        queue()
        self.call("record", start, self.stream)
        for _ in range(times):
            queue()
        self.call("record", end, self.stream)
        self.wait()
        elapsed = c_float()
        self.call("elapsed", byref(elapsed), start, end)
        return elapsed.value / 1e3

    def graph(self, queue: Callable[[], object]) -> Callable[[], None]:
        """Return a call that launches, as a graph, what `queue` queues."""
        self.call("begin_capture", self.stream, CAPTURE_RELAXED)
        queue()
        graph = c_void_p()
        self.call("end_capture", self.stream, byref(graph))
        launchable = self._create("instantiate", graph, 0)
        return lambda: self.call("launch_graph", launchable, self.stream)


def nvidia_version(cuda: int) -> str:
    """Return the version of the kernel's module; where it says none, the CUDA that the driver is for.

    cuda: as cuDriverGetVersion gives it, 13000 for 13.0.
    """
    return known(host.text, MODULE_VERSION) or f"CUDA {cuda // 1000}.{cuda % 1000 // 10}"


def _as_ctypes(argument: Any) -> Any:
    if isinstance(argument, float):
        return c_float(argument)
    return c_uint(argument) if isinstance(argument, int) else argument


def address(at: int) -> Any:
    """Return a device address as a kernel's argument."""
    return ctypes.c_uint64(at)


def double(value: float) -> Any:
    """Return a double as a kernel's argument."""
    return c_double(value)
