"""What rocm-smi and amd-smi print: one row of gpu_events per device, and the devices themselves.

rocm-smi (--json, or its text) gives each card a flat map of strings, whose keys drift from version to version and hold
the unit: {"card0": {"Average Graphics Package Power (W)": "35.0", "sclk clock speed:": "(1500Mhz)"}}. amd-smi (metric,
static or list, --json) gives each device nested sections of {"value": 35, "unit": "W"}; before ROCm 7 as a bare list,
and behind what it says of CPUs where it knows those.
"N/A" may stand anywhere. A value is read with its unit or not at all: what cannot be read is a problem by name and
never 0. The tools print no time, so t_ns is null.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from aaco.core.errors import BadCapture
from aaco.core.tables import DEVICE_LINKS, GPU_EVENTS
from aaco.profiler import jsonfile
from aaco.profiler.capture import Device, Facts, Part

FORMAT = "smi"
MOST_BYTES = 16 << 20
FIX = "record it again: rocm-smi -a --json, or amd-smi metric --json"
STATIC = "device: described without telemetry"
# Units as the tools spell them, and what one is worth in ours. amd-smi's MB and KB are 2^20 and 2^10.
UNITS: dict[str, dict[str, float]] = {
    "pct": {"%": 1}, "c": {"c": 1, "\N{DEGREE SIGN}c": 1}, "w": {"w": 1, "mw": 1e-3, "uw": 1e-6},
    "j": {"j": 1, "mj": 1e-3, "uj": 1e-6}, "mhz": {"mhz": 1, "ghz": 1000},
    "bytes": {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30},
}
# Column, unit, and the keys that give it: the first of them that has a value counts.
ROCM_SMI: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("gpu_util_pct", "pct", ("GPU use (%)",)),
    ("mem_util_pct", "pct", ("GPU Memory Read/Write Activity (%)", "GPU memory use (%)")),
    ("temp_c", "c", ("Temperature (Sensor edge) (C)",)),
    ("hotspot_c", "c", ("Temperature (Sensor junction) (C)",)),
    ("power_w", "w", ("Current Socket Graphics Package Power (W)", "Average Graphics Package Power (W)",
                      "Current Graphics Package Power (W)")),
    ("energy_j", "j", ("Accumulated Energy (uJ)",)),
    ("sclk_mhz", "mhz", ("sclk clock speed:", "sclk clock level")),
    ("mclk_mhz", "mhz", ("mclk clock speed:", "mclk clock level")),
    ("vram_used_bytes", "bytes", ("VRAM Total Used Memory (B)",)),
    ("vram_total_bytes", "bytes", ("VRAM Total Memory (B)",)),
)
AMD_SMI: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("gpu_util_pct", "pct", ("usage.gfx_activity",)),
    ("mem_util_pct", "pct", ("usage.umc_activity",)),
    ("temp_c", "c", ("temperature.edge",)),
    ("hotspot_c", "c", ("temperature.hotspot",)),
    ("power_w", "w", ("power.socket_power", "power.current_power", "power.average_power")),
    ("energy_j", "j", ("energy.total_energy_consumption",)),
    ("sclk_mhz", "mhz", ("clock.gfx_0.clk", "clock.gfx.cur_clk", "clock.gfx.clk")),
    ("mclk_mhz", "mhz", ("clock.mem_0.clk", "clock.mem.cur_clk", "clock.mem.clk")),
    ("vram_used_bytes", "bytes", ("mem_usage.used_vram",)),
    ("vram_total_bytes", "bytes", ("mem_usage.total_vram",)),
)
NAMES = ("Device Name", "Card Series", "Card series", "asic.market_name")
ARCHS = ("GFX Version", "asic.target_graphics_version")
INTEGERS = {"vram_used_bytes", "vram_total_bytes"}
_ABSENT = re.compile(r"N/A\b|(|None|Not supported|Unsupported|Unknown)\Z", re.IGNORECASE)  # "N/A (Secondary die)"
_NUMBER = r"([+-]?\d{1,20}(?:\.\d{1,20})?)"
_PLAIN = re.compile(rf"{_NUMBER}\s*(\D{{0,4}})", re.ASCII)
_CLOCK = re.compile(rf"(?:[\dS]{{1,3}}:? )?\({_NUMBER}\s*([GM]hz)\)", re.ASCII | re.IGNORECASE)  # level, or none: (MHz)
_KEY_UNIT = re.compile(r"\(([^()]{1,4})\)\Z")
_CARD = re.compile(r"card(\d{1,6})", re.ASCII)
_LINE = re.compile(r"GPU\[(\d{1,6})\]\s*: (.{1,200}?):\s+(.*?)\s*", re.ASCII)
_LINK = re.compile(r"\(Topology\) (Link type|Weight|Hops) between DRM devices (\d{1,6}) and (\d{1,6})", re.ASCII)
_JSON = re.compile(rb'\s*(\{\s*"(card\d+|system|(?:cpu|core|gpu)_data)"\s*:|\[\s*\{\s*"gpu"\s*:)')
_TITLE = b"ROCm System Management Interface"


@dataclass
class _Read:
    """What was found of each device, by its number, in the order of the file. Several samples are several entries."""

    tool: str
    values: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)
    links: list[tuple[int, int, dict[str, str]]] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def recognises(path: Path) -> bool:
    """Whether the file begins as one of the two tools prints."""
    head = jsonfile.head(path, 4096)
    return _JSON.match(head) is not None or (_TITLE in head and b"\nGPU[" in head)


def parse(path: Path) -> Iterator[pa.Table | Facts]:
    """gpu_events, a row per device that has telemetry, device_links, and Facts with every device. Raises BadCapture."""
    read = _read(path)
    columns = ROCM_SMI if read.tool == "rocm-smi" else AMD_SMI
    rows = [(device, values, _row(device, values, columns, read.problems)) for device, values in read.values]
    measured = [entry for entry in rows if any(value is not None for value in entry[2].values())]
    with jsonfile.sound(path, FIX):
        yield GPU_EVENTS.build(
            device_id=[device for device, _, _ in measured], source=[read.tool] * len(measured),
            throttle_reasons=[_throttled(values) for _, values, _ in measured],
            **{name: [row[name] for _, _, row in measured] for name, _, _ in columns})
        yield _links(read.links)
    static = len(rows) - len(measured)
    described = {device: _device(device, values, row, read.problems) for device, values, row in reversed(rows)}
    yield Facts(
        format=FORMAT, tool=read.tool, metadata=read.metadata,
        records={"device": len(rows), "link": len(read.links)}, left_out={STATIC: Part(static, 0)} if static else {},
        devices=tuple(described[device] for device in sorted(described)), problems=tuple(read.problems))


def gpu_events(path: Path) -> pa.Table:
    """The telemetry alone. Raises BadCapture."""
    return next(part for part in parse(path) if isinstance(part, pa.Table))


def quantity(value: Any, unit: str, key: str = "") -> float | None:
    """A value in `unit` (a key of UNITS), whole where the text is; None for what the tool says it has not.

    value: a number or text with its unit, in itself, beside it ({"value": 1, "unit": "W"}) or at the end of `key`.
    Raises ValueError where it is anything else.
    """
    said = _KEY_UNIT.search(key)
    text, beside = (value.get("value"), value.get("unit")) if isinstance(value, Mapping) else (value, None)
    if text is None or (isinstance(text, str) and _ABSENT.match(text.strip())):
        return None
    found = _CLOCK.fullmatch(str(text).strip()) or _PLAIN.fullmatch(str(text).strip())
    if isinstance(text, bool) or found is None:
        raise ValueError(f"{str(text)[:60]!r} is no number")
    units = (found[2].strip(), beside.strip() if isinstance(beside, str) else "", said[1].strip() if said else "")
    spelt = next(filter(None, units), "").lower()
    if spelt not in UNITS[unit]:
        raise ValueError(f"{str(text)[:60]!r} is in {spelt or 'no unit'}, not {unit}")
    return (float(found[1]) if "." in found[1] else int(found[1])) * UNITS[unit][spelt]


def _row(device: int, values: Mapping[str, Any], columns: tuple[tuple[str, str, tuple[str, ...]], ...],
         problems: list[str]) -> dict[str, float | int | None]:
    row: dict[str, float | int | None] = {}
    for name, unit, keys in columns:
        row[name] = None
        for key in keys:
            try:
                value = quantity(_at(values, key), unit, key)
            except ValueError as error:
                problems.append(f"device {device}: {key}: {error}")
                continue
            if value is not None:
                row[name] = int(value) if name in INTEGERS else value
                break
    return row


def _at(values: Mapping[str, Any], key: str) -> Any:
    """The value of a key; of a dotted one, through the sections it names."""
    if key in values:
        return values[key]
    found: Any = values
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _device(device: int, values: Mapping[str, Any], row: Mapping[str, float | int | None],
            problems: list[str]) -> Device:
    units, total = _at(values, "asic.num_compute_units"), row["vram_total_bytes"]
    if total is None:
        try:
            total = quantity(_at(values, "vram.size"), "bytes")
        except ValueError as error:
            problems.append(f"device {device}: vram.size: {error}")
    return Device(device, _name(values, NAMES), _name(values, ARCHS), units if type(units) is int else None,
                  None if total is None else int(total))


def _name(values: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    """The first key that holds a name: rocm-smi writes bare identifiers where its list of names has no entry."""
    for key in keys:
        name = _at(values, key)
        if isinstance(name, str) and not _ABSENT.match(name.strip()) and not name.startswith("0x"):
            return name
    return None


def _throttled(values: Mapping[str, Any]) -> list[str] | None:
    """What holds the clock down, as amd-smi names it; None where it does not say."""
    throttle = _at(values, "throttle")
    if not isinstance(throttle, Mapping):
        return None
    known = {key.removesuffix("_violation_status"): state for key, state in throttle.items()
             if state in ("ACTIVE", "NOT ACTIVE")}
    return [key for key, state in known.items() if state == "ACTIVE"] if known else None


def _read(path: Path) -> _Read:
    if _TITLE in jsonfile.head(path, 4096):
        return _text(path)
    document = jsonfile.decode(path, cast("type[Any]", dict[str, Any] | list[Any]), MOST_BYTES, FIX)
    if isinstance(document, list) or "gpu_data" in document:
        return _amd_smi(path, document)
    return _rocm_smi(path, document)


def _rocm_smi(path: Path, document: Mapping[str, Any]) -> _Read:
    read = _Read("rocm-smi")
    for key, values in document.items():
        card = _CARD.fullmatch(key)
        if not isinstance(values, Mapping):
            raise BadCapture(f"{path}: {key[:60]} is no map of values", FIX)
        if card:
            read.values.append((int(card[1]), values))
    _system(document.get("system", {}), read)
    return read


def _system(values: Mapping[str, Any], read: _Read) -> None:
    """The driver's version and the links between devices. Processes and serial numbers are nobody's business."""
    links: dict[tuple[int, int], dict[str, str]] = {}
    for key, value in values.items():
        found = _LINK.fullmatch(key)
        if found and isinstance(value, str):
            links.setdefault((int(found[2]), int(found[3])), {})[found[1]] = value
    read.links = [(*pair, link) for pair, link in links.items()]
    driver = values.get("Driver version")
    read.metadata = {"driver_version": driver} if isinstance(driver, str) else {}


def _links(links: list[tuple[int, int, dict[str, str]]]) -> pa.Table:
    """Each pair of devices, in the direction the tool lists it; the link is alike both ways."""
    numbers = {name: [int(link[name]) if link.get(name, "").isdecimal() else None for _, _, link in links]
               for name in ("Weight", "Hops")}
    return DEVICE_LINKS.build(
        src_device=[one for one, _, _ in links], dst_device=[other for _, other, _ in links],
        kind=[link["Link type"].lower() if "Link type" in link else None for _, _, link in links],
        weight=numbers["Weight"], hops=numbers["Hops"])


def _amd_smi(path: Path, document: Any) -> _Read:
    read = _Read("amd-smi")
    entries = document["gpu_data"] if isinstance(document, Mapping) else document
    for entry in entries if isinstance(entries, list) else [None]:
        if not isinstance(entry, Mapping) or type(entry.get("gpu")) is not int:
            raise BadCapture(f"{path}: a device without its number", FIX)
        read.values.append((entry["gpu"], entry))
    return read


def _text(path: Path) -> _Read:
    """The text of rocm-smi: lines `GPU[0] : key: value`, of a repeated key the first."""
    read, cards = _Read("rocm-smi"), dict[int, dict[str, str]]()
    for line in jsonfile.content(path, MOST_BYTES).decode("utf-8", "replace").splitlines():
        found = _LINE.fullmatch(line)
        if found:
            cards.setdefault(int(found[1]), {}).setdefault(found[2], found[3])
        elif line.startswith("Driver version: "):
            read.metadata["driver_version"] = line.removeprefix("Driver version: ").strip()
    read.values.extend(cards.items())
    return read
