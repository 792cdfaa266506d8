"""What every report says of imported captures: where they come from, what is in them, and how much of it was used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aaco.analytics.explanation import Explanation
from aaco.core import tables
from aaco.report import format
from aaco.report.rows import Row
from aaco.report.sections import start_skew

SHOWN = 8  # captures listed one by one
NOUNS = {"kernels": "Kernels", "copies": "Copies", "api_calls": "Host calls", "counters": "Counters",
         "collectives": "Collectives", "allocations": "Allocations", "samples": "Samples", "gpu_events": "GPU samples",
         "wave_instructions": "Instructions"}
SUMMED = ("kernels", "copies")  # calls lie inside each other: their times do not add up to anything


def rows(explanation: Explanation) -> list[Row]:
    """The captures, their devices, and the rows of each table with their summed time."""
    captures = explanation.captures["captures"]
    found = [Row(f"Capture {one['index']}" if len(captures) > 1 else "Capture", _capture(one))
             for one in captures[:SHOWN]]
    if len(captures) > SHOWN:
        found.append(Row("More captures", f"{len(captures) - SHOWN}, in profiler/captures.json"))
    return [*found, *_devices(captures), *_tables(captures, start_skew.note_of_all(explanation))]


def _capture(one: Mapping[str, Any]) -> str:
    name = format.name(Path(one["files"][0]["path"]).name, 40)
    tool = f"{one['tool']} {one['tool_version'] or ''}".strip() if one["tool"] else one["format"]
    part = one.get("part") or ("" if one["rank"] is None else f"rank {one['rank']}")
    rank = f", {format.name(part, 40)}" if part else ""
    span = f", {format.duration(one['span_ns'][1] - one['span_ns'][0])}" if one["span_ns"] else ""
    return f"{name} ({tool}{rank}{span})"


def _devices(captures: list[dict[str, Any]]) -> Iterator[Row]:
    known = dict.fromkeys(device.get("name") or device.get("arch") for one in captures for device in one["devices"])
    if named := [format.name(name, 40) for name in known if name]:
        yield Row("Devices", ", ".join(named[:SHOWN]))


def _tables(captures: list[dict[str, Any]], waits: str) -> Iterator[Row]:
    for name in tables.ALL:
        parts = [one["tables"][name] for one in captures if name in one["tables"]]
        if parts:
            count, ns = (sum(part[each] for part in parts) for each in ("rows", "ns"))
            fills, fill_ns = (sum(part.get(each, 0) for part in parts) for each in ("fills", "fill_ns"))
            label = NOUNS.get(name, name.replace("_", " ").capitalize())
            if count > fills:
                summed = _summed(count - fills, ns - fill_ns, name in SUMMED)
                yield Row(label, f"{summed}, {waits}" if waits and name == "kernels" else summed)
            if fills:
                yield Row("Fills (memset)", _summed(fills, fill_ns, name in SUMMED))


def _summed(count: int, ns: int, timed: bool) -> str:
    if not timed:
        return f"{count:,}"
    return f"{count:,}, {format.duration(ns)} in all" if ns else f"{count:,} without a time"
