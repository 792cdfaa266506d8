"""Formulas of what each kernel of native/calibration moves and computes, and its launch size.

The constants are the source's; tests/unit/test_calibration_kernels.py runs the source and counts.
"""

from __future__ import annotations

from msgspec import Struct

from aaco.core.errors import Missing

BLOCK, UNROLL, VECTOR = 256, 4, 16  # threads of a block, vectors of a thread and turn, bytes of a vector
LDS_LOADS, CHAINS, CHAINS_F64 = 8, 16, 8
STEP = BLOCK * UNROLL * VECTOR  # bytes that a block moves of one array
MIB = 1 << 20
MOST_LANE = 4096 * MIB  # of device memory: 2 ms at 4 TB/s, so that starting and ending a kernel is nothing
LLC_MULTIPLE = 4  # as on the CPU: what goes round exceeds the caches
L2_SHARE = 4  # a quarter of the cache: where it has two halves, each may hold a copy
LANES = {"memory_read": 1, "memory_write": 1, "memory_copy": 2, "memory_add": 3}
L2_TURNS, LDS_TURNS, FMA_TURNS = 256, 2048, 4096
BLOCKS_PER_UNIT = {"l2_read": 8, "lds_read": 16, "fma": 16}


class KernelSizes(Struct, frozen=True):
    """The launch sizes of one device's kernels. Bytes, and blocks of BLOCK threads."""

    lane: int  # of each array in device memory
    l2_vectors: int | None  # that go round in the second-level cache; None: its size is not known
    units: int

    @property
    def memory_blocks(self) -> int:
        """Return a block for each STEP of a lane."""
        return self.lane // STEP


def sizes(free: int, l2: int | None, units: int) -> KernelSizes:
    """Return the sizes for so much free device memory, so large a cache and so many compute units.

    Raise Missing if three arrays that clearly exceed the cache do not fit.
    """
    lane = min(MOST_LANE, free // 4) // STEP * STEP
    needed = LLC_MULTIPLE * (l2 or 64 * MIB)
    if lane < needed:
        raise Missing(f"device memory bandwidth needs {4 * needed / 1e9:.2f} GB of free device memory; "
                      f"there is {free / 1e9:.2f}", "end what else uses the device")
    vectors = l2 // L2_SHARE // VECTOR if l2 else 0
    return KernelSizes(lane, 1 << vectors.bit_length() - 1 if vectors >= BLOCK * UNROLL else None, units)


def memory_bytes(kernel: str, blocks: int) -> float:
    """Return the bytes read and written, as STREAM counts them."""
    return float(LANES[kernel] * blocks * STEP)


def l2_bytes(blocks: int, turns: int) -> float:
    """Return the bytes read from the second-level cache."""
    return float(blocks * turns * STEP)


def lds_bytes(blocks: int, turns: int) -> float:
    """Return the bytes read from shared memory; filling it does not count."""
    return float(blocks * BLOCK * turns * LDS_LOADS * VECTOR)


def fma_flops(kernel: str, blocks: int, turns: int) -> float:
    """Return the operations; a multiply-add counts 2."""
    return 2.0 * blocks * BLOCK * turns * (CHAINS_F64 if kernel == "fma_f64" else CHAINS)
