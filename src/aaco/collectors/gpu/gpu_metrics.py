"""Decodes the gpu_metrics file of the amdgpu driver: energy, xGMI traffic and throttling, which no other file has, and
use, power, temperature and clocks, where those have no file (a virtual function).

The driver writes one structure with its version in the header (drivers/gpu/drm/amd/include/kgd_pp_interface.h). Read
here are 1.0 (MI50), 1.1 to 1.3 (MI100, MI200, RDNA), 1.4 to 1.8 (MI300, MI350), and 1.9, a list of attributes that each
name themselves (MI300 and MI350 under driver 30.30). 2.x and 3.x are of Ryzen and are not read. Reasons come from the
mask that means the same on every chip (SMU_THROTTLER_*_BIT in amdgpu_smu.h), or, from 1.6 on, from accumulators that
rise while a reason holds. A field that a chip does not know is all ones.
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
    """Return the places: read and written of eight links, in KiB; a clock for each of eight dies."""
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
# second die of an MI250X reports no power, and a missing die no clock.
_OURS = {"edge_millidegree": ("edge", 1000), "junction_millidegree": ("hotspot", 1000),
         "power_uw": ("power", 1_000_000), "sclk_hz": ("gfxclk", 1_000_000), "mclk_hz": ("uclk", 1_000_000)}
_SHARES = {"gpu_busy_pct": "gfx", "mem_busy_pct": "umc"}
ENERGY_IN_1_3 = "gfx90a"  # on others of 1.3 its unit is not known


def decode(content: bytes, before: Mapping[str, int], arch: str | None = None) -> dict[str, int]:
    """Return the structure's readings: fields of amd_sensors.read_values, xGMI bytes, `reasons` as a mask of BITS,
    accumulators.

    before: the readings of the previous sample, for what only rises. arch: the chip's compiler architecture. A
    structure that is cut or unknown has no readings.
    """
    fields = dict(_read_fields(content))
    if version(content) == (1, 3) and arch != ENERGY_IN_1_3:
        fields.pop("energy", None)
    return meaning(fields, before)


def meaning(fields: Mapping[str, Sequence[int]], before: Mapping[str, int]) -> dict[str, int]:
    """Return the readings of `decode` from a structure's fields, named as in ATTRIBUTES (and `edge`, `mask`), with the
    values that the chip knows.

    Energy is in 2^-16 J.
    """
    first = {name: next(filter(None, values), 0) for name, values in fields.items()}
    readings = {name: first[field] * units for name, (field, units) in _OURS.items() if first.get(field)}
    readings |= {name: first[field] for name, field in _SHARES.items() if field in first and first[field] <= 100}
    if first.get("energy"):
        readings["energy_uj"] = first["energy"] * 1_000_000 >> 16
    readings |= {f"{name}_bytes": sum(fields[name]) << 10 for name in ("xgmi_read", "xgmi_written") if name in fields}
    if "mask" in first:
        readings["reasons"] = first["mask"]
    readings |= _rising_reasons(first, before)
    return {name: value for name, value in readings.items() if value < 1 << 63}


def version(content: bytes) -> tuple[int, int] | None:
    """Return the version in the header; None if there is no header."""
    if len(content) < _HEADER.size:
        return None
    _, form, revision = _HEADER.unpack_from(content)
    return form, revision


def unread(content: bytes) -> str | None:
    """Return the version of a structure if it is none that is read here; else None."""
    kind = version(content)
    return None if kind is None or kind in LAYOUTS or kind == LISTED else f"{kind[0]}.{kind[1]}"


def named(mask: int) -> list[str]:
    """Return the reasons in a mask; a bit without a name by its number."""
    return [BITS.get(place, f"bit_{1 << place:#x}") for place in range(mask.bit_length()) if mask >> place & 1]


def _rising_reasons(first: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """Return each accumulator, and as `reasons` those that rose.

    An accumulator as high as the count of all accumulations counts nothing: drivers of 1.6 report an idle device so.
    Without reasons if none rose but not all are known, as at the first sample.
    """
    now = {name: first[name] for name in ACCUMULATORS if name in first and first[name] != first.get("accumulations")}
    rose = [name in now and name in before and now[name] > before[name] for name in ACCUMULATORS]
    if any(rose) or all(name in now and name in before for name in ACCUMULATORS):
        return now | {"reasons": sum(1 << _RESIDENCY + number for number, risen in enumerate(rose) if risen)}
    return now


def _read_fields(content: bytes) -> Iterator[tuple[str, list[int]]]:
    """Yield the driver's fields with the values that the chip knows, without fields of which it knows none."""
    kind = version(content)
    size = _HEADER.unpack_from(content)[0] if kind else 0
    if kind is None or size > len(content):
        return
    places = FIRST_1_6[1] if (kind, size) == ((1, 6), FIRST_1_6[0]) else LAYOUTS.get(kind, {})
    fields = _read_attributes(content) if kind == LISTED else ((name, *where) for name, where in places.items())
    for name, place, form in fields:
        if place + struct.calcsize(f"<{form}") <= len(content):
            values = [value for value in struct.unpack_from(f"<{form}", content, place) if value != _ONES.get(form[-1])]
            if values and min(values) >= 0:
                yield name, values


def _read_attributes(content: bytes) -> Iterator[tuple[str, int, str]]:
    """Yield the attributes of 1.9 that are read here.

    After their count, each has 64 bits that identify it, unaligned.
    """
    place = _HEADER.size + 4
    for _ in range(struct.unpack_from("<I", content, _HEADER.size)[0] if len(content) >= place else 0):
        if place + 8 > len(content):
            return
        header = struct.unpack_from("<Q", content, place)[0]
        kind, number, count = header >> 20 & 0xF, header >> 10 & 0x3FF, header & 0x3FF
        if kind >= len(TYPES):
            return
        form = f"{count}{TYPES[kind]}"
        if number in ATTRIBUTES and count:
            yield ATTRIBUTES[number], place + 8, form
        place += 8 + struct.calcsize(f"<{form}")
