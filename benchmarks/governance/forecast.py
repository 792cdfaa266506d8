"""The forecast's error rates, and how long the online detectors run without a change and with one (ARL).

Trends are made: a line on a logarithmic scale with noise that remembers 0, 0.3 or 0.6 of its last value. Run lengths
are held against those of the literature: CUSUM with slack 0.5 (Montgomery, table 9.4), EWMA with weight 0.1 and limits
at three sigmas (Lucas & Saccucci 1990).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aaco.core.readings import Absent
from aaco.governance.changepoints import forecast, hints
from aaco.governance.changepoints.hints import Hint
from benchmarks.claims import Claim
from benchmarks.intervals import wilson

Reals = NDArray[np.float64]
SEED, TRIALS, RUNS = 12, 1000, 1000
COUNT, SIGMA, SLOPE = 60, 0.02, 0.002
LIMIT_AHEAD = 30.0  # values until the true level reaches the limit
# detector, shift in sigmas, run length of the literature; None: this benchmark is where it is measured
RUN_LENGTHS: tuple[tuple[str, Callable[[Iterable[float]], Iterator[Hint]], float, float | None], ...] = (
    ("CUSUM, h 4", partial(hints.cusum, decision=4.0), 0.0, 168.0),
    ("CUSUM, h 4", partial(hints.cusum, decision=4.0), 1.0, 8.38),
    ("CUSUM, h 5", hints.cusum, 0.0, 465.0), ("CUSUM, h 5", hints.cusum, 1.0, 10.4),
    ("EWMA, 0.1 and 3", hints.ewma, 0.0, 842.0), ("EWMA, 0.1 and 3", hints.ewma, 1.0, 9.6),
    ("Page-Hinkley", hints.page_hinkley, 0.0, None), ("Page-Hinkley", hints.page_hinkley, 1.0, None),
    ("CUSUM, h 5", hints.cusum, 0.25, None), ("EWMA, 0.1 and 3", hints.ewma, 0.25, None),
    ("Page-Hinkley", hints.page_hinkley, 0.25, None))


def claims(captures: Path) -> Iterator[Claim]:
    """Run lengths, and for every memory the error rates of the trend and its intervals."""
    del captures  # all of it is made
    for name, detector, shift, expected in RUN_LENGTHS:
        yield _run_length(name, detector, shift, expected)
    for rho in (0.0, 0.3, 0.6):
        rng = np.random.default_rng(SEED)
        flat = [_trend(rng, 0.0, rho)[0] for _ in range(TRIALS)]
        wrong = sum(forecast.trend(values).significant for values in flat)
        low, high = wilson(wrong, TRIALS)
        yield Claim(f"trends seen where there is none, at 1 %, memory {rho:g}", "<= 2 %",
                    f"{100 * wrong / TRIALS:.1f} % [{100 * low:.1f}, {100 * high:.1f}]", wrong / TRIALS <= 0.02)
        yield from _intervals(rng, rho)


def _intervals(rng: np.random.Generator, rho: float) -> Iterator[Claim]:
    inside, reached, told = 0, 0, 0
    for _ in range(TRIALS):
        values, line = _trend(rng, SLOPE, rho, COUNT + 10)
        found = forecast.trend(values[:COUNT])
        ahead = found.predict(10)
        inside += bool(ahead.low and ahead.high and ahead.low <= values[COUNT + 9] <= ahead.high)
        try:
            when = found.reaches(float(np.exp(line[COUNT - 1] + SLOPE * LIMIT_AHEAD)))
        except Absent:
            continue
        told += 1
        reached += (when.low or 0.0) <= LIMIT_AHEAD <= (when.high or np.inf)
    yield _coverage(f"95 % interval for the value 10 ahead, memory {rho:g}", inside, TRIALS)
    yield _coverage(f"95 % interval for the time to a limit, memory {rho:g}", reached, told)


def _coverage(claim: str, right: int, count: int) -> Claim:
    low, high = wilson(right, count)
    return Claim(claim, "90 to 99 %", f"{100 * right / count:.1f} % [{100 * low:.1f}, {100 * high:.1f}] of {count}",
                 0.90 <= right / count <= 0.99)


def _trend(rng: np.random.Generator, slope: float, rho: float, count: int = COUNT) -> tuple[Reals, Reals]:
    """Values, and the line that they scatter around on the logarithmic scale."""
    noise = np.zeros(count)
    noise[0] = rng.normal(0, SIGMA)
    for place in range(1, count):
        noise[place] = rho * noise[place - 1] + rng.normal(0, SIGMA * np.sqrt(1 - rho**2))
    line = np.log(100) + slope * np.arange(count)
    return np.exp(line + noise), line


def _run_length(name: str, detector: Callable[[Iterable[float]], Iterator[Hint]], shift: float,
                expected: float | None) -> Claim:
    lengths = _lengths(detector, shift)
    mean, half = lengths.mean(), 1.96 * lengths.std(ddof=1) / np.sqrt(len(lengths))
    return Claim(f"values to a hint, {name}, shift {shift:g}", f"{expected:g}, within 10 %" if expected else "",
                 f"{mean:.1f} [{mean - half:.1f}, {mean + half:.1f}]",
                 abs(mean / expected - 1) <= 0.10 if expected else None)


def _lengths(detector: Callable[[Iterable[float]], Iterator[Hint]], shift: float) -> Reals:
    """Run lengths to the first hint, the shift there from the first value on."""
    rng = np.random.default_rng(SEED)

    def values() -> Iterator[float]:
        while True:
            yield from rng.normal(shift, 1, 256).tolist()

    return np.array([next(detector(values())).index + 1 for _ in range(RUNS)], np.float64)
