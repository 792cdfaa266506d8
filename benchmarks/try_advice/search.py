"""The search on resampled recordings: how often it keeps what changes nothing, and how often it finds a gain.

Six workloads, 40 fresh processes each, of comparisons of a thing with itself on a contended machine of two CPUs
(`stats/ort_cpu_duet_sessions.npz`). The search is the product's, with its statistics and its plan; only the clock is
the recordings'.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aaco.optimize.search import Search
from benchmarks.claims import Claim
from benchmarks.intervals import exact_share
from benchmarks.try_advice import _resampled
from benchmarks.try_advice._resampled import Measurements

RECORDED = "stats/ort_cpu_duet_sessions.npz"
CANDIDATES, SEARCHES = 20, 400
LEAST = 100  # searches that can show so small a share
PLANTED = "c7"  # the candidate that is a gain
POWER = {3.0: 0.80, 5.0: 0.95, 20.0: 1.0}
MOST_FALSE = 0.05
QUICK = {"SEARCHES": 10}


class Found(NamedTuple):
    """What came of the searches over one workload: how many kept what is sought, and the processes they planned."""

    kept: int
    searches: int
    processes: tuple[int, ...]


def claims(captures: Path) -> Iterator[Claim]:
    """Yield the bars of false keeps and of power, of each workload and of all."""
    if not (captures / RECORDED).exists():
        yield Claim("the search on recordings of equal sides", "", f"absent: no {RECORDED}", None)
        return
    recorded = _resampled.log_ratios(np.load(captures / RECORDED))
    false = {name: _search(processes, 0.0) for name, processes in recorded.items()}
    for name, found in (false | {"all": _pool(list(false.values()))}).items():
        low, high = exact_share(found.kept, found.searches)
        yield Claim(f"no change among {CANDIDATES}, kept one: {name}", f"<= {100 * MOST_FALSE:g} %, upper too",
                    _share(found, low, high), high <= MOST_FALSE if found.searches >= LEAST else None)
    for gain_pct, bar in POWER.items():
        kept = {name: _search(processes, gain_pct) for name, processes in recorded.items()}
        for name, found in (kept | {"all": _pool(list(kept.values()))}).items():
            yield Claim(f"a gain of {gain_pct:g} % among {CANDIDATES} is kept: {name}", f">= {100 * bar:g} %",
                        f"{_share(found, *exact_share(found.kept, found.searches))}; {_planned(found)}",
                        found.kept >= bar * found.searches)


def _search(processes: NDArray[np.float64], gain_pct: float) -> Found:
    """Search so many times, with one gain planted or none; kept counts what was kept of it, or at all."""
    ended = [_resampled.run(Measurements(np.random.default_rng(seed), processes, {PLANTED: gain_pct}), CANDIDATES, seed)
             for seed in range(SEARCHES)]
    return Found(sum(_kept(search, gain_pct) for search in ended), len(ended),
                 tuple(search.planned.processes for search in ended if search.planned))


def _kept(search: Search, gain_pct: float) -> bool:
    assert search.decided is not None
    kept = search.decided.kept
    return kept is not None and (not gain_pct or PLANTED in kept.split(" + "))


def _pool(found: Sequence[Found]) -> Found:
    return Found(sum(one.kept for one in found), sum(one.searches for one in found),
                 tuple(count for one in found for count in one.processes))


def _share(found: Found, low: float, high: float) -> str:
    return (f"{100 * found.kept / found.searches:.1f} % [{100 * low:.1f}, {100 * high:.1f}], "
            f"{found.kept} of {found.searches}")


def _planned(found: Found) -> str:
    counts = found.processes
    return f"processes: median {median(counts):g}, at most {max(counts)}" if counts else "nothing was planned"
