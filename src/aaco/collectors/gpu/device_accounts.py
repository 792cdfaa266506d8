"""What the recorders of devices say of their recordings: the source, the rate, what was lost, which devices were seen.

Whoever reads an account needs no driver and no vendor's library.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from aaco.core.words import in_percent

PACKAGES = "packages"  # the processor's, in place of a vendor
EVERY = -1  # all devices: a tool that fails reports none
MOST_ACCOUNT_BYTES = 1 << 20


def why_no_packages(folder: Path) -> str:
    """Return why the energy of the processor's packages was not recorded; empty if it was, or was not to be."""
    for path in folder.glob(f"{PACKAGES}.jsonl"):
        for line in _read_account(path):
            if line["event"] == "none" and isinstance(line.get("why_not"), dict):
                return "; ".join(map(str, line["why_not"].values()))
    return ""


def visible(folder: Path) -> dict[str, Any]:
    """Return which NVIDIA devices the run saw (collectors/gpu/visible.py); empty if that was not recorded."""
    visibilities = [line["visible"] for path in sorted(folder.glob("nvidia.jsonl")) for line in _read_account(path)
                    if line["event"] == "recording" and isinstance(line.get("visible"), dict)]
    return visibilities[0] if visibilities else {}


def account_notes(folder: Path, gpu_events: pa.Table | None) -> Iterator[str]:
    """Yield the notes of a folder's accounts for a reader: the source, the rate, and what was lost."""
    for path in sorted(folder.glob("*.jsonl")):
        lines = list(_read_account(path))
        begun = next((line for line in lines if line["event"] == "recording"), None)
        if begun is None:
            yield from (f"{line.get('vendor', 'a device')}: {line['why']}" for line in lines if "why" in line)
            continue
        yield from _recording_notes(begun, lines, gpu_events)


def _recording_notes(begun: dict[str, Any], lines: list[dict[str, Any]], gpu_events: pa.Table | None) -> Iterator[str]:
    source = str(begun.get("source"))
    for line in lines:
        if line["event"] == "ended":
            yield _overhead_note(source, line)
        elif line["event"] == "lost":
            which = "every device" if line.get("device") == EVERY else f"device {line.get('device')}"
            after = (line["t_ns"] - begun["t_ns"]) / 1e9
            yield f"{which} was lost to {source} {after:.1f} s into the recording: {line.get('why')}"
        elif "why" in line:
            yield f"the recorder of {source} {line['why']}{_end_note(begun['t_ns'], gpu_events)}"
    if not any(line["event"] in ("ended", "silent", "failed") for line in lines):
        yield f"the recorder of {source} was not ended: killed with the run{_end_note(begun['t_ns'], gpu_events)}"
    yield from (f"device {device}: {why}" for device, why in begun.get("unread") or ())
    for passed, why in (begun.get("why_not") or {}).items():
        yield f"{passed} was passed over for {source}: {why}"


def _overhead_note(source: str, line: dict[str, Any]) -> str:
    """Return the rate of samples and of new values, and the cost."""
    if not line.get("rate_hz"):
        return f"devices were read by {source}, once"
    news = f", with news {line['news_rate_hz']:.1f} times" if line.get("news_rate_hz") is not None else ""
    share = 100 * line["cpu_s"] / line["wall_s"]
    return (f"devices were read by {source} {line['rate_hz']:.1f} times a second ({line['asked_rate_hz']:g} asked)"
            f"{news}, for {in_percent(share)} of one CPU")


def _end_note(begun_ns: int, gpu_events: pa.Table | None) -> str:
    if gpu_events is None or not gpu_events.num_rows:
        return "; nothing was read"
    last = max(filter(None, gpu_events["t_ns"].to_pylist()), default=begun_ns)
    return f"; what it read ends {(last - begun_ns) / 1e9:.1f} s into the recording"


def _read_account(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the whole, valid lines of an account; a torn last one is left out."""
    with path.open("rb") as file:
        content = file.read(MOST_ACCOUNT_BYTES)
    for text in content.splitlines():
        with suppress(ValueError, RecursionError):
            line = json.loads(text)
            if isinstance(line, dict) and isinstance(line.get("event"), str) and type(line.get("t_ns")) is int:
                yield line
