"""XLA's profile (XSpace, *.xplane.pb), read in bounded memory: the file is walked field by field, events in stretches.

A space holds planes (a host, a device), a plane lines (a thread, a stream), a line events. The names of events and the
meaning of their numbers are in tables of the plane, after its lines. So each plane is walked twice.
Source of the fields: tsl/profiler/protobuf/xplane.proto of openxla/xla.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from msgspec import Struct, field

from aaco.core.errors import BadCapture
from aaco.profiler.io import protos
from aaco.profiler.io.readable import readable

FIX = "record it again: jax.profiler.trace(FOLDER), and check that it was copied whole"
CHUNK_BYTES = 1 << 20
LONGEST_FIELD_BYTES = 64 << 20  # of one event, name or statistic; planes and lines may be of any size
LOOKED_AT = 4096
# The syntax is that of protos.py.
MESSAGES = {
    "Line": "id 1 int64, display_id 10 int64, name 2 bytes, display_name 11 bytes, timestamp_ns 3 int64, "
            "events 4 *Event",
    "Event": "metadata_id 1 int64, offset_ps 2 int64, num_occurrences 5 int64, duration_ps 3 int64, stats 4 *Stat",
    "Stat": "metadata_id 1 int64, double_value 2 double, uint64_value 3 uint64, int64_value 4 int64, "
            "str_value 5 bytes, bytes_value 6 bytes, ref_value 7 uint64",
    "Plane": "id 1 int64, name 2 bytes, event_metadata 4 *EventEntry, stat_metadata 5 *StatEntry, stats 6 *Stat",
    "EventEntry": "key 1 int64, value 2 EventMetadata",
    "EventMetadata": "name 2 bytes, display_name 4 bytes",
    "StatEntry": "key 1 int64, value 2 StatMetadata",
    "StatMetadata": "name 2 bytes",
}
PLANES, LINES, EVENTS = 1, 3, 4
VALUES = ("double_value", "uint64_value", "int64_value", "str_value", "ref_value")
Stretch = tuple[int, int]


class XspaceLine(Struct, frozen=True):
    """A thread of a host or a stream of a device, and the places of its events in the file."""

    id: int
    name: str
    timestamp_ns: int
    events: tuple[Stretch, ...]


class XspacePlane(Struct):
    """A host or a device. events: names by number; stats: names of statistics; own_stats: statistics of the plane
    itself.
    """

    name: str
    lines: list[Stretch] = field(default_factory=list)
    events: dict[int, str] = field(default_factory=dict)
    stats: dict[int, str] = field(default_factory=dict)
    own_stats: dict[str, Any] = field(default_factory=dict)

    def values(self, stats: Any) -> dict[str, Any]:
        """Return the statistics of an event, by their names."""
        return {self.stats.get(stat.metadata_id, ""): self._value_of(stat) for stat in stats}

    def _value_of(self, stat: Any) -> Any:
        for name in VALUES:
            if stat.HasField(name):
                field_value = getattr(stat, name)
                if name == "ref_value":
                    return self.stats.get(field_value)
                return field_value.decode("utf-8", "replace") if name == "str_value" else field_value
        return None


class XspaceFile:
    """An open file. Use it in a `with`."""

    def __init__(self, path: Path, text: mmap.mmap) -> None:
        self.path, self._text = path, text

    def planes(self) -> Iterator[XspacePlane]:
        """Yield every plane with its tables. Raise BadCapture."""
        for number, start, end in self._fields(0, len(self._text)):
            if number == PLANES:
                yield self._read_plane(start, end)

    def line(self, stretch: Stretch) -> XspaceLine:
        """Return a line, without its events. Raise BadCapture."""
        kept, events = b"", list[Stretch]()
        field_start = stretch[0]
        for number, start, end in self._fields(*stretch):
            if number != EVENTS:
                kept += self._bytes(field_start, end)
            elif events and events[-1][1] == field_start and end - events[-1][0] <= CHUNK_BYTES:
                events[-1] = (events[-1][0], end)
            else:
                self._bytes(start, end)
                events.append((field_start, end))
            field_start = end
        message = self._parse_message("Line", kept, stretch[0])
        name = (message.display_name or message.name).decode("utf-8", "replace")
        return XspaceLine(message.id, name, message.timestamp_ns, tuple(events))

    def events(self, line: XspaceLine) -> Iterator[list[Any]]:
        """Yield the events of a line in stretches, in the order of the file. Raise BadCapture."""
        for start, end in line.events:
            yield list(self._parse_message("Line", self._text[start:end], start).events)

    def _read_plane(self, start: int, end: int) -> XspacePlane:
        kept, lines, field_start = bytearray(), list[Stretch](), start
        for number, begin, stop in self._fields(start, end):
            if number == LINES:
                lines.append((begin, stop))
            else:
                kept += self._bytes(field_start, stop)
            field_start = stop
        message = self._parse_message("Plane", bytes(kept), start)
        events = {entry.key: (entry.value.display_name or entry.value.name).decode("utf-8", "replace")
                  for entry in message.event_metadata}
        stats = {entry.key: entry.value.name.decode("utf-8", "replace") for entry in message.stat_metadata}
        plane = XspacePlane(message.name.decode("utf-8", "replace"), lines, events, stats)
        plane.own_stats = plane.values(message.stats)
        return plane

    def _parse_message(self, name: str, text: bytes, at: int) -> Any:
        try:
            return _classes()[name].FromString(text)
        except DecodeError as error:
            raise self._bad(at, f"no {name.lower()} of an XLA profile: {error}") from error

    def _bytes(self, start: int, end: int) -> bytes:
        if end - start > LONGEST_FIELD_BYTES:
            raise self._bad(start, f"a field of more than {LONGEST_FIELD_BYTES >> 20} MiB")
        return self._text[start:end]

    def _fields(self, at: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield number, begin and end of the content of every field of a message from `at` to `end`."""
        while at < end:
            window = self._text[at:min(at + 20, end)]
            tag, used = protos.varint(window, 0)
            size, start = _find_content(window, tag & 7, used)
            if not used or not tag >> 3 or start < 0 or at + start + size > end:
                raise self._bad(at, "truncated, or not an XLA profile")
            yield tag >> 3, at + start, at + start + size
            at += start + size

    def _bad(self, at: int, what: str) -> BadCapture:
        return BadCapture(f"{self.path}: byte {at}: {what}", FIX)


@contextmanager
def opened(path: Path) -> Iterator[XspaceFile]:
    """Yield the file, mapped into memory. Raise BadCapture."""
    try:
        with readable(path), path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            yield XspaceFile(path, text)
    except ValueError as error:  # mmap of an empty file
        raise BadCapture(f"{path}: {error}", FIX) from error


def begins(head: bytes) -> bool:
    """Return whether a file begins with a plane of XLA's names: /host:CPU, /device:GPU:0, Task Environment."""
    if head[:1] != b"\x0a":
        return False
    _, at = protos.varint(head, 1)
    while at and at < len(head):
        tag, used = protos.varint(head, at)
        size, start = _find_content(head, tag & 7, used)
        if not used or start < 0 or tag >> 3 not in (1, 2):
            return False
        if tag == 0x12:
            return head[start:start + size].startswith((b"/host:", b"/device:", b"Task Environment"))
        at = start + size
    return False


def _find_content(text: bytes, kind: int, at: int) -> tuple[int, int]:
    """Return size and begin of a field's content; -1 for the begin if there is none."""
    if kind == 0:
        _, end = protos.varint(text, at)
        return end - at, at if end else -1
    if kind == 2:
        size, start = protos.varint(text, at)
        return size, start or -1
    return {1: (8, at), 5: (4, at)}.get(kind, (0, -1))


@cache
def _classes() -> dict[str, Any]:
    return protos.classes("aaco.xspace", MESSAGES)
