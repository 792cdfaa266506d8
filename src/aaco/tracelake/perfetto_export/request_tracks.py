"""Requests to a language model on tracks of a timeline viewer: from when each was due to its last token.

A line holds one request at a time, so there are as many lines as requests were open at once. What a client measured and
what a server says of itself are on clocks of their own, and under heads of their own. Requests of which only the
distance from their own dispatch is known are on no common clock: they are left out.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.core.arrays import Ints
from aaco.core.tables import ENGINE_STEPS, LLM_EVENTS, REQUESTS
from aaco.core.tables.spec import whole
from aaco.tracelake.perfetto_export.timeline_tracks import ENGINE, ENGINE_PID, Events, Track, Values

CLIENT, CLIENT_PID = "Requests", 2**31 - 3  # no process, as ENGINE_PID
SERVER, SERVER_PID = "Requests, as the server says", 2**31 - 4
SHOWN = (REQUESTS.name, LLM_EVENTS.name, ENGINE_STEPS.name)
NOTES = ("request_id", "prompt_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "http_status",
         "server_queue_ns", "server_prefill_ns", "server_decode_ns")
UNKNOWN = -1


class Spans(NamedTuple):
    """Slices before they have a line. row: of the table of requests; names: codes in a list of texts."""

    row: Ints
    start: Ints
    end: Ints
    names: Ints


def events(tables: Mapping[str, pa.Table]) -> Iterator[Events]:
    """Yield the requests with what is inside them: of a client queue, TTFT, decode and tokens."""
    if REQUESTS.name not in tables:
        return
    table = tables[REQUESTS.name]
    if (seen := _on_one_clock(table)).num_rows:
        yield _of_client(seen, tables.get(LLM_EVENTS.name))
    if (stated := table.filter(pc.is_valid(table["server_start_ns"]))).num_rows:
        yield _of_server(stated)
    if ENGINE_STEPS.name in tables and (steps := tables[ENGINE_STEPS.name]).num_rows:
        yield _of_engine(steps)


def values(tables: Mapping[str, pa.Table]) -> Iterator[Values]:
    """Yield how many requests are open, and how many are due and wait for their dispatch."""
    if REQUESTS.name not in tables or not (table := _on_one_clock(tables[REQUESTS.name])).num_rows:
        return
    due, send, end = _due(table), whole(table, "t_send_ns"), _end(table)
    for number, (name, begin, until) in enumerate((("Open requests", send, end),
                                                   ("Requests that are due and wait in the client", due, send),
                                                   ("Backlog: requests that are due and not answered", due, end))):
        yield _count_over_time(Track(CLIENT, CLIENT_PID, name, number), begin, until)


def _count_over_time(track: Track, begin: Ints, end: Ints) -> Values:
    """Return how many of these intervals hold each time at which one begins or ends."""
    times, place = np.unique(np.concatenate((begin, end)), return_inverse=True)
    change = np.zeros(len(times), np.int64)
    np.add.at(change, place, np.repeat((1, -1), len(begin)))
    return Values(track, "requests", times, np.cumsum(change).astype(np.float64))


def _of_client(table: pa.Table, answers: pa.Table | None) -> Events:
    """Return the requests of a client, each with its phases and the tokens inside them."""
    due, send, end = _due(table), whole(table, "t_send_ns"), _end(table)
    first, last = whole(table, "t_first_ns"), whole(table, "t_last_ns")
    names, code = _titles(table)
    phases = ((due, send, send >= due), (send, np.where(first >= 0, first, end), send >= 0),
              (first, last, (first >= 0) & (last > first)))
    spans = [Spans(np.arange(len(due)), due, end, code),
             *(Spans(rows := np.flatnonzero(has), begin[rows], until[rows], np.full(len(rows), len(names) + number))
               for number, (begin, until, has) in enumerate(phases))]
    names += ["queue", "TTFT", "decode"]
    notes = {name: _padded(whole(table, name), spans[1:]) for name in NOTES if table[name].null_count < len(due)}
    if answers is not None and answers.num_rows:
        tokens, texts, more = _tokens(table, answers, len(names))
        spans.append(tokens)
        names += texts
        notes = {name: np.concatenate((column, np.full(len(tokens.row), UNKNOWN))) for name, column in notes.items()}
        others = np.full(sum(len(part.row) for part in spans[:-1]), UNKNOWN)
        notes |= {name: np.concatenate((others, column)) for name, column in more.items()}
    return _on_lines(CLIENT, CLIENT_PID, due, end, spans, names, notes)


def _of_server(table: pa.Table) -> Events:
    """Return the requests as a server has them, from when it took each, with its queue, prefill and decode."""
    start = whole(table, "server_start_ns")
    lengths = [np.maximum(0, whole(table, f"server_{name}_ns")) for name in ("queue", "prefill", "decode")]
    latency = np.maximum(whole(table, "server_latency_ns"), np.sum(lengths, axis=0))
    names, code = _titles(table)
    spans, begin = [Spans(np.arange(len(start)), start, start + latency, code)], start
    for number, length in enumerate(lengths):
        rows = np.flatnonzero(length > 0)
        spans.append(Spans(rows, begin[rows], (begin + length)[rows], np.full(len(rows), len(names) + number)))
        begin = begin + length
    notes = {name: _padded(whole(table, name), spans[1:]) for name in NOTES[:5]
             if table[name].null_count < len(start)}
    return _on_lines(SERVER, SERVER_PID, start, start + latency, spans, [*names, "queue", "prefill", "decode"], notes)


def _of_engine(steps: pa.Table) -> Events:
    """Return the steps of the server's engine: on the host, and their part on the device."""
    names, name = np.unique(pc.fill_null(steps["phase"].cast(pa.string()), "step").to_pylist(), return_inverse=True)
    device = np.flatnonzero(whole(steps, "device_start_ns") >= 0)
    tracks = [Track(ENGINE, ENGINE_PID, line, number) for number, line in enumerate(("Steps on the host",
                                                                                    "Steps on the device"))]
    both = np.concatenate((np.arange(len(steps)), device))
    notes = {column: whole(steps, column)[both] for column in ("step", "context_requests", "generation_requests",
                                                                "kernels", "busy_ns")}
    start, end = (np.concatenate((whole(steps, f"t_{point}_ns"), whole(steps, f"device_{point}_ns")[device]))
                  for point in ("start", "end"))
    return Events("serving", tracks, np.repeat((0, 1), (len(steps), len(device))), start, end, names.tolist(),
                  name[both], notes=notes)


def _tokens(table: pa.Table, answers: pa.Table, code: int) -> tuple[Spans, list[str], dict[str, Ints]]:
    """Return a slice for each event with content after a request's first: from the one before it.

    Named for its tokens where their number is known: else it is a chunk. Notes: the number of the event, and by how
    much it may have come earlier. code: of the first name.
    """
    answers = answers.filter(pc.equal(answers["kind"].cast(pa.string()), "content"))
    ids, wanted = whole(table, "request_id"), whole(answers, "request_id")
    order = np.argsort(ids)
    place = order[np.minimum(np.searchsorted(ids[order], wanted), len(ids) - 1)]
    index, at, count = (whole(answers, name) for name in ("index", "t_ns", "tokens"))
    rows = np.lexsort((index, place))
    rows = rows[ids[place[rows]] == wanted[rows]]  # those of requests that are on the common clock
    behind = np.flatnonzero(np.diff(place[rows], prepend=UNKNOWN) == 0)
    later, before = rows[behind], rows[behind - 1]
    numbers, name = np.unique(count[later], return_inverse=True)
    texts = ["chunk" if number < 0 else "token" if number == 1 else f"{number} tokens" for number in numbers.tolist()]
    earliest = whole(answers, "earliest_ns")[later]
    notes = {"event": index[later], "may_be_earlier_ns": np.where(earliest < 0, UNKNOWN, at[later] - earliest)}
    return Spans(place[later], at[before], np.maximum(at[later], at[before]), code + name), texts, notes


def _on_lines(process: str, pid: int, start: Ints, end: Ints, spans: list[Spans], names: list[str],
              notes: Mapping[str, Ints]) -> Events:
    """Return slices on as many lines as requests are open at once."""
    line = _lines(start, end)
    tracks = [Track(process, pid, f"request {number + 1} at once" if number else "requests", number)
              for number in range(int(line.max(initial=0)) + 1)]
    row, begin, until, name = (np.concatenate(columns) for columns in zip(*spans, strict=True))
    return Events("request", tracks, line[row], begin, until, names, name, notes=notes)


def _lines(start: Ints, end: Ints) -> Ints:
    """Return for each request the first line that is free when it begins."""
    line, free, taken = np.zeros(len(start), np.int64), list[int](), list[tuple[int, int]]()
    for row in np.argsort(start, kind="stable").tolist():
        while taken and taken[0][0] <= start[row]:
            heapq.heappush(free, heapq.heappop(taken)[1])
        line[row] = heapq.heappop(free) if free else len(taken)
        heapq.heappush(taken, (int(end[row]), int(line[row])))
    return line


def _titles(table: pa.Table) -> tuple[list[str], Ints]:
    """Return what requests are called, and the code of each: of one that failed why."""
    texts, code = np.unique(table["status"].cast(pa.string()).to_numpy(zero_copy_only=False).astype(str),
                            return_inverse=True)
    return ["request" if text == "ok" else f"request failed: {text}" for text in texts.tolist()], code


def _on_one_clock(table: pa.Table) -> pa.Table:
    """Return the requests that a client sent, at times that can be compared."""
    return table.filter(pc.and_(pc.is_valid(table["t_send_ns"]), pc.invert(pc.fill_null(table["from_send"], False))))


def _due(table: pa.Table) -> Ints:
    """Return when each was due; where no plan says it, when it was dispatched."""
    due, send = whole(table, "t_intended_ns"), whole(table, "t_send_ns")
    return np.where(due >= 0, np.minimum(due, send), send)


def _end(table: pa.Table) -> Ints:
    """Return when each had its last token; of one that failed when it ended."""
    is_ok = np.asarray(pc.equal(table["status"].cast(pa.string()), "ok"), bool)
    send, last, end = (whole(table, name) for name in ("t_send_ns", "t_last_ns", "t_end_ns"))
    return np.maximum(send, np.where(is_ok & (last >= 0), last, np.maximum(last, end)))


def _padded(column: Ints, others: list[Spans]) -> Ints:
    """Return a column of the requests with nothing for the slices inside them."""
    return np.concatenate((column, np.full(sum(len(spans.row) for spans in others), UNKNOWN)))
