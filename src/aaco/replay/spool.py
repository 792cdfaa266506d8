"""What a captured process leaves (native/cupti/capture.c), and the capture that is made of it.

The process writes raw memory, because it waits; digests and compression are for later. A spool that does not
end with DONE was cut, and no capture is made of it.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, field

from aaco.calibration.driver import nvidia_version
from aaco.core import files
from aaco.core.errors import BadCapture, UsageError
from aaco.profiler.io.demangle import demangled
from aaco.replay.capture import CaptureWriter
from aaco.replay.documents import (
    PAGE_BYTES,
    ArgumentPlace,
    CapturedFrom,
    KernelLaunch,
    LaunchAttribute,
    NotCaptured,
    RegionRole,
)

HEAD = struct.Struct("<8sQ")
ABOUT = struct.Struct("<6iQ256s")  # device, carveout, major, minor, CUDA's version, unused, bytes of memory, name
SHAPE, REGION, PLACE, BLOCK = struct.Struct("<7I"), struct.Struct("<4Q"), struct.Struct("<2Q"), struct.Struct("<2Q")
ATTRIBUTE_BYTES = 72  # CUlaunchAttribute: a number, padding, 64 bytes of value
CARVEOUT = 14  # CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: of this launch, in place of the function's own
# CUlaunchAttributeID of those that hold a handle of the process: events, and the node of a graph.
HANDLES = {7: "an event that the kernel triggers", 12: "an event at the kernel's completion", 13: "a node of a graph"}
ROLES: dict[int, RegionRole] = {0: "device", 1: "managed", 2: "host", 3: "device"}
TOO_LARGE = "TOO LARGE"
DEVICE_LAUNCH = (b"cudaCDP2LaunchDevice", b"cudaLaunchDevice")  # what a kernel calls that launches others


class SpooledRegion(Struct, frozen=True):
    """An allocation of the process. device: its number, -1 for memory of the host."""

    base: int
    bytes: int
    kind: int
    device: int


class LaunchSpool(Struct):
    """The pieces of a spool, by what they are; memory is a view of the file."""

    symbol: str = ""
    number: int = 0
    launches: int = 0
    about: tuple[int, int, int, int, int, int, int, bytes] = (-1, -1, 0, 0, 0, 0, 0, b"")
    shape: tuple[int, ...] = ()
    places: list[tuple[int, int]] = field(default_factory=list)
    arguments: bytes = b""
    passed_as: str = "pointers"
    attributes: list[tuple[int, bytes]] = field(default_factory=list)
    codes: list[bytes] = field(default_factory=list)
    regions: list[SpooledRegion] = field(default_factory=list)
    variables: dict[str, tuple[int, int]] = field(default_factory=dict)
    before: dict[int, memoryview] = field(default_factory=dict)
    after: dict[int, memoryview] = field(default_factory=dict)
    refusal: str | None = None

    def bytes_of_memory(self) -> int:
        """Return how much memory the process had that a launch may use."""
        return sum(region.bytes for region in self.regions if region.kind in ROLES)


def read(path: Path) -> LaunchSpool:
    """Return the pieces of a spool. Raise BadCapture if the process ended while it was written, StorageError."""
    spool, ended = LaunchSpool(), False
    with files.storage(path), path.open("rb") as file:
        content = memoryview(mmap.mmap(file.fileno(), 0,
                                       access=mmap.ACCESS_READ)) if path.stat().st_size else memoryview(b"")
    for tag, piece in _pieces(content):
        ended = tag in ("DONE", "REFUSED")
        _take(spool, tag, piece)
    if not ended:
        raise BadCapture(f"the process ended while its launch of {spool.symbol or 'the kernel'} was captured",
                         "capture it again; nothing was kept")
    return spool


def _pieces(content: memoryview) -> Iterator[tuple[str, memoryview]]:
    at = 0
    while at + HEAD.size <= len(content):
        tag, length = HEAD.unpack_from(content, at)
        at += HEAD.size
        if length > len(content) - at:
            return
        yield tag.rstrip(b"\0").decode(), content[at:at + length]
        at += length


def _take(spool: LaunchSpool, tag: str, piece: memoryview) -> None:
    """Put a piece where it belongs."""
    if tag == "KERNEL":
        spool.symbol = bytes(piece).decode()
    elif tag == "NUMBER":
        spool.number, spool.launches = PLACE.unpack(piece)
    elif tag == "ABOUT":
        spool.about = ABOUT.unpack(piece)
    elif tag == "SHAPE":
        spool.shape = SHAPE.unpack(piece)
    elif tag == "PLACES":
        spool.places = list(PLACE.iter_unpack(piece))
    elif tag in ("POINTERS", "BUFFER"):
        spool.arguments, spool.passed_as = bytes(piece), tag.lower()
    elif tag == "ATTRIBUT":
        spool.attributes = [(int.from_bytes(piece[at:at + 4], "little"), bytes(piece[at:at + ATTRIBUTE_BYTES]))
                            for at in range(0, len(piece), ATTRIBUTE_BYTES)]
    elif tag == "CODE":
        spool.codes.append(bytes(piece))
    elif tag == "REGIONS":
        spool.regions = [SpooledRegion(base, size, kind, struct.unpack("<q", struct.pack("<Q", device))[0])
                         for base, size, kind, device in REGION.iter_unpack(piece)]
    elif tag == "GLOBAL":
        base, size = PLACE.unpack_from(piece)
        spool.variables[bytes(piece[PLACE.size:]).decode()] = (base, size)
    elif tag in ("BEFORE", "AFTER"):
        base, _ = BLOCK.unpack_from(piece)
        (spool.before if tag == "BEFORE" else spool.after)[base] = piece[BLOCK.size:]
    elif tag == "REFUSED":
        spool.refusal = bytes(piece).decode()


def require_kept(spool: LaunchSpool, most_bytes: int) -> None:
    """Raise UsageError if the process refused to keep the launch, with its reason; and for what only its code shows."""
    name = _readable(spool.symbol)
    if spool.refusal == TOO_LARGE:
        total = spool.bytes_of_memory()
        raise UsageError(f"{name}: the process has {total:,} bytes of memory, more than the "
                         f"{most_bytes:,} that may be kept",
                         f"--max-bytes {total}, or free what the kernel does not use")
    if spool.refusal is not None:
        raise UsageError(f"{name} was not captured: {spool.refusal}", "capture another launch or another kernel")
    if any(name in _code(spool) for name in DEVICE_LAUNCH):
        raise UsageError(f"{name} was not captured: its code launches kernels from the device",
                         "capture those that it launches")


def write(spool: LaunchSpool, path: Path, most_bytes: int, cupti: str) -> None:
    """Write the capture. Raise UsageError, BadCapture, StorageError."""
    require_kept(spool, most_bytes)
    with CaptureWriter(path, most_bytes) as writer:
        writer.check_room(sum(map(len, spool.before.values())))
        for base, role, symbol in _regions(spool):
            writer.add_region(base, len(spool.before[base]), role, spool.before[base], symbol)
            writer.set_after(base, spool.after[base])
        writer.finish(launch=_launch(spool), code=_code(spool), kind="cubin", captured_from=_origin(spool, cupti),
                      not_captured=_absent(spool))


def _regions(spool: LaunchSpool) -> Iterator[tuple[int, RegionRole, str | None]]:
    """Yield base, role and variable of each region with memory that was kept, by address."""
    roles: dict[int, tuple[RegionRole, str | None]] = {
        region.base: (ROLES[region.kind], None) for region in spool.regions if region.kind in ROLES}
    for symbol, (base, size) in spool.variables.items():
        if size:
            roles[base] = ("global", symbol)
    for base in sorted(spool.before):
        yield base, *roles[base]


def _code(spool: LaunchSpool) -> bytes:
    """Return the code that was loaded last of those with the kernel. Raise BadCapture if none was seen."""
    section = b".text." + spool.symbol.encode() + b"\0"
    code = next((code for code in reversed(spool.codes) if section in code), None)
    if code is None:
        raise BadCapture(f"{_readable(spool.symbol)}: its code was loaded before the capture began",
                         "capture in a process of its own: aaco replay capture ... -- python PROGRAM")
    return code


def _launch(spool: LaunchSpool) -> KernelLaunch:
    attributes = [LaunchAttribute(id=number, hex=raw.hex()) for number, raw in spool.attributes
                  if number and number not in HANDLES]
    carveout = spool.about[1]
    if carveout >= 0 and CARVEOUT not in {number for number, _ in spool.attributes}:
        attributes.append(LaunchAttribute(id=CARVEOUT, hex=struct.pack("<IIi60x", CARVEOUT, 0, carveout).hex()))
    grid, block = spool.shape[:3], spool.shape[3:6]
    return KernelLaunch(
        symbol=spool.symbol, demangled=_readable(spool.symbol), number=spool.number, grid=grid, grid_unit="blocks",  # type: ignore[arg-type]
        block=block, dynamic_lds_bytes=spool.shape[6], arguments=spool.arguments.hex(),  # type: ignore[arg-type]
        layout=[ArgumentPlace(offset=offset, size=size) for offset, size in spool.places] or None,
        passed_as=spool.passed_as, attributes=attributes)  # type: ignore[arg-type]


def _readable(symbol: str) -> str:
    return demangled([symbol]).get(symbol, symbol) if symbol else "the kernel"


def _origin(spool: LaunchSpool, cupti: str) -> CapturedFrom:
    _, _, major, minor, version, _, memory, name = spool.about
    cuda = f"{version // 1000}.{version % 1000 // 10}"
    return CapturedFrom(vendor="NVIDIA", device=name.rstrip(b"\0").decode(errors="replace"), isa=f"sm_{major}{minor}",
                        granule_bytes=PAGE_BYTES, memory_bytes=memory, driver=nvidia_version(version),
                        tools={"CUDA": cuda, "CUPTI": cupti})


def _absent(spool: LaunchSpool) -> list[NotCaptured]:
    absent = [NotCaptured(what=f"launch attribute {number}", why=f"it names {HANDLES[number]}")
              for number, _ in spool.attributes if number in HANDLES]
    absent += [NotCaptured(what=f"variable {name}", why="the driver does not give its address")
               for name, (_, size) in spool.variables.items() if not size]
    others = {region.device for region in spool.regions} - {-1, spool.about[0]}
    absent += [NotCaptured(what=f"that the memory of device {number} is on another device",
                           why="a replay uses one device") for number in sorted(others)]
    absent.append(NotCaptured(what="memory that no driver call allocated (pageable host memory, the kernel's local "
                                   "memory, the device's heap)", why="it has no allocation to follow"))
    return absent
