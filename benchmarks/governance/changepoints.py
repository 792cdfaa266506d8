"""Change points: what is found of planted shifts, false alarms, Apache Otava on the same series, speed, memory.

A shift is planted by multiplying everything behind it, up or down by three standard deviations of the series'
logarithms; two a series, 20 values or more apart and from the ends, so that none is an excursion that came back (15
values at most, which we leave out and Otava counts). It is found where a change point is within five values. Synthetic
noise is seeded. Real noise is recorded, in the order it was measured, with whatever the machine did meanwhile: what it
did counts as false alarms.

iterations: 180 of 240 processes of three small models, 300 inferences each, on a busy 2-CPU virtual machine; every
fourth process was looked at while the method was made and is left out. sessions: the medians of those processes, 3 x
80. H200: five processes, three workloads each, 150 to 400 inferences. The last two were looked at, too: they are all
there is.
"""

from __future__ import annotations

import ast
import csv
import re
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from scipy import stats

from aaco.governance.changepoints import changes
from benchmarks.claims import Claim
from benchmarks.governance import _otava

Reals = NDArray[np.float64]
SEED, DRAWS = 11, 180
SIGMAS, SHIFTS, APART, WITHIN = 3.0, 2, 20, 5
SESSIONS, H200 = "stats/ort_cpu_aa_sessions.npz", "h200/aa"
TIGERBEETLE = "stats/otava_tigerbeetle_test.py.txt"
MODELS, PROCESSES = ("mlp", "conv", "tfm"), ("p1", "p3", "p5", "q1", "q3")
THRESHOLDS = (1e-3, 1e-4, 1e-5, 1e-6)


class Planted(Struct, frozen=True):
    """Series with shifts in them, and where these are."""

    series: list[Reals]
    places: list[list[int]]


def claims(captures: Path) -> Iterator[Claim]:
    """Each bar of the issue, on every set of noise."""
    rng = np.random.default_rng(SEED)
    made = {name: [make(rng, 300) for _ in range(DRAWS)] for name, make in SYNTHETIC.items()}
    for name, noise in made.items():
        yield _found(f"F1, 3 sigma, {name}", ">= .95", planted(noise, rng))
        long = [SYNTHETIC[name](rng, 10_000) for _ in range(3)]
        yield _alarms(f"false alarms per 1000, {name}", "<= 1", [*noise, *long], 1.0)
    real = recorded(captures)
    if not real:
        yield Claim("F1, real noise with shifts planted", ">= .80", "absent: no recordings there", None)
        return
    sets = {name: planted([noise[number % len(noise)] for number in range(DRAWS)], rng) for name, noise in real.items()}
    pooled = Planted([one for each in sets.values() for one in each.series],
                     [one for each in sets.values() for one in each.places])
    yield _found("F1, real noise, all three in equal parts", ">= .80", pooled, 0.80)
    for name, each in sets.items():
        yield _found(f"F1, real noise: {name}", "", each, None)
    everything = [one for noise in real.values() for one in noise]
    yield _alarms("false alarms per 1000, real noise as recorded", "<= 3", everything, 3.0)
    for name, noise in real.items():
        yield _alarms(f"false alarms per 1000: {name}", "", noise, None)
    yield from _against_otava(sets, pooled)
    yield from _tigerbeetle(captures / TIGERBEETLE)
    yield from _cost(rng)


def planted(noise: Sequence[Reals], rng: np.random.Generator) -> Planted:
    """Every series of noise with shifts planted at random."""
    found = Planted([], [])
    for one in noise:
        places = _places(len(one), rng)
        level = np.zeros(len(one))
        for place in places:
            level[place:] += rng.choice([-1, 1]) * SIGMAS * np.log(one).std()
        found.series.append(one * np.exp(level))
        found.places.append(places)
    return found


def score(places: Sequence[Sequence[int]], found: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Per series: hits, false alarms, misses. Every planted shift is hit once at most."""
    rows = []
    for true, claimed in zip(places, found, strict=True):
        left = list(true)
        for place in claimed:
            near = [one for one in left if abs(one - place) <= WITHIN]
            if near:
                left.remove(min(near, key=lambda one, place=place: abs(one - place)))
        hits = len(true) - len(left)
        rows.append((hits, len(claimed) - hits, len(left)))
    return np.array(rows)


def f1(rows: NDArray[np.int64]) -> float:
    """Of hits, false alarms and misses in all."""
    hits, false, missed = rows.sum(axis=0)
    return float(2 * hits / (2 * hits + false + missed))


def recorded(captures: Path) -> dict[str, list[Reals]]:
    """Recorded series where nothing was changed, in the order of measurement; empty where they are not there."""
    if not (captures / SESSIONS).is_file() or not (captures / H200).is_dir():
        return {}
    with np.load(captures / SESSIONS, allow_pickle=False) as arrays:
        models = [arrays[model].astype(np.float64) for model in MODELS]
    series: dict[tuple[str, str], list[float]] = {}
    for process in PROCESSES:
        with (captures / H200 / f"aa_{process}.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                series.setdefault((row["workload"], process), []).append(float(row["latency_us"]))
    rows = [row for model in models for row in model]
    return {"iterations": [row for number, row in enumerate(rows) if number % 4],
            "sessions": [np.median(model, axis=1) for model in models],
            "H200": [np.array(values) for values in series.values()]}


def _independent(rng: np.random.Generator, count: int) -> Reals:
    return np.exp(rng.normal(0, 0.02, count))


def _autoregressive(rng: np.random.Generator, count: int) -> Reals:
    """Memory 0.5."""
    steps, noise = rng.normal(0, 0.02 * np.sqrt(0.75), count), np.zeros(count)
    for place in range(1, count):
        noise[place] = 0.5 * noise[place - 1] + steps[place]
    return np.exp(noise)


def _long_tailed(rng: np.random.Generator, count: int) -> Reals:
    """Student's t of three degrees."""
    return np.exp(0.01 * rng.standard_t(3, count))


def _bimodal(rng: np.random.Generator, count: int) -> Reals:
    """Each session is in one of two modes, by chance."""
    return np.exp(rng.normal(0, 0.01, count) + 0.03 * (rng.random(count) < 0.3))


SYNTHETIC: dict[str, Callable[[np.random.Generator, int], Reals]] = {
    "independent": _independent, "AR(1), 0.5": _autoregressive, "t of 3 degrees": _long_tailed,
    "bimodal per session": _bimodal}


def _places(count: int, rng: np.random.Generator) -> list[int]:
    while True:
        places = sorted(rng.choice(np.arange(APART, count - APART), SHIFTS, replace=False).tolist())
        if all(after - before >= APART for before, after in pairwise(places)):
            return places


def _ours(series: Sequence[Reals]) -> list[list[int]]:
    return [[item.index for item in changes.course(one).changes] for one in series]


def _found(claim: str, bar: str, cases: Planted, least: float | None = 0.95) -> Claim:
    rows = score(cases.places, _ours(cases.series))
    value = f1(rows)
    low, high = _bootstrap(rows, f1)
    hits, false, missed = rows.sum(axis=0)
    return Claim(claim, bar, f"{value:.3f} [{low:.3f}, {high:.3f}], {hits} hit, {missed} missed, {false} false",
                 None if least is None else value >= least)


def _alarms(claim: str, bar: str, noise: Sequence[Reals], most: float | None) -> Claim:
    count, values = sum(map(len, _ours(noise))), sum(map(len, noise))
    low, high = stats.chi2.ppf(0.025, 2 * count) / 2 if count else 0.0, stats.chi2.ppf(0.975, 2 * count + 2) / 2
    scale = 1000 / values
    return Claim(claim, bar, f"{scale * count:.2f} [{scale * low:.2f}, {scale * high:.2f}], {count} of {values}",
                 None if most is None else scale * count <= most)


def _against_otava(sets: dict[str, Planted], pooled: Planted) -> Iterator[Claim]:
    claim, bar = "F1 above Otava's, real noise, the same series", ">= +.15"
    if _otava.program() is None:
        yield Claim(claim, bar, "absent: no otava here (AACO_OTAVA_PYTHON names an interpreter that has it)", None)
        return
    ours = score(pooled.places, _ours(pooled.series))
    theirs = {p_value: score(pooled.places, _otava.change_points(pooled.series, p_value)) for p_value in THRESHOLDS}
    both = np.hstack([ours, theirs[_otava.P_VALUE]])
    low, high = _bootstrap(both, _gap)
    yield Claim(claim, bar, f"+{_gap(both):.3f} [{low:.3f}, {high:.3f}], Otava {f1(theirs[_otava.P_VALUE]):.3f}",
                _gap(both) >= 0.15)
    best = max(THRESHOLDS, key=lambda p_value: f1(theirs[p_value]))
    yield Claim(f"the same, Otava at its best p of {', '.join(f'{p:g}' for p in THRESHOLDS)}", "",
                f"+{f1(ours) - f1(theirs[best]):.3f}, Otava {f1(theirs[best]):.3f} at {best:g}", None)
    begin = 0
    for name, each in sets.items():
        rows = slice(begin, begin := begin + len(each.series))
        yield Claim(f"the same: {name}", "", f"+{_gap(both[rows]):.3f}, Otava {f1(both[rows, 3:]):.3f}", None)


def _gap(both: NDArray[np.int64]) -> float:
    return f1(both[:, :3]) - f1(both[:, 3:])


def _tigerbeetle(path: Path) -> Iterator[Claim]:
    claim, expected = "Otava's own series, changes of 5 % and more", [15, 71]
    if not path.is_file():
        yield Claim(claim, str(expected), "absent: not there", None)
        return
    text = re.search(r"return (\[.*?\])", path.read_text())
    values = ast.literal_eval(text[1]) if text else []
    found = [item.index for item in changes.course(values, least_pct=5).changes]
    yield Claim(claim, str(expected), str(found), found == expected)


def _cost(rng: np.random.Generator) -> Iterator[Claim]:
    for count, most in ((10_000, 0.3), (100_000, 3.0)):
        values = _independent(rng, count)
        spent = []
        for _ in range(3):
            begin = time.process_time()
            changes.course(values)
            spent.append(time.process_time() - begin)
        yield Claim(f"CPU time, {count:,} values", f"< {most:g} s", f"{min(spent):.2f} s, best of 3", min(spent) < most)
    peaks = [_peak_bytes(_independent(rng, count)) for count in (100_000, 400_000)]
    yield Claim("memory, 100,000 and 400,000 values", "O(n): < 4 times",
                f"{peaks[0] / 1e6:.0f} and {peaks[1] / 1e6:.0f} MB", peaks[1] < 4 * peaks[0])


def _peak_bytes(values: Reals) -> int:
    tracemalloc.start()
    changes.course(values)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def _bootstrap(rows: NDArray[np.int64], of: Callable[[NDArray[np.int64]], float]) -> tuple[float, float]:
    """The 95 % interval over series."""
    rng = np.random.default_rng(SEED)
    found = [of(rows[rng.integers(0, len(rows), len(rows))]) for _ in range(500)]
    return float(np.quantile(found, 0.025)), float(np.quantile(found, 0.975))
