"""What the gpu_metrics file of the amdgpu driver says that no other file says: energy, xGMI traffic, throttling.

The driver writes one structure, whose header tells its version (drivers/gpu/drm/amd/include/kgd_pp_interface.h): read
here are 1.3 (MI200, RDNA) and 1.4 to 1.8 (MI300, MI350). Reasons are asked of the mask that means the same on every
chip (SMU_THROTTLER_*_BIT in amdgpu_smu.h), or, from 1.6 on, of accumulators that rise while a reason holds. What a chip
does not know, it fills with ones.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

BITS = {
    **dict(enumerate(("ppt0", "ppt1", "ppt2", "ppt3", "spl", "fppt", "sppt", "sppt_apu"))),
    **dict(enumerate(("tdc_gfx", "tdc_soc", "tdc_mem", "tdc_vdd", "tdc_cvip", "edc_cpu", "edc_gfx", "apcc"), 16)),
    **dict(enumerate(("temp_gpu", "temp_core", "temp_mem", "temp_edge", "temp_hotspot", "temp_soc", "temp_vr_gfx",
                      "temp_vr_soc", "temp_vr_mem0", "temp_vr_mem1", "temp_liquid0", "temp_liquid1", "vrhot0", "vrhot1",
                      "prochot_cpu", "prochot_gfx"), 32)),
    56: "ppm", 57: "fit",
    # Not the driver's: accumulators that rose since the sample before, by the names amd-smi gives them.
    **dict(enumerate(("prochot", "ppt", "socket_thermal", "vr_thermal", "hbm_thermal"), 58)),
}
_RESIDENCY = 58
_LINKS = 8
_MASK = {(1, 3): 112}
_ENERGY = {(1, 4): 24, (1, 5): 88, (1, 6): 16, (1, 7): 24, (1, 8): 24}
_ACCUMULATORS = {(1, 6): 36, (1, 7): 44, (1, 8): 44}  # of five, after the count of accumulations
_XGMI = {(1, 4): 104, (1, 5): 176, (1, 6): 128, (1, 7): 136, (1, 8): 136}  # read and written of eight links, in KiB
_ONES = (1 << 64) - 1


def told(content: bytes, before: Mapping[str, int]) -> dict[str, int]:
    """What the structure tells: energy in uJ, xGMI bytes, `reasons` as a mask of BITS, and the accumulators.

    before: what was told at the sample before, for what only rises. A structure that is cut, or not known, tells
    nothing.
    """
    if len(content) < 4:
        return {}
    size, *version = struct.unpack_from("<HBB", content)
    kind = (version[0], version[1])
    if size > len(content):
        return {}
    found: dict[str, int | None] = {}
    if kind in _ENERGY:
        energy = _wide(content, _ENERGY[kind])
        found["energy_uj"] = None if energy is None else energy * 1_000_000 >> 16  # 2^-16 J
    if kind in _XGMI:
        found["xgmi_read_bytes"] = _links(content, _XGMI[kind])
        found["xgmi_written_bytes"] = _links(content, _XGMI[kind] + 8 * _LINKS)
    if kind in _MASK:
        found["reasons"] = _wide(content, _MASK[kind])
    if kind in _ACCUMULATORS:
        found |= _held(content, _ACCUMULATORS[kind], before)
    return {name: value for name, value in found.items() if value is not None and value < 1 << 63}


def named(mask: int) -> list[str]:
    """The reasons in a mask; a bit that has no name by its number."""
    return [BITS.get(place, f"bit_{1 << place:#x}") for place in range(mask.bit_length()) if mask >> place & 1]


def _held(content: bytes, place: int, before: Mapping[str, int]) -> dict[str, int]:
    """Each accumulator, and as `reasons` those that rose; no reasons at the first sample."""
    if len(content) < place + 20:
        return {}
    now = struct.unpack_from("<5I", content, place)
    names = [BITS[_RESIDENCY + number] for number in range(5)]
    rose = [name in before and value != 0xFFFFFFFF and value > before[name]
            for name, value in zip(names, now, strict=True)]
    found = dict(zip(names, now, strict=True))
    if all(name in before for name in names):
        found["reasons"] = sum(1 << _RESIDENCY + number for number, risen in enumerate(rose) if risen)
    return found


def _links(content: bytes, place: int) -> int | None:
    """Bytes over all links that the chip knows; None where it knows none."""
    known = [value for number in range(_LINKS) if (value := _wide(content, place + 8 * number)) is not None]
    return sum(known) << 10 if known else None


def _wide(content: bytes, place: int) -> int | None:
    if len(content) < place + 8:
        return None
    value = int(struct.unpack_from("<Q", content, place)[0])
    return None if value == _ONES else value
