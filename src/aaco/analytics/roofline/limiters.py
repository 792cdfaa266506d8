"""What limits a kernel while it runs, as far as its name and its launch show: rules as data.

A family is on one side of the roofline by what it computes. On every accelerator from MI100 to MI355X and H200 the
ridge of 16-bit arithmetic is above 75 FLOP/byte (datasheet peaks), and an elementwise pass, a norm
or a softmax does a few FLOPs per byte it touches: those are on the memory side by an order of magnitude. Matrix
products are on the compute side unless one dimension is small, as in decoding: libraries then choose a tile with a
small side, so a name with a tile tells, and one without does not. Attention reads a cache or computes, which no name
tells. Where the shapes of a kernel's operator are known they decide (Williams, Waterman and Patterson 2009).
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class Limiter(IntEnum):
    """What the time of a device's work goes to. Where several overlap, the first named takes the time."""

    COMPUTE = 0
    MEMORY = 1
    MEMORY_LATENCY = 2
    KERNEL = 3  # a kernel of which nothing tells what limits it
    COMMUNICATION = 4
    LOCAL_COPY = 5  # device to device and fills: memory traffic
    TRANSFER = 6  # between host and device


COMPUTE_FAMILIES = frozenset({"gemm", "conv", "attention"})
MEMORY_FAMILIES = frozenset({"elementwise", "reduction", "softmax", "norm", "copy", "transpose", "embedding", "pooling",
                             "fill", "quantize"})
COMMUNICATION_FAMILIES = frozenset({"collective"})
UNTOLD_FAMILIES = frozenset({"recurrent", "control", "sort", "unknown"})
# A kernel that leaves nearly the whole device empty, and is no matrix product, waits for its own chain of reads: fewer
# waves than a sixteenth of what fits cannot cover memory latency (Little's law: bytes in flight = latency x bandwidth).
FEW_WAVES_PCT = 6.0
SMALLEST_ITEMS = 104 * 2048  # work-items that an MI210 holds, the smallest data-centre device here
NARROW_TILE = 32  # columns; each element of the wide operand is then used so often, far below the ridge
WAITS_FOR_MEMORY = 0.5  # of a kernel's counted waits: below, most are for its own instructions
LONG_NS = 10_000  # shorter kernels are empty for lack of work, not for waiting


def of_family(family: str | None) -> Limiter:
    """Return what limits kernels of this family, where only the name is known."""
    name = (family or "").lower()
    for families, limiter in ((COMPUTE_FAMILIES, Limiter.COMPUTE), (MEMORY_FAMILIES, Limiter.MEMORY),
                              (COMMUNICATION_FAMILIES, Limiter.COMMUNICATION)):
        if name in families:
            return limiter
    return Limiter.KERNEL


def spins(name: str) -> bool:
    """Return whether a kernel of this name waits for the clock and reads nothing: PyTorch's sleep on the device."""
    return name.partition("(long")[0].endswith("::spin_kernel")


def of_name(family: str | None, tile: str | None) -> Limiter:
    """Return what limits kernels of this family whose shapes are not known. tile: of a product's output, as names give
    it.
    """
    if family == "gemm":
        sides = [int(side) for side in (tile or "").split("x")[:2] if side.isdigit()]
        if len(sides) < 2:
            return Limiter.KERNEL
        return Limiter.MEMORY if min(sides) <= NARROW_TILE else Limiter.COMPUTE
    return Limiter.KERNEL if family == "attention" else of_family(family)


def of_launch(limiter: NDArray[np.int64], occupancy_pct: NDArray[np.float64], items: NDArray[np.float64],
              dur_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the limiters, corrected by how each kernel was launched. occupancy_pct: NaN or 0 where unknown; items:
    work-items of the launch, NaN where unknown.
    """
    known = np.where(occupancy_pct > 0, occupancy_pct, 100 * items / SMALLEST_ITEMS)
    lonely = (known <= FEW_WAVES_PCT) & (dur_ns >= LONG_NS)
    found: NDArray[np.int64] = np.where(
        lonely & (limiter != Limiter.COMPUTE) & (limiter != Limiter.COMMUNICATION), Limiter.MEMORY_LATENCY, limiter)
    return found
