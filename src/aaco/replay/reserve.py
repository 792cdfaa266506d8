"""Whether the addresses of a capture are free: memory of a replay has to be where it was, for it may hold pointers.

CUDA takes an address as a hint, and keeps it if the block of 32 MiB around it is requested; memory is then mapped
inside that block. Nothing is mapped here, and what is reserved is free again when the process ends.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from msgspec import Struct

from aaco.calibration.driver import DriverGpu
from aaco.core.errors import Missing
from aaco.replay import addresses, steering
from aaco.replay.addresses import Span
from aaco.replay.capture import HOW_TO_RUN, KernelCapture
from aaco.replay.documents import CapturedRegion


class Reservation(Struct, frozen=True):
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


def reserve_regions(regions: Sequence[CapturedRegion], blocks: Sequence[Span], reserve: Reserve) -> list[Reservation]:
    """Reserve every block; return what became of each region, all of which are in blocks, in order of address."""
    reserved = [(begin, end, *reserve(begin, end - begin)) for begin, end in blocks]
    made = []
    for region in sorted(regions, key=lambda region: region.base):
        begin, address, status = next((begin, address, status) for begin, end, address, status in reserved
                                      if begin <= region.base < end)
        made.append(Reservation(region, None if address is None else region.base + address - begin, status))
    return made


def check(capture: KernelCapture) -> list[Reservation]:
    """Ask for the address of every region that a replay must map. Raise Missing where this cannot be, BadCapture."""
    reserve = _device_reserve(capture) if any(region.role in steering.ON_DEVICE for region in capture.regions) else None
    plan = steering.plan_capture(capture)
    device = [region for region in capture.regions
              if region.role in steering.ON_DEVICE or region.base in plan.substituted]
    host = [region for region in capture.regions if region.role == "host" and region.base not in plan.substituted]
    on_device = reserve_regions(device, plan.blocks, reserve) if reserve else []
    return on_device + reserve_regions(host, plan.hosts, addresses.take)


def _device_reserve(capture: KernelCapture) -> Reserve:
    """Return CUDA's way to reserve addresses, with a context. Raise Missing."""
    capture.require_nvidia()
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
