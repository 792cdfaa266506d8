"""Whether the addresses of a capture are free: memory of a replay has to be where it was, for it may hold pointers.

CUDA takes an address as a hint, and keeps it if the block of 32 MiB around it is requested; memory is then mapped
inside that block. Nothing is mapped here, and what is reserved is free again when the process ends.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aaco.calibration.driver import DriverGpu
from aaco.core.errors import Missing
from aaco.replay.capture import KernelCapture
from aaco.replay.documents import CapturedRegion

BLOCK_BYTES = 32 << 20  # measured on H100: smaller alignments came back elsewhere
MAP_FIXED_NOREPLACE = 0x100000  # Linux 4.17, mman.h
ON_DEVICE = ("device", "managed")
HOW_TO_RUN = "run it on a machine with an NVIDIA GPU and its driver; aaco doctor says what is missing"


@dataclass(frozen=True)
class Reservation:
    """What became of asking for a region's address. address: where it came; None if it failed with this status."""

    region: CapturedRegion
    address: int | None
    status: int

    @property
    def outcome(self) -> str:
        """Return OK, RELOCATED(address) or FAIL(status)."""
        if self.address is None:
            return f"FAIL({self.status})"
        return "OK" if self.address == self.region.base else f"RELOCATED({self.address:#x})"


Reserve = Callable[[int, int], tuple[int | None, int]]  # base, size -> address or None, status


def cover(regions: Sequence[CapturedRegion], alignment: int) -> list[tuple[int, int]]:
    """Return the aligned blocks that cover regions, begin and end, in order; those that touch are one."""
    blocks: list[tuple[int, int]] = []
    for region in sorted(regions, key=lambda region: region.base):
        begin, end = region.base // alignment * alignment, -(-region.end // alignment) * alignment
        if blocks and begin <= blocks[-1][1]:
            blocks[-1] = (blocks[-1][0], max(end, blocks[-1][1]))
        else:
            blocks.append((begin, end))
    return blocks


def reserve_regions(regions: Sequence[CapturedRegion], alignment: int, reserve: Reserve) -> list[Reservation]:
    """Reserve every block that regions are in; return what became of each region, in order of address."""
    blocks = [(begin, end, *reserve(begin, end - begin)) for begin, end in cover(regions, alignment)]
    made = []
    for region in sorted(regions, key=lambda region: region.base):
        begin, address, status = next((begin, address, status) for begin, end, address, status in blocks
                                      if begin <= region.base < end)
        made.append(Reservation(region, None if address is None else region.base + address - begin, status))
    return made


def check(capture: KernelCapture) -> list[Reservation]:
    """Ask for the address of every region that a replay must map. Raise Missing where this machine cannot."""
    device = [region for region in capture.regions if region.role in ON_DEVICE]
    host = [region for region in capture.regions if region.role == "host"]
    granule = max(capture.document.captured_from.granule_bytes, BLOCK_BYTES)
    on_device = reserve_regions(device, granule, _device_reserve(capture)) if device else []
    return on_device + reserve_regions(host, mmap.PAGESIZE, reserve_host)


def _device_reserve(capture: KernelCapture) -> Reserve:
    """Return CUDA's way to reserve addresses, with a context. Raise Missing."""
    if capture.document.captured_from.vendor != "NVIDIA":
        raise Missing(f"{capture.path}: captured on {capture.document.captured_from.device}; replay is for NVIDIA GPUs "
                      "in this version: the tool for HSA is not part of it", HOW_TO_RUN)
    try:
        library = DriverGpu("NVIDIA").library
    except Missing as error:
        raise Missing(f"{capture.path}: its addresses cannot be reserved here: {error.what}", HOW_TO_RUN) from error

    def reserve(base: int, size: int) -> tuple[int | None, int]:
        address = ctypes.c_uint64()
        status = library.cuMemAddressReserve(ctypes.byref(address), ctypes.c_size_t(size), ctypes.c_size_t(0),
                                             ctypes.c_uint64(base), ctypes.c_ulonglong(0))
        return (None if status else address.value), int(status)

    return reserve


def reserve_host(base: int, size: int) -> tuple[int | None, int]:
    """Reserve addresses of this process: the address, or None and errno."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3,
                                                              ctypes.c_long]
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED_NOREPLACE
    address = libc.mmap(base, size, 0, flags, -1, 0)
    if address == ctypes.c_void_p(-1).value:
        return None, ctypes.get_errno()
    return address or 0, 0
