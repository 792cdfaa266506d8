"""Runs two sides in turns: models inside fresh processes, commands as fresh processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from aaco.core import files
from aaco.core.errors import AacoError
from aaco.core.records import as_dict
from aaco.runner import command, measured, ort, pairs
from aaco.runner.job import DuetJob, Job
from aaco.runner.measured import MeasuredProcess
from aaco.runner.ort import Workload
from aaco.runner.pairs import DuetPlan

# Threads of a pool look for work for a while after each inference; in a duet that would be during the other side's.
REST_BETWEEN = {"session.force_spinning_stop": "1"}


class ModelSide(Struct, frozen=True):
    """A workload, and the additions to its process's environment."""

    workload: Workload
    environment: Mapping[str, str] = field(default_factory=dict)


class CommandSide(Struct, frozen=True):
    """A command line, and the additions to its environment."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float | None = None
    ignore_failure: bool = False


def of_models(folder: Path, sides: tuple[ModelSide, ModelSide], duet: DuetPlan, warmup: int,
              progress: Callable[[int], None] = lambda pairs: None, vary: bool = False,
              limit_s: float | None = None) -> dict[str, Any]:
    """Measure a duet of models in one fresh process, or in two if the sides' environments differ; write its rows to the
    session folder as they happen. vary: whether every pair has inputs of its own. limit_s: how long it may take.

    Return the processes' reports of the sides. Raise AacoError. Controls are in two processes then, too: they must
    scatter as the changes do.
    """
    assert duet.created is not None
    rows = _create_rows(pairs.path_of(folder, duet.process))
    process_sides = [sides[number] for number in duet.sides]
    with ExitStack() as stack:
        scratches = [stack.enter_context(ort.scratch_of(side.workload)) for side in process_sides]
        jobs = [as_dict(Job(kind="time", rows="", account="", warmup=warmup, iterations=len(duet.first),
                           entries=REST_BETWEEN,
                           **ort.job_of(side.workload, scratch)))
                for side, scratch in zip(process_sides, scratches, strict=True)]
        common = {"parent": os.getpid(), "rows": str(rows.resolve()), "sides": jobs, "created": list(duet.created),
                  "first": list(duet.first), "warmup": warmup, "vary": vary}
        if not apart(sides):
            processes = [_make_process(scratches[0], process_sides[0], common, [0, 1])]
        else:
            ends = stack.enter_context(_open_pipes())
            processes = [_make_process(scratches[number], process_sides[number], common, [number], *ends[number])
                         for number in duet.created]
        outcomes = measured.run(processes, lambda: progress(pairs.count(rows)), limit_s=limit_s)
    return {name: facts for outcome in outcomes for name, facts in outcome["sides"].items()}


def apart(sides: tuple[ModelSide | CommandSide, ModelSide | CommandSide]) -> bool:
    """Return whether the two sides cannot live in one process."""
    return sides[0].environment != sides[1].environment


def of_commands(folder: Path, sides: tuple[CommandSide, CommandSide], duet: DuetPlan, warmup: int,
                progress: Callable[[int], None] = lambda pairs: None) -> dict[str, Any]:
    """Run commands in turns, each turn a fresh process; write rows as for models.

    Raise AacoError, also for a run that fails, unless that side ignores it.
    """
    rows = _create_rows(pairs.path_of(folder, duet.process))
    process_sides = [sides[number] for number in duet.sides]
    failures = {"0": 0, "1": 0}
    for side in [side for _ in range(warmup) for side in process_sides]:
        _run_side(side)
    descriptor = os.open(rows, os.O_WRONLY | os.O_APPEND)
    try:
        for pair, first in enumerate(duet.first):
            for number in (first, 1 - first):
                spin = pairs.spin() if number == first else 0
                ran = _run_side(process_sides[number])
                failures[str(number)] += ran.code != 0
                pairs.append(descriptor, pair, number, ran.start_ns, ran.end_ns, spin or pairs.spin())
            progress(pair + 1)
    finally:
        os.close(descriptor)
    return {number: {"failed_runs": count} for number, count in failures.items()}


def _run_side(side: CommandSide) -> command.Ran:
    ran = command.run(side.argv, side.timeout_s, environment=side.environment)
    if ran.code and not side.ignore_failure:
        last_words = f": {ran.last_words}" if ran.last_words else ""
        raise AacoError(f"{side.argv[0]} {command.ending(ran.code)}{last_words}",
                        "--ignore-failure goes on and counts its time all the same")
    return ran


def _create_rows(rows: Path) -> Path:
    """Return an empty file for rows. Raise StorageError if there is one already."""
    with files.storage(rows):
        rows.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(rows, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    return rows


def _make_process(scratch: Path, side: ModelSide, common: Mapping[str, Any], mine: list[int], hear: int = -1,
                  tell: int = -1) -> MeasuredProcess:
    outcome = scratch / "duet.json"
    job = DuetJob(**common, outcome=str(outcome), mine=mine, hear=hear, tell=tell)
    return MeasuredProcess("aaco.runner.duet_worker", as_dict(job), outcome, scratch / "stderr", side.environment,
                           tuple(end for end in (hear, tell) if end >= 0))


@contextmanager
def _open_pipes() -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield per side the end it reads from and the end it signals the other by."""
    to_second, to_first = os.pipe(), os.pipe()
    try:
        yield (to_first[0], to_second[1]), (to_second[0], to_first[1])
    finally:
        for end in (*to_second, *to_first):
            os.close(end)
