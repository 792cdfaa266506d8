"""Loads on the reference server, and what it says of the time of each event."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from aaco.llm import client, record, target
from aaco.llm.parse import Parsing
from aaco.llm.record import Kind
from tests.fakes import llm_server
from tests.fakes.llm_server import Running


class Recording(Struct, frozen=True):
    """Tables of a load; sent: right before and after the server sent each event that has a chunk, by request and
    number; CPU time of the client while it ran, s."""

    requests: pa.Table
    events: pa.Table
    sent: dict[int, list[tuple[int, int]]]
    cpu_s: float

    def late_ns(self, exact: bool) -> NDArray[np.int64]:
        """Columns of every event with a chunk that has a time (exact) or an interval: the time minus that before it was
        sent, and the begin of the interval minus that after."""
        rows = [(row["t_ns"] - before, (row["earliest_ns"] or 0) - after) for row in self.events.to_pylist()
                if row["kind"] in ("content", "reasoning", "empty") and (row["earliest_ns"] is None) == exact
                for before, after in (self.sent[row["request_id"]][row["index"]],)]
        return np.array(rows, np.int64).reshape(-1, 2)


@contextmanager
def running(cpu: int | None = None, slots: int = 0) -> Iterator[Running]:
    """The reference server, on one CPU. slots: requests that it answers at once; 0: all."""
    prefix = [] if cpu is None else ["taskset", "-c", str(cpu)]
    with tempfile.TemporaryDirectory() as folder, \
            llm_server.serving(llm_server.compiled(Path(folder)), prefix, slots) as server:
        yield server


@contextmanager
def on_cpu(cpu: int) -> Iterator[None]:
    """This process runs on one CPU inside the block."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def asked(server: Running, schedules: Sequence[str], due_ns: NDArray[np.int64] | None = None,
          most_open: int | None = None, cpu: int | None = None, packet_stamps: bool = False) -> Recording:
    """Send a request for each schedule, and read what was recorded."""
    to, requests = target.parse(server.url), encoded(server, schedules)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder) / "load.reads"
        if cpu is not None:
            stack.enter_context(on_cpu(cpu))
        began = time.process_time()
        client.run(client.Load(requests, due_ns, most_open, packet_stamps=packet_stamps), target.reach(to), path)
        cpu_s = time.process_time() - began
        parsing = Parsing(path)
        events = pa.concat_tables(parsing.events(), promote_options="permissive")
        return Recording(parsing.requests(), events, _sent(path), cpu_s)


def encoded(server: Running, schedules: Sequence[str]) -> list[bytes]:
    """A request for each schedule."""
    to = target.parse(server.url)
    return [target.encode(to, {"model": "ref", "stream": True, "ref": schedule}) for schedule in schedules]


def contents(path: Path) -> dict[int, bytes]:
    """What came back, by request."""
    pieces: dict[int, list[bytes]] = {}
    for block in record.read(path):
        ends = np.cumsum(block.rows["size"])
        for index in np.flatnonzero(block.rows["kind"] == Kind.BODY):
            row, end = block.rows[index], int(ends[index])
            pieces.setdefault(int(row["request"]), []).append(block.content[end - int(row["size"]):end])
    return {request: b"".join(parts) for request, parts in pieces.items()}


def _sent(path: Path) -> dict[int, list[tuple[int, int]]]:
    return {request: _brackets([json.loads(line[6:]) for line in content.split(b"\n\n") if b'"t":' in line])
            for request, content in contents(path).items()}


def _brackets(chunks: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Each event's time before it was sent, and after, which the next one says; after the last there is none."""
    after = [chunk["p"] for chunk in chunks[1:]] + [1 << 62]
    return [(chunk["t"], end) for chunk, end in zip(chunks, after, strict=True)]


def quantiles(values: NDArray[Any], *shares: float) -> list[float]:
    """The quantiles of these values."""
    return [float(np.quantile(values, share)) for share in shares]
