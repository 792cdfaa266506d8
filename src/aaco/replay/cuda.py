"""A captured launch on an NVIDIA device: its memory at its addresses, its code, its launches, and what they leave.

A launch of AMD's runs in an emulator, where one is at hand: its memory is then this process's (replay/emulated_gpu.py).
Restores come from a copy in device memory, and comparisons are done there: the capture crosses PCIe once.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Callable, Sequence
from ctypes import byref, c_double, c_float, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from aaco.calibration.driver import DriverGpu, ReadyLaunch, address
from aaco.core.errors import AacoError, BadCapture, Missing
from aaco.replay import addresses, launch, steering
from aaco.replay.capture import HOW_TO_RUN, KernelCapture
from aaco.replay.documents import CapturedRegion
from aaco.replay.emulated_gpu import EmulatedGpu
from aaco.replay.emulator_errors import NotEmulated
from aaco.replay.tolerance import NUMBER_TYPES, NumberTolerance

MEMORY_KERNELS = Path(__file__).with_name("memory.ptx")
PROPERTIES = struct.Struct("<iiiiQ8x")  # CUmemAllocationProp: pinned, no handle, of a device, its number
ACCESS = struct.Struct("<iii")  # CUmemAccessDesc: of a device, its number, read and write
PINNED, OF_DEVICE, READ_WRITE = 1, 1, 3
ALIGNED = 512  # bytes; of the copies: as cuMemAlloc aligns
STRIPE = 64  # bytes: no counter is larger
THREADS_EACH, MOST_BLOCKS = 16 * 256, 8192
DELAY_NS = 20_000  # longer than Python takes to queue two events and a launch
EMPTY_PAIRS = 50
REGISTER_MAPPED = 2  # CU_MEMHOSTREGISTER_DEVICEMAP


class RegionTaken(Missing):
    """Addresses that a region needs are not free in this process; another process may have them."""


class CudaReplay:
    """A capture in this process, ready to launch. One per process: it takes the capture's addresses for good."""

    def __init__(self, capture: KernelCapture, code: bytes | None = None, tolerance: NumberTolerance | None = None,
                 number: int = 0, any_driver: bool = False) -> None:
        """Reserve, map, load and copy. Raise Missing, RegionTaken, BadCapture, AacoError.

        code: in place of the capture's own. tolerance: of the numbers in memory; without it every bit counts.
        any_driver: do not refuse a driver other than the capture's.
        """
        self.capture, self.regions, self.tolerance = capture, list(capture.regions), tolerance
        self.plan = steering.plan_capture(capture)
        addresses.release()
        for span in self.plan.hosts:  # before the driver takes addresses for itself
            _map_host(span)
        self.gpu = gpu = _open_gpu(capture, number, any_driver)
        self._steer()
        for begin, end in self.plan.hosts:
            gpu.call("register_host", begin, end - begin, REGISTER_MAPPED)
        self._encoded = launch.encode(capture.launch, gpu.stream.value or 0)
        self._function, self._live = self._program(capture.code())
        self._replacement = None if code is None else self._program(code)
        self._copies()
        self._tools = {name: self.gpu._create("function", self._create_tools(), name.encode())
                       for name in ("differing", "beyond", "invert", "written", "delay")}
        self.masks: dict[int, int] = {}  # by number of region the address of its mask
        self.mask_bytes: dict[int, int] = {}  # and how many of its bytes are ones
        self.empty_pair_us = min(self._pair(lambda: None) for _ in range(EMPTY_PAIRS))

    # Set-up.

    def _steer(self) -> None:
        """Take the addresses of all regions but those of the host and of the module, and put memory there."""
        for block in self.plan.blocks:
            self._reserve(block)
        self._require_memory(self.plan.mapped_bytes)
        for begin, end in self.plan.pieces:
            self._map(begin, end - begin)

    def _reserve(self, block: addresses.Span) -> None:
        begin, end = block
        reserved = c_uint64()
        self.gpu.call("reserve", byref(reserved), end - begin, 0, begin, 0)
        if reserved.value != begin:
            spans = [(region.base, region.end) for region in self.regions]
            taken = ", ".join(f"{first:#x}" for first, _ in steering.regions_in(block, spans))
            raise RegionTaken(f"the addresses {begin:#x} to {end:#x} are taken in this process; regions "
                              f"{taken} lie there",
                              "run it again: a new process has other addresses")

    def _require_memory(self, mapped: int) -> None:
        """Raise Missing if the device has not enough free memory for the regions, and their copies."""
        free, total = self.gpu.memory()
        needed = mapped + 3 * sum(region.size for region in self.regions)
        if needed > free:
            raise Missing(f"the replay needs {needed:,} bytes of device memory, four times the capture; "
                          f"{free:,} of {total:,} are free",
                          "end what else uses the device, or use a larger one")

    def _map(self, begin: int, size: int) -> None:
        properties = PROPERTIES.pack(PINNED, 0, OF_DEVICE, self.gpu.number, 0)
        handle = c_uint64()
        self.gpu.call("create_memory", byref(handle), size, ctypes.create_string_buffer(properties, len(properties)), 0)
        self.gpu.call("map", begin, size, 0, handle, 0)
        access = ACCESS.pack(OF_DEVICE, self.gpu.number, READ_WRITE)
        self.gpu.call("set_access", begin, size, ctypes.create_string_buffer(access, len(access)), 1)

    def _program(self, code: bytes) -> tuple[c_void_p, list[int]]:
        """Return the kernel of this code, ready to launch, and where each region is with it."""
        module = self._load(code)
        function = self._find_function(module)
        for attribute, value in self._encoded.function_attributes.items():
            self.gpu.call("set_function", function, attribute, value)
        return function, [self._address(region, module) for region in self.regions]

    def _load(self, code: bytes) -> c_void_p:
        try:
            return self.gpu.load(code)
        except NotEmulated:
            raise
        except AacoError as error:
            raise BadCapture(f"the driver does not load the code: {error.what}",
                             "give a cubin for this device") from error

    def _find_function(self, module: c_void_p) -> c_void_p:
        function, symbol = c_void_p(), self.capture.launch.symbol
        try:
            self.gpu.call("function", byref(function), module, symbol.encode())
        except AacoError as error:
            raise BadCapture(f"the code has no kernel {symbol}: {error.what}",
                             "compile it with the same name; extern \"C\" keeps one as it is written") from error
        return function

    def _address(self, region: CapturedRegion, module: c_void_p) -> int:
        """Return where a region is in this process: at its address, or where the driver put the module's variable."""
        if region.role != "global":
            return region.base
        base, size = c_uint64(), c_size_t()
        try:
            self.gpu.call("variable", byref(base), byref(size), module, (region.symbol or "").encode())
        except AacoError as error:
            raise BadCapture(f"the code has no variable {region.symbol}, which the capture has: {error.what}",
                             "compile the whole module") from error
        if size.value != region.size:
            raise BadCapture(f"the variable {region.symbol} has {size.value} bytes, in the capture {region.size}",
                             "compile the whole module")
        return base.value

    def _copies(self) -> None:
        """Put both states of each region into device memory, at other addresses than the region has."""
        self._before = [self._copy(region, "before") for region in self.regions]
        self._after = [before if region.before == region.after else self._copy(region, "after")
                       for region, before in zip(self.regions, self._before, strict=True)]
        self._counts = self.gpu.allocate(8 * max(1, len(self.regions)))

    def _copy(self, region: CapturedRegion, when: Any) -> int:
        at = home = self.gpu.allocate(_padded(region.size))
        for page in self.capture.pages(region, when):
            self.gpu.call("to_device", at, page, len(page))
            at += len(page)
        return home

    def _create_tools(self) -> c_void_p:
        if not hasattr(self, "_tool_module"):
            self._tool_module = self.gpu.load(MEMORY_KERNELS.read_bytes() + b"\0")
        return self._tool_module

    def places(self) -> list[tuple[int, CapturedRegion]]:
        """Return, for each region, its address in this process."""
        return list(zip(self._live, self.regions, strict=True))

    # What an iteration consists of. All of it is queued on one stream.

    def replace_code(self) -> None:
        """Launch the code given in place of the capture's from now on, if there is one."""
        if self._replacement is not None:
            self._function, self._live = self._replacement

    def restore(self) -> None:
        """Copy back the memory from before the launch."""
        for live, before, region in zip(self._live, self._before, self.regions, strict=True):
            self.gpu.call("copy_async", live, before, region.size, self.gpu.stream)

    def restore_changed(self) -> None:
        """Copy back the pages that the captured launch changed: few, so that caches stay as a launch leaves them."""
        page = self.capture.document.page_bytes
        for number, region in enumerate(self.regions):
            for begin in (page * place for place in self.capture.changed_pages(region)):
                self.gpu.call("copy_async", self._live[number] + begin, self._before[number] + begin,
                              min(page, region.size - begin), self.gpu.stream)

    def settle(self, number: int) -> None:
        """Make a region what it was after the captured launch."""
        self.gpu.call("copy_async", self._live[number], self._after[number], self.regions[number].size, self.gpu.stream)

    def poison(self, number: int, whole: bool = False) -> None:
        """Invert what a region must hold afterwards, where its mask has ones, or everywhere."""
        self._invert(number, 0 if whole else self.masks[number])

    def poison_half(self, number: int, half: int) -> None:
        """Invert every other STRIPE bytes of what the mask has: the even ones, or the odd ones."""
        size = _padded(self.regions[number].size)
        if not hasattr(self, "_half"):
            self._half = self.gpu.allocate(max(_padded(region.size) for region in self.regions))
        self.gpu.call("copy_async", self._half, self.masks[number], size, self.gpu.stream)
        self.gpu.call("fill_stripes", self._half + STRIPE * (1 - half), 2 * STRIPE, 0, STRIPE, size // (2 * STRIPE),
                      self.gpu.stream)
        self._invert(number, self._half)

    def _invert(self, number: int, mask: int) -> None:
        size = self.regions[number].size
        self._tool("invert", size, self._live[number], self._after[number], mask, size)

    def launch(self) -> None:
        """Launch the kernel once. Raise AacoError."""
        self.gpu.call("launch_extended", self._encoded.config, self._function, self._encoded.pointers,
                      self._encoded.extra)

    def wait(self) -> None:
        """Wait for all that is queued. Raise AacoError if the kernel failed."""
        try:
            self.gpu.wait()
        except AacoError as error:
            raise AacoError(f"{self.capture.launch.symbol}: {error.what}",
                            f"compute-sanitizer aaco replay run {self.capture.path}  # names the access") from error

    def timed_us(self) -> float:
        """Launch the kernel once; return its time, us, by events around it, the empty pair's included."""
        return self._pair(self.launch)

    def _pair(self, queue: Callable[[], None]) -> float:
        begin, end = self.gpu._events
        self._run_tool("delay", 1, 1, c_uint64(DELAY_NS))
        self.gpu.call("record", begin, self.gpu.stream)
        queue()
        self.gpu.call("record", end, self.gpu.stream)
        self.wait()
        elapsed = c_float()
        self.gpu.call("elapsed", byref(elapsed), begin, end)
        return 1e3 * elapsed.value

    def differing(self) -> list[int]:
        """Return, for each region, how many bytes differ from those after the captured launch."""
        return self._count_differing(self._live, self._after)

    def mark_written(self, number: int, changed_too: bool) -> int:
        """Make the mask of a region that was poisoned whole: ones where the launch wrote. Return how many bytes.

        changed_too: also where the captured launch changed what was there, which proves itself after a restore.
        """
        region = self.regions[number]
        mask = self.masks.get(number) or self.gpu.allocate(_padded(region.size))
        self._clear_counts()
        self._tool("written", region.size, mask, self._live[number], self._after[number],
                   0 if changed_too else self._before[number], region.size, self._counts + 8 * number)
        self.masks[number] = mask
        return self._read_counts()[number]

    def wrong(self) -> list[int]:
        """Return, for each region, how many bytes differ by more than the tolerance, as numbers; all without one."""
        if self.tolerance is None:
            return self.differing()
        size, number_type = NUMBER_TYPES[self.tolerance.number_type]
        self._clear_counts()
        for number, region in enumerate(self.regions):
            self._tool("beyond", region.size, self._live[number], self._after[number], region.size, c_uint(size),
                       c_uint(number_type), c_double(self.tolerance.relative), c_double(self.tolerance.absolute),
                       self._counts + 8 * number)
        return self._read_counts()

    def changed(self) -> list[int]:
        """Return, for each region, how many bytes the captured launch changed."""
        return self._count_differing(self._before, self._after)

    def _count_differing(self, left: Sequence[int], right: Sequence[int]) -> list[int]:
        self._clear_counts()
        for number, region in enumerate(self.regions):
            self._tool("differing", region.size, left[number], right[number], region.size, self._counts + 8 * number)
        return self._read_counts()

    def flush_cache(self) -> None:
        """Write twice as much as the L2 cache holds."""
        size = 2 * max(self.gpu.attribute("l2"), 1 << 20)
        if not hasattr(self, "_scratch"):
            self._scratch = self.gpu.allocate(size)
        self.gpu.call("fill_async", self._scratch, 0, size // 4, self.gpu.stream)

    def content(self, number: int) -> bytes:
        """Return what a region holds now."""
        return self._read(self._live[number], self.regions[number].size)

    def _read(self, at: int, size: int) -> bytes:
        buffer = ctypes.create_string_buffer(max(1, size))
        self.wait()
        self.gpu.call("to_host", buffer, at, size)
        return buffer.raw[:size]

    def _clear_counts(self) -> None:
        self.gpu.call("fill_async", self._counts, 0, 2 * max(1, len(self.regions)), self.gpu.stream)

    def _read_counts(self) -> list[int]:
        self.wait()
        counts = (c_uint64 * max(1, len(self.regions)))()
        self.gpu.call("to_host", counts, self._counts, ctypes.sizeof(counts))
        return list(counts[:len(self.regions)])

    def _tool(self, name: str, size: int, *arguments: Any) -> None:
        """Launch a kernel over so many bytes. Whole numbers are addresses and sizes, of 64 bits."""
        blocks = max(1, min(MOST_BLOCKS, -(-size // THREADS_EACH)))
        values = [address(argument) if isinstance(argument, int) else argument for argument in arguments]
        self._run_tool(name, blocks, 256, *values)

    def _run_tool(self, name: str, blocks: int, threads: int, *values: Any) -> None:
        pointers = (c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        self.gpu.launch(ReadyLaunch((self._tools[name], blocks, 1, 1, threads, 1, 1, 0, self.gpu.stream, pointers,
                                     None),
                                    (values, pointers)))


def _open_gpu(capture: KernelCapture, number: int, any_driver: bool) -> DriverGpu:
    """Return the device that runs the capture's code: for that of AMD the emulator. Raise Missing, BadCapture."""
    if capture.is_amd:
        return EmulatedGpu(capture)
    try:
        gpu = DriverGpu("NVIDIA", number)
    except Missing as error:
        raise Missing(f"{capture.path}: cannot be replayed here: {error.what}", HOW_TO_RUN) from error
    isa = f"sm_{gpu.attribute('major')}{gpu.attribute('minor')}"
    capture.require(isa, None if any_driver else gpu.driver_version)
    return gpu


def _map_host(span: addresses.Span) -> None:
    """Put memory at host addresses of this process. Raise RegionTaken."""
    begin, end = span
    if addresses.take(begin, end - begin, mmap.PROT_READ | mmap.PROT_WRITE) != (begin, 0):
        raise RegionTaken(f"the host addresses {begin:#x} to {end:#x} are taken in this process",
                          "run it again: a new process has other addresses")


def _padded(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED
