"""The duet (`aaco compare`): false alarms, power, what looking early costs, and what the prior is worth.

Recorded: three small models, 40 fresh processes each on a contended 2-CPU virtual machine, 200 interleaved pairs per
process, nothing changed between the sides (`stats/ort_cpu_duet_sessions.npz`); five processes on an H200
(`h200/aa`), whose neighbouring iterations are taken as pairs; and our own (tests/captures/duet), made with

    python -m benchmarks.governance._record_duet FILE [--processes 40] [--models gpt2-tiny ...]

One trial draws 5 processes as changes, 5 others as controls and others as three earlier runs, all at random; what the
recording called the later side is drawn, too, as `aaco compare` draws it. A change is made by multiplying one side.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aaco.governance.interleaved import duet
from aaco.governance.interleaved.duet import Look, Unit
from benchmarks.claims import Claim
from benchmarks.intervals import wilson

Reals = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Reals]  # that many processes' log ratios, later over earlier created
ALPHA, TRIALS, SEED = 0.05, 2000, 20
PAIRS, PROCESSES, HISTORY = 100, 5, 3
RECORDED = "stats/ort_cpu_duet_sessions.npz"
H200 = "h200/aa"
OWN = Path(__file__).parents[2] / "tests/captures/duet/pairs.npz"
POWER = {2.0: 0.65, 3.0: 0.85, 5.0: 0.97}
MOST = 20  # processes of a run that looks early: 5, 10, 20
TOLERANCE_PCT = 1.0


def claims(captures: Path) -> Iterator[Claim]:
    """Each bar of the issue, on every set of data."""
    recorded = _recorded(captures / RECORDED)
    sets = {"recorded, contended": recorded, "fresh recordings": _recorded(OWN), "H200": _h200(captures / H200),
            "iid": {"": _iid}, "AR(1)": {"": _autoregressive}, "bimodal per session": {"": _bimodal},
            "drift, interleaved": {"": _drifting}, "one side scatters 3 x": {"": _iid}}
    for name, draws in sets.items():
        unequal = 3.0 if name.startswith("one side") else 1.0
        yield _false_alarms(name, draws, unequal)
    for shift_pct, bar in POWER.items():
        yield _power(recorded, shift_pct, bar)
    yield _order_effect()
    for name in ("recorded, contended", "iid", "bimodal per session"):
        yield _early_stop(name, sets[name])
    yield _processes_saved(recorded)


def _false_alarms(name: str, draws: dict[str, Draw], unequal: float) -> Claim:
    if not draws:
        return Claim(f"A/A false alarms at 5 %: {name}", "3-7 %, upper < 8 %", "absent: no recording there", None)
    found = [_trial(rng, draw, 0.0, unequal).p_value < ALPHA for draw in draws.values()
             for rng in [np.random.default_rng(SEED)] for _ in range(TRIALS)]
    low, high = wilson(sum(found), len(found))
    share = float(np.mean(found))
    return Claim(f"A/A false alarms at 5 %: {name}", "3-7 %, upper < 8 %", _rate(share, low, high, len(found)),
                 0.03 <= share <= 0.07 and high < 0.08)


def _power(draws: dict[str, Draw], shift_pct: float, bar: float) -> Claim:
    """Of wall times: `aaco compare` measures those, and CPU times scatter less."""
    claim, draws = f"power at +{shift_pct:g} %, 5 x 100 pairs, contended", {
        name: draw for name, draw in draws.items() if name.endswith("_w")}
    if not draws:
        return Claim(claim, f">= {100 * bar:g} %", "absent: no recording there", None)
    by_name = {name: [_trial(rng, draw, shift_pct).low_pct > 0 for rng in [np.random.default_rng(SEED)]
                      for _ in range(TRIALS)] for name, draw in draws.items()}
    found = [seen for every in by_name.values() for seen in every]
    share = float(np.mean(found))
    each = ", ".join(f"{name} {100 * np.mean(seen):.0f}" for name, seen in by_name.items())
    return Claim(claim, f">= {100 * bar:g} %", f"{_rate(share, *wilson(sum(found), len(found)), len(found))}; {each}",
                 share >= bar)


def _order_effect() -> Claim:
    """A bias of half a per cent for the side created later: the estimate must not have it."""
    rng = np.random.default_rng(SEED)
    effects = [_trial(rng, lambda rng, count: rng.normal(-0.005, 0.005, count), 0.0).effect_pct for _ in range(TRIALS)]
    mean, half = float(np.mean(effects)), 1.96 * float(np.std(effects)) / math.sqrt(TRIALS)
    return Claim("bias left of an order of creation worth -0.5 %", "|bias| < 0.05 %",
                 f"{mean:+.3f} % +- {half:.3f}", abs(mean) < 0.05)


def _early_stop(name: str, draws: dict[str, Draw]) -> Claim:
    claim = f"false alarms when looking at 5, 10, 20 processes: {name}"
    if not draws:
        return Claim(claim, "<= 5 %", "absent: no recording there", None)
    found = [_run(rng, draw, 0.0)[0] for draw in draws.values() for rng in [np.random.default_rng(SEED)]
             for _ in range(TRIALS)]
    low, high = wilson(sum(found), len(found))
    return Claim(claim, "<= 5 % (lower end)", _rate(float(np.mean(found)), low, high, len(found)), low <= ALPHA)


def _processes_saved(draws: dict[str, Draw]) -> Claim:
    ran = [_run(rng, draw, 5.0)[1] for draw in draws.values() for rng in [np.random.default_rng(SEED)]
           for _ in range(TRIALS // 4)]
    mean = f"{np.mean(ran):.1f} of {MOST} processes" if ran else "absent: no recording there"
    return Claim("processes until a change of 5 % is seen, stopping early", "", mean, None)


def _trial(rng: np.random.Generator, draw: Draw, shift_pct: float, unequal: float = 1.0) -> duet.Comparison:
    """One whole comparison. unequal: how many times as much one side scatters as the other."""
    values = draw(rng, (2 + HISTORY) * PROCESSES)
    units = _changes(rng, values[:PROCESSES], shift_pct, unequal) + _controls(
        rng, values[PROCESSES:2 * PROCESSES], unequal)
    earlier = values[2 * PROCESSES:].reshape(HISTORY, PROCESSES)
    believed = duet.prior(earlier.tolist()) if unequal == 1.0 else None
    return duet.judge(duet.fit(units, believed), Look(PROCESSES, ALPHA), ALPHA, TOLERANCE_PCT, "process", "")


def _run(rng: np.random.Generator, draw: Draw, shift_pct: float) -> tuple[bool, int]:
    """A run that looks after 5, 10 and 20 processes and stops at the first change seen: whether, and when."""
    values = draw(rng, 2 * MOST)
    changes, controls = _changes(rng, values[:MOST], shift_pct), _controls(rng, values[MOST:])
    for look in duet.looks(PROCESSES, MOST, ALPHA):
        found = duet.fit(changes[:look.processes] + controls[:look.processes])
        if duet.judge(found, look, ALPHA, TOLERANCE_PCT, "process", "").p_value < ALPHA:
            return True, look.processes
    return False, MOST


def _changes(rng: np.random.Generator, values: Reals, shift_pct: float, unequal: float = 1.0) -> list[Unit]:
    scale = math.sqrt((1 + unequal**2) / 2)
    return [Unit("change", order * scale * value + math.log1p(shift_pct / 100), order, PAIRS)
            for order, value in zip(_orders(rng, len(values)), values.tolist(), strict=True)]


def _controls(rng: np.random.Generator, values: Reals, unequal: float = 1.0) -> list[Unit]:
    """Of either side in turn."""
    return [Unit(duet.KINDS[1 + number % 2], order * (unequal if number % 2 else 1.0) * value, order, PAIRS)
            for number, (order, value) in enumerate(zip(_orders(rng, len(values)), values.tolist(), strict=True))]


def _orders(rng: np.random.Generator, count: int) -> list[float]:
    return [float(order) for order in rng.permutation(np.resize([1.0, -1.0] if rng.random() < 0.5 else [-1.0, 1.0],
                                                                count))]


def _iid(rng: np.random.Generator, count: int) -> Reals:
    return _medians(rng.normal(0, 0.03, (count, PAIRS)) + rng.normal(0, 0.01, (count, 1)))


def _autoregressive(rng: np.random.Generator, count: int) -> Reals:
    """Pairs whose ratios remember nine tenths of the one before."""
    noise = rng.normal(0, 0.01, (count, PAIRS))
    for at in range(1, PAIRS):
        noise[:, at] += 0.9 * noise[:, at - 1]
    return _medians(noise)


def _bimodal(rng: np.random.Generator, count: int) -> Reals:
    """Each side of each process lands in a fast or a slow place, 3 % apart, for as long as it lives."""
    places = 0.03 * rng.integers(0, 2, (count, 2))
    return _medians(rng.normal(0, 0.02, (count, PAIRS)) + (places[:, 1] - places[:, 0])[:, None])


def _drifting(rng: np.random.Generator, count: int) -> Reals:
    """A machine that slows by a random walk of 1 % a turn while both sides alternate, the first of each pair drawn."""
    walk = np.cumsum(rng.normal(0, 0.01, (count, PAIRS, 2)).reshape(count, -1), axis=1).reshape(count, PAIRS, 2)
    first = rng.permuted(np.resize([1.0, -1.0], (count, PAIRS)), axis=1)
    return _medians(first * (walk[:, :, 1] - walk[:, :, 0]) + rng.normal(0, 0.02, (count, PAIRS)))


def _medians(ratios: Reals) -> Reals:
    return np.asarray(np.median(ratios, axis=1))


def _recorded(path: Path) -> dict[str, Draw]:
    """Per series of a recording of pairs, (processes, 2, pairs) in s: draws of different processes of it."""
    if not path.is_file():
        return {}
    with np.load(path, allow_pickle=False) as arrays:
        series = {name: arrays[name].astype(np.float64) for name in arrays.files}
    return {name: _of_processes(_medians(np.log(times[:, 1, :PAIRS] / times[:, 0, :PAIRS])))
            for name, times in series.items()}


def _of_processes(values: Reals) -> Draw:
    return lambda rng, count: rng.permutation(values)[:count]


def _h200(folder: Path) -> dict[str, Draw]:
    """Per workload, draws of stretches of neighbouring iterations of a process, as pairs; which of a pair counts as
    the current side is drawn for each."""
    series: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(folder.glob("aa_*.csv")):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                series[row["workload"]][row["process"]].append(float(row["latency_us"]))
    return {workload: _of_stretches([np.array(times) for times in processes.values()])
            for workload, processes in series.items()}


def _of_stretches(processes: list[Reals]) -> Draw:
    pairs = min(len(times) for times in processes) // 2

    def draw(rng: np.random.Generator, count: int) -> Reals:
        chosen = np.array([processes[at][:2 * pairs].reshape(pairs, 2)
                           for at in rng.integers(0, len(processes), count)])
        return _medians(rng.choice([-1.0, 1.0], (count, pairs)) * np.log(chosen[:, :, 1] / chosen[:, :, 0]))

    return draw


def _rate(share: float, low: float, high: float, count: int) -> str:
    return f"{100 * share:.1f} % [{100 * low:.1f}, {100 * high:.1f}] of {count}"
