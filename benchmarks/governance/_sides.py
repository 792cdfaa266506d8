"""Two sides and a history of which the truth is known: drawn from recordings in which nothing changed, or made.

A draw is (baseline, current, history): lists of sessions, each the log values of its processes, and for the history
epochs of such lists. Recordings: three small models, 80 fresh processes each in turn on a busy 2-CPU virtual machine,
300 iterations per process (`stats/ort_cpu_aa_sessions.npz` under $AACO_CAPTURES); five processes each of three
workloads on an H200 (`h200/aa`). A change is made by adding to one side.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aaco.governance.compare import Comparison, judge
from aaco.governance.spread import estimate

Reals = NDArray[np.float64]
Rng = np.random.Generator
Sessions = Sequence[Reals]
Sides = tuple[Sessions, Sessions, list[Sessions]]
Draw = Callable[[Rng], Sides]
MODELS = ("mlp", "conv", "tfm")
RECORDED = "stats/ort_cpu_aa_sessions.npz"
FRESH = Path(__file__).parents[2] / "tests/captures/duet/pairs.npz"
EACH = 5  # processes a session


def compared(sides: Sides, level: float = 0.95, change: float = 0.0, tolerance_pct: float = 0.0) -> Comparison:
    """The comparison of a draw, its current side `change` slower on the log scale."""
    before, after, history = sides
    return judge(estimate(before, [session + change for session in after], history), tolerance_pct, level)


def iterations(captures: Path) -> dict[str, Reals]:
    """Per model, latencies of 80 processes x 300 iterations, s; empty where the recording is not there."""
    if not (captures / RECORDED).is_file():
        return {}
    with np.load(captures / RECORDED, allow_pickle=False) as arrays:
        return {model: arrays[model].astype(np.float64) for model in MODELS}


def medians(captures: Path) -> dict[str, Reals]:
    """Per model, the logarithm of each process's median."""
    return {model: np.log(np.median(found, axis=1)) for model, found in iterations(captures).items()}


def fresh() -> dict[str, Reals]:
    """Per model and number of threads, the logarithm of the median of each of 40 processes: of the project's own
    recording of duets, the side that was created first."""
    with np.load(FRESH, allow_pickle=False) as arrays:
        return {name: np.log(np.median(arrays[name][:, 0].astype(np.float64), axis=1)) for name in arrays.files}


def h200(captures: Path) -> dict[str, Reals]:
    """Per workload of h200/aa, the logarithm of each process's median."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for path in sorted((captures / "h200/aa").glob("aa_*.csv")):
        with path.open() as file:
            for row in csv.DictReader(file):
                found[row["workload"], row["process"]].append(float(row["latency_us"]))
    workloads = dict.fromkeys(workload for workload, _ in found)
    return {name: np.array([np.log(np.median(values)) for (workload, _), values in found.items() if workload == name])
            for name in workloads}


def of_processes(recorded: dict[str, Reals], history: int) -> Draw:
    """One session of five processes a side, and `history` sessions: processes anywhere in a recording, shuffled."""
    def draw(rng: Rng) -> Sides:
        values = rng.permutation(recorded[str(rng.choice(list(recorded)))])
        sessions = _blocks(values[:EACH * (history + 2)])
        return sessions[:1], sessions[1:2], [sessions[2:]] if history else []
    return draw


def of_sessions(recorded: dict[str, Reals], before: int, after: int, history: int) -> Draw:
    """Sessions of five neighbours in the recording, which the machine's drift sets apart, in random order."""
    def draw(rng: Rng) -> Sides:
        blocks = _blocks(recorded[str(rng.choice(list(recorded)))])
        sessions = [blocks[index] for index in rng.permutation(len(blocks))]
        return (sessions[:before], sessions[before:before + after],
                [sessions[before + after:before + after + history]] if history else [])
    return draw


def in_time_order(recorded: dict[str, Reals], before: int) -> Iterator[Sides]:
    """Every session against those just before it, all earlier ones being history: what a CI job sees."""
    for values in recorded.values():
        blocks = _blocks(values)
        for now in range(before, len(blocks)):
            yield blocks[now - before:now], blocks[now:now + 1], [blocks[:now - before]] if now > before else []


def made(sample: Callable[[Rng, int], list[Reals]], before: int, after: int, history: int) -> Draw:
    """Sides of sessions that `sample` makes, all of one kind."""
    def draw(rng: Rng) -> Sides:
        sessions = sample(rng, before + after + history)
        return (sessions[:before], sessions[before:before + after],
                [sessions[before + after:]] if history else [])
    return draw


def single(draw: Draw) -> Draw:
    """The same with every process a session of its own, as `aaco run` measures by default."""
    def cut(sessions: Sessions) -> list[Reals]:
        return [session[index:index + 1] for session in sessions for index in range(len(session))]

    def drawn(rng: Rng) -> Sides:
        before, after, history = draw(rng)
        return cut(before), cut(after), [cut(epoch) for epoch in history]
    return drawn


def iid(rng: Rng, sessions: int) -> list[Reals]:
    """Processes that scatter by 1 %, sessions that do not."""
    return list(0.01 * rng.standard_normal((sessions, EACH)))


def drifting(rng: Rng, sessions: int) -> list[Reals]:
    """Sessions that scatter by 1 % beside their processes' 1 %."""
    return list(0.01 * rng.standard_normal((sessions, 1)) + 0.01 * rng.standard_normal((sessions, EACH)))


def autoregressive(rng: Rng, sessions: int) -> list[Reals]:
    """100 iterations a process, each 0.9 of the one before plus noise, and processes that differ by 1 %: medians."""
    processes = sessions * EACH
    noise = rng.standard_normal((processes, 100))
    values = np.empty_like(noise)
    values[:, 0] = noise[:, 0]
    for step in range(1, 100):
        values[:, step] = 0.9 * values[:, step - 1] + np.sqrt(1 - 0.9**2) * noise[:, step]
    middle = np.median(0.03 * values, axis=1) + 0.01 * rng.standard_normal(processes)
    return _blocks(middle)


def bimodal(rng: Rng, sessions: int) -> list[Reals]:
    """Every process is in one of two modes, 2-20 % apart, of any frequency from a tenth to a half; noise of 1 %."""
    often, apart = rng.uniform(0.1, 0.5), rng.uniform(0.02, 0.2)
    values = apart * (rng.random((sessions, EACH)) < often) + 0.01 * rng.standard_normal((sessions, EACH))
    return list(values)


def taking_turns(rng: Rng, drift: Callable[[Rng, int], Reals], pairs: int = EACH) -> tuple[Sessions, Sessions,
                                                                                           list[bool]]:
    """Sessions of one process, pairs of neighbours in random order (not all the same), on a machine that drifts."""
    while True:
        first = rng.integers(0, 2, pairs).astype(bool)
        if 0 < first.sum() < pairs:
            break
    order = np.column_stack((first, ~first)).ravel()
    values = drift(rng, 2 * pairs) + 0.01 * rng.standard_normal(2 * pairs)
    return ([np.array([value]) for value in values[~order]], [np.array([value]) for value in values[order]],
            order.tolist())


def _blocks(values: Reals) -> list[Reals]:
    return [values[start:start + EACH] for start in range(0, len(values) - EACH + 1, EACH)]
