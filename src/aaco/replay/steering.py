"""Where a replay must put memory, computed before a driver is asked: blocks to reserve, and pieces to map in them.

CUDA takes an address for a hint. Of single 2 MiB pieces it gave one in twenty; of blocks that begin and end at
multiples
of 32 MiB all of 54 (an H200, with address randomisation). So the block is reserved, and the piece mapped in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

BLOCK_BYTES = 32 << 20
ADDRESSES = 1 << 47  # CUDA's unified addresses end there: beyond, it answers "invalid value"
Span = tuple[int, int]  # first address, and the first behind


@dataclass(frozen=True)
class SteeringPlan:
    """What to reserve, and what to map therein; both in the order of addresses, none overlapping."""

    blocks: tuple[Span, ...]
    pieces: tuple[Span, ...]

    @property
    def mapped_bytes(self) -> int:
        """Return how much device memory the pieces take."""
        return sum(end - begin for begin, end in self.pieces)


def plan(spans: Iterable[Span], granule: int, block: int = BLOCK_BYTES) -> SteeringPlan:
    """Return the plan for these spans. Raise ValueError if one lies where no such memory can.

    granule: bytes of the smallest piece that the driver maps.
    """
    pieces = cover(spans, granule)
    if any(end > ADDRESSES or begin <= 0 for begin, end in pieces):
        raise ValueError("a region lies outside the addresses that the driver maps")
    return SteeringPlan(tuple(cover(pieces, block)), tuple(pieces))


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
    """Return the regions that share an address with the span: what a block that cannot be had stands for."""
    return [region for region in regions if region[0] < span[1] and span[0] < region[1]]
