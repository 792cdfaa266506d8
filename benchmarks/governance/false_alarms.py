"""How often the verdict over stored sessions cries wolf where nothing changed; and tests over iterations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
from scipy import stats

from aaco.governance.compare import judge
from aaco.governance.spread import in_pairs
from benchmarks.claims import Claim
from benchmarks.governance import _sides
from benchmarks.governance._sides import Draw, Rng
from benchmarks.intervals import wilson

TRIALS, SEED, ALPHA = 3000, 41, 0.05
BAR = "3-7 %, upper < 8 %"


def claims(captures: Path) -> Iterator[Claim]:
    """The bar on every set of data, the gate's own level, and what has no bar: too little data, and other tests."""
    recorded = _sides.medians(captures)
    sets: dict[str, Draw] = {
        "iid, S = 5 processes a side": _sides.made(_sides.iid, 1, 1, 0),
        "iid, and 8 sessions of history": _sides.made(_sides.iid, 1, 1, 8),
        "sessions that differ, 8 + 1": _sides.made(_sides.drifting, 8, 1, 0),
        "sessions that differ, 1 + 1, 20 of history": _sides.made(_sides.drifting, 1, 1, 20),
        "AR(1) iterations": _sides.made(_sides.autoregressive, 1, 1, 8),
        "bimodal per session": _sides.made(_sides.bimodal, 1, 1, 8)}
    fresh = _sides.fresh()
    sets |= {"fresh recordings, S = 5, 6 of history": _sides.of_processes(fresh, 6),
             "fresh recordings, sessions, 4 + 4": _sides.of_sessions(fresh, 4, 4, 0)}
    if recorded:
        sets |= {"recorded, S = 5 processes a side": _sides.of_processes(recorded, 0),
                 "recorded, and 8 sessions of history": _sides.of_processes(recorded, 8),
                 "recorded sessions, 5 + 5": _sides.of_sessions(recorded, 5, 5, 0),
                 "recorded sessions, 5 + 5, 6 of history": _sides.of_sessions(recorded, 5, 5, 6),
                 "recorded sessions, 8 + 1, 7 of history": _sides.of_sessions(recorded, 8, 1, 7)}
    for name, draw in sets.items():
        yield _rate(f"A/A false alarms at 5 %: {name}", _drawn(draw), ALPHA, (0.03, 0.07, 0.08), BAR)
    for name, drift in (("random walk", _walk), ("steady, half the noise a session", _steady(0.005))):
        yield _rate(f"A/A false alarms at 5 %: drift with interleaving, {name}", _turns(drift), ALPHA,
                    (0.03, 0.07, 0.08), BAR)
    yield _rate("the same: steady, twice the noise a session", _turns(_steady(0.02)), ALPHA, None,
                "none: conservative")
    yield _rate("the bare t on fresh sessions, 1 + 1, 6 of history: one of eight is far off",
                _drawn(_sides.of_sessions(fresh, 1, 1, 6)), ALPHA, None, "none: too few for a verdict")
    for name, draw in sets.items():
        if name in ("iid, and 8 sessions of history", "recorded sessions, 8 + 1, 7 of history"):
            yield _rate(f"A/A false alarms of the gate (1 %): {name}", _drawn(draw), 0.01, (0.0, 0.02, 0.02), "<= 2 %")
    if not recorded:
        yield Claim("A/A false alarms: recorded", BAR, "absent: no recording there", None)
        return
    yield _rate("the same, 8 + 1 in the order of time (24 verdicts)",
                (lambda level, sides=sides: _sides.compared(sides, level).p_value
                 for sides in _sides.in_time_order(recorded, 8)), ALPHA, None, "none: too few")
    yield _h200(captures)
    yield from _over_iterations(captures)


def _drawn(draw: Draw) -> Iterator[Callable[[float], float | None]]:
    rng = np.random.default_rng(SEED)
    for _ in range(TRIALS):
        sides = draw(rng)
        yield lambda level, sides=sides: _sides.compared(sides, level).p_value


def _turns(drift: Callable[[Rng, int], _sides.Reals]) -> Iterator[Callable[[float], float | None]]:
    rng = np.random.default_rng(SEED)
    for _ in range(TRIALS):
        found = in_pairs(*_sides.taking_turns(rng, drift))
        assert found, "sessions that took turns were not compared in pairs"
        yield lambda level, found=found: judge(found, 0.0, level).p_value


def _rate(name: str, trials: Iterable[Callable[[float], float | None]], alpha: float,
          bar: tuple[float, float, float] | None, said: str) -> Claim:
    called = [(p if p is not None else 1.0) < alpha for p in (trial(1 - alpha) for trial in trials)]
    low, high = wilson(sum(called), len(called))
    rate = sum(called) / len(called)
    met = None if bar is None else bar[0] <= rate <= bar[1] and high < bar[2]
    return Claim(name, said, f"{100 * rate:.1f} % ({100 * low:.1f}-{100 * high:.1f}) of {len(called)}", met)


def _walk(rng: Rng, count: int) -> _sides.Reals:
    return np.cumsum(0.02 * rng.standard_normal(count))


def _steady(step: float) -> Callable[[Rng, int], _sides.Reals]:
    return lambda rng, count: step * np.arange(count)


def _h200(captures: Path) -> Claim:
    """Two processes against three: too few for a verdict, which says so; the bare test, all the same."""
    trials = []
    for values in _sides.h200(captures).values():
        for chosen in combinations(range(len(values)), 2):
            rest = [index for index in range(len(values)) if index not in chosen]
            trials.append(lambda level, a=values[list(chosen)], b=values[rest]: _sides.compared(
                ([a], [b], []), level).p_value)
    if not trials:
        return Claim("A/A false alarms at 5 %: H200", BAR, "absent: no recording there", None)
    return _rate("the bare t on H200 processes, 2 against 3 (all splits)", trials, ALPHA, None,
                 "none: no verdict on 2 + 3")


def _over_iterations(captures: Path) -> Iterator[Claim]:
    """What tests over iterations make of the same recording, five processes a side."""
    rng = np.random.default_rng(SEED)
    models = list(_sides.iterations(captures).values())
    alarms = {"Welch's t": 0, "Mann-Whitney": 0}
    count = 300
    for trial in range(count):
        chosen = rng.permutation(models[trial % len(models)])
        before, after = (side[np.isfinite(side)] for side in (chosen[:5].ravel(), chosen[5:10].ravel()))
        alarms["Welch's t"] += stats.ttest_ind(before, after, equal_var=False).pvalue < ALPHA
        alarms["Mann-Whitney"] += stats.mannwhitneyu(before, after).pvalue < ALPHA
    for name, wrong in alarms.items():
        yield Claim(f"for comparison: {name} over iterations", "none: another tool's",
                    f"{100 * wrong / count:.0f} % of {count}", None)

