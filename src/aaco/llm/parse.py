"""The record of a load becomes tables: streamed, so that memory holds the requests and a piece of the events."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from aaco.core.arrays import Array, Ints
from aaco.core.tables import ENGINE_STEPS, LLM_EVENTS, REQUESTS
from aaco.llm import record
from aaco.llm.answer import CODES, CONTENT, KINDS, UNKNOWN, StreamedAnswer
from aaco.llm.answers import are_one_event
from aaco.llm.record import Kind, Recorded
from aaco.llm.runs import ChunkRuns
from aaco.llm.shapes import ChunkShapes
from aaco.llm.stamps import ClockLooks

PIECE = 1 << 16  # rows of a piece of events
ROWS, BYTES = 1 << 14, 1 << 23  # of blocks that are taken together
NUMBERS = ("request_id", "index", "t_ns", "earliest_ns", "delay_ns", "kind", "tokens")
DATED = re.compile(r"-\d{4}(-?\d\d){0,2}")  # gpt-4o is answered by gpt-4o-2024-08-06
BODY, SPARE = int(Kind.BODY), len("data: ")
UNFINISHED = "unfinished"  # status of a request that was under way when the client ended


def clock_looks(path: Path) -> ClockLooks:
    """Return the looks at the clocks of a record. Raise BadCapture, StorageError."""
    real, monotonic, width = array("q"), array("q"), array("q")
    for block in record.read(path, Kind.CLOCK):
        ends = np.cumsum(block.rows["size"])
        for index in np.flatnonzero(block.rows["kind"] == Kind.CLOCK).tolist():
            row, end = block.rows[index], int(ends[index])
            real.append(int(row["kernel_ns"]))
            monotonic.append(int(row["user_ns"]))
            width.append(int(block.content[end - int(row["size"]):end]))
    at = np.array(monotonic, np.int64)
    return ClockLooks(at, at - np.array(real, np.int64), np.array(width, np.int64))


class _RecordRow(NamedTuple):
    """A row of a block. stamp_ns: the kernel's, on CLOCK_MONOTONIC; is_event: whether its bytes, from `begin` to `end`
    of the block's, are one event."""

    at: int
    request: int
    kind: int
    user_ns: int
    since_ns: int
    kernel_ns: int
    stamp_ns: int
    is_event: bool
    begin: int
    end: int


class _BlockRows(NamedTuple):
    """A block that was read: its content, the columns of its rows as in _RecordRow, and what `ChunkShapes` says of
    them."""

    content: bytes
    columns: tuple[Array, ...]
    shape: Ints
    total: Ints


def _joined(blocks: list[_BlockRows]) -> _BlockRows:
    """Return blocks as a single one."""
    counts = [len(block.shape) for block in blocks]
    rows, letters = (np.repeat(np.cumsum([0, *sizes])[:-1], counts)
                     for sizes in (counts, [len(block.content) for block in blocks]))
    at, *columns, begins, ends = map(np.concatenate, zip(*(block.columns for block in blocks), strict=True))
    return _BlockRows(b"".join(block.content for block in blocks),
                      (at + rows, *columns, begins + letters, ends + letters),
                      *map(np.concatenate, zip(*((block.shape, block.total) for block in blocks), strict=True)))


def _rows(columns: tuple[Array, ...], at: Ints) -> Iterator[_RecordRow]:
    return map(_RecordRow._make, zip(*(column[at].tolist() for column in columns), strict=True))


class Parsing:
    """Reads a record; `requests` is whole once all pieces of `events` were taken."""

    takes_runs = True  # False: each chunk is taken by itself

    def __init__(self, path: Path, models: Sequence[str] = ()) -> None:
        """models: names that an answer may give its model; none: any. Raise BadCapture, StorageError."""
        self._path, self._models = path, models
        self.looks = clock_looks(path)
        self._answers: dict[int, StreamedAnswer] = {}
        self._rows: list[dict[str, Any]] = []
        self._numbers = array("q")  # of events that were taken one by one: their row in the block, then NUMBERS
        self._at = 0  # that row
        self._pieces: list[Array] = []  # NUMBERS of the events of whole blocks
        self._held = 0  # how many those are
        self._shapes = ChunkShapes()
        self._steps: list[tuple[int, int, str, int]] = []  # of a decoder in a process of its own
        self.packets: dict[str, int] | None = None  # counts of packet stamps; None: there are none

    def events(self) -> Iterator[pa.Table]:
        """Yield the rows of llm_events in pieces. Raise BadCapture, StorageError."""
        for blocks in self._together():
            self._take(blocks)
            if self._held >= PIECE:
                yield self._piece()
        for answer in self._answers.values():
            answer.fail(UNFINISHED)
            self._rows.append(_row(answer))
        yield self._piece()

    def requests(self) -> pa.Table:
        """Return the table of requests, in their order."""
        rows = sorted(self._rows, key=lambda row: row["request_id"])
        return REQUESTS.build(**{name: [row.get(name) for row in rows] for name in REQUESTS.columns})

    def steps(self) -> pa.Table:
        """Return the steps of a decoder in a process of its own; of a server none."""
        begin, end, phase, requests = zip(*self._steps, strict=True) if self._steps else [()] * 4
        return ENGINE_STEPS.build(
            step=range(len(begin)), t_start_ns=begin, t_end_ns=end, phase=phase,
            context_requests=[count if name == "prefill" else 0 for name, count in zip(phase, requests, strict=True)],
            generation_requests=[count if name == "decode" else 0 for name, count in zip(phase, requests, strict=True)])

    def _together(self) -> Iterator[list[_BlockRows]]:
        """Yield blocks, several at once: the more there are, the longer are the runs of an answer."""
        held: list[_BlockRows] = []
        for recorded in record.read(self._path):
            held.append(self._block(recorded))
            if sum(len(block.shape) for block in held) >= ROWS or sum(len(block.content) for block in held) >= BYTES:
                yield held
                held = []
        if held:
            yield held

    def _block(self, block: Recorded) -> _BlockRows:
        """Return a block with what can be found out of all its rows at once."""
        rows, content, ends = block.rows, block.content, np.cumsum(block.rows["size"])
        begins, stamps = ends - rows["size"], self.looks.monotonic(rows["kernel_ns"], rows["user_ns"])
        is_event = (stamps != 0) & (rows["kind"] == BODY) & are_one_event(content, ends)
        events = np.flatnonzero(is_event) if self.takes_runs else np.zeros(0, np.int64)
        shape, total = self._shapes.of(content, begins, ends, events)
        names = ("request", "kind", "user_ns", "since_ns", "kernel_ns")
        columns = (np.arange(len(rows)), *(rows[name] for name in names), stamps, is_event, begins, ends)
        return _BlockRows(content, columns, shape, total)

    def _take(self, blocks: list[_BlockRows]) -> None:
        """Take the rows of blocks, each as what it is, and runs of chunks of one shape together."""
        content, columns, shape, total = _joined(blocks)
        _, requests, _, user_ns, _, _, stamps, _, begins, ends = columns
        runs, take_single = ChunkRuns(requests, shape, total), self._take_row
        answers, shapes = self._answers, self._shapes.met
        index, counted = [], []
        for number, (run, row) in enumerate(zip(runs, _rows(columns, runs.firsts), strict=True)):
            first = before = UNKNOWN
            if run.shape != UNKNOWN:
                first, before = answers[row.request].take_alike(
                    shapes[run.shape], run, content[begins[run.last] + SPARE:ends[run.last] - 2], row.stamp_ns,
                    int(stamps[run.last]))
            if first == UNKNOWN:
                for single in _rows(columns, runs.rows(number)) if run.size > 1 else (row,):
                    take_single(single, content)
            index.append(first)
            counted.append(before)
        at, of_shape, place, tokens = runs.took(index, counted)
        kind = np.array([CODES[met.kind] for met in shapes], np.int64)[of_shape]
        self._keep(np.stack([at, requests[at], place, stamps[at], np.full(len(at), UNKNOWN), user_ns[at] - stamps[at],
                             kind, tokens], axis=1))

    def _take_row(self, row: _RecordRow, content: bytes) -> None:
        """Take one row."""
        self._at = row.at
        request, kind, stamp_ns, piece = row.request, row.kind, row.stamp_ns, content[row.begin:row.end]
        if kind == BODY:
            answer = self._answers[request]
            if not (row.is_event and answer.is_plain):
                self._read(answer, piece, stamp_ns, row.user_ns, row.since_ns)
                return
            code, tokens = answer.take(piece[SPARE:-2], stamp_ns, UNKNOWN)
            self._numbers.extend((row.at, request, answer.index, stamp_ns, UNKNOWN, row.user_ns - stamp_ns, code,
                                  tokens))
            answer.index += 1
            answer.read_ns = stamp_ns
        elif kind == Kind.PACKETS:
            self.packets = json.loads(piece)
        elif kind == Kind.STEP:
            phase, _, requests = piece.decode().partition(" ")
            self._steps.append((row.kernel_ns, row.user_ns, phase, int(requests)))
        elif kind != Kind.CLOCK:
            self._turn(request, kind, stamp_ns, row.user_ns, row.kernel_ns, piece)

    def _keep(self, runs: Array) -> None:
        """Put the events of runs among those that were taken one by one, in the order of the record."""
        singles = np.array(self._numbers, np.int64).reshape(-1, 1 + len(NUMBERS))
        self._numbers = array("q")
        rows = np.concatenate([singles, runs]) if len(runs) else singles
        self._pieces.append(rows[np.argsort(rows[:, 0], kind="stable"), 1:] if len(runs) else rows[:, 1:])
        self._held += len(rows)

    def _turn(self, request: int, kind: int, stamp_ns: int, user_ns: int, kernel_ns: int, piece: bytes) -> None:
        """Take a row that is not content: what became of a request."""
        if kind == Kind.DISPATCH:
            self._answers[request] = self._new_answer(request, kernel_ns, user_ns, int(piece or UNKNOWN))
            return
        answer = self._answers[request]
        if kind == Kind.SENT:
            answer.sent_ns = user_ns
        elif kind == Kind.FIRST:
            answer.first_byte_ns, answer.read_ns = stamp_ns or user_ns, stamp_ns or answer.read_ns
        elif kind == Kind.HEAD:
            answer.begin(piece)
        elif kind == Kind.TURN:
            answer.place = json.loads(piece)
        elif kind == Kind.PROMPT:
            answer.take_prompt(int(piece))
        elif kind == Kind.TOKEN:
            answer.take_token(user_ns)
            self._numbers.extend((self._at, request, answer.index, user_ns, UNKNOWN, UNKNOWN, CONTENT, 1))
            answer.index += 1
        elif kind == Kind.AGAIN:
            answer.again += 1
        elif kind == Kind.END:
            answer.end(piece.decode(errors="replace"), user_ns)
            if self._models and answer.model and not any(is_model(answer.model, asked) for asked in self._models):
                answer.fail("other_model", f"the answer is of {answer.model}; --answers-as accepts that name")
            self._ended(self._answers.pop(request))

    def _new_answer(self, *numbers: int) -> StreamedAnswer:
        return StreamedAnswer(*numbers)

    def _ended(self, answer: StreamedAnswer) -> None:
        self._rows.append(_row(answer))

    def _read(self, answer: StreamedAnswer, piece: bytes, stamp_ns: int, user_ns: int, since_ns: int) -> None:
        """Take a read with content. Only the event at its end came when the stamp says, and only with a stamp.

        A header of the same read has the same stamp: the events may have come before it.
        """
        data = answer.read(piece)
        at, left = stamp_ns or user_ns, len(data)
        earliest = max(since_ns, answer.read_ns if answer.read_ns < at else answer.send_ns)
        delay = user_ns - stamp_ns if stamp_ns else UNKNOWN
        for content in data:
            left -= 1
            bound = UNKNOWN if stamp_ns and not left and answer.is_between else earliest
            code, tokens = answer.take(content, at, bound)
            self._numbers.extend((self._at, answer.request, answer.index, at, bound, delay, code, tokens))
            answer.index += 1
        answer.read_ns = stamp_ns or earliest

    def _piece(self) -> pa.Table:
        """Return the rows of events so far, and begin the next piece."""
        rows = np.concatenate(self._pieces) if self._pieces else np.zeros((0, len(NUMBERS)), np.int64)
        columns = dict(zip(NUMBERS, rows.T, strict=True))
        self._pieces, self._held = [], 0
        kinds = pa.DictionaryArray.from_arrays(pa.array(columns.pop("kind"), pa.int32()), pa.array(KINDS))
        return LLM_EVENTS.build(kind=kinds, **{name: pa.array(column, mask=column == UNKNOWN)
                                               for name, column in columns.items()})


def is_model(answered: str, asked: str) -> bool:
    """Return whether an answer names the requested model: it, the last part of its path, or a dated version."""
    last = asked.rstrip("/").rpartition("/")[2]
    dated = answered.startswith(asked) and DATED.fullmatch(answered[len(asked):])
    return answered in (asked, last) or bool(dated) 


def _row(answer: StreamedAnswer) -> dict[str, Any]:
    """Return the row of requests of an answer that ended."""
    numbers = {"t_sent_ns": answer.sent_ns, "t_first_byte_ns": answer.first_byte_ns, "t_first_ns": answer.first_ns,
               "t_first_earliest_ns": answer.first_earliest_ns, "t_last_ns": answer.last_ns,
               "t_last_earliest_ns": answer.last_earliest_ns,
               "t_end_ns": answer.end_ns, "http_status": answer.http_status, "cpu_wait_ns": answer.cpu_wait_ns}
    return {"request_id": answer.request, "t_intended_ns": answer.intended_ns, "t_send_ns": answer.send_ns,
            **{name: None if number == UNKNOWN else number for name, number in numbers.items()}, **answer.counts,
            **answer.server_times, "conversation": answer.place.get("conversation"), "turn": answer.place.get("turn"),
            "after_request": answer.place.get("after"),
            "chunks": answer.chunks, "status": answer.status, "detail": answer.detail or None,
            "model": answer.model or None, "sent_again": answer.again}
