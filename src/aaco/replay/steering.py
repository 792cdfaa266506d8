"""Where a replay must put memory, computed before a driver is called: blocks to reserve, and pieces to map in them.

CUDA takes an address for a hint. Of single 2 MiB pieces it gave one in twenty; of blocks that begin and end at
multiples of 32 MiB all of 54 (an H200, with address randomisation). So the block is reserved, and the piece mapped in
it. Page-locked memory of the host may be in such a block, which then cannot be reserved without it: there, device
memory takes its place, at the same address and with the same content.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Sequence

from msgspec import Struct

from aaco.core.errors import BadCapture
from aaco.replay.addresses import Span
from aaco.replay.capture import KernelCapture
from aaco.replay.documents import CapturedRegion

BLOCK_BYTES, GRANULE = 32 << 20, 2 << 20
ON_DEVICE = ("device", "managed", "kernarg")  # roles of regions
ADDRESSES = 1 << 47  # CUDA's unified addresses end there: beyond, it answers "invalid value"


class SteeringPlan(Struct, frozen=True):
    """What to reserve, and what to map in it; both in the order of addresses, none overlapping.

    hosts: pages for the host's memory. substituted: regions of the host that are in `pieces`, by their addresses.
    """

    blocks: tuple[Span, ...]
    pieces: tuple[Span, ...]
    hosts: tuple[Span, ...] = ()
    substituted: frozenset[int] = frozenset()

    @property
    def mapped_bytes(self) -> int:
        """Return how much device memory the pieces take."""
        return sum(end - begin for begin, end in self.pieces)


def plan_capture(capture: KernelCapture) -> SteeringPlan:
    """Return the plan for a capture. Raise BadCapture."""
    try:
        return plan(capture.regions, max(capture.document.captured_from.granule_bytes, GRANULE))
    except ValueError as error:
        raise BadCapture(f"{capture.path}: {error}", "capture it again") from error


def held(capture: KernelCapture) -> tuple[Span, ...]:
    """Return the addresses to keep free from the process's begin on: those of the host's memory.

    In an emulator the device's memory is the host's, too. Raise BadCapture.
    """
    planned = plan_capture(capture)
    return (*planned.hosts, *(planned.blocks if capture.is_amd else ()))


def plan(regions: Sequence[CapturedRegion], granule: int, block: int = BLOCK_BYTES) -> SteeringPlan:
    """Return the plan for the regions of a capture. Raise ValueError if one is where no such memory can be.

    granule: bytes of the smallest piece that the driver maps. Variables of the module are placed by the driver.
    """
    inside = [(region.base, region.end) for region in regions if region.role in ON_DEVICE]
    outside = [(region.base, region.end) for region in regions if region.role == "host"]
    substituted = list[Span]()
    while True:  # what is added may make a block longer
        pieces = cover(inside, granule)
        blocks = cover(pieces, block)
        if not (near := [span for span in outside if any(regions_in(taken, [span]) for taken in blocks)]):
            break
        inside, substituted = inside + near, substituted + near
        outside = [span for span in outside if span not in near]
    if any(end > ADDRESSES or begin <= 0 for begin, end in pieces):
        raise ValueError("a region lies outside the addresses that the driver maps")
    return SteeringPlan(tuple(blocks), tuple(pieces), tuple(cover(outside, mmap.PAGESIZE)),
                        frozenset(begin for begin, _ in substituted))


def cover(spans: Iterable[Span], unit: int) -> list[Span]:
    """Return the spans, widened to multiples of unit and merged where they then touch."""
    covered: list[Span] = []
    for begin, end in sorted((begin // unit * unit, -(-end // unit) * unit) for begin, end in spans):
        if covered and begin <= covered[-1][1]:
            covered[-1] = (covered[-1][0], max(end, covered[-1][1]))
        else:
            covered.append((begin, end))
    return covered


def regions_in(span: Span, regions: Sequence[Span]) -> list[Span]:
    """Return the regions that share an address with the span: those that a block which cannot be had is for."""
    return [region for region in regions if region[0] < span[1] and span[0] < region[1]]
