"""A code object of an AMD GPU in this process's memory, and what a kernel of it finds in registers at its begin.

Sources: LLVM, AMDGPUUsage (code object, kernel descriptor, initial register state); System V ABI, chapter 5.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from aaco.core.errors import BadCapture
from aaco.profiler.formats.code_object import code_object, elf
from aaco.profiler.formats.code_object.code_object import CompiledKernel
from aaco.replay.emulator_errors import NotEmulated

Dimensions = tuple[int, int, int]
LOAD, RELOCATIONS = 1, 4
MOST_BYTES = 1 << 30
LDS_GRANULE, LDS_SHIFT, LDS_MOST = 512, 15, 0x1FF  # the field of rsrc2 that whoever launches a kernel fills
WAVE32 = 1 << 10
# Bits of the descriptor's properties, and how many registers each fills, in this order.
DISPATCH, KERNARG = 1 << 1, 1 << 3
REGISTERS = ((1 << 0, 4), (DISPATCH, 2), (1 << 2, 2), (KERNARG, 2), (1 << 4, 2), (1 << 5, 2), (1 << 6, 1))
_FILE = struct.Struct("<32xQ14xHH")  # where program headers begin, their size and number
_SEGMENT = struct.Struct("<IIQQ8xQQ8x")  # type, flags, offset, address, bytes in the file, bytes in memory
_DESCRIPTOR = struct.Struct("<III4xq20xIIIHH4x")
_PACKET = struct.Struct("<HHHHHHIIIIIQQQQ")


class KernelLaunchState(Struct, frozen=True):
    """What a launch needs in addition to the program. registers: the first scalar ones; kept: what they point to."""

    entry: int
    rsrc2: int
    scratch_bytes: int
    kernarg: int
    registers: list[int]
    kept: tuple[object, ...]


class AmdProgram:
    """A code object in memory. name: what errors call it."""

    def __init__(self, code: bytes, name: str) -> None:
        """Raise BadCapture, NotEmulated."""
        self._path = path = Path(name)
        self.kernels = {kernel.name: kernel for kernel in code_object.read_code_object(path, code).kernels}
        _, sections = elf.read_sections(path, code, code_object.AMDGPU, "AMD GPUs", elf.FIX)
        self.symbols = {symbol.name: symbol for symbol in elf.symbols(path, code, sections)}
        if any(section.kind == RELOCATIONS for section in sections):
            raise NotEmulated("it has addresses that a loader would write")
        segments = list(_segments(path, code))
        self.size = max((address + size for _, address, _, size in segments), default=0)
        if not 0 < self.size <= MOST_BYTES:
            raise BadCapture(f"{path}: its code takes {self.size:,} bytes of memory", elf.FIX)
        self._memory = mmap.mmap(-1, -(-self.size // mmap.PAGESIZE) * mmap.PAGESIZE + mmap.PAGESIZE)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for offset, address, in_file, in_memory in segments:
            self._memory[address:address + min(in_file, in_memory)] = elf.part(path, code, offset,
                                                                               min(in_file, in_memory))

    def variable(self, name: str) -> tuple[int, int] | None:
        """Return the address and the size of a variable; None if there is none of this name."""
        symbol = self.symbols.get(name)
        return (self.base + symbol.position, symbol.size) if symbol and symbol.kind == 1 else None

    def prepare(self, symbol: str, grid: Dimensions, block: Dimensions, dynamic_lds: int, arguments: bytes, lanes: int
                ) -> KernelLaunchState:
        """Return the state of a launch. grid: in work-items. Raise BadCapture, NotEmulated."""
        if symbol not in self.kernels or f"{symbol}.kd" not in self.symbols:
            raise BadCapture(f"{self._path}: it has no kernel {symbol}", "compile it with the same name")
        at = self.symbols[f"{symbol}.kd"].position
        if not 0 <= at <= self.size - _DESCRIPTOR.size:
            raise BadCapture(f"{self._path}: the descriptor of {symbol} is outside of its memory", elf.FIX)
        lds, scratch, size, entry, _, _, rsrc2, properties, preload = _DESCRIPTOR.unpack_from(self._memory, at)
        _require_emulated(grid, block, properties, preload, lanes)
        if not 0 <= at + entry < self.size or size > 1 << 20:
            raise BadCapture(f"{self._path}: the descriptor of {symbol} is damaged", elf.FIX)
        granules = -(-(lds + dynamic_lds) // LDS_GRANULE)
        if granules > LDS_MOST:
            raise NotEmulated(f"{lds + dynamic_lds:,} bytes of local memory")
        kernarg = ctypes.create_string_buffer(_kernarg(self.kernels[symbol], arguments, size, grid, block), size + 64)
        packet = ctypes.create_string_buffer(_PACKET.pack(
            0, 3, *block, 0, *grid, scratch, lds + dynamic_lds, 0, ctypes.addressof(kernarg), 0, 0))
        pointers = {KERNARG: ctypes.addressof(kernarg), DISPATCH: ctypes.addressof(packet)}
        registers = list(_registers(properties, pointers))
        return KernelLaunchState(self.base + at + entry, rsrc2 & ~(LDS_MOST << LDS_SHIFT) | granules << LDS_SHIFT,
                                 scratch, ctypes.addressof(kernarg), registers, (kernarg, packet))


def _require_emulated(grid: Dimensions, block: Dimensions, properties: int, preload: int, lanes: int) -> None:
    if any(items % size for items, size in zip(grid, block, strict=True)):
        raise NotEmulated(f"a grid of {grid} work-items, which is no multiple of the block {block}")
    if preload & 0x7F:
        raise NotEmulated("arguments that are loaded before the kernel begins")
    if bool(properties & WAVE32) != (lanes == 32):
        raise NotEmulated(f"waves of {96 - lanes} lanes")


def _segments(path: Path, code: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield what is loaded: its place in the file, its address, and its bytes there and in memory."""
    start, size, count = _FILE.unpack(elf.part(path, code, 0, _FILE.size))
    for number in range(count):
        kind, _, offset, address, in_file, in_memory = _SEGMENT.unpack(
            elf.part(path, code, start + number * size, _SEGMENT.size))
        if kind == LOAD:
            if address + in_memory > MOST_BYTES:
                raise BadCapture(f"{path}: a segment of {in_memory:,} bytes at {address:#x}", elf.FIX)
            yield offset, address, in_file, in_memory


def _registers(properties: int, pointers: dict[int, int]) -> Iterator[int]:
    for bit, count in REGISTERS:
        if properties & bit:
            value = pointers.get(bit, 0)
            yield from (value >> 32 * number & 0xFFFFFFFF for number in range(count))


def _kernarg(kernel: CompiledKernel, arguments: bytes, size: int, grid: Dimensions, block: Dimensions) -> bytes:
    """Return the arguments with those that the compiler adds; what belongs to the captured process is zero."""
    content = bytearray(arguments[:size].ljust(size, b"\0"))
    for argument in kernel.arguments:
        kind, offset, length = argument.kind or "", argument.offset, argument.size
        if not kind.startswith("hidden_") or offset is None or length is None:
            continue
        if not 0 < length <= size - offset <= size:
            continue
        content[offset:offset + length] = _hidden(kind, grid, block).to_bytes(length, "little")
    return bytes(content)


def _hidden(kind: str, grid: Dimensions, block: Dimensions) -> int:
    what, _, axis = kind.rpartition("_")
    number = "xyz".find(axis)
    if what == "hidden_block_count" and number >= 0:
        return grid[number] // block[number]
    if what == "hidden_group_size" and number >= 0:
        return block[number]
    return sum(size > 1 for size in grid) or 1 if kind == "hidden_grid_dims" else 0
