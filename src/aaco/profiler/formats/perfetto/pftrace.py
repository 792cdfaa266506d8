"""Perfetto traces with track events (.pftrace): those of rocprofv3, and any other tool's slices and counters.

A slice becomes a kernel or a copy by its category, as rocprofv3 and rocprof-sys name them; every other slice and every
instant is a call, its domain the category. Counter tracks become samples. Begins and ends are paired per track in the
order of the file: sorted by time, kernels that overlap on a queue would be paired wrongly.

The correlation id is the slice's `corr_id`; without one, its first flow. With several processes in the file, ids of
the n-th are moved up by n x 2^48. Flows are 64-bit numbers: those from 2^63 on are negative here.

rocprofv3 moves the times of kernels that overlap on a queue until they only touch ("temporary fix" in rocprofiler-sdk,
generatePerfetto.cpp), and its buffer drops packets when it is full: the problems report both. Its notes on a kernel
other than the kernel's properties are counters; those of `rocpd convert` are sums over the whole run, left out.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec import Struct, field

from aaco.core.errors import BadCapture
from aaco.core.tables import API_CALLS, CALL_ARGUMENTS, COPIES, COUNTERS, INT, KERNELS, SAMPLES, TableSpec
from aaco.profiler.capture import MIXED, TIMED, CaptureFacts
from aaco.profiler.formats.perfetto import perfetto_packets
from aaco.profiler.formats.perfetto.perfetto_packets import NO_INT, NO_UINT, Packets
from aaco.profiler.formats.perfetto.perfetto_state import (
    LATEST_NS,
    STATE_CLEARED,
    PacketSequence,
    PerfettoClocks,
    PerfettoTracks,
    text,
)
from aaco.profiler.formats.rocprofv3.rocm_labels import RocmAgents, direction
from aaco.profiler.io import jsonstream
from aaco.profiler.io.columns import bare, constant, encoded, integers, renamed
from aaco.profiler.io.record_accounting import RecordAccount

FORMAT = "pftrace"
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
KERNEL, COPY = "kernel_dispatch", "memory_copy"
DOMAINS = {"hip_api": "hip", "hsa_api": "hsa", "marker_api": "marker", "rccl_api": "rccl", "rocdecode_api": "rocdecode",
           "rocjpeg_api": "rocjpeg", "hipfile_api": "hipfile"}
MOST_OPEN = 1_000_000  # slices, and tracks that had kernels
MOST_INTERNED = 5_000_000  # names with numbers, and writers of packets
PER_PROCESS = 1 << 48
SIZES = re.compile(r"\d+ \(x=(\d{1,18}), y=(\d{1,18}), z=(\d{1,18})\)")  # as `rocpd convert` writes them
DEVICE = re.compile(r"\[(\d{1,9})\]\s*\(GPU\)")
# Notes that the tools write on every slice, with their names here; other notes are counters of a kernel, or arguments
# of a call.
KNOWN_NOTES = {name: name.lower() for name in (
    "begin_ns", "end_ns", "delta_ns", "tid", "kind", "operation", "corr_id", "ancestor_id", "stream_id", "stream_ID",
    "agent", "agent_type", "queue", "kernel_id", "Scratch_Size", "LDS_Block_Size", "VGPR_Count", "Accum_VGPR_Count",
    "SGPR_Count", "workgroup_size", "grid_size", "src_agent", "dst_agent", "copy_bytes")}
KNOWN_NOTES |= {"private_segment_size": "scratch_size", "group_segment_size": "lds_block_size"}
NEVER_ENDED, NEVER_BEGAN = "it is never ended", "it ends a slice that never began"
NO_TIME = "its time is no time of any age"
TOUCHES = ("kernels begin in the very ns in which the one before on the track ends: rocprofv3 moves the times of "
           "kernels that overlap, these may be such")
Notes = dict[str, Any]


class _OpenSlice(Struct):
    """An open slice. known_notes: annotations of KNOWN_NOTES by their plain names; other_notes: all others."""

    kind: str
    name: str
    domain: str | None
    track: int
    start: int | None
    flow: int | None
    known_notes: Notes
    other_notes: Notes


class _TableRows(Struct):
    """Rows of a table until there are enough for a piece: tuples in the order of `names`. same: values of all rows."""

    spec: TableSpec
    names: tuple[str, ...]
    same: tuple[tuple[str, str], ...] = ()
    rows: list[tuple[Any, ...]] = field(default_factory=list)

    def table(self) -> pa.Table | None:
        """Return the rows since the last call, or None."""
        if not self.rows:
            return None
        columns = dict(zip(self.names, zip(*self.rows, strict=True), strict=True))
        arrays = {name: _column(self.spec.columns[name][0], values) for name, values in columns.items()}
        arrays |= {name: constant(text, len(self.rows)) for name, text in self.same}
        self.rows = []
        if "kernel_name" in arrays:
            arrays["kernel_name"] = renamed(arrays["kernel_name"], bare)
        return self.spec.build(**arrays)


WHERE = ("process_id", "thread_id", "t_start_ns", "t_end_ns", "dur_ns", "correlation_id")
FROM = ("source", "pftrace")


def recognises(path: Path) -> bool:
    """Return whether the file begins with packets of a Perfetto trace."""
    head = _read_head(path)
    return head[:1] == bytes([perfetto_packets.PACKET]) and perfetto_packets.begins_trace(head)


def parse(path: Path) -> Iterator[pa.Table | CaptureFacts]:
    """Yield kernels with counters, copies, calls with arguments and samples, then the facts. Raise BadCapture."""
    packets, reader = Packets(path), _PftraceReader()
    for batch in packets:
        for packet in batch:
            reader.take(packet)
        if reader.interned > MOST_INTERNED:
            raise BadCapture(f"{path}: it gives numbers to more than {MOST_INTERNED:,} names", perfetto_packets.FIX)
        yield from reader.pieces()
    reader.close()
    if not reader.packets:
        raise BadCapture(f"{path}: no packet of a Perfetto trace in it", perfetto_packets.FIX)
    yield reader.facts(packets.problems)


def kernel_pass(path: Path) -> str | None:
    """Return what the kernels were run for: MIXED if any has a counter; the file is read as far. Raise BadCapture."""
    held = set[str]()
    for piece in parse(path):
        if not isinstance(piece, CaptureFacts):
            held.add(piece.schema.metadata[b"aaco.table"].decode())
        if COUNTERS.name in held:
            return MIXED
    return TIMED if KERNELS.name in held else None


class _PftraceReader:
    """The state after the packets so far, and their rows."""

    def __init__(self) -> None:
        self.packets = 0
        self.count: Counter[str] = Counter()
        self.account = RecordAccount("kernel", from_zero=True)
        self.sequences: dict[int, PacketSequence] = {}
        self.tracks, self.clocks, self.agents = PerfettoTracks(), PerfettoClocks(), RocmAgents()
        self.open: dict[int, list[_OpenSlice]] = {}  # by track; no list is empty
        self.opened = self.interned = 0
        self.kernels = _TableRows(KERNELS, (
            "kernel_id", "kernel_name", "device_id", "queue_id", "stream_id", "grid_x", "grid_y", "grid_z", "block_x",
            "block_y", "block_z", "vgpr", "agpr", "sgpr", "lds_bytes", "scratch_bytes", *WHERE),
            (FROM, ("timed", "execution")))
        self.counters = _TableRows(COUNTERS, ("kernel_id", "counter", "value"))
        self.copies = _TableRows(COPIES,
                                 ("copy_id", "kind", "bytes", "src_device", "dst_device", "device_id", "stream_id",
                                  *WHERE), (FROM,))
        self.calls = _TableRows(API_CALLS, ("call_id", "name", "domain", *WHERE))
        self.arguments = _TableRows(CALL_ARGUMENTS, ("call_id", "arguments"))
        self.samples = _TableRows(SAMPLES, ("t_ns", "name", "value", "unit", "device_id", "process_id"))
        self.devices: dict[str, int | None] = {}
        self.processes: dict[int | None, int] = {}
        self.last_end: dict[int, int] = {}  # of the kernels of a track
        self.lost: Counter[str] = Counter()
        self.is_rocm = False  # whether the trace has categories of ROCm's tools

    def take(self, packet: Any) -> None:
        """Read a packet."""
        self.packets += 1
        number = packet.trusted_packet_sequence_id
        sequence = self.sequences.get(number)
        if sequence is None or packet.sequence_flags & STATE_CLEARED or packet.incremental_state_cleared:
            sequence = self.sequences[number] = PacketSequence()
            self.interned += 1
        if packet.previous_packet_dropped and not packet.first_packet_on_sequence:
            self.lost["packets are missing before others, as the trace itself says"] += 1
        if packet.HasField("clock_snapshot"):
            self.clocks.learn(packet.clock_snapshot, number)
        if packet.HasField("interned_data"):
            self.interned += sequence.learn(packet.interned_data)
        if packet.HasField("trace_packet_defaults"):
            sequence.clock = packet.trace_packet_defaults.timestamp_clock_id
            sequence.track = packet.trace_packet_defaults.track_event_defaults.track_uuid
        if packet.HasField("track_descriptor"):
            self.tracks.learn(packet.track_descriptor)
        if packet.HasField("trace_stats"):
            self._count_lost(packet.trace_stats)
        if packet.HasField("timestamp"):
            clock = packet.timestamp_clock_id or sequence.clock
            time = self.clocks.ns(packet.timestamp, clock, number)
            if packet.HasField("track_event"):
                self._read_event(packet.track_event, sequence, time)
        elif packet.HasField("track_event"):
            self.account.skip("event", "it has no time", 1)

    def close(self) -> None:
        """Leave out the slices that are open at the end of the file."""
        for stack in self.open.values():
            for open_slice in stack:
                self.account.skip(open_slice.kind, NEVER_ENDED, 1)
        self.open.clear()

    def pieces(self) -> Iterator[pa.Table]:
        """Yield the rows since the last call as tables."""
        for kind, rows, details in (("kernel", self.kernels, self.counters), ("copy", self.copies, None),
                                    ("call", self.calls, self.arguments)):
            if rows.rows:
                self._place(kind, rows, details)
        table_rows = (self.kernels, self.counters, self.copies, self.calls, self.arguments, self.samples)
        yield from (table for rows in table_rows if (table := rows.table()) is not None)

    def facts(self, problems: list[str]) -> CaptureFacts:
        """Return the facts of the trace."""
        if not self.account.records["kernel"]:
            self.account.kernel = None
        for what, count in (self.clocks.troubles + self.lost).items():
            self.account.trouble(what, count)
        return self.account.facts(FORMAT, tuple(problems), tool="rocprofv3" if self.is_rocm else None,
                                  clock=self.clocks.name)

    def _place(self, kind: str, rows: _TableRows, details: _TableRows | None) -> None:
        """Leave out the rows that cannot be placed in time, and what is known of them."""
        edges = (integers([row[column] for row in rows.rows]) for column in (-4, -3))  # in WHERE
        fit = self.account.timed(kind, *edges).tolist()
        if not all(fit):
            left = {row[0] for row, good in zip(rows.rows, fit, strict=True) if not good}
            for part in (rows, details):
                if part:
                    part.rows = [row for row in part.rows if row[0] not in left]

    def _read_event(self, event: Any, sequence: PacketSequence, time: int | None) -> None:
        kind, track = event.type, event.track_uuid or sequence.track
        if kind == END:
            self._end_slice(track, time)
        elif kind in (BEGIN, INSTANT):
            self._begin_slice(event, sequence, track, time)
        elif kind == COUNTER:
            self._add_sample(event, track, time)
        else:
            self.account.skip("event", "of a type that no table holds", 1)

    def _begin_slice(self, event: Any, sequence: PacketSequence, track: int, time: int | None) -> None:
        kind, domain = self._kind(event, sequence)
        flows = event.flow_ids or event.terminating_flow_ids
        name = text(event.name) if event.name else sequence.names.get(event.name_iid)
        if name is None:
            self.lost["slices have a name that the trace does not tell"] += event.name_iid > 0
        new_slice = _OpenSlice(kind, name or "", domain, track, time, flows[0] if flows else None,
                               *self._notes(event, sequence))
        if event.type == INSTANT:
            self._add_slice(new_slice, time)
        elif self.opened < MOST_OPEN:
            self.open.setdefault(track, []).append(new_slice)
            self.opened += 1
        else:
            self.account.skip(kind, f"more than {MOST_OPEN:,} slices are open at a time", 1)

    def _end_slice(self, track: int, time: int | None) -> None:
        stack = self.open.get(track)
        if not stack:
            self.account.skip("end", NEVER_BEGAN, 1)
            return
        ended_slice = stack.pop()
        self.opened -= 1
        if not stack:
            del self.open[track]
        self._add_slice(ended_slice, time)

    def _kind(self, event: Any, sequence: PacketSequence) -> tuple[str, str | None]:
        """Return the kind of row of a slice, and its domain as a call."""
        names = [sequence.categories.get(iid) for iid in event.category_iids]
        names += [text(name) for name in event.categories]
        category = next((name for name in names if name), None)
        plain = (category or "").removeprefix("rocm_")
        self.is_rocm |= plain in (KERNEL, COPY) or plain in DOMAINS
        if plain in (KERNEL, COPY) and event.type == BEGIN:
            return ("kernel" if plain == KERNEL else "copy"), None
        return "call", DOMAINS.get(plain, category)

    def _notes(self, event: Any, sequence: PacketSequence) -> tuple[Notes, Notes]:
        """Return the annotations of a slice: those that the tools write on every slice, and the others."""
        known_notes: Notes = {}
        other_notes: Notes = {}
        for note in event.debug_annotations:
            name = sequence.notes.get(note.name_iid) if note.name_iid else text(note.name)
            if (note_value := note.uint_value) == NO_UINT and (note_value := note.int_value) == NO_INT:
                note_value = _note_value(note, sequence)
            if name in KNOWN_NOTES:
                known_notes[KNOWN_NOTES[name]] = note_value
            elif name:
                other_notes[name] = note_value
        return known_notes, other_notes

    def _add_slice(self, ended_slice: _OpenSlice, end: int | None) -> None:
        """Add the slice's row."""
        if ended_slice.start is None or end is None:
            self.account.skip(ended_slice.kind, NO_TIME, 1)
            return
        start, end = self._stated_times(ended_slice.known_notes, ended_slice.start, end)
        process, thread = self.tracks.place(ended_slice.track)
        where = (process, ended_slice.known_notes.get("tid", thread), start, end, end - start,
                 self._correlation(ended_slice, process))
        {"kernel": self._add_kernel, "copy": self._add_copy, "call": self._add_call}[ended_slice.kind](ended_slice,
                                                                                                       where)

    def _stated_times(self, notes: Notes, start: int, end: int) -> tuple[int, int]:
        """Return begin and end as the tool wrote them on the slice, else as the slice has them."""
        begin, finish = _int_or_none(notes.get("begin_ns")), _int_or_none(notes.get("end_ns"))
        if begin is None or finish is None or not (0 <= begin < LATEST_NS and 0 <= finish < LATEST_NS):
            return start, end
        self.account.trouble("slices are drawn longer or shorter than they say", finish - begin != end - start)
        return begin, finish

    def _add_kernel(self, kernel: _OpenSlice, where: tuple[Any, ...]) -> None:
        notes, start, end = kernel.known_notes.get, where[2], where[3]
        self.lost[TOUCHES] += self.last_end.get(kernel.track) == start
        if len(self.last_end) < MOST_OPEN:
            self.last_end[kernel.track] = end
        number = self._next_id(KERNELS)
        self.kernels.rows.append((
            number, kernel.name, self._device(notes("agent")), notes("queue"), notes("stream_id"),
            *_parse_sizes(notes("grid_size")), *_parse_sizes(notes("workgroup_size")), notes("vgpr_count"),
            notes("accum_vgpr_count"), notes("sgpr_count"), notes("lds_block_size"), notes("scratch_size"), *where))
        if kernel.other_notes:
            self._add_counters(number, kernel.other_notes, isinstance(notes("grid_size"), str))

    def _add_counters(self, kernel: int, notes: Notes, summed: bool) -> None:
        counters = [(kernel, name, float(number)) for name, number in notes.items() if type(number) in (int, float)]
        if summed:
            self.lost["counters of a whole run stand on single kernels, as `rocpd convert` writes them: left out"
                      ] += len(counters)
        else:
            self.counters.rows += counters

    def _add_copy(self, copy: _OpenSlice, where: tuple[Any, ...]) -> None:
        kind, notes = direction(copy.name), copy.known_notes.get
        start = None if kind in ("h2d", "h2h") else self._device(notes("src_agent"))
        end = None if kind in ("d2h", "h2h") else self._device(notes("dst_agent"))
        p2p = kind == "d2d" and None not in (start, end) and start != end
        device = start if kind in ("d2h", "d2d") and start is not None else end
        self.copies.rows.append((self._next_id(COPIES), "p2p" if p2p else kind, notes("copy_bytes"), start, end, device,
                                 notes("stream_id"), *where))

    def _add_call(self, call: _OpenSlice, where: tuple[Any, ...]) -> None:
        number = self._next_id(API_CALLS)
        self.calls.rows.append((number, call.name, call.domain, *where))
        if call.other_notes:
            self.arguments.rows.append((number, json.dumps(call.other_notes, ensure_ascii=False)))

    def _add_sample(self, event: Any, uuid: int, time: int | None) -> None:
        track = self.tracks.get(uuid)
        if track is None or track.name is None or time is None:
            self.account.skip(
                "sample", NO_TIME if track and track.name else "of a track that the trace does not describe", 1)
            return
        reading = float(event.double_counter_value if event.HasField("double_counter_value") else event.counter_value)
        if track.incremental:
            reading = track.last = track.last + reading
        device = DEVICE.search(track.name)
        self.account.saw("sample", 1)
        self.samples.rows.append((time, track.name, reading * track.multiplier, track.unit,
                                  int(device[1]) if device else None, self.tracks.place(uuid)[0]))

    def _correlation(self, ended: _OpenSlice, process: int | None) -> int | None:
        stated = _int_or_none(ended.known_notes.get("corr_id"))
        if stated is None:
            return ended.flow if ended.flow is None or ended.flow < 1 << 63 else ended.flow - (1 << 64)
        index = self.processes.setdefault(process, len(self.processes))
        return stated + index * PER_PROCESS if not index or 0 <= stated < PER_PROCESS else None

    def _device(self, label: Any) -> int | None:
        if not isinstance(label, str):
            return _int_or_none(label)
        if label not in self.devices:
            self.devices[label] = self.agents.id(label)
        return self.devices[label]

    def _count_lost(self, stats: Any) -> None:
        for buffer in stats.buffer_stats:
            self.lost["chunks of the trace were thrown away because its buffer was full"] += (
                buffer.chunks_discarded + buffer.chunks_overwritten)
            self.lost["packets were lost by the tool that wrote the trace"] += buffer.trace_writer_packet_loss

    def _next_id(self, spec: TableSpec) -> int:
        self.count[spec.name] += 1
        return self.count[spec.name] - 1


def _read_head(path: Path) -> bytes:
    try:
        with jsonstream.opened(path) as file:
            return file.read(1 << 16)
    except BadCapture:
        return b""


def _note_value(note: Any, sequence: PacketSequence) -> Any:
    """Return the value of an annotation that is not an integer; None for one with parts."""
    if note.HasField("string_value"):
        return text(note.string_value)
    if note.HasField("string_value_iid"):
        return sequence.texts.get(note.string_value_iid)
    if note.HasField("bool_value"):
        return note.bool_value
    if note.HasField("legacy_json_value"):
        return text(note.legacy_json_value)
    if note.pointer_value != NO_UINT:
        return note.pointer_value
    return note.double_value if math.isfinite(note.double_value) else None


def _parse_sizes(value: Any) -> tuple[int | None, int | None, int | None]:
    """Return sizes in three directions; if the tool writes only their product, that and two unknown."""
    match = SIZES.fullmatch(value) if isinstance(value, str) else None
    return (int(match[1]), int(match[2]), int(match[3])) if match else (value, None, None)


def _int_or_none(value: Any) -> int | None:
    return value if type(value) is int and -1 << 63 <= value < 1 << 63 else None


def _column(kind: pa.DataType, values: tuple[Any, ...]) -> pa.Array:
    """Return a column of annotation values; in an integer column, other values are null."""
    if pa.types.is_dictionary(kind):
        return encoded(values)
    if kind != INT:
        return pa.array(values, kind)
    # Arrow would take a float for an integer by cutting it off.
    return integers(values if set(map(type, values)) <= {int, type(None)} else list(map(_int_or_none, values)))
