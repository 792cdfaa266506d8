"""Text that roctracer's tool prints, and the *_trace.txt files that rocprof (v1) makes its results of, a record a line:

    begin:end process:thread function(arguments) = result :correlation      a call of HIP or HSA
    begin:end device:queue name:correlation:process                        a kernel or a copy
    begin:end async-copy:number:process                                    a copy that HSA reports
    time process:thread what:range:"message"                               roctx: mark, push, pop, start, stop
    function correlation_id(n) time_ns(begin:end) process_id(p) thread_id(t)
    name correlation_id(n) time_ns(begin:end) device_id(d) queue_id(q) bytes(b)

Lines of other text that a program printed in between are left out. Older tools write no correlation id for calls, and
number HSA's copies separately: null. Callbacks (`on-enter`, `on-exit`) have no times. With several processes in the
text, correlation ids of the n-th are moved up by n x 2^48; a record without a process counts as one of the first.
rocprof's files that belong together are one capture.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import pyarrow as pa

from aaco.core.errors import BadCapture
from aaco.core.tables import API_CALLS, CALL_ARGUMENTS, COPIES, KERNELS
from aaco.profiler.capture import CaptureFacts
from aaco.profiler.formats.rocprofv3.rocm_labels import direction
from aaco.profiler.io import csvstream
from aaco.profiler.io.columns import bare, constant, encoded, integers
from aaco.profiler.io.record_accounting import RecordAccount

FORMAT = "roctracer"
FIX = "record it again with rocprofv3, which AMD still keeps up"
LONGEST_LINE_BYTES = 1 << 20
HEAD_BYTES = 1 << 18
PIECE_ROWS = 1 << 16
MOST_OPEN = 1_000_000
PER_PROCESS = 1 << 48
LARGEST = (1 << 63) - 1
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
    """Return whether a line near the beginning is a record of roctracer."""
    try:
        with csvstream.opened(path) as file:
            head = file.read(HEAD_BYTES)
    except BadCapture:
        return False
    return b"\0" not in head and any(_match_record(line) for line in head.split(b"\n"))


def members(path: Path) -> Sequence[Path]:
    """Return the trace files of the same folder that rocprof makes its results of, the device's first; else only the
    file.
    """
    if path.name not in TOGETHER:
        return [path]
    return [file for file in (path.with_name(name) for name in TOGETHER) if file == path or recognises(file)]


def parse(path: Path) -> Iterator[pa.Table | CaptureFacts]:
    """Yield `kernels`, `copies`, `api_calls` and `call_arguments`, then the CaptureFacts. Raise BadCapture."""
    text = _RoctracerText()
    for file in members(path):
        for line in _read_lines(file):
            text.take(line)
            if text.full:
                yield from text.pieces()
    text.close()
    yield from text.pieces()
    if not text.count:
        raise BadCapture(f"{path}: no line of it is a record of roctracer", FIX)
    yield text.facts()


def _read_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines, each up to LONGEST_LINE_BYTES."""
    with csvstream.opened(path) as file:
        while line := file.readline(LONGEST_LINE_BYTES):
            remainder = line
            while not remainder.endswith(b"\n") and (remainder := file.readline(LONGEST_LINE_BYTES)):
                pass
            yield line.rstrip(b"\r\n")


def _match_record(line: bytes) -> re.Match[bytes] | None:
    line = line.rstrip(b"\r")
    return next((match for form in FORMS if (match := form.fullmatch(line))), None)


class _RoctracerText:
    """The records read so far."""

    def __init__(self) -> None:
        self.account = RecordAccount("kernel")
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
            if match := form.fullmatch(line):
                read(match)
                return
        if CALLBACK.fullmatch(line):
            self.account.skip("callback", "it has no time", 1)
        elif line.strip():
            self.account.skip("line", "no record of the tracer", 1)

    @property
    def full(self) -> bool:
        """Return whether there are enough rows for a piece."""
        return max(map(len, self.rows.values())) >= PIECE_ROWS

    def close(self) -> None:
        """Leave out the ranges that are still open."""
        for stack in self.open.values():
            for _ in stack:
                self.account.skip("call", "a range that is never ended", 1)
        self.open.clear()

    def pieces(self) -> Iterator[pa.Table]:
        """Yield the rows since the last call as tables."""
        kernels, copies, calls = (self._placed(kind) for kind in ("kernel", "copy", "call"))
        kept_calls = {row[0] for row in calls}
        argument_rows = [row for row in self.rows["argument"] if row[0] in kept_calls]
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
        if argument_rows:
            ids, arguments = zip(*argument_rows, strict=True)
            yield CALL_ARGUMENTS.build(call_id=ids, arguments=arguments)
        for rows in self.rows.values():
            rows.clear()

    def facts(self) -> CaptureFacts:
        """Return the facts of the text."""
        if not self.count["kernel"]:
            self.account.kernel = None
        return self.account.facts(FORMAT, tool="roctracer")

    def _call(self, match: re.Match[bytes]) -> None:
        begin, end, process, thread = map(int, match.groups()[:4])
        details = {"args": match[6], "result": match[7], "kernel": match[8]}
        self._make_call((begin, end, process, thread), _text(match[5]), int(match[9]) if match[9] else None,
                        {name: _text(detail) for name, detail in details.items() if detail})

    def _work(self, match: re.Match[bytes]) -> None:
        begin, end, device, queue = map(int, match.groups()[:4])
        self._make_work((begin, end, int(match[7]), None), _text(match[5]), int(match[6]), (device, queue, None))

    def _async(self, match: re.Match[bytes]) -> None:
        process = int(match[3]) if match[3] else None
        self._make_work((int(match[1]), int(match[2]), process, None), "async-copy", None, (None, None, None))

    def _record(self, match: re.Match[bytes]) -> None:
        detail = {_text(name): int(value, 16 if value.startswith(b"0x") else 10)
                  for name, value in DETAIL.findall(match[5])}
        name, when = _text(match[1]).strip(), (int(match[3]), int(match[4]), detail.get("process_id"),
                                               detail.get("thread_id"))
        if "device_id" in detail or direction(name) != "unknown":
            self._make_work(when, name, int(match[2]), (detail.get("device_id"), detail.get("queue_id"),
                                                        detail.get("bytes") or None))
        elif name.lstrip("_").startswith(("hip", "hsa")):
            self._make_call(when, name, int(match[2]), {})
        else:  # such as EXT_API, the id that a program gave to calls
            self.account.skip("record", "neither a call nor work of a device", 1)

    def _roctx(self, match: re.Match[bytes]) -> None:
        time, process, thread, action, number = (int(match[group]) for group in range(1, 6))
        key = (process, number if action in (START, STOP) else thread, action in (START, STOP))
        if action == MARK:
            self._make_call((time, time, process, thread), _text(match[6]), None, {}, "marker")
        elif action in (PUSH, START):
            if self.opened < MOST_OPEN:
                self.open.setdefault(key, []).append((time, _text(match[6])))
                self.opened += 1
            else:
                self.account.skip("call", f"more than {MOST_OPEN:,} ranges are open at a time", 1)
        elif self.open.get(key):
            begin, name = self.open[key].pop()
            self.opened -= 1
            if not self.open[key]:
                del self.open[key]
            self.account.skip("range end", "the range is a row with its begin", 1)
            self._make_call((begin, time, process, thread), name, None, {}, "marker")
        else:
            self.account.skip("range end", "of a range that never began", 1)

    def _make_call(self, when: tuple[Any, ...], name: str, correlation: int | None, arguments: dict[str, str],
                   domain: str | None = None) -> None:
        number = self._next_id("call")
        domain = domain or ("hsa" if name.startswith("hsa") else "hip")
        self.rows["call"].append((number, name, domain, *self._time_fields(when, correlation)))
        if arguments:
            self.rows["argument"].append((number, json.dumps(arguments, ensure_ascii=False)))

    def _make_work(self, when: tuple[Any, ...], name: str, correlation: int | None, place: tuple[Any, ...]) -> None:
        if BARRIER.search(name):
            ns = when[1] - when[0] if 0 < when[0] <= when[1] else 0
            self.account.skip("barrier", "it orders the queue and is no kernel", 1, ns)
            return
        kind = "copy" if name == "async-copy" or direction(name) != "unknown" or "Copy" in name else "kernel"
        device, queue, size = place
        if kind == "copy":
            self.rows[kind].append((self._next_id(kind), direction(name), size, device, queue,
                                    *self._time_fields(when, correlation)))
        else:
            self.rows[kind].append((self._next_id(kind), bare(name), device, queue,
                                    *self._time_fields(when, correlation)))

    def _placed(self, kind: str) -> list[tuple[Any, ...]]:
        """Return the rows that can be placed in time; account for the others."""
        rows = self.rows[kind]
        edges = (integers([row[column] for row in rows]) for column in (-6, -5))  # in _time_fields
        return list(compress(rows, self.account.timed(kind, *edges)))

    def _time_fields(self, when: tuple[Any, ...], correlation: int | None) -> tuple[Any, ...]:
        """Return start, end, duration, process, thread, correlation id."""
        begin, end = (min(time, LARGEST) for time in when[:2])
        process, thread = when[2:]
        if correlation is not None:
            index = 0 if process is None else self.processes.setdefault(process, len(self.processes))
            correlation = correlation + index * PER_PROCESS if not index or correlation < PER_PROCESS else None
        return begin, end, end - begin, process, thread, correlation

    def _next_id(self, kind: str) -> int:
        self.count[kind] += 1
        return self.count[kind] - 1


def _columns(rows: list[tuple[Any, ...]], count: int) -> tuple[list[tuple[Any, ...]], dict[str, Any]]:
    """Return the first `count` columns, and the columns of `_time_fields` by name."""
    columns = list(zip(*rows, strict=True))
    names = ("t_start_ns", "t_end_ns", "dur_ns", "process_id", "thread_id", "correlation_id")
    return columns[:count], {name: integers(column) for name, column in zip(names, columns[count:], strict=True)}


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
