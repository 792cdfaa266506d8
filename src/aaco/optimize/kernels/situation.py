"""What an edit may rely on: the kernel's text, its captured launch, and how it is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from msgspec import Struct

from aaco.core.readings import Absent
from aaco.optimize.kernels.source import KernelParameter, KernelSource
from aaco.optimize.kernels.variants import Dimensions
from aaco.replay.documents import CaptureDocument


class PointerTarget(Struct, frozen=True):
    """Where a pointer argument points: its address, and the allocation that holds it."""

    address: int
    base: int
    size: int


class KernelSituation(Struct, frozen=True):
    """blocks: every block size that is launched, the captured one first. integers: of parameters by name; targets: of
    pointers by name. no_arguments: why there are neither. options: of the compiler, without those of proposals.
    """

    kernel: KernelSource
    vendor: str
    arch: str
    grid: Dimensions  # in blocks
    blocks: tuple[Dimensions, ...]
    dynamic_bytes: int
    integers: Mapping[bytes, int]
    targets: Mapping[bytes, PointerTarget]
    no_arguments: str = ""
    options: tuple[str, ...] = ()

    @property
    def block(self) -> Dimensions:
        """The captured block."""
        return self.blocks[0]

    def constant(self, text: bytes) -> int | None:
        """Return the number that a word or literal of the kernel means; None if it is not known."""
        for _ in range(8):
            text = text.strip()
            if text.rstrip(b"uUlL").isdigit():
                return int(text.rstrip(b"uUlL"))
            if text not in self.kernel.macros:
                return None
            text = self.kernel.macros[text]
        return None


def read_situation(kernel: KernelSource, document: CaptureDocument, options: tuple[str, ...] = (),
                   other_blocks: tuple[Dimensions, ...] = ()) -> KernelSituation:
    """Return the situation of a kernel by one captured launch. other_blocks: of its other launches in the session."""
    launch = document.launch
    grid = launch.grid if launch.grid_unit == "blocks" else _blocks(launch.grid, launch.block)
    integers: dict[bytes, int] = {}
    targets: dict[bytes, PointerTarget] = {}
    why = ""
    try:
        for parameter, (size, value) in zip(kernel.parameters, _arguments(kernel, document), strict=True):
            if not parameter.is_pointer:
                if size in (1, 2, 4, 8) and _is_integer(parameter):
                    integers[parameter.name] = value
                continue
            holders = (region for region in document.regions if region.base <= value < region.end)
            if size == 8 and (region := next(holders, None)):
                targets[parameter.name] = PointerTarget(value, region.base, region.size)
    except Absent as reason:
        why = str(reason)
    return KernelSituation(kernel, document.captured_from.vendor, document.captured_from.isa, grid,
                           tuple(dict.fromkeys((launch.block, *other_blocks))), launch.dynamic_lds_bytes, integers,
                           targets, why, options)


def _arguments(kernel: KernelSource, document: CaptureDocument) -> list[tuple[int, int]]:
    """Return size and value of each parameter's argument, unsigned. Raise Absent where the capture does not place them.
    """
    layout, content = document.launch.layout, bytes.fromhex(document.launch.arguments)
    if layout is None:
        raise Absent("the capture does not say where each argument lies")
    count = len(kernel.parameters)
    if len(layout) < count or (len(layout) > count and document.captured_from.vendor != "AMD"):  # AMD has hidden ones
        raise Absent(f"the captured launch has {len(layout)} arguments and the source {count} parameters")
    places = sorted(layout, key=lambda place: place.offset)[:count]
    if any(left.offset + left.size > right.offset for left, right in pairwise(places)):
        raise Absent("captured arguments overlap")
    return [(place.size, int.from_bytes(content[place.offset:place.offset + place.size], "little")) for place in places]


def _blocks(grid: Dimensions, block: Dimensions) -> Dimensions:
    x, y, z = (-(-items // size) for items, size in zip(grid, block, strict=True))
    return x, y, z


INTEGERS = frozenset((b"int", b"unsigned", b"long", b"short", b"char", b"size_t", b"uint32_t", b"int32_t", b"uint64_t",
                      b"int64_t", b"signed"))


def _is_integer(parameter: KernelParameter) -> bool:
    return all(word in INTEGERS or word == b"const" for word in parameter.kind) and bool(parameter.kind)
