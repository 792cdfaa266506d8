"""Perfetto's TrackEvent protobuf, written from columns: whole arrays of packets at a time, no object per event.

Field numbers are those of perfetto_trace.proto (TracePacket, TrackEvent, TrackDescriptor, InternedData,
DebugAnnotation). A varint may be written with more bytes than it needs, so numbers of one column take the same width
and a class of packets is a byte matrix; the matrices are copied into one buffer in the order the packets must have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from aaco.core.arrays import Ints, UInts8

SEQUENCE = 1  # all packets are of one trusted sequence, whose interned names they share
_CLEARED, _NEEDS = 1, 2  # sequence_flags: incremental state begins here; this packet needs it
_BEGIN, _END, _COUNTER = 1, 2, 4  # TrackEvent.Type
PIECE = 1 << 17  # packets laid out at a time: bounds memory
Annotations = Mapping[str, Ints]


class Slices(Struct, frozen=True):
    """Slices of many tracks. Per slice: track uuid, begin and end (ns), name (code in `names`), and optionally flow ids
    to begin or pass (`flows`), one to end (`flow_end`), 0 for none; `notes`: whole numbers shown with it, -1 for none.

    begin_order, end_order: positions among all 2n begins and ends; at equal times a viewer takes them in this order.
    """

    track: Ints
    begin: Ints
    end: Ints
    name: Ints
    names: Sequence[str]
    begin_order: Ints
    end_order: Ints
    flows: Sequence[Ints] = ()
    flow_end: Ints | None = None
    notes: Annotations | None = None


class Writer:
    """Writes packets to an open binary file."""

    def __init__(self, file: IO[bytes], made_by: str = "") -> None:
        """made_by: written first, as the metadata that Chrome writes (chrome_events.metadata)."""
        self._file = file
        self._names: dict[str, int] = {}
        self._notes: dict[str, int] = {}
        file.write(_packet(_field(10, SEQUENCE) + _field(13, _CLEARED)))
        if made_by:
            file.write(_packet(_message(5, _message(2, _text(1, "made_by") + _text(2, made_by)))))

    def process(self, uuid: int, pid: int, name: str) -> None:
        """Declare a process: the head of a group of tracks."""
        self._track(uuid, _message(3, _field(1, pid) + _text(6, name)))

    def group(self, uuid: int, name: str) -> None:
        """Declare a head of a group of tracks that is no process."""
        self._track(uuid, _text(2, name))

    def track(self, uuid: int, parent: int, name: str) -> None:
        """Declare a track below another."""
        self._track(uuid, _text(2, name) + _field(5, parent))

    def counter(self, uuid: int, parent: int, name: str, unit: str) -> None:
        """Declare a track of values."""
        self._track(uuid, _text(2, name) + _field(5, parent) + _message(8, _text(6, unit) if unit else b""))

    def slices(self, slices: Slices) -> None:
        """Write slices; their tracks must be declared."""
        iids = self._intern(slices)
        order = np.concatenate((slices.begin_order, slices.end_order))
        for rows in _pieces(np.argsort(order, kind="stable"), PIECE):
            count = len(slices.begin)
            begins, ends = rows[rows < count], rows[rows >= count] - count
            place = np.argsort(np.argsort(order[rows], kind="stable"), kind="stable")
            self._lay(len(rows), [*self._begins(slices, begins, iids, place[rows < count]),
                                  (_ends(slices, ends), place[rows >= count])])

    def values(self, track: int, times: Ints, values: NDArray[np.float64]) -> None:
        """Write values of a counter track, in time order."""
        doubles = np.ascontiguousarray(values, "<f8").view(np.uint8).reshape(-1, 8)
        event = _rows(len(times), [_field(9, _COUNTER) + _field(11, track), _tag(44, 1), doubles])
        self._file.write(_packets(times, event).tobytes())

    def _track(self, uuid: int, fields: bytes) -> None:
        self._file.write(_packet(_message(60, _field(1, uuid) + fields)))

    def _intern(self, slices: Slices) -> Ints:
        """The interned id of each of the slices' names; new ones are written."""
        fresh = [name for name in dict.fromkeys(slices.names) if name not in self._names]
        fresh_notes = [name for name in slices.notes or () if name not in self._notes]
        for table, added in ((self._names, fresh), (self._notes, fresh_notes)):
            table.update({name: len(table) + 1 + index for index, name in enumerate(added)})
        body = b"".join(_message(2, _field(1, self._names[name]) + _text(2, name)) for name in fresh)
        body += b"".join(_message(3, _field(1, self._notes[name]) + _text(2, name)) for name in fresh_notes)
        if body:
            self._file.write(_packet(_field(10, SEQUENCE) + _field(13, _NEEDS) + _message(12, body)))
        return np.array([self._names[name] for name in slices.names], np.int64)

    def _begins(self, slices: Slices, rows: Ints, iids: Ints, place: Ints) -> Iterable[tuple[UInts8, Ints]]:
        """Packets that begin slices, one matrix for each combination of what they carry, and their places."""
        carried = np.zeros(len(rows), np.int64)
        extras: list[tuple[bytes, Ints, Literal["fixed", "note"]]] = []
        extras += [(_tag(47, 1), column, "fixed") for column in slices.flows]
        extras += [(_tag(48, 1), slices.flow_end, "fixed")] if slices.flow_end is not None else []
        extras += [(_field(1, self._notes[name]), column, "note") for name, column in (slices.notes or {}).items()]
        for bit, (_, column, kind) in enumerate(extras):
            carried |= (column[rows] > 0 if kind == "fixed" else column[rows] >= 0).astype(np.int64) << bit
        for combination in np.unique(carried).tolist():
            has_combination = carried == combination
            these = rows[has_combination]
            parts: list[bytes | UInts8] = [_field(9, _BEGIN) + _tag(10, 0), _varints(iids[slices.name[these]]),
                                           _tag(11, 0), _varints(slices.track[these])]
            for bit, (head, column, kind) in enumerate(extras):
                if combination >> bit & 1:
                    parts += _extra(head, column[these], kind)
            yield _packets(slices.begin[these], _rows(len(these), parts)), place[has_combination]

    def _lay(self, count: int, classes: Iterable[tuple[UInts8, Ints]]) -> None:
        """Write byte matrices so that the packet with place p is the p-th."""
        present = [(matrix, place) for matrix, place in classes if len(matrix)]
        widths = np.zeros(count, np.int64)
        for matrix, place in present:
            widths[place] = matrix.shape[1]
        starts = np.cumsum(widths) - widths
        buffer = np.empty(int(widths.sum()), np.uint8)
        for matrix, place in present:
            buffer[starts[place][:, None] + np.arange(matrix.shape[1])] = matrix
        self._file.write(buffer.tobytes())


def _ends(slices: Slices, rows: Ints) -> UInts8:
    event = _rows(len(rows), [_field(9, _END) + _tag(11, 0), _varints(slices.track[rows])])
    return _packets(slices.end[rows], event)


def _extra(head: bytes, column: Ints, kind: Literal["fixed", "note"]) -> list[bytes | UInts8]:
    if kind == "fixed":
        return [head, np.ascontiguousarray(column, "<i8").view(np.uint8).reshape(-1, 8)]
    value = _varints(column)
    size = len(head) + 1 + value.shape[1]
    return [_tag(4, 2) + _varint(size) + head + _tag(3, 0), value]


def _packets(times: Ints, event: UInts8) -> UInts8:
    """TracePackets around TrackEvents, one row each."""
    stamp = _varints(times)
    head = _field(10, SEQUENCE) + _field(13, _NEEDS) + _tag(11, 2) + _varint(event.shape[1])
    size = 1 + stamp.shape[1] + len(head) + event.shape[1]
    return _rows(len(times), [_tag(1, 2) + _varint(size) + _tag(8, 0), stamp, head, event])


def _rows(count: int, parts: Sequence[bytes | UInts8]) -> UInts8:
    """Return the parts side by side; bytes are repeated in every row."""
    whole = [np.broadcast_to(np.frombuffer(part, np.uint8), (count, len(part))) if isinstance(part, bytes) else part
             for part in parts]
    return np.hstack(whole)


def _varints(values: Ints) -> UInts8:
    """Varints of one width, the least that the largest needs; negative numbers are not written."""
    width = max(1, -(-int(values.max(initial=0)).bit_length() // 7))
    shifted = values.astype(np.uint64)[:, None] >> (7 * np.arange(width, dtype=np.uint64))
    groups = (shifted & np.uint64(127)).astype(np.uint8)
    groups[:, :-1] |= 128
    return groups


def _varint(value: int) -> bytes:
    return _varints(np.array([value])).tobytes()


def _tag(field: int, wire: int) -> bytes:
    return _varint(field << 3 | wire)


def _field(field: int, value: int) -> bytes:
    return _tag(field, 0) + _varint(value)


def _message(field: int, body: bytes) -> bytes:
    return _tag(field, 2) + _varint(len(body)) + body


def _text(field: int, text: str) -> bytes:
    return _message(field, text.encode(errors="replace"))


def _packet(body: bytes) -> bytes:
    return _message(1, body)


def _pieces(rows: Ints, most: int) -> Iterable[Ints]:
    return (rows[at:at + most] for at in range(0, len(rows), most))
