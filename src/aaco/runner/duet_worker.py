"""The measured process of a duet: holds one or both sides, and runs them in turns. Started by runner.duet.

Sides with different environments live in two processes, each of which knows all the turns. After its turn a process
sends the other a byte, if that one is next. No third process is between two turns.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import Struct

from aaco.runner import pairs, provider, worker
from aaco.runner.job import DuetJob, Job
from aaco.runner.provider import BoundModel
from aaco.runner.surroundings import Rest

OPEN, WARMUP = -2, -1  # in place of the number of a pair


class Turn(Struct, frozen=True):
    """A step of one side: to open it, to warm it up, or its part of a pair."""

    pair: int
    side: int
    is_first: bool = False


def main() -> None:
    """Run the job on stdin."""
    job = DuetJob(**json.load(sys.stdin))
    worker.answer(job.parent, Path(job.outcome), lambda: _run(job))


def turns(job: DuetJob) -> list[Turn]:
    """Return all steps of both sides, in order: opened in the drawn order, warmed up and measured in turns."""
    planned = [Turn(OPEN, side) for side in job.created]
    planned += [Turn(WARMUP, side) for _ in range(job.warmup) for side in job.created]
    for pair, first in enumerate(job.first):
        planned += [Turn(pair, first, True), Turn(pair, 1 - first)]
    return planned


def _run(job: DuetJob) -> dict[str, Any]:
    opened: dict[int, BoundModel] = {}
    facts: dict[str, Any] = {}
    planned = turns(job)
    mine = [turn.side in job.mine for turn in planned]
    waits = [is_mine and not before for before, is_mine in pairwise([True, *mine])]
    tells = [is_mine and not after for is_mine, after in pairwise([*mine, True])]
    cooldown = Rest(job.sides[0]["burst_ns"], job.sides[0]["rest_ns"])
    with worker.appending(job.rows, new=False) as descriptor, worker.no_garbage_collection():
        for turn, is_mine, waits_here, tell in zip(planned, mine, waits, tells, strict=True):
            if not is_mine:
                continue
            if waits_here:
                _wait_for_signal(job.hear)
            if turn.pair == OPEN:
                opened[turn.side], facts[str(turn.side)] = _open_side(job.sides[turn.side])
            elif turn.pair == WARMUP:
                opened[turn.side].run()
            else:
                if job.vary:
                    opened[turn.side].vary()
                _measure_turn(descriptor, turn, opened[turn.side].run, cooldown)
            if tell:
                os.write(job.tell, b".")
    return {"sides": facts}


def _open_side(job: dict[str, Any]) -> tuple[BoundModel, dict[str, Any]]:
    started = time.monotonic_ns()
    session = provider.open_session(Job(**job))
    described = provider.describe(session)
    kept = {name: described[name] for name in ("onnxruntime", "providers", "provider_options")}
    return provider.bind(session, Job(**job)), kept | {"load_ms": (time.monotonic_ns() - started) / 1e6}


def _measure_turn(descriptor: int, turn: Turn, run: Callable[[], object], cooldown: Rest) -> None:
    """Measure one turn, and time known work around the pair: before its first turn, after its second."""
    clock = time.monotonic_ns
    spin = pairs.spin() if turn.is_first else 0
    start = clock()
    run()
    end = clock()
    pairs.append(descriptor, turn.pair, turn.side, start, end, spin or pairs.spin())
    if not turn.is_first:
        cooldown.after(end)


def _wait_for_signal(descriptor: int) -> None:
    if not os.read(descriptor, 1):
        signal.pause()  # the other process has died: their parent reports how, and kills this one


if __name__ == "__main__":
    main()
