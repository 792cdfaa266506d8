"""Reads the descriptions of the kernel's trace events from tracefs: the offset of each field differs between kernels.

Documentation/trace/events.rst, "Event formats". A dynamic field (`__data_loc`) holds the place of its content in the
record: the lower 16 bits are its begin, the upper ones its length.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from msgspec import Struct

from aaco.core.errors import BadCapture
from aaco.core.host import Host
from aaco.core.readings import Absent

COMMON_BYTES = 8  # type, flags, preemption count and process: the same in every event
GPU_GROUPS = ("amdgpu", "gpu_scheduler", "dma_fence", "gpu_mem")
# One for each register access, and those of the display: far too many, and nothing about work.
GPU_SKIPPED = frozenset({"amdgpu_device_rreg", "amdgpu_device_wreg", "amdgpu_mm_rreg", "amdgpu_mm_wreg", "amdgpu_iv"})
GPU_FIX = "as root, with the GPU's driver loaded: mount -t tracefs tracefs /sys/kernel/tracing"
_FIELD = re.compile(r"\tfield:(?P<declared>[^;]+);\s*offset:(?P<offset>\d+);\s*size:(?P<size>\d+);"
                    r"\s*signed:(?P<signed>[01]);")
_DECLARED = re.compile(r"(?P<type>.*?)\s*\b(?P<name>\w+)\s*(?P<array>\[[^\]]*\])?")


class Field(Struct, frozen=True):
    """A field of an event's record; `shape` is number, text (an array of char), dynamic (text elsewhere) or bytes."""

    name: str
    shape: str
    offset: int
    size: int
    signed: bool


class TracepointFormat(Struct, frozen=True):
    """An event: its group, name, number on the kernel that wrote it, and its own fields."""

    group: str
    name: str
    number: int
    fields: tuple[Field, ...]
    text: str


def parse_format(group: str, text: str) -> TracepointFormat:
    """Return the event that a `format` file describes, without the fields that all events share. Raise BadCapture."""
    name, number = re.search(r"^name: (\w+)$", text, re.MULTILINE), re.search(r"^ID: (\d+)$", text, re.MULTILINE)
    if not name or not number:
        raise BadCapture(f"{group}: not a format file of tracefs: {text[:40]!r}", "record it again")
    fields = tuple(_field(match) for match in _FIELD.finditer(text) if int(match["offset"]) >= COMMON_BYTES)
    return TracepointFormat(group, name[1], int(number[1]), fields, text)


def _field(match: re.Match[str]) -> Field:
    declared = _DECLARED.fullmatch(match["declared"].strip())
    if not declared:
        raise BadCapture(f"field of a trace event cannot be read: {match['declared'][:40]!r}", "record it again")
    size = int(match["size"])
    return Field(declared["name"], _shape(declared["type"], declared["array"], size), int(match["offset"]), size,
                 match["signed"] == "1")


def _shape(kind: str, array: str | None, size: int) -> str:
    if kind.startswith("__data_loc"):
        return "dynamic" if "char" in kind else "bytes"
    if array is not None:
        return "text" if kind.endswith("char") else "bytes"
    return "number" if size in (1, 2, 4, 8) else "bytes"


def tracefs(host: Host) -> Path:
    """Return the folder where tracefs is mounted and readable. Raise Absent."""
    folders = [host.sys / "kernel/tracing", host.sys / "kernel/debug/tracing"]
    readable = [folder for folder in folders if os.access(folder / "available_events", os.R_OK)]
    if not readable:
        raise Absent(f"{folders[0]}: not mounted, or not readable by this user")
    return readable[0]


def formats(folder: Path, groups: tuple[str, ...]) -> list[TracepointFormat]:
    """Return every event of these groups that the kernel has, in order of group and name; `folder` is tracefs.

    Raise Absent if a file cannot be read.
    """
    try:
        return [parse_format(group, path.read_text(errors="replace"))
                for group in groups for path in sorted((folder / "events" / group).glob("*/format"))]
    except OSError as error:
        raise Absent(f"{error.filename}: {error.strerror}") from error


def gpu_events(host: Host) -> list[TracepointFormat]:
    """Return the events of GPU drivers on this host. Raise Absent if there are none, or they cannot be read."""
    folder = tracefs(host)
    events = [event for event in formats(folder, GPU_GROUPS) if event.name not in GPU_SKIPPED]
    if not {event.group for event in events} - {"dma_fence"}:  # which any kernel has, with or without a GPU
        raise Absent(f"{folder}/events: none of amdgpu, gpu_scheduler, gpu_mem: no such driver is loaded")
    return events
