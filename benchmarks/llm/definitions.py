"""Chunks of several tokens, roles, reasoning, bursts and stalls: every figure against the server's own times."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from aaco.analytics.llm.gaps import EventTally
from aaco.analytics.llm.points import points_of
from benchmarks.claims import Claim
from benchmarks.llm import _loads

REQUESTS, OPEN = 80, 8
CASES = {
    "1 token a chunk": "chunks=40 tokens=1 continuous=1", "2 tokens a chunk": "chunks=40 tokens=2 continuous=1",
    "4 tokens a chunk": "chunks=30 tokens=4 timings=1", "8 tokens a chunk": "chunks=20 tokens=8 continuous=1",
    "without a role": "chunks=30 role=0", "reasoning first": "chunks=20 reasoning=10 continuous=1",
    "bursts of 4": "chunks=40 burst=4", "a stall": "chunks=30 stall_at=15 stall=150000"}
NEAR_MS, NEAR = 0.2, 0.01


def claims(captures: Path) -> Iterator[Claim]:
    """A claim for each case: TTFT, TPOT, latency and gaps of every request."""
    with _loads.running(cpu=1) as server:
        for name, schedule in CASES.items():
            load = _loads.asked(server, [f"ttft=30000 period=5000 {schedule}"] * REQUESTS, most_open=OPEN, cpu=0)
            yield Claim(f"{name}: TTFT, latency, TPOT, ICL of each request", "within 1 % or 0.2 ms", *_judged(load))


def _judged(load: _loads.Recording) -> tuple[str, bool]:
    """The largest error of any figure, and whether all are near the truth."""
    points = points_of(load.requests)
    content: dict[int, list[int]] = {}
    for row in load.events.to_pylist():
        if row["kind"] == "content":
            content.setdefault(row["request_id"], []).append(load.sent[row["request_id"]][row["index"]][0])
    sent = [np.array(content[request]) for request in range(len(points.send))]
    first, last = np.array([times[0] for times in sent]), np.array([times[-1] for times in sent])
    tally = EventTally(points, points.is_ok, (0, 0))
    tally.feed(load.events)
    gaps = np.sort(np.concatenate([np.diff(times) for times in sent])) / 1e6
    pairs = [(points.ttft(points.send).ms, (first - points.send) / 1e6),
             (points.latency(points.send).ms, (last - points.send) / 1e6),
             (points.tpot.ms, (last - first) / 1e6 / (points.tokens - 1)),
             tuple(np.quantile(values, (0.5, 0.9)) for values in (tally.icl()[0], gaps))]
    off = [(np.abs(ours - truth).max(), (np.abs(ours - truth) <= np.maximum(NEAR_MS, NEAR * truth)).all())
           for ours, truth in pairs]
    return f"{1e3 * max(error for error, _ in off):.0f} us off", all(near for _, near in off)
