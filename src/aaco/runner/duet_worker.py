"""The measured process of a duet: holds one or both sides, and runs them in turns. Started by runner.duet.

Where the two sides need environments of their own they live in two processes, each of which knows all the turns: after
its own it sends the other a byte, if that one is next. Nobody else is between two turns.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from aaco.runner import pairs, provider, worker
from aaco.runner.job import DuetJob, Job
from aaco.runner.surroundings import Rest

OPEN, WARMUP = -2, -1  # in place of the number of a pair


@dataclass(frozen=True)
class Turn:
    """A step of one side: to open it, to warm it up, or its part of a pair."""

    pair: int
    side: int
    is_first: bool = False


def main() -> None:
    """Run the job on stdin."""
    job = DuetJob(**json.load(sys.stdin))
    worker.answer(job.parent, Path(job.outcome), lambda: _run(job))


def turns(job: DuetJob) -> list[Turn]:
    """All that both sides do, in order: they are opened in the order that was drawn, warmed up and measured in turns.
    """
    found = [Turn(OPEN, side) for side in job.created]
    found += [Turn(WARMUP, side) for _ in range(job.warmup) for side in job.created]
    for pair, first in enumerate(job.first):
        found += [Turn(pair, first, True), Turn(pair, 1 - first)]
    return found


def _run(job: DuetJob) -> dict[str, Any]:
    opened: dict[int, Callable[[], object]] = {}
    facts: dict[str, Any] = {}
    planned = turns(job)
    mine = [turn.side in job.mine for turn in planned]
    waits = [own and not before for before, own in pairwise([True, *mine])]
    tells = [own and not after for own, after in pairwise([*mine, True])]
    rest = Rest(job.sides[0]["burst_ns"], job.sides[0]["rest_ns"])
    with worker.appending(job.rows, new=False) as descriptor, worker.no_garbage_collection():
        for turn, own, wait, tell in zip(planned, mine, waits, tells, strict=True):
            if not own:
                continue
            if wait:
                _hear(job.hear)
            if turn.pair == OPEN:
                opened[turn.side], facts[str(turn.side)] = _open(job.sides[turn.side])
            elif turn.pair == WARMUP:
                opened[turn.side]()
            else:
                _measure(descriptor, turn, opened[turn.side], rest)
            if tell:
                os.write(job.tell, b".")
    return {"sides": facts}


def _open(job: dict[str, Any]) -> tuple[Callable[[], object], dict[str, Any]]:
    started = time.monotonic_ns()
    session = provider.open_session(Job(**job))
    described = provider.describe(session)
    kept = {name: described[name] for name in ("onnxruntime", "providers", "provider_options")}
    return provider.bind(session, Job(**job)).run, kept | {"load_ms": (time.monotonic_ns() - started) / 1e6}


def _measure(descriptor: int, turn: Turn, run: Callable[[], object], rest: Rest) -> None:
    """One turn, and known work timed beside the pair: before its first turn, after its second."""
    clock = time.monotonic_ns
    spin = pairs.spin() if turn.is_first else 0
    start = clock()
    run()
    end = clock()
    pairs.append(descriptor, turn.pair, turn.side, start, end, spin or pairs.spin())
    if not turn.is_first:
        rest.after(end)


def _hear(descriptor: int) -> None:
    if not os.read(descriptor, 1):
        signal.pause()  # the other process has died: whoever started both says how, and kills this one


if __name__ == "__main__":
    main()
