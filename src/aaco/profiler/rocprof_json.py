"""rocprof's results.json (Chrome trace events): kernels, copies, calls of HIP, HSA and rocTX, with the arrows between.

The times of an event are whole microseconds; its arguments have them in ns, and those are read. The file has no
correlation ids, but arrows: a call and what it launched get the arrow's id. To know it in time the file is read twice.

A dispatch that the profiler intercepted has registers and sizes; one that HIP's activity records tell of has a stream
and an arrow. With both, every kernel stands in the file twice: the fuller set is taken, the other left out. Sizes are
totals: they stand in grid_x and block_x. A barrier packet is no kernel. Where an arrow leads from one hipMemcpy to one
copy, the call's size is the copy's.
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

from aaco.core.errors import BadCapture
from aaco.core.tables import API_CALLS, CALL_ARGUMENTS, COPIES, INT, KERNELS
from aaco.profiler import jsonstream
from aaco.profiler.capture import Device, Facts
from aaco.profiler.columns import bare, constant, encoded
from aaco.profiler.csvstream import GREATEST, whole_number
from aaco.profiler.ledger import Ledger, total
from aaco.profiler.rocm_labels import direction
from aaco.profiler.rocprof_links import Ints, Spots, linked, paired

FORMAT = "rocprof_json"
FIX = "record it again: rocprof --hip-trace PROGRAM; or with rocprofv3, which AMD still keeps up"
START = re.compile(rb'\{\s*"traceEvents"\s*:\s*\[\s*\{\s*\}')
MARK = b'"BeginNs"'
NO_TIME = "its start or end in ns is missing or no time"
ARROW = "an arrow: it links a call and its work"
REASONS = {
    "barrier": "it orders the queue and is no kernel", "again": "the same execution stands in the file twice",
    "M": "it names a row of the picture", "s": ARROW, "t": ARROW, "f": ARROW, "none": "it is empty",
    "X": "its row of the picture is of no known kind", "other": "of a phase that no table holds"}
BARRIER = "<barrier packet>"
SIZE = re.compile(r"\bsizeBytes\((\d{1,18})\)")
AGENT = re.compile(r"Agent(\d{1,4})\.(Name|MarketingName|Node|DeviceType|ComputeUnit)")
DOMAINS = {"CPU HIP API": "hip", "CPU HSA API": "hsa", "CPU KFD API": "kfd", "Markers and Ranges": "marker"}
MOST_ROWS = 1_000_000  # of the picture
Number = str | int | float | None


class Args(msgspec.Struct, gc=False):
    """The arguments of an event, as text for the most part."""

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


class Event(msgspec.Struct, gc=False):
    """An event of the picture: `pid` is its row, `tid` its lane."""

    ph: str = ""
    name: str = ""
    pid: Number = None
    tid: Number = None
    ts: Number = None
    id: Number = None
    args: Args = msgspec.field(default_factory=Args)


def recognises(path: Path) -> bool:
    """Whether the file begins as rocprof writes it, and its events have their times in ns."""
    head = jsonstream.head(path)
    return bool(START.match(head)) and MARK in head


def parse(path: Path) -> Iterator[pa.Table | Facts]:
    """`kernels`, `copies`, `api_calls` and `call_arguments`, then the Facts. Raises BadCapture."""
    known = _Picture()
    for events in jsonstream.Document(path, Event).batches():
        known.add(events)
    document, results = jsonstream.Document(path, Event), _Results(known)
    for events in document.batches():
        yield from results.pieces(events)
    if not results.next_id and results.ledger.records["X"]:
        raise BadCapture(f"{path}: no event in it is drawn as rocprof draws them", FIX)
    yield results.facts(document)


class _Rows:
    """The rows of the picture, as far as the file has named them: what is drawn in one is told by its name."""

    def __init__(self) -> None:
        self._labels: dict[int, str] = {}

    def kind(self, event: Event) -> str:
        """What the event is: kernel, barrier, copy, the domain of a call, or else its phase."""
        row = _int(event.pid)
        if event.ph == "M" and event.name == "process_name" and len(self._labels) < MOST_ROWS:
            self._labels[row] = str(event.args.label)
        if event.ph != "X":
            return event.ph or "none"
        label = self._labels.get(row, "")
        if label.startswith("GPU"):
            return "barrier" if "Barrier" in label or event.name == BARRIER else "kernel"
        return "copy" if label == "COPY" else DOMAINS.get(label, "X")


class _Picture:
    """What must be known of all events before the first becomes a row: arrows, and which set of kernels is fuller."""

    def __init__(self) -> None:
        self.rows = _Rows()
        self.kernels = Counter({"intercepted": 0, "activity": 0})
        self._parts: dict[str, list[Spots]] = {"call": [], "work": [], "s": [], "t": []}
        self._ids: dict[str, list[Ints]] = {"s": [], "t": []}
        self._sizes: list[Ints] = []

    def add(self, events: Sequence[Event]) -> None:
        """Look at some events."""
        spots: dict[str, list[tuple[int, int, int]]] = {name: [] for name in self._parts}
        ids: dict[str, list[int]] = {"s": [], "t": []}
        sizes = []
        for event in events:
            kind = self.rows.kind(event)
            what = "call" if kind in DOMAINS.values() else "work" if kind in ("kernel", "copy") else event.ph
            if what in spots:
                spots[what].append((_int(event.pid), _int(event.tid), _int(event.ts)))
            if what in ids:
                ids[what].append(_int(event.id))
            if what == "call":
                sizes.append(_size(event.args.args))
            if kind == "kernel":
                self.kernels["activity" if event.args.kernel is None else "intercepted"] += 1
        for name, found in spots.items():
            self._parts[name].append(Spots.of(found))
        for name, numbers in ids.items():
            self._ids[name].append(np.array(numbers, np.int64))
        self._sizes.append(np.array(sizes, np.int64))

    def links(self) -> tuple[Ints, Ints, Ints]:
        """In the order of the file: the id of each call, of each kernel or copy, and the bytes of the latter."""
        spots = {name: Spots.all(parts) for name, parts in self._parts.items()}
        ids = {name: np.concatenate([np.zeros(0, np.int64), *numbers]) for name, numbers in self._ids.items()}
        arrows = paired(ids["t"], spots["t"], ids["s"], spots["s"])
        calls, works = linked(arrows, spots["call"], spots["work"])
        return calls, works, _sized(calls, works, np.concatenate([np.zeros(0, np.int64), *self._sizes]))


class _Results:
    """Turns events into rows, and keeps the account."""

    def __init__(self, picture: _Picture) -> None:
        self.rows = _Rows()  # which forgets nothing and knows no more at any event than the first reading did
        self.calls, self.works, self.bytes = picture.links()
        counts = picture.kernels
        self.used = "intercepted" if counts["intercepted"] >= counts["activity"] else "activity"
        self.ledger = Ledger("kernel" if sum(counts.values()) else None)
        self.at = {"call": 0, "work": 0}  # how many of each have been seen
        self.next_id = Counter[str]()

    def pieces(self, events: Sequence[Event]) -> Iterator[pa.Table]:
        """The tables that some events make."""
        groups: dict[str, list[Event]] = {}
        places: dict[str, list[int]] = {}
        for event in events:
            kind = self.rows.kind(event)
            groups.setdefault(kind, []).append(event)
            thing = "call" if kind in DOMAINS.values() else "work" if kind in ("kernel", "copy") else None
            if thing:
                places.setdefault(kind, []).append(self.at[thing])
                self.at[thing] += 1
        make: dict[str, Callable[[list[Event], Ints], Iterator[pa.Table]]] = {
            "kernel": self._kernels, "copy": self._copies}
        for kind, members in groups.items():
            if kind in DOMAINS.values():
                yield from self._called(kind, members, np.array(places[kind], np.int64))
            elif kind in make:
                yield from make[kind](members, np.array(places[kind], np.int64))
            else:
                self._leave(kind, members)

    def facts(self, document: jsonstream.Document[Event]) -> Facts:
        """What the file says of itself."""
        other = document.fields.get("otherData")
        return self.ledger.facts(FORMAT, tuple(document.problems), tool="rocprof",
                                 devices=_devices(other if isinstance(other, dict) else {}))

    def _kernels(self, events: list[Event], places: Ints) -> Iterator[pa.Table]:
        fuller = np.array([("activity" if event.args.kernel is None else "intercepted") == self.used
                           for event in events])
        self._leave("again", [event for event, mine in zip(events, fuller, strict=True) if not mine])
        events = [event for event, mine in zip(events, fuller, strict=True) if mine]
        events, places, when = self._timed("kernel", events, places[fuller])
        if not events:
            return
        self.ledger.kernel_ns += total(when["dur_ns"])
        args = [event.args for event in events]
        yield KERNELS.build(
            kernel_id=self._ids("kernel", len(events)), kernel_name=encoded([bare(event.name) for event in events]),
            device_id=_ints([one.device if one.gpu is None else one.gpu for one in args]),
            queue_id=_ints([one.queue for one in args]), stream_id=_ints([one.stream for one in args]),
            grid_x=_ints([one.grd for one in args]), block_x=_ints([one.wgr for one in args]),
            lds_bytes=_ints([one.lds for one in args]), scratch_bytes=_ints([one.scr for one in args]),
            vgpr=_ints([one.vgpr if one.arch_vgpr is None else one.arch_vgpr for one in args]),
            agpr=_ints([one.accum_vgpr for one in args]), sgpr=_ints([one.sgpr for one in args]),
            source=constant(FORMAT, len(events)), timed=constant("execution", len(events)),
            correlation_id=_masked(self.works[places]), **when, **_process(args))

    def _copies(self, events: list[Event], places: Ints) -> Iterator[pa.Table]:
        events, places, when = self._timed("copy", events, places)
        if not events:
            return
        args = [event.args for event in events]
        kinds = encoded([direction(event.name) for event in events])
        device = _ints([one.device for one in args])
        to_host, from_host = (pc.is_in(kinds.cast(pa.string()), pa.array(each))
                              for each in (["d2h"], ["h2d", "memset"]))
        nothing = pa.scalar(None, INT)
        yield COPIES.build(
            copy_id=self._ids("copy", len(events)), kind=kinds, bytes=_masked(self.bytes[places]),
            src_device=pc.if_else(from_host, nothing, device), dst_device=pc.if_else(to_host, nothing, device),
            device_id=device, queue_id=_ints([one.queue for one in args]),
            stream_id=_ints([one.stream for one in args]), source=constant(FORMAT, len(events)),
            correlation_id=_masked(self.works[places]), **when, **_process(args))

    def _called(self, domain: str, events: list[Event], places: Ints) -> Iterator[pa.Table]:
        events, places, when = self._timed(domain, events, places)
        if not events:
            return
        ids = self._ids("call", len(events))
        yield API_CALLS.build(
            call_id=ids, name=encoded([event.name for event in events]), domain=constant(domain, len(events)),
            correlation_id=_masked(self.calls[places]), **when, **_process([event.args for event in events]))
        told = [(number, str(event.args.args)) for number, event in zip(ids.tolist(), events, strict=True)
                if event.args.args]
        if told:
            yield CALL_ARGUMENTS.build(call_id=[number for number, _ in told], arguments=[
                msgspec.json.encode({"args": text}).decode() for _, text in told])

    def _timed(self, kind: str, events: list[Event], places: Ints) -> tuple[list[Event], Ints, dict[str, Any]]:
        """The events with start and end, and these; the others are left out."""
        self.ledger.saw(kind, len(events))
        times = [(_time(event.args.begin), _time(event.args.end)) for event in events]
        good = np.array([begin is not None and end is not None for begin, end in times], bool)
        self.ledger.leave_out(kind, NO_TIME, int((~good).sum()))
        start, end = np.array([time for time, fine in zip(times, good, strict=True) if fine], np.int64).reshape(-1, 2).T
        self.ledger.trouble(f"{kind} records end before they start", int((end < start).sum()))
        self.ledger.trouble(f"{kind} records start or end at time 0", int(((start == 0) | (end == 0)).sum()))
        kept = [event for event, fine in zip(events, good, strict=True) if fine]
        return kept, places[good], {"t_start_ns": start, "t_end_ns": end, "dur_ns": end - start}

    def _leave(self, kind: str, events: list[Event]) -> None:
        kind = kind if kind in REASONS else "other"
        times = [(_time(event.args.begin), _time(event.args.end)) for event in events]
        ns = sum(end - begin for begin, end in times if begin is not None and end is not None)
        self.ledger.saw(kind, len(events))
        self.ledger.leave_out(kind, REASONS[kind], len(events), ns)

    def _ids(self, kind: str, count: int) -> Ints:
        first = self.next_id[kind]
        self.next_id[kind] += count
        return np.arange(first, first + count)


def _devices(other: dict[str, Any]) -> tuple[Device, ...]:
    """The GPUs that rocminfo listed for the file. gpu-id is the number of the node."""
    agents: dict[str, dict[str, str]] = {}
    for name, value in other.items():
        found = AGENT.fullmatch(name)
        if found and isinstance(value, str):
            agents.setdefault(found[1], {})[found[2]] = value
    gpus = [agent for agent in agents.values()
            if agent.get("DeviceType") == "GPU" and _time(agent.get("Node")) is not None]
    return tuple(Device(_int(gpu["Node"]), gpu.get("MarketingName") or None, gpu.get("Name") or None,
                        _time(gpu.get("ComputeUnit", "").partition("(")[0])) for gpu in gpus)


def _sized(calls: Ints, works: Ints, sizes: Ints) -> Ints:
    """The bytes of each piece of work whose call launched nothing else and says them; else negative."""
    found = np.full(len(works), -1, np.int64)
    ids, first, count = np.unique(works, return_index=True, return_counts=True)
    lone = first[(count == 1) & (ids >= 0)]
    called = np.flatnonzero(calls >= 0)
    order = called[np.argsort(calls[called], kind="stable")]
    if len(order):
        at = np.minimum(np.searchsorted(calls[order], works[lone]), len(order) - 1)
        found[lone] = np.where(calls[order[at]] == works[lone], sizes[order[at]], -1)
    return found


def _size(text: Number) -> int:
    found = SIZE.search(text) if isinstance(text, str) else None
    return int(found[1]) if found else -1


def _process(args: Sequence[Args]) -> dict[str, pa.Array]:
    return {"process_id": _ints([one.pid for one in args]), "thread_id": _ints([one.tid for one in args])}


def _number(value: Number) -> int | None:
    if isinstance(value, str):
        return whole_number(value)
    return value if isinstance(value, int) and -1 << 63 <= value < 1 << 63 else None


def _time(value: Number) -> int | None:
    number = _number(value)
    return number if number is not None and 0 <= number < GREATEST else None


def _int(value: Number) -> int:
    number = _number(value)
    return -1 if number is None else number


def _ints(values: Sequence[Number]) -> pa.Array:
    return pa.array([_number(value) for value in values], INT)


def _masked(values: Ints) -> pa.Array:
    return pa.array(values, mask=values < 0)
