"""rocprof's results.json (Chrome trace events): kernels, copies, calls of HIP, HSA and rocTX, with the arrows between.

The times of an event are whole microseconds; its arguments have them in ns, and those are read. The file has no
correlation ids, but arrows: a call and the work it launched get the arrow's id. The file is read twice, first for the
arrows.

A dispatch that the profiler intercepted has registers and sizes; one from HIP's activity records has a stream and an
arrow. With both, every kernel is in the file twice: the fuller set is read, the other left out. Sizes are totals: they
are in grid_x and block_x. A barrier packet is not a kernel. If an arrow leads from one hipMemcpy to one copy, the
call's size is the copy's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.core.arrays import Ints, joined
from aaco.core.errors import BadCapture
from aaco.core.tables import API_CALLS, CALL_ARGUMENTS, COPIES, INT, KERNELS
from aaco.profiler.capture import CapturedDevice, CaptureFacts
from aaco.profiler.formats.rocprof_legacy.rocprof_links import Spots, linked, paired
from aaco.profiler.formats.rocprofv3.rocm_labels import direction
from aaco.profiler.io import jsonstream
from aaco.profiler.io.columns import bare, constant, encoded
from aaco.profiler.io.csvstream import GREATEST, whole_number
from aaco.profiler.io.record_accounting import RecordAccount, integers

FORMAT = "rocprof_json"
FIX = "record it again: rocprof --hip-trace PROGRAM; or with rocprofv3, which AMD still keeps up"
START = re.compile(rb'\{\s*"traceEvents"\s*:\s*\[\s*\{\s*\}')
MARK = b'"BeginNs"'
ARROW = "an arrow: it links a call and its work"
REASONS = {
    "barrier": "it orders the queue and is no kernel", "again": "the same execution stands in the file twice",
    "M": "it names a row of the picture", "s": ARROW, "t": ARROW, "f": ARROW, "none": "it is empty",
    "X": "its row of the picture is of no known kind", "other": "of a phase that no table holds"}
BARRIER, GPU = "<barrier packet>", "GPU"
SIZE = re.compile(r"\bsizeBytes\((\d{1,18})\)")
AGENT = re.compile(r"Agent(\d{1,4})\.(Name|MarketingName|Node|DeviceType|ComputeUnit)")
DOMAINS = {"CPU HIP API": "hip", "CPU HSA API": "hsa", "CPU KFD API": "kfd", "Markers and Ranges": "marker"}
MOST_ROWS = 1_000_000  # of the picture
Number = str | int | float | None


class RocprofEventArgs(msgspec.Struct, gc=False):
    """The arguments of an event, mostly as text."""

    begin: Number = msgspec.field(name="BeginNs", default=None)
    end: Number = msgspec.field(name="EndNs", default=None)
    kernel: Number = msgspec.field(name="KernelName", default=None)
    label: Number = msgspec.field(name="name", default=None)
    args: Number = None
    pid: Number = None
    tid: Number = None
    device: Number = msgspec.field(name="dev-id", default=None)
    gpu: Number = msgspec.field(name="gpu-id", default=None)
    queue: Number = msgspec.field(name="queue-id", default=None)
    stream: Number = msgspec.field(name="stream-id", default=None)
    grd: Number = None
    wgr: Number = None
    lds: Number = None
    scr: Number = None
    vgpr: Number = None
    arch_vgpr: Number = None
    accum_vgpr: Number = None
    sgpr: Number = None


class RocprofEvent(msgspec.Struct, gc=False):
    """An event of the picture: `pid` is its row, `tid` its lane."""

    ph: str = ""
    name: str = ""
    pid: Number = None
    tid: Number = None
    ts: Number = None
    id: Number = None
    args: RocprofEventArgs = msgspec.field(default_factory=RocprofEventArgs)


def recognises(path: Path) -> bool:
    """Return whether the file begins as rocprof writes it, and its events have their times in ns."""
    head = jsonstream.head(path)
    return bool(START.match(head)) and MARK in head


def parse(path: Path) -> Iterator[pa.Table | CaptureFacts]:
    """Yield `kernels`, `copies`, `api_calls` and `call_arguments`, then the CaptureFacts. Raise BadCapture."""
    picture = _RocprofPicture()
    for events in jsonstream.JsonDocument(path, RocprofEvent).batches():
        picture.add(events)
    document, reader = jsonstream.JsonDocument(path, RocprofEvent), _RocprofJsonReader(picture)
    for events in document.batches():
        yield from reader.pieces(events)
    if not reader.next_id and reader.account.records["X"]:
        raise BadCapture(f"{path}: no event in it is drawn as rocprof draws them", FIX)
    yield reader.facts(document)


class _PictureRows:
    """The rows of the picture that the file has named so far; the name of a row states the kind of its events."""

    def __init__(self) -> None:
        self._labels: dict[int, str] = {}

    def kind(self, event: RocprofEvent) -> str:
        """Return the kind of the event: kernel, barrier, copy, the domain of a call, or else its phase."""
        row = _int_or_minus_one(event.pid)
        if event.ph == "M" and event.name == "process_name" and len(self._labels) < MOST_ROWS:
            self._labels[row] = str(event.args.label)
        if event.ph != "X":
            return event.ph or "none"
        label = self._labels.get(row, "")
        if label.startswith(GPU):
            return "barrier" if "Barrier" in label or event.name == BARRIER else "kernel"
        return "copy" if label == "COPY" else DOMAINS.get(label, "X")

    def is_like_kernel(self, event: RocprofEvent) -> bool:
        """Return whether an event that is not read as a kernel says that it is one."""
        label = self._labels.get(_int_or_minus_one(event.pid), "")
        on_device = label.startswith(GPU) and "Barrier" not in label and event.name != BARRIER
        return event.args.kernel is not None or (on_device and event.args.begin is not None)


class _RocprofPicture:
    """What a first pass collects from all events: arrows, and which set of kernels is fuller."""

    def __init__(self) -> None:
        self.rows = _PictureRows()
        self.kernels = Counter({"intercepted": 0, "activity": 0})
        self._parts: dict[str, list[Spots]] = {"call": [], "work": [], "s": [], "t": []}
        self._ids: dict[str, list[Ints]] = {"s": [], "t": []}
        self._sizes: list[Ints] = []

    def add(self, events: Sequence[RocprofEvent]) -> None:
        """Add some events."""
        spots: dict[str, list[tuple[int, int, int]]] = {name: [] for name in self._parts}
        ids: dict[str, list[int]] = {"s": [], "t": []}
        sizes = []
        for event in events:
            kind = self.rows.kind(event)
            group = "call" if kind in DOMAINS.values() else "work" if kind in ("kernel", "copy") else event.ph
            if group in spots:
                spots[group].append((_int_or_minus_one(event.pid), _int_or_minus_one(event.tid),
                                     _int_or_minus_one(event.ts)))
            if group in ids:
                ids[group].append(_int_or_minus_one(event.id))
            if group == "call":
                sizes.append(_parse_size(event.args.args))
            if kind == "kernel":
                self.kernels["activity" if event.args.kernel is None else "intercepted"] += 1
        for name, places in spots.items():
            self._parts[name].append(Spots.of(places))
        for name, numbers in ids.items():
            self._ids[name].append(np.array(numbers, np.int64))
        self._sizes.append(np.array(sizes, np.int64))

    def links(self) -> tuple[Ints, Ints, Ints]:
        """Return, in the order of the file, the id of each call, of each kernel or copy, and the bytes of the latter.
        """
        spots = {name: Spots.all(parts) for name, parts in self._parts.items()}
        ids = {name: joined(numbers) for name, numbers in self._ids.items()}
        arrows = paired(ids["t"], spots["t"], ids["s"], spots["s"])
        calls, works = linked(arrows, spots["call"], spots["work"])
        return calls, works, _copy_sizes(calls, works, joined(self._sizes))


class _RocprofJsonReader:
    """Converts events to rows, and keeps the account."""

    def __init__(self, picture: _RocprofPicture) -> None:
        self.rows = _PictureRows()  # starts empty: at each event it knows the same rows as in the first pass
        self.calls, self.works, self.bytes = picture.links()
        counts = picture.kernels
        self.used = "intercepted" if counts["intercepted"] >= counts["activity"] else "activity"
        self.account = RecordAccount("kernel" if sum(counts.values()) else None)
        self.index = {"call": 0, "work": 0}  # how many of each were read
        self.next_id = Counter[str]()

    def pieces(self, events: Sequence[RocprofEvent]) -> Iterator[pa.Table]:
        """Yield the tables of some events."""
        groups: dict[str, list[RocprofEvent]] = {}
        places: dict[str, list[int]] = {}
        for event in events:
            kind = self.rows.kind(event)
            groups.setdefault(kind, []).append(event)
            group = "call" if kind in DOMAINS.values() else "work" if kind in ("kernel", "copy") else None
            if group:
                places.setdefault(kind, []).append(self.index[group])
                self.index[group] += 1
        make: dict[str, Callable[[list[RocprofEvent], Ints], Iterator[pa.Table]]] = {
            "kernel": self._kernels, "copy": self._copies}
        for kind, kind_events in groups.items():
            if kind in DOMAINS.values():
                yield from self._calls(kind, kind_events, np.array(places[kind], np.int64))
            elif kind in make:
                yield from make[kind](kind_events, np.array(places[kind], np.int64))
            else:
                self._leave_out(kind, kind_events)

    def facts(self, document: jsonstream.JsonDocument[RocprofEvent]) -> CaptureFacts:
        """Return the facts of the file."""
        metadata = document.fields.get("otherData")
        return self.account.facts(FORMAT, tuple(document.problems), tool="rocprof",
                                  devices=_devices(metadata if isinstance(metadata, dict) else {}))

    def _kernels(self, events: list[RocprofEvent], places: Ints) -> Iterator[pa.Table]:
        fuller = np.array([("activity" if event.args.kernel is None else "intercepted") == self.used
                           for event in events])
        self._leave_out("again", [event for event, is_fuller in zip(events, fuller, strict=True) if not is_fuller])
        events = [event for event, is_fuller in zip(events, fuller, strict=True) if is_fuller]
        events, places, when = self._timed("kernel", events, places[fuller])
        if not events:
            return
        args = [event.args for event in events]
        yield KERNELS.build(
            kernel_id=self._ids("kernel", len(events)), kernel_name=encoded([bare(event.name) for event in events]),
            device_id=_int_column([event_args.device if event_args.gpu is None else event_args.gpu
                                   for event_args in args]),
            queue_id=_int_column([event_args.queue for event_args in args]),
            stream_id=_int_column([event_args.stream for event_args in args]),
            grid_x=_int_column([event_args.grd for event_args in args]),
            block_x=_int_column([event_args.wgr for event_args in args]),
            lds_bytes=_int_column([event_args.lds for event_args in args]),
            scratch_bytes=_int_column([event_args.scr for event_args in args]),
            vgpr=_int_column([event_args.vgpr if event_args.arch_vgpr is None else event_args.arch_vgpr
                              for event_args in args]),
            agpr=_int_column([event_args.accum_vgpr for event_args in args]),
            sgpr=_int_column([event_args.sgpr for event_args in args]),
            source=constant(FORMAT, len(events)), timed=constant("execution", len(events)),
            correlation_id=_null_if_negative(self.works[places]), **when, **_process_columns(args))

    def _copies(self, events: list[RocprofEvent], places: Ints) -> Iterator[pa.Table]:
        events, places, when = self._timed("copy", events, places)
        if not events:
            return
        args = [event.args for event in events]
        kinds = encoded([direction(event.name) for event in events])
        device = _int_column([event_args.device for event_args in args])
        to_host, from_host = (pc.is_in(kinds.cast(pa.string()), pa.array(host_kinds))
                              for host_kinds in (["d2h"], ["h2d", "memset"]))
        nothing = pa.scalar(None, INT)
        yield COPIES.build(
            copy_id=self._ids("copy", len(events)), kind=kinds, bytes=_null_if_negative(self.bytes[places]),
            src_device=pc.if_else(from_host, nothing, device), dst_device=pc.if_else(to_host, nothing, device),
            device_id=device, queue_id=_int_column([event_args.queue for event_args in args]),
            stream_id=_int_column([event_args.stream for event_args in args]), source=constant(FORMAT, len(events)),
            correlation_id=_null_if_negative(self.works[places]), **when, **_process_columns(args))

    def _calls(self, domain: str, events: list[RocprofEvent], places: Ints) -> Iterator[pa.Table]:
        events, places, when = self._timed(domain, events, places)
        if not events:
            return
        ids = self._ids("call", len(events))
        yield API_CALLS.build(
            call_id=ids, name=encoded([event.name for event in events]), domain=constant(domain, len(events)),
            correlation_id=_null_if_negative(self.calls[places]), **when,
            **_process_columns([event.args for event in events]))
        text_by_call = [(number, str(event.args.args)) for number, event in zip(ids.tolist(), events, strict=True)
                        if event.args.args]
        if text_by_call:
            yield CALL_ARGUMENTS.build(call_id=[number for number, _ in text_by_call], arguments=[
                msgspec.json.encode({"args": text}).decode() for _, text in text_by_call])

    def _timed(self, kind: str, events: list[RocprofEvent], places: Ints) -> tuple[list[RocprofEvent], Ints,
                                                                                   dict[str, Any]]:
        """Return the events with start and end, their places and their times; the others are left out."""
        edges = (_int_column([event.args.begin for event in events]), _int_column([event.args.end for event in events]))
        fit = self.account.timed(kind, *edges)
        start, end = (integers(edge)[fit] for edge in edges)
        kept = [event for event, fine in zip(events, fit, strict=True) if fine]
        return kept, places[fit], {"t_start_ns": start, "t_end_ns": end, "dur_ns": end - start}

    def _leave_out(self, kind: str, events: list[RocprofEvent]) -> None:
        kind = kind if kind in REASONS else "other"
        times = [(_parse_time(event.args.begin), _parse_time(event.args.end)) for event in events]
        ns = sum(end - begin for begin, end in times if begin and end and end > begin)
        self.account.skip(kind, REASONS[kind], len(events), ns)
        if kind not in ("again", "barrier"):
            where = "rows of no known kind" if kind == "X" else "events of no known phase"
            self.account.unread(where, sum(self.rows.is_like_kernel(event) for event in events))

    def _ids(self, kind: str, count: int) -> Ints:
        first = self.next_id[kind]
        self.next_id[kind] += count
        return np.arange(first, first + count)


def _devices(metadata: dict[str, Any]) -> tuple[CapturedDevice, ...]:
    """Return the GPUs that rocminfo listed for the file. gpu-id is the number of the node."""
    agents: dict[str, dict[str, str]] = {}
    for name, text in metadata.items():
        match = AGENT.fullmatch(name)
        if match and isinstance(text, str):
            agents.setdefault(match[1], {})[match[2]] = text
    gpus = [agent for agent in agents.values()
            if agent.get("DeviceType") == "GPU" and _parse_time(agent.get("Node")) is not None]
    return tuple(CapturedDevice(_int_or_minus_one(gpu["Node"]), gpu.get("MarketingName") or None,
                                gpu.get("Name") or None,
                                _parse_time(gpu.get("ComputeUnit", "").partition("(")[0])) for gpu in gpus)


def _copy_sizes(calls: Ints, works: Ints, sizes: Ints) -> Ints:
    """Return the bytes of each piece of work whose call launched nothing else and states them; else negative."""
    bytes_of_work = np.full(len(works), -1, np.int64)
    ids, first, count = np.unique(works, return_index=True, return_counts=True)
    single = first[(count == 1) & (ids >= 0)]
    called = np.flatnonzero(calls >= 0)
    order = called[np.argsort(calls[called], kind="stable")]
    if len(order):
        at = np.minimum(np.searchsorted(calls[order], works[single]), len(order) - 1)
        bytes_of_work[single] = np.where(calls[order[at]] == works[single], sizes[order[at]], -1)
    return bytes_of_work


def _parse_size(text: Number) -> int:
    match = SIZE.search(text) if isinstance(text, str) else None
    return int(match[1]) if match else -1


def _process_columns(args: Sequence[RocprofEventArgs]) -> dict[str, pa.Array]:
    return {"process_id": _int_column([event_args.pid for event_args in args]),
            "thread_id": _int_column([event_args.tid for event_args in args])}


def _parse_number(value: Number) -> int | None:
    if isinstance(value, str):
        return whole_number(value)
    return value if isinstance(value, int) and -1 << 63 <= value < 1 << 63 else None


def _parse_time(value: Number) -> int | None:
    number = _parse_number(value)
    return number if number is not None and 0 <= number < GREATEST else None


def _int_or_minus_one(value: Number) -> int:
    number = _parse_number(value)
    return -1 if number is None else number


def _int_column(values: Sequence[Number]) -> pa.Array:
    return pa.array([_parse_number(value) for value in values], INT)


def _null_if_negative(values: Ints) -> pa.Array:
    return pa.array(values, mask=values < 0)
