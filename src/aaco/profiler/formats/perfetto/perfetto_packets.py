"""Perfetto's trace packets, read with protobuf in bounded memory: the file is cut between packets and parsed in pieces.

The messages are declared here with the fields that are read; others are skipped. Field numbers are those of
perfetto_trace.proto (protos/perfetto/trace/*.proto of google/perfetto). Strings are read as bytes, because a trace may
hold text that is not UTF-8. Absent values of annotations have defaults that no tool writes: comparing with these is
cheaper than HasField.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from aaco.core.errors import BadCapture
from aaco.profiler.io import jsonstream, protos

CHUNK_BYTES = 1 << 20
LONGEST_PACKET_BYTES = 16 << 20
FIX = "record it again, and check that it was copied whole"
NO_UINT, NO_INT = (1 << 64) - 1, -(1 << 63)
PACKET = 0x0A  # field 1 of Trace, length-delimited
# The syntax is that of protos.py.
MESSAGES = {
    "Trace": "packet 1 *TracePacket",
    "TracePacket": "timestamp 8 uint64, timestamp_clock_id 58 uint32, trusted_packet_sequence_id 10 uint32, "
                   "sequence_flags 13 uint32, incremental_state_cleared 41 bool, previous_packet_dropped 42 uint32, "
                   "first_packet_on_sequence 87 bool, track_event 11 TrackEvent, track_descriptor 60 TrackDescriptor, "
                   "clock_snapshot 6 ClockSnapshot, interned_data 12 InternedData, "
                   "trace_packet_defaults 59 TracePacketDefaults, trace_stats 35 TraceStats, "
                   "compressed_packets 50 bytes",
    "TracePacketDefaults": "timestamp_clock_id 58 uint32, track_event_defaults 11 TrackEventDefaults",
    "TrackEventDefaults": "track_uuid 11 uint64",
    "TrackEvent": "type 9 int32, track_uuid 11 uint64, name_iid 10 uint64, name 23 bytes, category_iids 3 *uint64, "
                  "categories 22 *bytes, counter_value 30 int64, double_counter_value 44 double, flow_ids 47 *fixed64, "
                  "terminating_flow_ids 48 *fixed64, debug_annotations 4 *DebugAnnotation",
    "DebugAnnotation": "name_iid 1 uint64, name 10 bytes, bool_value 2 bool, "
                       f"uint_value 3 uint64={NO_UINT}, int_value 4 int64={NO_INT}, double_value 5 double=nan, "
                       f"pointer_value 7 uint64={NO_UINT}, string_value 6 bytes, string_value_iid 17 uint64, "
                       "legacy_json_value 9 bytes",
    "TrackDescriptor": "uuid 1 uint64, parent_uuid 5 uint64, name 2 bytes, static_name 10 bytes, "
                       "process 3 ProcessDescriptor, thread 4 ThreadDescriptor, counter 8 CounterDescriptor",
    "ProcessDescriptor": "pid 1 int32",
    "ThreadDescriptor": "pid 1 int32, tid 2 int64",
    "CounterDescriptor": "unit 3 int32, unit_name 6 bytes, unit_multiplier 4 int64=1, is_incremental 5 bool",
    "InternedData": "event_categories 1 *Interned, event_names 2 *Interned, debug_annotation_names 3 *Interned, "
                    "debug_annotation_string_values 29 *Interned",
    "Interned": "iid 1 uint64, text 2 bytes",
    "ClockSnapshot": "clocks 1 *Clock, primary_trace_clock 2 int32",
    "Clock": "clock_id 1 uint32, timestamp 2 uint64, is_incremental 3 bool, unit_multiplier_ns 4 uint64=1",
    "TraceStats": "buffer_stats 1 *BufferStats",
    "BufferStats": "chunks_overwritten 3 uint64, chunks_discarded 18 uint64, trace_writer_packet_loss 19 uint64",
}


class Packets:
    """The packets of a trace. problems: defects of the file that did not prevent reading it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[str] = []

    def __iter__(self) -> Iterator[list[Any]]:
        """Yield the packets in pieces, in the order of the file. Raise BadCapture, naming the byte of the unzipped
        file.
        """
        with jsonstream.opened(self.path) as file:
            for text, offset in self._chunks(file):
                yield list(self._expand(self._parse(text, offset), offset))

    def _chunks(self, file: BinaryIO) -> Iterator[tuple[bytes, int]]:
        """Yield stretches of whole packets, each with the byte it begins at."""
        pending, offset = b"", 0
        while block := file.read(CHUNK_BYTES):
            pending += block
            end = self._last_packet_end(pending, offset)
            if end:
                yield pending[:end], offset
            pending, offset = pending[end:], offset + end
        if pending:
            self.problems.append(f"truncated: the packet at byte {offset} is cut off; what was to follow is missing")

    def _last_packet_end(self, text: bytes, offset: int) -> int:
        """Return where the last whole packet ends."""
        at = 0
        while at + 1 < len(text):
            if text[at] != PACKET:
                raise self._bad(offset + at, "not a packet of a Perfetto trace")
            size, start = text[at + 1], at + 2
            if size > 127:
                size, start = protos.varint(text, at + 1)
            if size > LONGEST_PACKET_BYTES:
                raise self._bad(offset + at, f"a packet of more than {LONGEST_PACKET_BYTES} bytes")
            if not start or start + size > len(text):
                break
            at = start + size
        return at

    def _parse(self, text: bytes, offset: int) -> Any:
        try:
            return message("Trace").FromString(text).packet
        except DecodeError as error:
            raise self._bad(offset, f"no Perfetto trace in the {len(text)} bytes that begin here: {error}") from error

    def _expand(self, packets: Any, offset: int, is_inside: bool = False) -> Iterator[Any]:
        """Yield the packets, unpacked if they are compressed."""
        for packet in packets:
            yield packet
            if packet.compressed_packets:
                if is_inside:
                    raise self._bad(offset, "compressed packets inside compressed packets")
                yield from self._expand(self._parse(self._inflate(packet.compressed_packets, offset), offset), offset,
                                        is_inside=True)

    def _inflate(self, text: bytes, offset: int) -> bytes:
        stream = zlib.decompressobj()
        try:
            inflated = stream.decompress(text, LONGEST_PACKET_BYTES)
        except zlib.error as error:
            raise self._bad(offset, f"compressed packets are damaged: {error}") from error
        if stream.unconsumed_tail:
            raise self._bad(offset, f"packets that unpack to more than {LONGEST_PACKET_BYTES} bytes")
        return inflated

    def _bad(self, at: int, what: str) -> BadCapture:
        return BadCapture(f"{self.path}: byte {at}: {what}", FIX)


def begins_trace(text: bytes) -> bool:
    """Return whether a text begins with packets of a trace that has track events or their descriptors. Never raise."""
    packets = Packets(Path())
    try:
        end = packets._last_packet_end(text, 0)
        parsed = packets._parse(text[:end], 0) if end else []
    except BadCapture:
        return False
    return any(packet.trusted_packet_sequence_id or packet.HasField("track_event") or packet.HasField(
        "track_descriptor") for packet in parsed)


@cache
def message(name: str) -> Any:
    """Return the class of a message of MESSAGES."""
    return protos.classes("aaco.perfetto", MESSAGES)[name]
