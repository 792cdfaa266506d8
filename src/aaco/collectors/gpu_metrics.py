"""What the gpu_metrics file of the amdgpu driver says: energy, xGMI traffic and throttling, which no other file says,
and use, power, temperature and clocks, where those have no file of their own (a virtual function).

The driver writes one structure, whose header tells its version (drivers/gpu/drm/amd/include/kgd_pp_interface.h): read
here are 1.0 (MI50), 1.1 to 1.3 (MI100, MI200, RDNA), 1.4 to 1.8 (MI300, MI350), and 1.9, a list of attributes that each
say what they are (MI300 and MI350 under driver 30.30). 2.x and 3.x are of Ryzen and are not. Reasons
are asked of the mask that means the same on every chip (SMU_THROTTLER_*_BIT in amdgpu_smu.h), or, from 1.6 on, of
accumulators that rise while a reason holds. What a chip does not know, it fills with ones.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence

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
ACCUMULATORS = ("prochot", "ppt", "socket_thermal", "vr_thermal", "hbm_thermal")
_LINKS, _ONES = 8, {"B": 0xFF, "H": 0xFFFF, "I": 0xFFFFFFFF, "Q": (1 << 64) - 1}
_HEADER = struct.Struct("<HBB")
Places = dict[str, tuple[int, str]]


def _until_1_3(temperatures: int, use: int, power: int) -> Places:
    return {"edge": (temperatures, "H"), "hotspot": (temperatures + 2, "H"), "gfx": (use, "H"), "umc": (use + 2, "H"),
            "power": (power, "H"), "gfxclk": (54, "H"), "uclk": (58, "H")}


def _since_1_4(energy: int, xgmi: int, clocks: int, accumulations: int | None = None) -> Places:
    """Read and written of eight links, in KiB; a clock for each of eight dies."""
    held = {name: (accumulations + 4 * number, "I") for number, name in enumerate(("accumulations", *ACCUMULATORS))
            } if accumulations is not None else {}
    return {"hotspot": (4, "H"), "power": (10, "H"), "gfx": (12, "H"), "umc": (14, "H"), "energy": (energy, "Q"),
            "xgmi_read": (xgmi, f"{_LINKS}Q"), "xgmi_written": (xgmi + 8 * _LINKS, f"{_LINKS}Q"),
            "gfxclk": (clocks, "8H"), "uclk": (clocks + 40, "H"), **held}


LAYOUTS: Mapping[tuple[int, int], Places] = {
    (1, 0): _until_1_3(16, 28, 34), (1, 1): _until_1_3(4, 16, 22), (1, 2): _until_1_3(4, 16, 22),
    (1, 3): _until_1_3(4, 16, 22) | {"energy": (24, "Q"), "mask": (112, "Q")},
    (1, 4): _since_1_4(24, 104, 240), (1, 5): _since_1_4(88, 176, 312), (1, 6): _since_1_4(16, 128, 264, 32),
    (1, 7): _since_1_4(24, 136, 296, 40), (1, 8): _since_1_4(24, 136, 296, 40)}
FIRST_1_6 = 384, _since_1_4(88, 200, 336, 104)  # of 1.6, by its size: what Linux had until it counted by partition
LISTED = (1, 9)
# Of 1.9: the numbers of attributes, and of types the letters of struct.
ATTRIBUTES = {0: "hotspot", 3: "power", 4: "gfx", 5: "umc", 7: "energy", 9: "accumulations",
              **dict(enumerate(ACCUMULATORS, 10)), 29: "xgmi_read", 30: "xgmi_written", 33: "gfxclk", 37: "uclk"}
TYPES = "BbHhIiQq"
# Our fields, the driver's, and how many of ours are in one of the driver's. Zero is no temperature, power or clock: the
# second die of an MI250X tells no power, and a die that is not there no clock.
_OURS = {"edge_millidegree": ("edge", 1000), "junction_millidegree": ("hotspot", 1000),
         "power_uw": ("power", 1_000_000), "sclk_hz": ("gfxclk", 1_000_000), "mclk_hz": ("uclk", 1_000_000)}
_SHARES = {"gpu_busy_pct": "gfx", "mem_busy_pct": "umc"}
ENERGY_IN_1_3 = "gfx90a"  # on others of 1.3 its unit is not known


def told(content: bytes, before: Mapping[str, int], arch: str | None = None) -> dict[str, int]:
    """What the structure tells: fields of amd_sensors.told, xGMI bytes, `reasons` as a mask of BITS, accumulators.

    before: what was told at the sample before, for what only rises. arch: as compilers call the chip. A structure that
    is cut, or not known, tells nothing.
    """
    found = dict(_fields(content))
    if version(content) == (1, 3) and arch != ENERGY_IN_1_3:
        found.pop("energy", None)
    return meaning(found, before)


def meaning(found: Mapping[str, Sequence[int]], before: Mapping[str, int]) -> dict[str, int]:
    """What `told` says of a structure, by its fields with the values that the chip knows, by the names of ATTRIBUTES
    (and `edge`, `mask`); energy is in 2^-16 J.
    """
    first = {name: next(filter(None, values), 0) for name, values in found.items()}
    ours = {name: first[of] * units for name, (of, units) in _OURS.items() if first.get(of)}
    ours |= {name: first[of] for name, of in _SHARES.items() if of in first and first[of] <= 100}
    if first.get("energy"):
        ours["energy_uj"] = first["energy"] * 1_000_000 >> 16
    ours |= {f"{name}_bytes": sum(found[name]) << 10 for name in ("xgmi_read", "xgmi_written") if name in found}
    if "mask" in first:
        ours["reasons"] = first["mask"]
    ours |= _held(first, before)
    return {name: value for name, value in ours.items() if value < 1 << 63}


def version(content: bytes) -> tuple[int, int] | None:
    """The version that the header tells; None where there is no header."""
    if len(content) < _HEADER.size:
        return None
    _, form, revision = _HEADER.unpack_from(content)
    return form, revision


def unread(content: bytes) -> str | None:
    """The version of a structure that is of none that is read here."""
    kind = version(content)
    return None if kind is None or kind in LAYOUTS or kind == LISTED else f"{kind[0]}.{kind[1]}"


def named(mask: int) -> list[str]:
    """The reasons in a mask; a bit that has no name by its number."""
    return [BITS.get(place, f"bit_{1 << place:#x}") for place in range(mask.bit_length()) if mask >> place & 1]


def _held(first: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """Each accumulator, and as `reasons` those that rose.

    One that is as high as the count of all accumulations counts nothing: drivers of 1.6 tell so of an idle device. No
    reasons where none rose but not all are known, as at the first sample.
    """
    now = {name: first[name] for name in ACCUMULATORS if name in first and first[name] != first.get("accumulations")}
    rose = [name in now and name in before and now[name] > before[name] for name in ACCUMULATORS]
    if any(rose) or all(name in now and name in before for name in ACCUMULATORS):
        return now | {"reasons": sum(1 << _RESIDENCY + number for number, risen in enumerate(rose) if risen)}
    return now


def _fields(content: bytes) -> Iterator[tuple[str, list[int]]]:
    """The driver's fields with the values that the chip knows; those of which it knows none are left out."""
    kind = version(content)
    size = _HEADER.unpack_from(content)[0] if kind else 0
    if kind is None or size > len(content):
        return
    places = FIRST_1_6[1] if (kind, size) == ((1, 6), FIRST_1_6[0]) else LAYOUTS.get(kind, {})
    for name, place, form in _listed(content) if kind == LISTED else ((name, *where) for name, where in places.items()):
        if place + struct.calcsize(f"<{form}") <= len(content):
            values = [value for value in struct.unpack_from(f"<{form}", content, place) if value != _ONES.get(form[-1])]
            if values and min(values) >= 0:
                yield name, values


def _listed(content: bytes) -> Iterator[tuple[str, int, str]]:
    """The attributes of 1.9 that are read here: behind their count each with 64 bits that say what it is, unaligned."""
    place = _HEADER.size + 4
    for _ in range(struct.unpack_from("<I", content, _HEADER.size)[0] if len(content) >= place else 0):
        if place + 8 > len(content):
            return
        said = struct.unpack_from("<Q", content, place)[0]
        kind, number, count = said >> 20 & 0xF, said >> 10 & 0x3FF, said & 0x3FF
        if kind >= len(TYPES):
            return
        form = f"{count}{TYPES[kind]}"
        if number in ATTRIBUTES and count:
            yield ATTRIBUTES[number], place + 8, form
        place += 8 + struct.calcsize(f"<{form}")
