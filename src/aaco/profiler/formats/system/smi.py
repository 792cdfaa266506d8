"""The output of rocm-smi and amd-smi: one row of gpu_events per device, and the devices themselves.

rocm-smi (--json, or its text) prints for each card a flat map of strings, whose keys depend on the version and hold
the unit: {"card0": {"Average Graphics Package Power (W)": "35.0", "sclk clock speed:": "(1500Mhz)"}}. amd-smi (metric,
static or list, --json) prints for each device nested sections of {"value": 35, "unit": "W"}; before ROCm 7 as a bare
list, and after its CPU data if it has any.
Any value may be "N/A". A value is read with its unit or not at all: an unreadable value is a named problem and never 0.
amd-smi prints the time of a sample in seconds (--watch, --file), the other tool none: then t_ns is null. A watched tool
prints document after document, and text before them: each is read, and the text is named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec import Struct, field

from aaco.core.errors import BadCapture
from aaco.core.tables import DEVICE_LINKS, GPU_EVENTS
from aaco.profiler.capture import CapturedDevice, CaptureFacts, Subtotal
from aaco.profiler.io import jsonfile

FORMAT = "smi"
MOST_BYTES = 64 << 20
FIX = "record it again: rocm-smi -a --json, or amd-smi metric --json"
STATIC = "device: described without telemetry"
AGAIN = "device: printed again, word for word"
BANNER = "'CTRL' + 'C' to stop watching output:"
LONGEST, MOST_TOLD = 120, 20
# Units as the tools spell them, with the factor to ours. amd-smi's MB and KB are 2^20 and 2^10.
UNITS: dict[str, dict[str, float]] = {
    "pct": {"%": 1}, "c": {"c": 1, "\N{DEGREE SIGN}c": 1}, "w": {"w": 1, "mw": 1e-3, "uw": 1e-6},
    "j": {"j": 1, "mj": 1e-3, "uj": 1e-6}, "mhz": {"mhz": 1, "ghz": 1000},
    "bytes": {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30},
}
# Column, unit, and its keys: the first of them that has a value counts.
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
_JSON = re.compile(rb'^\s*(\{\s*"(card\d+|system|(?:cpu|core|gpu)_data)"\s*:|'
                   rb'\[\s*\{\s*("timestamp"\s*:\s*[^,{}]{1,40},\s*)?"gpu"\s*:)', re.MULTILINE)
_DOCUMENT = re.compile(r"\A\s*(?=[\[{])|^(?=[\[{])", re.MULTILINE)  # where one may begin
_TITLE = b"ROCm System Management Interface"


class _SmiReadings(Struct):
    """The readings of each device, by its number, in the order of the file. Several samples are several entries."""

    tool: str
    values: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)
    links: list[tuple[int, int, dict[str, str]]] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    repeated: int = 0


def recognises(path: Path) -> bool:
    """Return whether the file begins as one of the two tools prints."""
    head = jsonfile.head(path, 4096).removeprefix(b"\xef\xbb\xbf")
    return _JSON.search(head) is not None or (_TITLE in head and b"\nGPU[" in head)


def parse(path: Path) -> Iterator[pa.Table | CaptureFacts]:
    """Yield gpu_events, a row per device with telemetry, device_links, and facts with every device. Raise BadCapture.
    """
    readings = _read_file(path)
    columns = ROCM_SMI if readings.tool == "rocm-smi" else AMD_SMI
    rows = [(device, values, _build_row(device, values, columns, readings.problems))
            for device, values in readings.values]
    measured = [device_row for device_row in rows if any(reading is not None for reading in device_row[2].values())]
    with jsonfile.sound(path, FIX):
        yield GPU_EVENTS.build(
            t_ns=[_time_ns(values) for _, values, _ in measured],
            device_id=[device for device, _, _ in measured], source=[readings.tool] * len(measured),
            throttle_reasons=[_throttle_reasons(values) for _, values, _ in measured],
            **{name: [row[name] for _, _, row in measured] for name, _, _ in columns})
        yield _build_links(readings.links)
    static_count = len(rows) - len(measured)
    described = {device: _build_device(device, values, row, readings.problems) for device, values,
                 row in reversed(rows)}
    left_out = {STATIC: static_count, AGAIN: readings.repeated}
    yield CaptureFacts(
        format=FORMAT, tool=readings.tool, metadata=readings.metadata,
        clock="realtime" if any(_time_ns(values) is not None for _, values, _ in measured) else "unknown",
        records={"device": len(rows) + readings.repeated, "link": len(readings.links)},
        left_out={reason: Subtotal(count, 0) for reason, count in left_out.items() if count},
        devices=tuple(described[device] for device in sorted(described)), problems=tuple(readings.problems))


def gpu_events(path: Path) -> pa.Table:
    """Return only the telemetry. Raise BadCapture."""
    return next(part for part in parse(path) if isinstance(part, pa.Table))


def quantity(value: Any, unit: str, key: str = "") -> float | None:
    """Return a value in `unit` (a key of UNITS), as integer if the text is one; None if the tool has no value.

    value: a number or text with its unit, in itself, next to it ({"value": 1, "unit": "W"}) or at the end of `key`.
    Raise ValueError for any other value.
    """
    key_unit = _KEY_UNIT.search(key)
    text, value_unit = (value.get("value"), value.get("unit")) if isinstance(value, Mapping) else (value, None)
    if text is None or (isinstance(text, str) and _ABSENT.match(text.strip())):
        return None
    match = _CLOCK.fullmatch(str(text).strip()) or _PLAIN.fullmatch(str(text).strip())
    if isinstance(text, bool) or match is None:
        raise ValueError(f"{str(text)[:60]!r} is no number")
    units = (match[2].strip(), value_unit.strip() if isinstance(value_unit, str) else "",
             key_unit[1].strip() if key_unit else "")
    spelling = next(filter(None, units), "").lower()
    if spelling not in UNITS[unit]:
        raise ValueError(f"{str(text)[:60]!r} is in {spelling or 'no unit'}, not {unit}")
    return (float(match[1]) if "." in match[1] else int(match[1])) * UNITS[unit][spelling]


def _time_ns(values: Mapping[str, Any]) -> int | None:
    """Return when a sample was taken, ns since 1970; None if the tool does not say it in seconds."""
    seconds = values.get("timestamp")
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 < seconds < 1 << 33:
        return None
    return round(seconds * 1_000_000_000)


def _build_row(device: int, values: Mapping[str, Any], columns: tuple[tuple[str, str, tuple[str, ...]], ...],
               problems: list[str]) -> dict[str, float | int | None]:
    row: dict[str, float | int | None] = {}
    for name, unit, keys in columns:
        row[name] = None
        for key in keys:
            try:
                number = quantity(_value_at(values, key), unit, key)
            except ValueError as error:
                problems.append(f"device {device}: {key}: {error}")
                continue
            if number is not None:
                row[name] = int(number) if name in INTEGERS else number
                break
    return row


def _value_at(values: Mapping[str, Any], key: str) -> Any:
    """Return the value of a key; of a dotted one, through the sections it names."""
    if key in values:
        return values[key]
    section: Any = values
    for part in key.split("."):
        section = section.get(part) if isinstance(section, Mapping) else None
    return section


def _build_device(device: int, values: Mapping[str, Any], row: Mapping[str, float | int | None],
                  problems: list[str]) -> CapturedDevice:
    units, total = _value_at(values, "asic.num_compute_units"), row["vram_total_bytes"]
    if total is None:
        try:
            total = quantity(_value_at(values, "vram.size"), "bytes")
        except ValueError as error:
            problems.append(f"device {device}: vram.size: {error}")
    return CapturedDevice(device, _first_name(values, NAMES), _first_name(values, ARCHS),
                          units if type(units) is int else None,
                          None if total is None else int(total))


def _first_name(values: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    """Return the name under the first key that holds one: rocm-smi writes bare identifiers for names not in its list.
    """
    for key in keys:
        name = _value_at(values, key)
        if isinstance(name, str) and not _ABSENT.match(name.strip()) and not name.startswith("0x"):
            return name
    return None


def _throttle_reasons(values: Mapping[str, Any]) -> list[str] | None:
    """Return the reasons that limit the clock, as amd-smi names them; None if it does not state them."""
    throttle = _value_at(values, "throttle")
    if not isinstance(throttle, Mapping):
        return None
    state_by_reason = {key.removesuffix("_violation_status"): state for key, state in throttle.items()
                       if state in ("ACTIVE", "NOT ACTIVE")}
    return [key for key, state in state_by_reason.items() if state == "ACTIVE"] if state_by_reason else None


def _read_file(path: Path) -> _SmiReadings:
    if _TITLE in jsonfile.head(path, 4096):
        return _read_text(path)
    documents, problems = _read_documents(path)
    is_amd_smi = isinstance(documents[0], list) or "gpu_data" in documents[0]
    readings = _SmiReadings("amd-smi" if is_amd_smi else "rocm-smi", problems=problems)
    for number, document in enumerate(documents):
        before = len(readings.values)
        (_read_amd_smi if is_amd_smi else _read_rocm_smi)(path, document, readings)
        if number and document == documents[number - 1]:  # a later sample would tell another time, or other values
            readings.repeated += len(readings.values) - before
            del readings.values[before:]
    return readings


def _read_documents(path: Path) -> tuple[list[Any], list[str]]:
    """Return the documents of a file, at least one, and problems for other text in it. Raise BadCapture."""
    text, at, problems = jsonfile.text(path, MOST_BYTES, FIX), 0, list[str]()
    documents, failed = list[Any](), ""
    while begin := _DOCUMENT.search(text, at):
        problems += _beside(text[at:begin.start()])
        try:
            document, at = json.JSONDecoder().raw_decode(text, begin.end())
            documents.append(document)
        except (ValueError, RecursionError) as error:
            failed, at = str(error), text.find("\n", begin.end()) + 1 or len(text)
            problems.append(f"what stands at byte {begin.end()} is no JSON, or cut short: {error}")
        if text[at:at + 1] in ("[", "{"):
            text = f"{text[:at]}\n{text[at:]}"
    if not documents:
        raise BadCapture(f"{path}: not the JSON that belongs there, or cut short: {failed}", FIX)
    problems += _beside(text[at:])
    more = [f"{len(problems) - MOST_TOLD} more lines beside the JSON"] if len(problems) > MOST_TOLD else []
    return documents, problems[:MOST_TOLD] + more


def _beside(text: str) -> list[str]:
    """Return a problem for each line of a text between the documents, except the banner of the tool."""
    lines = (line.strip() for line in text.splitlines())
    return [f"text beside the JSON: {line[:LONGEST]}" for line in lines if line and line != BANNER]


def _read_rocm_smi(path: Path, document: Mapping[str, Any], readings: _SmiReadings) -> None:
    for key, values in document.items():
        card = _CARD.fullmatch(key)
        if not isinstance(values, Mapping):
            raise BadCapture(f"{path}: {key[:60]} is no map of values", FIX)
        if card:
            readings.values.append((int(card[1]), values))
    _read_system(document.get("system", {}), readings)


def _read_system(values: Mapping[str, Any], readings: _SmiReadings) -> None:
    """Read the driver's version and the links between devices. Processes and serial numbers are private and not read.
    """
    links: dict[tuple[int, int], dict[str, str]] = {}
    for key, text in values.items():
        match = _LINK.fullmatch(key)
        if match and isinstance(text, str):
            links.setdefault((int(match[2]), int(match[3])), {})[match[1]] = text
    readings.links = [(*pair, link) for pair, link in links.items()]
    driver = values.get("Driver version")
    readings.metadata = {"driver_version": driver} if isinstance(driver, str) else {}


def _build_links(links: list[tuple[int, int, dict[str, str]]]) -> pa.Table:
    """Return each pair of devices, in the direction the tool lists it; the link is the same both ways."""
    numbers = {name: [int(link[name]) if link.get(name, "").isdecimal() else None for _, _, link in links]
               for name in ("Weight", "Hops")}
    return DEVICE_LINKS.build(
        src_device=[source for source, _, _ in links], dst_device=[target for _, target, _ in links],
        kind=[link["Link type"].lower() if "Link type" in link else None for _, _, link in links],
        weight=numbers["Weight"], hops=numbers["Hops"])


def _read_amd_smi(path: Path, document: Any, readings: _SmiReadings) -> None:
    devices = document["gpu_data"] if isinstance(document, Mapping) else document
    for device in devices if isinstance(devices, list) else [None]:
        if not isinstance(device, Mapping) or type(device.get("gpu")) is not int:
            raise BadCapture(f"{path}: a device without its number", FIX)
        readings.values.append((device["gpu"], device))


def _read_text(path: Path) -> _SmiReadings:
    """Return the readings of rocm-smi's text: lines `GPU[0] : key: value`, of a repeated key the first."""
    readings, cards = _SmiReadings("rocm-smi"), dict[int, dict[str, str]]()
    for line in jsonfile.content(path, MOST_BYTES).decode("utf-8", "replace").splitlines():
        match = _LINE.fullmatch(line)
        if match:
            cards.setdefault(int(match[1]), {}).setdefault(match[2], match[3])
        elif line.startswith("Driver version: "):
            readings.metadata["driver_version"] = line.removeprefix("Driver version: ").strip()
    readings.values.extend(cards.items())
    return readings
