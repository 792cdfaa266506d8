"""An AMD GPU that is an emulator on this machine's processor: what a replay uses of a driver, on this process's memory.

Every call is done when it returns. There are no times: those of an emulator say nothing of a device.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Callable
from functools import cached_property
from typing import Any

from aaco.calibration.driver import DriverGpu, ReadyLaunch
from aaco.core.errors import AacoError, BadCapture
from aaco.replay import addresses, emulator, launch
from aaco.replay.amd_program import AmdProgram, Dimensions
from aaco.replay.capture import KernelCapture
from aaco.replay.host_tools import TOOLS

ALIGNED = 512  # bytes, as a driver's allocations
ARGUMENTS, ARGUMENT_BYTES = 1, 3  # places in launch.EncodedLaunch.extra
ATTRIBUTES = {"l2": 1 << 20, "memory_khz": 0, "bus_bits": 0}


class EmulatedGpu(DriverGpu):
    """A device for one capture. Handles are numbers of what was made, from 1."""

    def __init__(self, capture: KernelCapture) -> None:
        self.vendor, self.number = "AMD", 0
        self.target = emulator.target(capture.document.captured_from.isa)
        self._family = emulator.FAMILIES[self.target]
        self._in_blocks = capture.launch.grid_unit == "blocks"
        self.stream, self._events = ctypes.c_void_p(1), [ctypes.c_void_p(1), ctypes.c_void_p(2)]
        self._made: list[Any] = []
        self._kept: dict[int, Any] = {}
        self._calls = {"reserve": _reserve, "map": _protect, "copy_async": _copy, "to_device": _copy,
                       "to_host": _copy, "fill_async": _fill, "fill_stripes": _fill_stripes, "elapsed": _no_time,
                       "function": self._find, "variable": self._variable, "launch_extended": self._launch,
                       "free": lambda at: self._kept.pop(at, None),
                       **dict.fromkeys(("create_memory", "set_access", "set_function", "register_host", "record",
                                        "synchronize", "wait"), _nothing)}

    @cached_property
    def _run(self) -> Callable[..., Any]:
        """The emulator, loaded at the first launch: by then the launch's memory has its addresses."""
        return emulator.load()

    @property
    def device_name(self) -> str:
        """Return what runs the launches."""
        return f"emulated {self.target}"

    @property
    def driver_version(self) -> str:
        """Return the emulator's folder: there is no driver."""
        return "tinygrad"

    def attribute(self, name: str) -> int:
        """Return one of ATTRIBUTES."""
        return ATTRIBUTES[name]

    def memory(self) -> tuple[int, int]:
        """Return more bytes than a capture has: the system says when there are no more."""
        return 1 << 40, 1 << 40

    def allocate(self, size: int) -> int:
        """Return the address of new memory."""
        raw = ctypes.create_string_buffer(size + ALIGNED)
        at = -(-ctypes.addressof(raw) // ALIGNED) * ALIGNED
        self._kept[at] = raw
        return at

    def load(self, code: bytes) -> ctypes.c_void_p:
        """Return a module: of a code object, or of the kernels that go over memory. Raise BadCapture, NotEmulated."""
        is_program = code.startswith(b"\x7fELF")
        return self._keep(AmdProgram(code, "the code object") if is_program else TOOLS)

    def launch(self, kernel: ReadyLaunch) -> None:
        """Run one of the kernels that go over memory."""
        tool = self._made[kernel.arguments[0].value - 1]
        tool(*[value.value for value in kernel.kept[0]])

    def wait(self) -> None:
        """Return: everything is done."""

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function by its name in calibration.driver.FUNCTIONS. Raise AacoError."""
        self._calls[name](*arguments)

    def _keep(self, thing: Any) -> ctypes.c_void_p:
        self._made.append(thing)
        return ctypes.c_void_p(len(self._made))

    def _find(self, to: Any, module: ctypes.c_void_p, name: bytes) -> None:
        owner, symbol = self._made[(module.value or 0) - 1], name.decode()
        if symbol not in (owner if owner is TOOLS else owner.kernels):
            raise AacoError(f"no kernel {symbol}")
        to._obj.value = self._keep(owner[symbol] if owner is TOOLS else (owner, symbol)).value

    def _variable(self, base: Any, size: Any, module: ctypes.c_void_p, name: bytes) -> None:
        found = self._made[(module.value or 0) - 1].variable(name.decode())
        if found is None:
            raise AacoError(f"no variable {name.decode()}")
        base._obj.value, size._obj.value = found

    def _launch(self, config: Any, function: ctypes.c_void_p, _: Any, extra: Any) -> None:
        """Run a kernel. Raise NotEmulated, BadCapture, AacoError."""
        if extra is None:
            raise BadCapture("the launch's arguments are no kernarg segment", "capture it again")
        program, symbol = self._made[(function.value or 0) - 1]
        numbers = launch.CONFIG.unpack(config.raw)
        block: Dimensions = numbers[3:6]
        grid: Dimensions = tuple(count * (size if self._in_blocks else 1)
                                 for count, size in zip(numbers[:3], block, strict=True))
        size = ctypes.c_size_t.from_address(extra[ARGUMENT_BYTES]).value
        state = program.prepare(symbol, grid, block, numbers[6], ctypes.string_at(extra[ARGUMENTS], size),
                                emulator.LANES[self._family])
        blocks = [items // length for items, length in zip(grid, block, strict=True)]
        self._run(state.entry, program.size, *blocks, *block, state.kernarg, state.rsrc2, state.scratch_bytes,
                  self._family, state.registers)


def _nothing(*_: Any) -> None:
    """Do what a driver does for a device that is no memory of this process."""


def _no_time(to: Any, *_: Any) -> None:
    to._obj.value = 0.0


def _reserve(to: Any, size: int, _: int, begin: int, __: int) -> None:
    """Take addresses that nothing can use until they are mapped; without a begin, anywhere."""
    if begin:
        at, _ = addresses.take(begin, size)
    else:
        at = _take_anywhere(size)
    to._obj.value = at or 0


def _take_anywhere(size: int) -> int:
    libc = _libc()
    at: int = libc.mmap(None, size, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    return at


def _protect(begin: int, size: int, *_: Any) -> None:
    if _libc().mprotect(begin, size, mmap.PROT_READ | mmap.PROT_WRITE):
        raise AacoError(f"no memory at {begin:#x}", "free some memory")


def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_size_t
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
    return libc


def _copy(to: Any, source: Any, size: int, *_: Any) -> None:
    ctypes.memmove(to, source, size)


def _fill(to: int, value: int, count: int, *_: Any) -> None:
    ctypes.memmove(to, struct.pack("<I", value) * count, 4 * count)


def _fill_stripes(to: int, pitch: int, value: int, width: int, height: int, *_: Any) -> None:
    for row in range(height):
        ctypes.memset(to + row * pitch, value, width)
