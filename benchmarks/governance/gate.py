"""The whole gate of `aaco ci` on suites in which nothing changed, and on ones in which one benchmark did.

A suite is 50 benchmarks of five fresh processes a side, each with every metric that its processes have (median, p90 and
p99 latency, throughput): 200 comparisons. The gate is the shipped one: verdicts at its level (1 %) and tolerance (5 %),
q-values over the suite, and for each suspect five more fresh processes that have to show it, too.

recorded  80 processes each of three models on a busy machine (stats/ort_cpu_aa_sessions.npz), drawn without repetition
drift     the same, 20 neighbours in the order of time: baseline, first look, second look, baseline anew; what a
          baseline that is made once meets, and the machine's own course is then a change, unless the suite says how to
          run the baseline's version, which is then measured anew at the end
made      iid, AR(1) within processes, two modes of processes, and a drift that all sides share
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from aaco.core.config import Analysis
from aaco.governance import gate, metrics, verdict
from aaco.governance.compare import Side
from aaco.governance.gate import Measured, Measurement
from aaco.governance.suite import Benchmark, Suite
from aaco.tracelake.history.replicates import ProcessSample, Replicate
from benchmarks.claims import Claim
from benchmarks.intervals import wilson

BENCHMARKS, RUNS, EACH, ITERATIONS, SEED = 50, 100, 5, 120, 71
DAY = date(2026, 1, 1)
SETTINGS = Analysis()
FILE, MODELS = "stats/ort_cpu_aa_sessions.npz", ("mlp", "conv", "tfm")
SUITE = Suite(false_alarm_pct=SETTINGS.false_alarm_pct, benchmarks=tuple(
    Benchmark(name=f"b{number}", model="m", baseline="main") for number in range(BENCHMARKS)))

Reals = NDArray[np.float64]
Draw = Callable[[np.random.Generator], Sequence[ProcessSample]]  # baseline, two looks, baseline anew: 4 x EACH


def claims(captures: Path) -> Iterator[Claim]:
    """False reds against the bar, then how often a planted slowdown is red."""
    draws: dict[str, list[Draw]] = {"made": [_made(kind) for kind in (_iid, _autoregressive, _bimodal, _drifting)]}
    if (captures / FILE).is_file():
        with np.load(captures / FILE, allow_pickle=False) as arrays:
            samples = [[ProcessSample.of(row) for row in 1e3 * arrays[model].astype(np.float64)] for model in MODELS]
        draws |= {"recorded": [_shuffled(each) for each in samples], "drift": [_in_order(each) for each in samples]}
    for name, chosen in draws.items():
        first, red, comparisons = _reds(chosen)
        bar = "none: a rate" if name == "drift" else "<= 1 of 100"
        yield Claim(f"{name}: suites of {BENCHMARKS} benchmarks, {RUNS} no-change runs: red", bar,
                    f"{_rate(red)}; first look {first}; {comparisons} comparisons a run",
                    None if name == "drift" else red <= 1)
    if "drift" in draws:
        first, red, comparisons = _reds(draws["drift"], anew=True)
        yield Claim(f"drift, baseline's version measured anew: {BENCHMARKS} benchmarks, {RUNS} no-change runs: red",
                    "<= 1 of 100", f"{_rate(red)}; first look {first}; {comparisons} comparisons a run", red <= 1)
    _, red, _ = _reds(draws["made"][:1], 15.0, anew=True)
    yield Claim(f"made, baseline's version measured anew: one of {BENCHMARKS} is 15 % slower: red", ">= 95 of 100",
                _rate(red), red >= 95)
    for name, slower, least in (("made", 15.0, 95), ("recorded", 60.0, None)):
        if name in draws:
            _, red, _ = _reds(draws[name][:1], slower)
            yield Claim(f"{name}: one of {BENCHMARKS} is {slower:g} % slower: red", f">= {least} of 100" if least else
                        "none: a rate", _rate(red), None if least is None else red >= least)


def _rate(count: int) -> str:
    low, high = wilson(count, RUNS)
    return f"{count} of {RUNS} ({100 * low:.1f}-{100 * high:.1f} %)"


def _reds(draws: Sequence[Draw], slower_pct: float = 0.0, anew: bool = False) -> tuple[int, int, int]:
    """Of all runs, in how many there was a suspect and how many were red, and the comparisons of one.

    slower_pct: how much slower the first benchmark of each run became; it alone must then be red. anew: whether a
    suspect is held against the baseline's version, measured anew, too.
    """
    rng, suspected, red, comparisons = np.random.default_rng(SEED), 0, 0, 0
    for _ in range(RUNS):
        drawn = [draws[number % len(draws)](rng) for number in range(BENCHMARKS)]
        factors = [1 + slower_pct / 100, *[1.0] * (BENCHMARKS - 1)]
        first = [Measured(each, _look(samples, 1, factor))
                 for each, samples, factor in zip(SUITE.benchmarks, drawn, factors, strict=True)]
        names = gate.suspects(SUITE, first)
        looked = [replace(each, again=[_again(samples, factor, anew)]) if each.benchmark.name in names else each
                  for each, samples, factor in zip(first, drawn, factors, strict=True)]
        report = gate.decide(SUITE, looked, DAY, "0")
        found = {each.name for each in report.benchmarks if each.outcome == "regressed"}
        suspected += bool(names)
        red += found == {"b0"} if slower_pct else bool(found)
        comparisons = report.comparisons
    return suspected, red, comparisons


def _again(samples: Sequence[ProcessSample], factor: float, anew: bool) -> Measurement:
    found = _look(samples, 2, factor)
    return replace(found, anew=_look(samples, 2, factor, samples[3 * EACH:]).verdict) if anew else found


def _look(samples: Sequence[ProcessSample], turn: int, factor: float,
          before: Sequence[ProcessSample] = ()) -> Measurement:
    """The verdict of the processes of this turn, each so much slower, on those of the baseline."""
    baseline = Side("main", (_session("s0", before or samples[:EACH]),))
    processes = [_slower(each, factor) for each in samples[turn * EACH:(turn + 1) * EACH]]
    current = Side(f"s{turn}", (_session(f"s{turn}", processes),))
    found = metrics.judge(baseline, current, SETTINGS.tolerance_pct, 1 - SUITE.false_alarm_pct / 100)
    return Measurement(f"s{turn}", verdict.judge(baseline, current, found, (), "0", "aaco diff"))


def _session(name: str, processes: Sequence[ProcessSample]) -> Replicate:
    return Replicate(session_id=name, processes=tuple(processes))


def _slower(sample: ProcessSample, factor: float) -> ProcessSample:
    if factor == 1.0:
        return sample
    changed: Mapping[str, float] = {name: factor * value for name in ("median_ms", "mean_ms", "p90_ms", "p99_ms")
                                    if (value := getattr(sample, name)) is not None}
    return sample.model_copy(update=changed)


def _shuffled(samples: Sequence[ProcessSample]) -> Draw:
    return lambda rng: [samples[place] for place in rng.permutation(len(samples))[:4 * EACH]]


def _in_order(samples: Sequence[ProcessSample]) -> Draw:
    def draw(rng: np.random.Generator) -> Sequence[ProcessSample]:
        start = int(rng.integers(len(samples) - 4 * EACH + 1))
        return samples[start:start + 4 * EACH]

    return draw


def _made(kind: Callable[[np.random.Generator], Reals]) -> Draw:
    return lambda rng: [ProcessSample.of(np.exp(row)) for row in kind(rng)]


def _iid(rng: np.random.Generator) -> Reals:
    return rng.normal(0, 0.02, (4 * EACH, 1)) + rng.normal(0, 0.05, (4 * EACH, ITERATIONS))


def _autoregressive(rng: np.random.Generator) -> Reals:
    """Iterations of a process that remember the last one."""
    noise, found = rng.normal(0, 0.03, (4 * EACH, ITERATIONS)), np.zeros((4 * EACH, ITERATIONS))
    for turn in range(1, ITERATIONS):
        found[:, turn] = 0.8 * found[:, turn - 1] + noise[:, turn]
    return found


def _bimodal(rng: np.random.Generator) -> Reals:
    """A third of the processes are 12 % slower for their whole life."""
    return 0.12 * (rng.random((4 * EACH, 1)) < 1 / 3) + rng.normal(0, 0.03, (4 * EACH, ITERATIONS))


def _drifting(rng: np.random.Generator) -> Reals:
    """A machine that wanders, met by all sides alike because they were interleaved."""
    course = np.cumsum(rng.normal(0, 0.02, 4 * EACH))
    order = np.argsort(rng.random((EACH, 4)), axis=1) + 4 * np.arange(EACH)[:, None]
    return course[order.T.ravel()][:, None] + rng.normal(0, 0.03, (4 * EACH, ITERATIONS))
