"""How many waves of a kernel a compute unit can hold at once, and which of its resources allows no more.

A SIMD shares its vector registers out to waves in granules; a workgroup needs all its waves, its local memory and a
place at once. On AMD accumulation registers come from the same file since gfx90a, before it they have one of their own.
On NVIDIA a warp is a wave, a multiprocessor a compute unit, a block a workgroup. Sources: devices/architectures.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import pyarrow as pa
from msgspec import Struct

from aaco.analytics.roofline.devices.architectures import ARCHITECTURES, Architecture, Registers
from aaco.core.readings import Absent, known

VECTORS, SCALARS, LDS, WORKGROUPS, WAVES = "vector registers", "scalar registers", "local memory", "workgroups", "waves"


class Kernel(Struct, frozen=True):
    """What a kernel needs. vgpr, agpr: vector and accumulation registers per lane; total: both, as the code objects of
    gfx90a and later count them under .vgpr_count, instead of those two. lds_bytes: of a workgroup. Unknown is None.
    """

    wave_size: int | None = None
    vgpr: int | None = None
    agpr: int | None = None
    total: int | None = None
    sgpr: int | None = None
    lds_bytes: int | None = None
    workgroup_size: int | None = None


class Occupancy(Struct, frozen=True):
    """waves_per_simd: what registers alone allow, as compilers print it. waves, most: per compute unit, with whole
    workgroups, and the most there can be; waves is None where the workgroup's size is not known. limits: workgroups
    that each resource allows (waves per SIMD where waves is None). limited_by: the resources that allow no more.
    """

    waves_per_simd: int
    waves: int | None
    most: int
    limits: Mapping[str, int]
    limited_by: tuple[str, ...]

    @property
    def pct(self) -> float | None:
        """Waves as a share of the most, 0 to 100."""
        return None if self.waves is None else 100 * self.waves / self.most


def occupancy(arch: str | None, kernel: Kernel, lds_config_bytes: int | None = None) -> Occupancy:
    """Return the occupancy that a kernel can have on an architecture. Raise Absent where that is not known here.

    lds_config_bytes: how much of the cache the driver gave to shared memory for this launch (NVIDIA); all by default.
    """
    found = ARCHITECTURES.get(arch or "")
    if found is None or not found.registers:
        raise Absent(f"nothing is known here of {arch}" if arch else "the architecture is not known")
    if kernel.vgpr is None and kernel.total is None:
        raise Absent("the capture does not say how many vector registers it uses")
    registers = _registers(found, kernel.wave_size)
    per_simd = _per_simd(registers, kernel)
    if kernel.workgroup_size is None:
        least = min(registers.waves, *per_simd.values())
        return Occupancy(least, None, registers.waves * registers.simds, per_simd,
                         tuple(name for name, waves in per_simd.items() if waves == least < registers.waves))
    return _of_workgroups(found, registers, per_simd, kernel, lds_config_bytes)


NEEDS = ("vgpr", "agpr", "sgpr", "lds_bytes", "block_x", "block_y", "block_z")  # columns of kernels


def of_kernels(kernels: pa.Table, arch: str | None, wave_size: int | None = None) -> tuple[pa.Array, pa.Array]:
    """Of each row (columns NEEDS): the occupancy its resources allow, in %, and which of them limit it. Null where
    registers or the workgroup's size are not known. y and z of a size that the capture gives as a whole are null."""
    keys = [kernels[name].combine_chunks() for name in NEEDS]
    rows = list(zip(*(key.to_pylist() for key in keys), strict=True))
    known = {row: _row(arch, wave_size, *row) for row in set(rows)}
    found = [known[row] for row in rows]
    return (pa.array([one.pct if one else None for one in found], pa.float64()),
            pa.array([" and ".join(one.limited_by) or None if one else None for one in found]).cast(
                pa.string()).dictionary_encode())


def _row(arch: str | None, wave_size: int | None, vgpr: int | None, agpr: int | None, sgpr: int | None,
         lds: int | None, *block: int | None) -> Occupancy | None:
    if block[0] is None:
        return None
    size = math.prod(side or 1 for side in block)
    return known(occupancy, arch, Kernel(wave_size, vgpr, agpr, None, sgpr, lds, size))


def _registers(arch: Architecture, wave_size: int | None) -> Registers:
    """Return how waves of this size share registers; by default of the architecture's smallest."""
    return next((one for one in arch.registers if one.wave == wave_size), arch.registers[0])


def _per_simd(registers: Registers, kernel: Kernel) -> dict[str, int]:
    """Waves of a SIMD that each kind of registers allows."""
    needed = _rounded(max(1, _vectors(registers, kernel)), registers.granule)
    found = {VECTORS: registers.vectors // needed}
    if registers.scalars is not None and kernel.sgpr:
        found[SCALARS] = registers.scalars // kernel.sgpr
    return found


def _vectors(registers: Registers, kernel: Kernel) -> int:
    """Vector registers per lane that a wave takes, before rounding: accumulation registers begin at a multiple of 4."""
    if kernel.total is not None:
        return kernel.total
    plain, accumulating = kernel.vgpr or 0, kernel.agpr or 0
    if not registers.unified:
        return max(plain, accumulating)
    return _rounded(plain, 4) + accumulating if accumulating else plain


def _of_workgroups(arch: Architecture, registers: Registers, per_simd: Mapping[str, int], kernel: Kernel,
                   lds_config_bytes: int | None) -> Occupancy:
    most = registers.waves * registers.simds
    waves = max(1, -(-(kernel.workgroup_size or 1) // registers.wave))
    limits = {name: count * registers.simds // waves for name, count in per_simd.items()} | {WAVES: most // waves}
    if arch.workgroups is not None and (waves > 1 or arch.vendor == "nvidia"):  # a lone wave needs no barrier on AMD
        limits[WORKGROUPS] = arch.workgroups
    used = (kernel.lds_bytes or 0) + arch.lds_reserved
    if used and arch.lds_bytes is not None:
        limits[LDS] = (lds_config_bytes or arch.lds_bytes) // _rounded(used, arch.lds_granule)
    groups = min(limits.values())
    limited = tuple(name for name, count in limits.items() if count == groups and groups * waves < most)
    return Occupancy(min(registers.waves, *per_simd.values()), groups * waves, most, limits, limited)


def _rounded(value: int, granule: int) -> int:
    return -(-value // granule) * granule
