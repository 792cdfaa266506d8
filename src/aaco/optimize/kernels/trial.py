"""One candidate against the baseline in a process of its own: `python -m aaco.optimize.kernels.trial REQUEST`.

REQUEST is a file of JSON; answers are lines of JSON. Checks come in the order of their cost, and the first that fails
is the last line. A candidate that faults or hangs ends this process, and the stage that it began last says where.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from aaco.calibration.child import answer
from aaco.core.errors import AacoError
from aaco.core.records import as_dict
from aaco.optimize.kernels import exactness
from aaco.optimize.kernels.bench import Bench, BenchFacts, Difference, NotRepeatable, Program
from aaco.optimize.kernels.inputs import NumberRange
from aaco.replay import capture as captures
from aaco.replay import engine
from aaco.replay.capture import KernelCapture
from aaco.replay.cuda import RegionTaken

STAGES = ("captured", "inputs", "repeats", "bounds", "timed")
Tell = Callable[..., None]


class TrialRequest(Struct, frozen=True):
    """What a process is to do. programs: by `baseline` and `candidate` the file of the code, and the launch.

    parameters: the C++ types of the kernel's. inputs, repeats, pairs: how many of each. seed: of all that is drawn.
    """

    capture: str
    programs: Mapping[str, Mapping[str, Any]]
    parameters: tuple[str, ...] = ()
    stages: tuple[str, ...] = STAGES
    inputs: int = 5
    repeats: int = 10
    pairs: int = 20
    seed: int = 0
    any_driver: bool = False
    known: Mapping[str, Any] | None = None  # the facts that another process answered
    under: tuple[str, ...] = ()  # a program and its options that watch this process


@dataclass
class _Refusal(Exception):
    """A check that failed, by its fixed reason."""

    reason: str
    detail: str
    facts: dict[str, Any] = field(default_factory=dict)


def main(request: Mapping[str, Any], tell: Tell) -> None:
    """Answer a request: each stage as it begins, then what refused it, or the times of each pair."""
    how = TrialRequest(**request)
    with captures.open(Path(how.capture)) as capture:
        tell(stage="load")
        try:
            bench = _open(capture, how)
        except RegionTaken as error:
            tell(taken=error.what)
            raise
        tell(facts=as_dict(bench.facts))
        try:
            for stage in how.stages:
                tell(stage=stage)
                for line in RUNS[stage](bench, how):
                    tell(**line)
        except _Refusal as refusal:
            tell(refused=refusal.reason, detail=refusal.detail)
        except NotRepeatable as error:
            tell(refused="baseline_not_repeatable", detail=error.what)
        tell(done=True)


def _open(capture: KernelCapture, how: TrialRequest) -> Bench:
    programs = {name: Program(Path(given["code"]).read_bytes(), given["entry"], _triple(given.get("block")),
                              _triple(given.get("grid"))) for name, given in how.programs.items()}
    known = how.known and BenchFacts(tuple(NumberRange(**place) for place in how.known["ranges"]),
                                     tuple(how.known["addressed"]))
    bench = Bench(capture, programs, how.parameters, how.any_driver, known or None)
    measured = {use.base: use for use in capture.roles.regions} if capture.roles else {}
    for _ in engine.measure_roles(bench, measured, lambda base: None):
        pass
    engine.separate_state(bench)
    return bench


def _triple(values: Any) -> tuple[int, int, int] | None:
    return tuple(values) if values else None


def _captured(bench: Bench, how: TrialRequest) -> Iterator[dict[str, Any]]:
    bench.vary(None)
    if not bench.mask_bytes and not any(bench.changed()):
        raise _Refusal("nothing_to_compare", "it changes nothing, and no byte that it writes could be inverted before")
    yield _checked(bench, bench.turn(how.seed)[2], "wrong_on_capture", "on the captured inputs")


def _inputs(bench: Bench, how: TrialRequest) -> Iterator[dict[str, Any]]:
    if not bench.ranges:
        raise _Refusal("inputs_cannot_change", "no argument points to floating-point numbers that may be changed, so "
                                               "that results kept from earlier runs could pass")
    for number in range(how.inputs):
        bench.vary(how.seed + number + 1)
        found = bench.turn(how.seed + number + 1)[2]
        yield _checked(bench, found, "wrong_on_inputs", f"on changed inputs {number + 1}")


def _repeats(bench: Bench, how: TrialRequest) -> Iterator[dict[str, Any]]:
    bench.vary(how.seed + 1)
    first: list[bytes] = []
    for number in range(how.repeats):
        difference = bench.turn(how.seed + 1000 + number)[2]
        written = sorted(difference.differing)
        contents = [bench.content_of("candidate", place) for place in written]
        if number and contents != first:
            raise _Refusal("not_repeatable", f"run {number + 1} on the same inputs left other bytes than run 1")
        first = contents
        _checked(bench, difference, "not_repeatable", f"in run {number + 1} on the same inputs")
    yield {"repeats": how.repeats}


def _bounds(bench: Bench, how: TrialRequest) -> Iterator[dict[str, Any]]:
    bench.vary(None)
    if not bench.movable():
        raise _Refusal("bounds_not_checked", "memory of the launch holds addresses, or none of its arguments is one: "
                                             "it cannot be put next to memory that nothing may touch")
    for to_end in (False, True):
        moved = bench.move(to_end)
        where = "after" if to_end else "before"
        if stray := bench.strays(how.seed):
            raise _Refusal("out_of_bounds", f"it changes {stray:,} bytes outside of its regions")
        difference = bench.turn(how.seed + 2000 + to_end)[2]
        yield _checked(bench, difference, "out_of_bounds", f"with nothing mapped {where} its {moved} regions")
    bench.stay()


def _timed(bench: Bench, how: TrialRequest) -> Iterator[dict[str, Any]]:
    """Time in turns: each pair on inputs that no earlier run had, each run restored, poisoned and checked."""
    draw = random.Random(how.seed)
    peak, cache = bench.peak_bytes_per_us(), bench.gpu.attribute("l2")
    for number in range(how.pairs + 2):
        seed = how.seed + 3000 + number
        bench.vary(seed if bench.ranges else None)
        baseline_us, candidate_us, difference = bench.turn(seed, draw.random() < 0.5)
        _checked(bench, difference, "wrong_when_timed", f"in timed pair {number + 1}")
        must_move = sum(bench.mask_bytes.values()) - bench.unwritten_bytes - cache
        floor_us = max(0.0, must_move / peak) if peak else 0.0
        if candidate_us <= floor_us:
            raise _Refusal("faster_than_roof", f"{candidate_us:.2f} us in timed pair {number + 1}: "
                                               f"{max(0, must_move):,} bytes take {floor_us:.2f} us at least")
        if number >= 2:
            yield {"pair": [baseline_us, candidate_us]}


def _checked(bench: Bench, difference: Difference, reason: str, where: str) -> dict[str, Any]:
    """Return the line of a check that passed. Raise _Refusal for bytes that differ and are not numbers as exact."""
    if difference.late:
        raise _Refusal("late_work", f"{difference.late:,} bytes changed after the launch's stream was done, {where}")
    wide = bench.reference() if difference.differing else {}
    for number, count in difference.differing.items():  # no rounding explains these, nor what follows from them
        if not bench.is_written(number):
            raise _Refusal(reason, f"{count:,} bytes of region {bench.regions[number].base:#x} differ {where}, which "
                                   "the baseline leaves as they were")
    for number, count in difference.differing.items():
        _check_region(bench, number, count, reason, where, wide)
    return {"differing": sum(difference.differing.values())}


def _check_region(bench: Bench, number: int, count: int, reason: str, where: str,
                  wide: Mapping[NumberRange, NDArray[np.float64]]) -> None:
    expected, left = (bytearray(bench.content_of(name, number)) for name in ("expected", "candidate"))
    base = bench.regions[number].base
    for place in (place for place in bench.number_ranges if place.number == number):
        span = slice(place.begin, place.begin + place.size)
        found = exactness.compare(bytes(expected[span]), bytes(left[span]), place.number_type, wide.get(place))
        if found.outcome == "less exact":
            raise _Refusal("less_exact", f"{found.why}, {where}")
        if found.outcome == "wrong":
            raise _Refusal(reason, f"{count:,} bytes of region {base:#x} differ {where}: {found.why}")
        expected[span] = left[span]
    if expected != left:
        raise _Refusal(reason, f"{count:,} bytes of region {base:#x} differ {where}")


RUNS = {"captured": _captured, "inputs": _inputs, "repeats": _repeats, "bounds": _bounds, "timed": _timed}

if __name__ == "__main__":
    with answer() as tell:
        try:
            main(json.loads(Path(sys.argv[1]).read_text()), tell)
        except OSError as error:
            raise AacoError(f"{sys.argv[1]}: {error.strerror}") from error
