"""Perfetto traces with track events (.pftrace): what rocprofv3 writes, and any other tool's slices and counters.

A slice becomes a kernel or a copy by its category, as rocprofv3 and rocprof-sys name them; every other slice and every
instant is a call, its domain the category. Counter tracks become samples. Begins and ends are paired per track in the
order of the file: sorted by time, kernels that overlap on a queue would be paired wrongly.

The correlation id is the slice's `corr_id`; without one, its first flow. With several processes in the file, ids of
the n-th are moved up by n x 2^48. Flows are 64-bit numbers: those beyond 2^63 are negative here.

rocprofv3 moves the times of kernels that overlap on a queue until they only touch ("temporary fix" in rocprofiler-sdk,
generatePerfetto.cpp), and its buffer drops what does not fit: both are told in the problems. What it writes on a kernel
beside its own properties are counters; what `rocpd convert` writes there are sums over the whole run, left out.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from aaco.core.errors import BadCapture
from aaco.core.tables import API_CALLS, CALL_ARGUMENTS, COPIES, COUNTERS, INT, KERNELS, SAMPLES, TableSpec
from aaco.profiler import jsonstream, perfetto_packets
from aaco.profiler.capture import Facts
from aaco.profiler.columns import bare, constant, encoded, integers, renamed
from aaco.profiler.ledger import Ledger
from aaco.profiler.perfetto_packets import NO_INT, NO_UINT, Packets
from aaco.profiler.perfetto_state import LATEST_NS, STATE_CLEARED, Clocks, Sequence, Tracks, text
from aaco.profiler.rocm_labels import Agents, direction

FORMAT = "pftrace"
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
KERNEL, COPY = "kernel_dispatch", "memory_copy"
DOMAINS = {"hip_api": "hip", "hsa_api": "hsa", "marker_api": "marker", "rccl_api": "rccl", "rocdecode_api": "rocdecode",
           "rocjpeg_api": "rocjpeg", "hipfile_api": "hipfile"}
MOST_OPEN = 1_000_000  # slices, and tracks that had kernels
MOST_SAID = 5_000_000  # names with numbers, and writers of packets
PER_PROCESS = 1 << 48
SIZES = re.compile(r"\d+ \(x=(\d{1,18}), y=(\d{1,18}), z=(\d{1,18})\)")  # as `rocpd convert` writes them
DEVICE = re.compile(r"\[(\d{1,9})\]\s*\(GPU\)")
# What the tools say of every slice, by the names it has here; the rest is a counter on a kernel, on a call an argument.
SAID = {name: name.lower() for name in (
    "begin_ns", "end_ns", "delta_ns", "tid", "kind", "operation", "corr_id", "ancestor_id", "stream_id", "stream_ID",
    "agent", "agent_type", "queue", "kernel_id", "Scratch_Size", "LDS_Block_Size", "VGPR_Count", "Accum_VGPR_Count",
    "SGPR_Count", "workgroup_size", "grid_size", "src_agent", "dst_agent", "copy_bytes")}
SAID |= {"private_segment_size": "scratch_size", "group_segment_size": "lds_block_size"}
NEVER_ENDED, NEVER_BEGAN = "it is never ended", "it ends a slice that never began"
NO_TIME = "its time is no time of any age"
TOUCHES = ("kernels begin in the very ns in which the one before them on the track ends: rocprofv3 moves the times of "
           "kernels that overlap, these may be such")
Notes = dict[str, Any]


@dataclass(slots=True)
class _Slice:
    """An open slice. said: annotations of SAID by their plain names; more: all others."""

    kind: str
    name: str
    domain: str | None
    track: int
    start: int | None
    flow: int | None
    said: Notes
    more: Notes


@dataclass
class _Rows:
    """Rows of a table until there are enough for a piece: tuples in the order of `names`. same: what all rows have."""

    spec: TableSpec
    names: tuple[str, ...]
    same: tuple[tuple[str, str], ...] = ()
    rows: list[tuple[Any, ...]] = field(default_factory=list)

    def table(self) -> pa.Table | None:
        """The rows since the last call, or None."""
        if not self.rows:
            return None
        columns = dict(zip(self.names, zip(*self.rows, strict=True), strict=True))
        made = {name: _array(self.spec.columns[name][0], values) for name, values in columns.items()}
        made |= {name: constant(value, len(self.rows)) for name, value in self.same}
        self.rows = []
        if "kernel_name" in made:
            made["kernel_name"] = renamed(made["kernel_name"], bare)
        return self.spec.build(**made)


WHERE = ("process_id", "thread_id", "t_start_ns", "t_end_ns", "dur_ns", "correlation_id")
FROM = ("source", "pftrace")


def recognises(path: Path) -> bool:
    """Whether the file begins with packets of a Perfetto trace."""
    head = _head(path)
    return head[:1] == bytes([perfetto_packets.PACKET]) and perfetto_packets.begins_trace(head)


def parse(path: Path) -> Iterator[pa.Table | Facts]:
    """Kernels with counters, copies, calls with arguments and samples, then the Facts. Raises BadCapture."""
    packets, trace = Packets(path), _Trace()
    for some in packets:
        for packet in some:
            trace.take(packet)
        if trace.said > MOST_SAID:
            raise BadCapture(f"{path}: it gives numbers to more than {MOST_SAID:,} names", perfetto_packets.FIX)
        yield from trace.pieces()
    trace.close()
    if not trace.packets:
        raise BadCapture(f"{path}: no packet of a Perfetto trace in it", perfetto_packets.FIX)
    yield trace.facts(packets.problems)


class _Trace:
    """Everything that the packets so far have said, and the rows they made."""

    def __init__(self) -> None:
        self.packets = 0
        self.count: Counter[str] = Counter()
        self.ledger = Ledger(None)
        self.sequences: dict[int, Sequence] = {}
        self.tracks, self.clocks, self.agents = Tracks(), Clocks(), Agents()
        self.open: dict[int, list[_Slice]] = {}  # by track; no list is empty
        self.opened = self.said = 0
        self.kernels = _Rows(KERNELS, (
            "kernel_id", "kernel_name", "device_id", "queue_id", "stream_id", "grid_x", "grid_y", "grid_z", "block_x",
            "block_y", "block_z", "vgpr", "agpr", "sgpr", "lds_bytes", "scratch_bytes", *WHERE),
            (FROM, ("timed", "execution")))
        self.counters = _Rows(COUNTERS, ("kernel_id", "counter", "value"))
        self.copies = _Rows(COPIES, ("copy_id", "kind", "bytes", "src_device", "dst_device", "device_id", "stream_id",
                                     *WHERE), (FROM,))
        self.calls = _Rows(API_CALLS, ("call_id", "name", "domain", *WHERE))
        self.arguments = _Rows(CALL_ARGUMENTS, ("call_id", "arguments"))
        self.samples = _Rows(SAMPLES, ("t_ns", "name", "value", "unit", "device_id", "process_id"))
        self.devices: dict[str, int | None] = {}
        self.processes: dict[int | None, int] = {}
        self.last_end: dict[int, int] = {}  # of the kernels of a track
        self.lost: Counter[str] = Counter()
        self.known = False  # whether a category is one of ROCm's tools

    def take(self, packet: Any) -> None:
        """Read a packet."""
        self.packets += 1
        number = packet.trusted_packet_sequence_id
        sequence = self.sequences.get(number)
        if sequence is None or packet.sequence_flags & STATE_CLEARED or packet.incremental_state_cleared:
            sequence = self.sequences[number] = Sequence()
            self.said += 1
        if packet.previous_packet_dropped and not packet.first_packet_on_sequence:
            self.lost["packets are missing before others, as the trace itself says"] += 1
        if packet.HasField("clock_snapshot"):
            self.clocks.learn(packet.clock_snapshot, number)
        if packet.HasField("interned_data"):
            self.said += sequence.learn(packet.interned_data)
        if packet.HasField("trace_packet_defaults"):
            sequence.clock = packet.trace_packet_defaults.timestamp_clock_id
            sequence.track = packet.trace_packet_defaults.track_event_defaults.track_uuid
        if packet.HasField("track_descriptor"):
            self.tracks.learn(packet.track_descriptor)
        if packet.HasField("trace_stats"):
            self._full(packet.trace_stats)
        if packet.HasField("timestamp"):
            clock = packet.timestamp_clock_id or sequence.clock
            time = self.clocks.ns(packet.timestamp, clock, number)
            if packet.HasField("track_event"):
                self._event(packet.track_event, sequence, time)
        elif packet.HasField("track_event"):
            self._leave("event", "it has no time")

    def close(self) -> None:
        """Settle what the end of the file leaves open."""
        for stack in self.open.values():
            for one in stack:
                self._leave(one.kind, NEVER_ENDED)
        self.open.clear()

    def pieces(self) -> Iterator[pa.Table]:
        """The rows since the last call."""
        every = (self.kernels, self.counters, self.copies, self.calls, self.arguments, self.samples)
        yield from (table for rows in every if (table := rows.table()) is not None)

    def facts(self, problems: list[str]) -> Facts:
        """What the trace says of itself."""
        if self.ledger.records["kernel"]:
            self.ledger.kernel = "kernel"
        for what, count in (self.clocks.troubles + self.lost).items():
            self.ledger.trouble(what, count)
        return self.ledger.facts(FORMAT, tuple(problems), tool="rocprofv3" if self.known else None,
                                 clock=self.clocks.name)

    def _event(self, event: Any, sequence: Sequence, time: int | None) -> None:
        kind, track = event.type, event.track_uuid or sequence.track
        if kind == END:
            self._end(track, time)
        elif kind in (BEGIN, INSTANT):
            self._begun(event, sequence, track, time)
        elif kind == COUNTER:
            self._sample(event, track, time)
        else:
            self._leave("event", "of a type that no table holds")

    def _begun(self, event: Any, sequence: Sequence, track: int, time: int | None) -> None:
        kind, domain = self._kind(event, sequence)
        flows = event.flow_ids or event.terminating_flow_ids
        name = text(event.name) if event.name else sequence.names.get(event.name_iid)
        if name is None:
            self.lost["slices have a name that the trace does not tell"] += event.name_iid > 0
        one = _Slice(kind, name or "", domain, track, time, flows[0] if flows else None,
                     *self._notes(event, sequence))
        if event.type == INSTANT:
            self._ended(one, time)
        elif self.opened < MOST_OPEN:
            self.open.setdefault(track, []).append(one)
            self.opened += 1
        else:
            self._leave(kind, f"more than {MOST_OPEN:,} slices are open at a time")

    def _end(self, track: int, time: int | None) -> None:
        stack = self.open.get(track)
        if not stack:
            self._leave("end", NEVER_BEGAN)
            return
        one = stack.pop()
        self.opened -= 1
        if not stack:
            del self.open[track]
        self._ended(one, time)

    def _kind(self, event: Any, sequence: Sequence) -> tuple[str, str | None]:
        """What a slice becomes, and the domain it has as a call."""
        names = [sequence.categories.get(iid) for iid in event.category_iids]
        names += [text(name) for name in event.categories]
        category = next((name for name in names if name), None)
        plain = (category or "").removeprefix("rocm_")
        self.known |= plain in (KERNEL, COPY) or plain in DOMAINS
        if plain in (KERNEL, COPY) and event.type == BEGIN:
            return ("kernel" if plain == KERNEL else "copy"), None
        return "call", DOMAINS.get(plain, category)

    def _notes(self, event: Any, sequence: Sequence) -> tuple[Notes, Notes]:
        """The annotations of a slice: those that the tools say of every slice, and the others."""
        said: Notes = {}
        more: Notes = {}
        for note in event.debug_annotations:
            name = sequence.notes.get(note.name_iid) if note.name_iid else text(note.name)
            if (value := note.uint_value) == NO_UINT and (value := note.int_value) == NO_INT:
                value = _other(note, sequence)
            if name in SAID:
                said[SAID[name]] = value
            elif name:
                more[name] = value
        return said, more

    def _ended(self, one: _Slice, end: int | None) -> None:
        """Make the slice's row."""
        self.ledger.saw(one.kind, 1)
        if one.start is None or end is None:
            self.ledger.leave_out(one.kind, NO_TIME, 1)
            return
        start, end = self._told(one.said, one.start, end)
        if end < start:
            self.ledger.trouble("slices end before they begin", 1)
        process, thread = self.tracks.place(one.track)
        where = (process, one.said.get("tid", thread), start, end, end - start, self._correlation(one, process))
        {"kernel": self._kernel, "copy": self._copy, "call": self._call}[one.kind](one, where)

    def _told(self, notes: Notes, start: int, end: int) -> tuple[int, int]:
        """Begin and end as the tool wrote them on the slice, else as the slice has them."""
        begin, finish = _int(notes.get("begin_ns")), _int(notes.get("end_ns"))
        if begin is None or finish is None or not (0 <= begin < LATEST_NS and 0 <= finish < LATEST_NS):
            return start, end
        self.ledger.trouble("slices are drawn longer or shorter than they say", finish - begin != end - start)
        return begin, finish

    def _kernel(self, one: _Slice, where: tuple[Any, ...]) -> None:
        notes, start, end = one.said.get, where[2], where[3]
        self.ledger.kernel_ns += end - start
        self.lost[TOUCHES] += self.last_end.get(one.track) == start
        if len(self.last_end) < MOST_OPEN:
            self.last_end[one.track] = end
        number = self._next(KERNELS)
        self.kernels.rows.append((
            number, one.name, self._device(notes("agent")), notes("queue"), notes("stream_id"),
            *_sizes(notes("grid_size")), *_sizes(notes("workgroup_size")), notes("vgpr_count"),
            notes("accum_vgpr_count"), notes("sgpr_count"), notes("lds_block_size"), notes("scratch_size"), *where))
        if one.more:
            self._counters(number, one.more, isinstance(notes("grid_size"), str))

    def _counters(self, kernel: int, notes: Notes, summed: bool) -> None:
        counted = [(kernel, name, float(value)) for name, value in notes.items() if type(value) in (int, float)]
        if summed:
            self.lost["counters of a whole run stand on single kernels, as `rocpd convert` writes them: left out"
                      ] += len(counted)
        else:
            self.counters.rows += counted

    def _copy(self, one: _Slice, where: tuple[Any, ...]) -> None:
        kind, notes = direction(one.name), one.said.get
        start = None if kind in ("h2d", "h2h") else self._device(notes("src_agent"))
        end = None if kind in ("d2h", "h2h") else self._device(notes("dst_agent"))
        p2p = kind == "d2d" and None not in (start, end) and start != end
        device = start if kind in ("d2h", "d2d") and start is not None else end
        self.copies.rows.append((self._next(COPIES), "p2p" if p2p else kind, notes("copy_bytes"), start, end, device,
                                 notes("stream_id"), *where))

    def _call(self, one: _Slice, where: tuple[Any, ...]) -> None:
        number = self._next(API_CALLS)
        self.calls.rows.append((number, one.name, one.domain, *where))
        if one.more:
            self.arguments.rows.append((number, json.dumps(one.more, ensure_ascii=False)))

    def _sample(self, event: Any, uuid: int, time: int | None) -> None:
        track = self.tracks.get(uuid)
        if track is None or track.name is None or time is None:
            self._leave("sample", NO_TIME if track and track.name else "of a track that the trace does not describe")
            return
        value = float(event.double_counter_value if event.HasField("double_counter_value") else event.counter_value)
        if track.incremental:
            value = track.last = track.last + value
        device = DEVICE.search(track.name)
        self.ledger.saw("sample", 1)
        self.samples.rows.append((time, track.name, value * track.multiplier, track.unit,
                                  int(device[1]) if device else None, self.tracks.place(uuid)[0]))

    def _correlation(self, one: _Slice, process: int | None) -> int | None:
        given = _int(one.said.get("corr_id"))
        if given is None:
            return one.flow if one.flow is None or one.flow < 1 << 63 else one.flow - (1 << 64)
        index = self.processes.setdefault(process, len(self.processes))
        return given + index * PER_PROCESS if not index or 0 <= given < PER_PROCESS else None

    def _device(self, label: Any) -> int | None:
        if not isinstance(label, str):
            return _int(label)
        if label not in self.devices:
            self.devices[label] = self.agents.id(label)
        return self.devices[label]

    def _full(self, stats: Any) -> None:
        for buffer in stats.buffer_stats:
            self.lost["chunks of the trace were thrown away because its buffer was full"] += (
                buffer.chunks_discarded + buffer.chunks_overwritten)
            self.lost["packets were lost by the tool that wrote the trace"] += buffer.trace_writer_packet_loss

    def _leave(self, kind: str, reason: str) -> None:
        self.ledger.saw(kind, 1)
        self.ledger.leave_out(kind, reason, 1)

    def _next(self, spec: TableSpec) -> int:
        self.count[spec.name] += 1
        return self.count[spec.name] - 1


def _head(path: Path) -> bytes:
    try:
        with jsonstream.opened(path) as file:
            return file.read(1 << 16)
    except BadCapture:
        return b""


def _other(note: Any, sequence: Sequence) -> Any:
    """The value of an annotation that is no integer; None for what has parts."""
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


def _sizes(value: Any) -> tuple[int | None, int | None, int | None]:
    """Sizes in three directions; where the tool says only their product, that and two unknown."""
    found = SIZES.fullmatch(value) if isinstance(value, str) else None
    return (int(found[1]), int(found[2]), int(found[3])) if found else (value, None, None)


def _int(value: Any) -> int | None:
    return value if type(value) is int and -1 << 63 <= value < 1 << 63 else None


def _array(kind: pa.DataType, values: tuple[Any, ...]) -> pa.Array:
    """A column of values that an annotation may have given: what is no integer there is null."""
    if pa.types.is_dictionary(kind):
        return encoded(values)
    if kind != INT:
        return pa.array(values, kind)
    # Arrow would take a float for an integer by cutting it off.
    return integers(values if set(map(type, values)) <= {int, type(None)} else list(map(_int, values)))
