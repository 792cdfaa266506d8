"""Chrome trace events of any tool (JSON, as Perfetto opens them): ranges, instants -> api_calls, counters -> samples.

The domain of a call is the event's category. Times are microseconds in the file, read from its digits. Threads and
processes that the file names instead of numbering get numbers below -1000000, listed in the metadata.
`kineto` builds on this module: it holds what is special to PyTorch, this module what any trace may hold.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain, compress
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import UNSET, Struct, UnsetType, field

from aaco.core.tables import API_CALLS, CALL_ARGUMENTS, SAMPLES
from aaco.profiler.capture import CaptureFacts
from aaco.profiler.formats.onnxruntime.ort import begins_profile
from aaco.profiler.io import jsonstream
from aaco.profiler.io.columns import encoded, integers
from aaco.profiler.io.digits import Times, nanoseconds
from aaco.profiler.io.record_accounting import ABSENT, DEVICE_WORK, RecordAccount

FORMAT = "chrome"
KINETO_MARKS = (b'"External id"', b'"external id"', b'"Ev Idx"', b'"Python id"', b'"cbid"', b'"deviceProperties"',
                b'"baseTimeNanoseconds"')
OTHERS = (b'"BeginNs"', b'"rocprofiler-sdk-tool"')  # rocprof, rocprofv3
# What tools call the rows of a device's work: Ascend, XLA and TensorFlow, and by number.
DEVICE_ROW = re.compile(r"ascend hardware|device:(?!cpu)|^gpu ?\d|^npu ?\d|^stream ?#?\d", re.IGNORECASE)
NAMED_IDS = -1_000_001  # the first number given to a process or thread that has a name instead
MOST_NAMES = 100_000
MOST_KINDS = 1_000
DEEPEST = 10_000
SPANS = ("X", "B", "b")  # phases of events that last
FLOWS = "an arrow: calls and work are linked by correlation id"
NAMES = "it names or orders processes and threads, and is kept as metadata"
FINER = "times are finer than 1 ns; they were rounded to it"
UNREADABLE = "events have arguments of other types than their kind has; what could be read of them was kept"


class ChromeEvent(msgspec.Struct, gc=False):
    """One event as the file has it; times and arguments as their text."""

    ph: str = ""
    cat: str | None = None
    name: str | None = None
    pid: int | str | float | None = None
    tid: int | str | float | None = None
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"")
    args: msgspec.Raw = msgspec.Raw(b"{}")
    id: msgspec.Raw = msgspec.Raw(b"")


class PhasedEvent(ChromeEvent, gc=False):
    """An event of a phase that has a meaning here; its few distinct texts are shared, which is faster."""

    ph: Literal["X", "B", "E", "b", "e", "n", "i", "I", "R", "C", "M", "s", "t", "f", ""] = ""


class CallIds(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """Arguments of a call that only number it. A call with no other arguments gets no row of arguments."""

    external_id: int | None = msgspec.field(name="External id", default=None)
    external_id_1: int | None = msgspec.field(name="external id", default=None)
    correlation: int | None = None
    cbid: int | UnsetType | None = UNSET
    cid: int | UnsetType | None = UNSET
    record: int | UnsetType | None = msgspec.field(name="Record function id", default=UNSET)
    index: int | UnsetType | None = msgspec.field(name="Ev Idx", default=UNSET)
    python: int | UnsetType | None = msgspec.field(name="Python id", default=UNSET)
    parent: int | UnsetType | None = msgspec.field(name="Python parent id", default=UNSET)
    module: int | UnsetType | None = msgspec.field(name="Python module id", default=UNSET)
    finished: bool | UnsetType | None = UNSET


class CallIdsAmongOthers(CallIds, gc=False, forbid_unknown_fields=False):
    """The ids of a call among other arguments."""


_IDS = msgspec.json.Decoder(list[CallIds], strict=False)
_SOME_IDS = msgspec.json.Decoder(list[CallIdsAmongOthers], strict=False)
_SERIES = msgspec.json.Decoder(list[dict[str, Any]])
_MERE = attrgetter("cbid", "cid", "record", "index", "python", "parent", "module", "finished")  # in no column
_MERE_IDS = 8
Groups = dict[tuple[str, str | None], list[ChromeEvent]]


def recognises(path: Path) -> bool:
    """Return whether the file begins as trace events do, and neither as PyTorch's nor as those of a tool with a parser.
    """
    text = jsonstream.head(path)
    return is_trace(text) and not any(mark in text for mark in (*KINETO_MARKS, *OTHERS)) and not begins_profile(text)


def is_trace(text: bytes) -> bool:
    """Return whether a text begins with the array of trace events, bare or under its key."""
    if text[:1] == b"[":
        return text[1:].lstrip()[:1] == b"{" and b'"ph"' in text
    return text[:1] == b"{" and b'"traceEvents"' in text


def parse(path: Path) -> Iterator[pa.Table | CaptureFacts]:
    """Yield pieces of api_calls, call_arguments and samples, then the facts. Raise BadCapture."""
    document = jsonstream.JsonDocument(path, ChromeEvent, expected=[PhasedEvent])
    reader = ChromeReader(RecordAccount(None, from_zero=True))
    for events in document.batches():
        yield from reader.pieces(events)
    reader.close()
    reader.name_device_rows()
    yield reader.account.facts(FORMAT, tuple(document.problems), metadata=document.fields | reader.metadata())


class ChromeReader(Struct):
    """The state after some of a file's events: the account of them, the open ranges, the assigned ids."""

    account: RecordAccount
    calls: int = 0
    latest_ns: int = 0
    _named: dict[str, int] = field(default_factory=dict)
    rows_may_be_devices = True  # whether only the name of a row shows that it is a device
    _by_row: Counter[tuple[Any, Any]] = field(default_factory=Counter)
    _open: dict[tuple[Any, ...], list[ChromeEvent]] = field(default_factory=lambda: defaultdict(list))
    _names: dict[str, dict[str, Any]] = field(default_factory=dict)

    def pieces(self, events: Sequence[ChromeEvent]) -> Iterator[pa.Table]:
        """Yield the tables of some events. Every event becomes a row or is left out with a reason."""
        groups = self._group(events)
        yield from self.device_pieces(groups)
        for phase, category in list(groups):
            if phase in ("X", "i", "I", "R"):
                events_of = groups.pop((phase, category))
                event_durations = durations(events_of) if phase == "X" else at_once(len(events_of))
                yield from self.call_pieces(category, events_of, event_durations)
        if any(phase in "BEbe" for phase, _ in groups):
            yield from self._ranges([event for event in events if event.ph in ("B", "E", "b", "e")])
        yield from self._rest(groups)

    def device_pieces(self, groups: Groups) -> Iterator[pa.Table]:
        """Yield tables of device work and remove its events from the groups: none in a trace of any tool."""
        yield from ()

    def domain(self, category: str | None, name: str | None) -> str | None:
        """Return the domain of the calls of a category, or of those of them with this name."""
        return category

    def note_links(self, categories: Sequence[str | None], processes: pa.Array, links: pa.Array) -> None:
        """Take notice of the correlation ids of calls, all of one category or each of its own."""

    def canonical(self, category: str | None) -> str | None:
        """Return the category's present name."""
        return category

    def kind(self, phase: str, category: str | None) -> str:
        """Return the account's name of such events: a complete event by its category, others also by their phase."""
        category = self.canonical(category)
        kind = category or "none" if phase == "X" else f"{phase} {category or ''}".strip() or "none"
        return kind if kind in self.account.records or len(self.account.records) < MOST_KINDS else "other"

    def close(self) -> None:
        """Leave out the ranges that are open at the end of the file."""
        for event in chain.from_iterable(self._open.values()):
            self.account.leave_out(self.kind(event.ph, event.cat), "a range that is never ended", 1)
        self._open.clear()

    def metadata(self) -> dict[str, Any]:
        """Return names of processes and threads, and the numbers assigned to those that have only a name."""
        return self._names | ({"named_ids": dict(self._named)} if self._named else {})

    def timed(self, events: list[ChromeEvent], event_durations: Times) -> tuple[list[ChromeEvent], np.ndarray,
                                                                                np.ndarray]:
        """Return those of some events of one kind that have times, their starts and durations (ns); the others are left
        out.
        """
        starts = nanoseconds([event.ts for event in events])
        self.account.trouble(FINER, starts.rounded + event_durations.rounded)
        self.latest_ns = max(self.latest_ns, int(starts.ns.max(initial=0)))
        begin = starts.ns + self.account.zero_ns
        if not events:
            return events, begin, begin
        is_known = starts.is_known & event_durations.is_known
        fit = self._placed(events[0], begin, begin + event_durations.ns, is_known)
        return (events if fit.all() else list(compress(events, fit))), begin[fit], event_durations.ns[fit]

    def _placed(self, event: ChromeEvent, begin: np.ndarray, end: np.ndarray, is_known: np.ndarray) -> np.ndarray:
        """Return the mask of the events like this one that can be placed in time; account for the others."""
        begin, end = (np.where(is_known, edge, ABSENT) for edge in (begin, end))
        return self.account.placed(self.kind(event.ph, event.cat), begin, end, instants=event.ph not in SPANS)

    def numbers(self, values: list[Any]) -> pa.Array:
        """Return processes or threads as numbers; those that have only a name get one."""
        try:
            return pa.array(values, pa.int64())
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            return pa.array([self._number(value) for value in values], pa.int64())

    def call_pieces(self, category: str | None, events: list[ChromeEvent], event_durations: Times,
                    on_device: bool = False,
                    ) -> Iterator[pa.Table]:
        """Yield api_calls and call_arguments of a category. On a device, process and thread are device and stream."""
        timed, start, took = self.timed(events, event_durations)
        if timed and not on_device:
            self._note_device_work(category, timed)
        if timed:
            yield from self._calls(timed, [category], start, took, on_device)

    def _note_device_work(self, category: str | None, events: list[ChromeEvent]) -> None:
        """Note events that look like work of a device, by their category or by the row of the picture they are in."""
        if category and DEVICE_WORK.search(category):
            self.account.unread(category, len(events))
        elif self.rows_may_be_devices:
            self._by_row.update((event.pid, event.tid) for event in events)

    def name_device_rows(self) -> None:
        """Name the rows of the picture that look like those of a device: their events were read as calls."""
        for (process, thread), count in self._by_row.items():
            names = (str(self._names.get(kind, {}).get(key, "")) for kind, key in (
                ("processes", f"{process}"), ("threads", f"{process}/{thread}")))
            if name := next(filter(DEVICE_ROW.search, names), None):
                self.account.unread(name, count)

    def arguments(self, events: Sequence[ChromeEvent], decoder: Any, kind: Any) -> list[Any]:
        """Return the events' arguments, typed; if some are of other types than their kind has, what can be read of
        them.
        """
        texts = [event.args for event in events]
        try:
            return decoder.decode(b"[" + b",".join(texts) + b"]")
        except msgspec.ValidationError:
            return [self._read_arguments(bytes(text), kind) for text in texts]

    def _read_arguments(self, text: bytes, kind: Any) -> Any:
        try:
            return msgspec.json.decode(text, type=kind, strict=False)
        except msgspec.ValidationError:
            self.account.trouble(UNREADABLE, 1)
        try:
            decoded = msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.ValidationError:
            return kind()
        fields = {}
        for struct_field in msgspec.structs.fields(kind):
            if struct_field.encode_name in decoded:
                try:
                    fields[struct_field.name] = msgspec.convert(decoded[struct_field.encode_name], struct_field.type,
                                                                strict=False)
                except msgspec.ValidationError:
                    continue
        return kind(**fields)

    def _group(self, events: Sequence[ChromeEvent]) -> Groups:
        groups: Groups = defaultdict(list)
        for event in events:
            groups[event.ph, event.cat].append(event)
        for (phase, category), group in groups.items():
            self.account.saw(self.kind(phase, category), len(group))
        return groups

    def _calls(self, events: list[ChromeEvent], categories: Sequence[str | None], start: np.ndarray,
               call_durations: np.ndarray,
               on_device: bool = False) -> Iterator[pa.Table]:
        """Yield rows of calls, all of one category or each of its own."""
        names = encoded([event.name for event in events])
        ids, kept = self._ids(events)
        keys = np.arange(self.calls, self.calls + len(events))
        self.calls += len(events)
        first, second = (self.numbers([event.pid for event in events]), self.numbers([event.tid for event in events]))
        links = integers([call_ids.correlation for call_ids in ids])
        self.note_links(categories, first, links)
        place_names = ("device_id", "stream_id") if on_device else ("process_id", "thread_id")
        yield API_CALLS.build(
            call_id=keys, name=names, domain=self._domains(categories, names),
            correlation_id=links,
            external_id=integers([call_ids.external_id if call_ids.external_id_1 is None else call_ids.external_id_1
                                  for call_ids in ids]),
            t_start_ns=start, t_end_ns=start + call_durations, dur_ns=call_durations,
            **dict(zip(place_names, (first, second), strict=True)))
        if kept:
            texts = pa.array([bytes(events[index].args) for index in kept], pa.binary()).cast(pa.string())
            yield CALL_ARGUMENTS.build(call_id=keys[kept], arguments=texts)

    def _domains(self, categories: Sequence[str | None], names: pa.DictionaryArray) -> pa.Array:
        if len(categories) > 1:
            pairs = zip(categories, names.to_pylist(), strict=True)
            return encoded([self.domain(category, name) for category, name in pairs])
        distinct = encoded([self.domain(categories[0], name) for name in names.dictionary.to_pylist()])
        return pa.DictionaryArray.from_arrays(distinct.indices.take(names.indices), distinct.dictionary)

    def _ids(self, events: list[ChromeEvent]) -> tuple[list[Any], list[int]]:
        """Return the ids of the calls, and the indices of the calls that have other arguments."""
        try:
            return _IDS.decode(b"[" + b",".join([event.args for event in events]) + b"]"), []
        except msgspec.ValidationError:
            ids = self.arguments(events, _SOME_IDS, CallIdsAmongOthers)
        # Every argument has its colon: with more colons than ids there is something else (or a colon in a text).
        more = [bytes(event.args).count(b":") + _MERE(numbered).count(UNSET) - _MERE_IDS
                - (numbered.correlation is not None)
                - (numbered.external_id is not None) - (numbered.external_id_1 is not None)
                for event, numbered in zip(events, ids, strict=True)]
        return ids, [index for index, count in enumerate(more) if count]

    def _ranges(self, events: list[ChromeEvent]) -> Iterator[pa.Table]:
        """Yield begins and ends, in file order; a range is complete with its end."""
        pairs = []
        for event in events:
            key = (event.ph in "BE", event.pid, *((event.tid,) if event.ph in "BE" else (event.cat, bytes(event.id))))
            stack, kind = self._open[key], self.kind(event.ph, event.cat)
            if event.ph in "Bb" and len(stack) < DEEPEST:
                stack.append(event)
            elif event.ph in "Bb":
                self.account.leave_out(kind, f"nested over {DEEPEST} deep", 1)
            elif stack:
                self.account.leave_out(kind, "its begin is the row of the range", 1)
                pairs.append((stack.pop(), event))
            else:
                self.account.leave_out(kind, "the end of a range that never began", 1)
            if not stack:
                del self._open[key]
        yield from self._pair_ranges(pairs)

    def _pair_ranges(self, pairs: list[tuple[ChromeEvent, ChromeEvent]]) -> Iterator[pa.Table]:
        starts, ends = (nanoseconds([pair[side].ts for pair in pairs]) for side in (0, 1))
        self.account.trouble(FINER, starts.rounded + ends.rounded)
        zero_ns, fit = self.account.zero_ns, np.zeros(len(pairs), bool)
        edges = starts.ns + zero_ns, ends.ns + zero_ns, starts.is_known & ends.is_known
        kinds = encoded([f"{begin.ph}{begin.cat}" for begin, _ in pairs]).indices.to_numpy()
        for first in np.unique(kinds, return_index=True)[1]:
            rows = kinds == kinds[first]
            fit[rows] = self._placed(pairs[first][0], *(edge[rows] for edge in edges))
            self._note_device_work(pairs[first][0].cat, [pairs[row][0] for row in np.flatnonzero(rows)])
        begins = [begin for (begin, _), good in zip(pairs, fit, strict=True) if good]
        if begins:
            yield from self._calls(begins, [begin.cat for begin in begins], starts.ns[fit] + zero_ns,
                                   (ends.ns - starts.ns)[fit])

    def _rest(self, groups: Groups) -> Iterator[pa.Table]:
        for (phase, category), events in groups.items():
            kind = self.kind(phase, category)
            if phase == "C":
                yield from self._counters(events, kind)
            elif phase == "M":
                self._note_names(events)
                self.account.leave_out(kind, NAMES, len(events))
            elif phase in ("s", "t", "f"):
                self.account.leave_out(kind, FLOWS, len(events))
            elif phase not in ("B", "E", "b", "e"):
                self.account.leave_out(kind, "of a phase that no table holds", len(events))
                self._note_device_work(category, events)

    def _counters(self, events: list[ChromeEvent], kind: str) -> Iterator[pa.Table]:
        """Yield one sample per series of a counter event."""
        timed, start, _ = self.timed(events, at_once(len(events)))
        series_by_event = self.arguments(timed, _SERIES, dict[str, Any])
        rows = [(index, _series_name(event.name, key, len(value_by_series)), float(value))
                for index, (event, value_by_series) in enumerate(zip(timed, series_by_event, strict=True))
                for key, value in value_by_series.items()
                if isinstance(value, int | float) and abs(value) < 1e308]
        self.account.leave_out(kind, "a counter without a number", len(timed) - len({index for index, _, _ in rows}))
        if rows:
            event_indices = [index for index, _, _ in rows]
            processes = self.numbers([event.pid for event in timed])
            yield SAMPLES.build(t_ns=start[event_indices], name=encoded([name for _, name, _ in rows]),
                                value=[value for _, _, value in rows],
                                process_id=processes.take(pa.array(event_indices)))

    def _note_names(self, events: list[ChromeEvent]) -> None:
        for event in events:
            names = self._names.setdefault({"process_name": "processes", "thread_name": "threads",
                                            "process_labels": "labels"}.get(event.name or "", ""), {})
            key = f"{event.pid}/{event.tid}" if event.name == "thread_name" else f"{event.pid}"
            if len(names) < MOST_NAMES:
                names[key] = next(iter(self.arguments([event], _SERIES, dict[str, Any])[0].values()), None)
        self._names.pop("", None)

    def _number(self, value: Any) -> int | None:
        if value is None or (isinstance(value, int) and abs(value) < 1 << 63):
            return value
        if isinstance(value, str) and value.isdecimal() and len(value) < 19:
            return int(value)
        if str(value) not in self._named and len(self._named) >= MOST_NAMES:
            return None
        return self._named.setdefault(str(value), NAMED_IDS - len(self._named))


def durations(events: Sequence[ChromeEvent]) -> Times:
    """Return the durations of complete events."""
    return nanoseconds([event.dur for event in events])


def at_once(count: int) -> Times:
    """Return the durations of instants."""
    return Times(np.zeros(count, np.int64), np.ones(count, bool))


def _series_name(name: str | None, key: str, series: int) -> str:
    return f"{name} {key}" if series > 1 and name else name or key
