"""Text that roctracer's tool prints, and the *_trace.txt files that rocprof (v1) makes its results of, a record a line:

    begin:end process:thread function(arguments) = result :correlation      a call of HIP or HSA
    begin:end device:queue name:correlation:process                        a kernel or a copy
    begin:end async-copy:number:process                                    a copy that HSA reports
    time process:thread what:range:"message"                               roctx: mark, push, pop, start, stop
    function correlation_id(n) time_ns(begin:end) process_id(p) thread_id(t)
    name correlation_id(n) time_ns(begin:end) device_id(d) queue_id(q) bytes(b)

Whatever else a program printed in between is left out by the line. Older tools give calls no correlation id, and
number what HSA copies by itself: null. Callbacks (`on-enter`, `on-exit`) have no times. With several processes in the
text, correlation ids of the n-th are moved up by n x 2^48; a record that names none is taken to be of the first.
rocprof's files that belong together are one capture.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from aaco.core.errors import BadCapture
from aaco.core.tables import API_CALLS, CALL_ARGUMENTS, COPIES, KERNELS
from aaco.profiler import csvstream
from aaco.profiler.capture import Facts
from aaco.profiler.columns import bare, constant, encoded, integers
from aaco.profiler.ledger import Ledger
from aaco.profiler.rocm_labels import direction

FORMAT = "roctracer"
FIX = "record it again with rocprofv3, which AMD still keeps up"
LONGEST_LINE_BYTES = 1 << 20
HEAD_BYTES = 1 << 18
PIECE_ROWS = 1 << 16
MOST_OPEN = 1_000_000
PER_PROCESS = 1 << 48
LATEST_NS = 1 << 62
N = rb"(\d{1,19})"
# The end may be missing: an old tool stopped writing the line where an argument was no text.
CALL = re.compile(rb"%b:%b %b:%b ([A-Za-z_]\w*)\((.*?)(?:\)(?: = (\S+))?(?: kernel=(.*?))?(?: ?:%b)?)?"
                  % (N, N, N, N, N), re.DOTALL)
WORK = re.compile(rb"%b:%b %b:%b (.+):%b:%b" % (N, N, N, N, N, N), re.DOTALL)
ASYNC = re.compile(rb"%b:%b async-copy(?:\d*|:\d+:%b)" % (N, N, N))
ROCTX = re.compile(rb'%b %b:%b ([0-4]):%b:"(.*)"' % (N, N, N, N), re.DOTALL)
RECORD = re.compile(rb"\s*:?([^\t]+?)\s*:? *correlation_id\(%b\) time_ns\(%b:%b\)(.*)" % (N, N, N), re.DOTALL)
DETAIL = re.compile(rb"(process_id|thread_id|device_id|queue_id|bytes)\((0x[0-9a-f]{1,16}|\d{1,19})\)")
CALLBACK = re.compile(rb"<.*correlation_id\(\d+\) on-(?:enter|exit) .*", re.DOTALL)
FORMS = (CALL, WORK, ASYNC, ROCTX, RECORD)
MARK, PUSH, POP, START, STOP = range(5)
TOGETHER = ("hcc_ops_trace.txt", "hip_api_trace.txt", "hsa_api_trace.txt", "async_copy_trace.txt", "roctx_trace.txt")
BARRIER = re.compile(r"Marker|<barrier packet>")


def recognises(path: Path) -> bool:
    """Whether a line near the beginning is a record of roctracer."""
    try:
        with csvstream.opened(path) as file:
            head = file.read(HEAD_BYTES)
    except BadCapture:
        return False
    return b"\0" not in head and any(_form(line) for line in head.split(b"\n"))


def members(path: Path) -> Sequence[Path]:
    """The trace files of the same folder that rocprof makes its results of, the device's first; else the file alone."""
    if path.name not in TOGETHER:
        return [path]
    return [each for each in (path.with_name(name) for name in TOGETHER) if each == path or recognises(each)]


def parse(path: Path) -> Iterator[pa.Table | Facts]:
    """`kernels`, `copies`, `api_calls` and `call_arguments`, then the Facts. Raises BadCapture."""
    text = _Text()
    for each in members(path):
        for line in _lines(each):
            text.take(line)
            if text.full:
                yield from text.pieces()
    text.close()
    yield from text.pieces()
    if not text.count:
        raise BadCapture(f"{path}: no line of it is a record of roctracer", FIX)
    yield text.facts()


def _lines(path: Path) -> Iterator[bytes]:
    """The lines, each up to LONGEST_LINE_BYTES."""
    with csvstream.opened(path) as file:
        while line := file.readline(LONGEST_LINE_BYTES):
            rest = line
            while not rest.endswith(b"\n") and (rest := file.readline(LONGEST_LINE_BYTES)):
                pass
            yield line.rstrip(b"\r\n")


def _form(line: bytes) -> re.Match[bytes] | None:
    line = line.rstrip(b"\r")
    return next((found for form in FORMS if (found := form.fullmatch(line))), None)


class _Text:
    """The records so far."""

    def __init__(self) -> None:
        self.ledger = Ledger(None)
        self.count: Counter[str] = Counter()
        self.rows: dict[str, list[tuple[Any, ...]]] = {"kernel": [], "copy": [], "call": [], "argument": []}
        self.processes: dict[int, int] = {}
        self.open: dict[tuple[int, int, bool], list[tuple[int, str]]] = {}  # pushed, or started, and not ended
        self.opened = 0
        self.forms: tuple[tuple[re.Pattern[bytes], Callable[[re.Match[bytes]], None]], ...] = (
            (WORK, self._work), (CALL, self._call), (ASYNC, self._async), (ROCTX, self._roctx), (RECORD, self._record))

    def take(self, line: bytes) -> None:
        """Read a line."""
        for form, read in self.forms:
            if found := form.fullmatch(line):
                read(found)
                return
        if CALLBACK.fullmatch(line):
            self._leave("callback", "it has no time")
        elif line.strip():
            self._leave("line", "no record of the tracer")

    @property
    def full(self) -> bool:
        """Whether there are enough rows for a piece."""
        return max(map(len, self.rows.values())) >= PIECE_ROWS

    def close(self) -> None:
        """Settle the ranges that are still open."""
        for stack in self.open.values():
            for _ in stack:
                self._leave("call", "a range that is never ended")
        self.open.clear()

    def pieces(self) -> Iterator[pa.Table]:
        """The rows since the last call."""
        kernels, copies, calls, told = (self.rows[name] for name in ("kernel", "copy", "call", "argument"))
        if kernels:
            (ids, names, device, queue), when = _columns(kernels, 4)
            yield KERNELS.build(kernel_id=ids, kernel_name=encoded(names), device_id=integers(device),
                                queue_id=integers(queue), source=constant(FORMAT, len(ids)),
                                timed=constant("execution", len(ids)), **when)
        if copies:
            (ids, kinds, size, device, queue), when = _columns(copies, 5)
            from_device = [None if kind in ("h2d", "h2h", "memset") else on
                           for kind, on in zip(kinds, device, strict=True)]
            to_device = [None if kind in ("d2h", "h2h") else on for kind, on in zip(kinds, device, strict=True)]
            yield COPIES.build(copy_id=ids, kind=encoded(kinds), bytes=integers(size), device_id=integers(device),
                               src_device=integers(from_device), dst_device=integers(to_device),
                               queue_id=integers(queue), source=constant(FORMAT, len(ids)), **when)
        if calls:
            (ids, names, domains), when = _columns(calls, 3)
            yield API_CALLS.build(call_id=ids, name=encoded(names), domain=encoded(domains), **when)
        if told:
            ids, arguments = zip(*told, strict=True)
            yield CALL_ARGUMENTS.build(call_id=ids, arguments=arguments)
        for rows in self.rows.values():
            rows.clear()

    def facts(self) -> Facts:
        """What the text says of itself."""
        if self.count["kernel"]:
            self.ledger.kernel = "kernel"
        return self.ledger.facts(FORMAT, tool="roctracer")

    def _call(self, found: re.Match[bytes]) -> None:
        begin, end, process, thread = map(int, found.groups()[:4])
        told = {"args": found[6], "result": found[7], "kernel": found[8]}
        self._make_call((begin, end, process, thread), _text(found[5]), int(found[9]) if found[9] else None,
                        {name: _text(value) for name, value in told.items() if value})

    def _work(self, found: re.Match[bytes]) -> None:
        begin, end, device, queue = map(int, found.groups()[:4])
        self._make_work((begin, end, int(found[7]), None), _text(found[5]), int(found[6]), (device, queue, None))

    def _async(self, found: re.Match[bytes]) -> None:
        process = int(found[3]) if found[3] else None
        self._make_work((int(found[1]), int(found[2]), process, None), "async-copy", None, (None, None, None))

    def _record(self, found: re.Match[bytes]) -> None:
        detail = {_text(name): int(value, 16 if value.startswith(b"0x") else 10)
                  for name, value in DETAIL.findall(found[5])}
        name, when = _text(found[1]).strip(), (int(found[3]), int(found[4]), detail.get("process_id"),
                                               detail.get("thread_id"))
        if "device_id" in detail or direction(name) != "unknown":
            self._make_work(when, name, int(found[2]), (detail.get("device_id"), detail.get("queue_id"),
                                                        detail.get("bytes") or None))
        elif name.lstrip("_").startswith(("hip", "hsa")):
            self._make_call(when, name, int(found[2]), {})
        else:  # such as EXT_API, the id that a program gave to calls
            self._leave("record", "neither a call nor work of a device")

    def _roctx(self, found: re.Match[bytes]) -> None:
        time, process, thread, what, number = (int(found[at]) for at in range(1, 6))
        key = (process, number if what in (START, STOP) else thread, what in (START, STOP))
        if what == MARK:
            self._make_call((time, time, process, thread), _text(found[6]), None, {}, "marker")
        elif what in (PUSH, START):
            if self.opened < MOST_OPEN:
                self.open.setdefault(key, []).append((time, _text(found[6])))
                self.opened += 1
            else:
                self._leave("call", f"more than {MOST_OPEN:,} ranges are open at a time")
        elif self.open.get(key):
            begin, name = self.open[key].pop()
            self.opened -= 1
            if not self.open[key]:
                del self.open[key]
            self._leave("range end", "the range is a row with its begin")
            self._make_call((begin, time, process, thread), name, None, {}, "marker")
        else:
            self._leave("range end", "of a range that never began")

    def _make_call(self, when: tuple[Any, ...], name: str, correlation: int | None, arguments: dict[str, str],
                   domain: str | None = None) -> None:
        if self._entered("call", when):
            number = self._next("call")
            domain = domain or ("hsa" if name.startswith("hsa") else "hip")
            self.rows["call"].append((number, name, domain, *self._placed(when, correlation)))
            if arguments:
                self.rows["argument"].append((number, json.dumps(arguments, ensure_ascii=False)))

    def _make_work(self, when: tuple[Any, ...], name: str, correlation: int | None, place: tuple[Any, ...]) -> None:
        if BARRIER.search(name):
            self._leave("barrier", "it orders the queue and is no kernel", when[1] - when[0])
            return
        kind = "copy" if name == "async-copy" or direction(name) != "unknown" or "Copy" in name else "kernel"
        if not self._entered(kind, when):
            return
        device, queue, size = place
        if kind == "copy":
            self.rows[kind].append((self._next(kind), direction(name), size, device, queue,
                                    *self._placed(when, correlation)))
        else:
            self.ledger.kernel_ns += when[1] - when[0]
            self.rows[kind].append((self._next(kind), bare(name), device, queue, *self._placed(when, correlation)))

    def _entered(self, kind: str, when: tuple[Any, ...]) -> bool:
        """Enter the record into the account; whether it can be a row."""
        begin, end = when[:2]
        self.ledger.saw(kind, 1)
        if max(begin, end) >= LATEST_NS:
            self.ledger.leave_out(kind, "its time is no time of any age", 1)
            return False
        self.ledger.trouble("records end before they start", end < begin)
        self.ledger.trouble("records start or end at time 0", begin == 0 or end == 0)
        return True

    def _placed(self, when: tuple[Any, ...], correlation: int | None) -> tuple[Any, ...]:
        """Start, end, duration, process, thread, correlation id."""
        begin, end, process, thread = when
        if correlation is not None:
            index = 0 if process is None else self.processes.setdefault(process, len(self.processes))
            correlation = correlation + index * PER_PROCESS if not index or correlation < PER_PROCESS else None
        return begin, end, end - begin, process, thread, correlation

    def _leave(self, kind: str, reason: str, ns: int = 0) -> None:
        self.ledger.saw(kind, 1)
        self.ledger.leave_out(kind, reason, 1, ns)

    def _next(self, kind: str) -> int:
        self.count[kind] += 1
        return self.count[kind] - 1


def _columns(rows: list[tuple[Any, ...]], own: int) -> tuple[list[tuple[Any, ...]], dict[str, Any]]:
    """The columns that are a table's own, and those of `_placed` by name."""
    columns = list(zip(*rows, strict=True))
    names = ("t_start_ns", "t_end_ns", "dur_ns", "process_id", "thread_id", "correlation_id")
    return columns[:own], {name: integers(column) for name, column in zip(names, columns[own:], strict=True)}


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
