"""A suite of 50 metrics, run 100 times without any change: how many runs are red, and does one see a change at all?

A metric is a benchmark of five processes a side with eight sessions of history, recorded or made, judged at the gate's
level (1 %) and tolerance (5 %); a run is red where some metric regressed and its q-value over the suite is within the
level. Nothing is measured anew before red here; `aaco ci` does that, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from aaco.core.config import Analysis
from aaco.governance.multiplicity import benjamini_hochberg
from benchmarks.claims import Claim
from benchmarks.governance import _sides
from benchmarks.governance._sides import Draw
from benchmarks.intervals import wilson

METRICS, RUNS, MORE, SEED = 50, 100, 1000, 45
SLOWDOWN_PCT = 15.0


def claims(captures: Path) -> Iterator[Claim]:
    """A hundred runs for the bar; a thousand for a rate worth stating, with and without a tolerance."""
    draws = [_sides.made(_sides.iid, 1, 1, 8), _sides.made(_sides.drifting, 1, 1, 8),
             _sides.made(_sides.autoregressive, 1, 1, 8), _sides.made(_sides.bimodal, 1, 1, 8)]
    recorded = _sides.medians(captures)
    draws += [_sides.of_processes(recorded, 8), _sides.of_sessions(recorded, 1, 1, 8)] if recorded else []
    gate = Analysis()
    level, tolerance = 1 - gate.false_alarm_pct / 100, gate.tolerance_pct
    red = _red(draws, RUNS, level, tolerance)
    yield Claim(f"suite of {METRICS} metrics, {RUNS} no-change runs: false reds", "<= 1", str(red), red <= 1)
    for name, limit in (("", tolerance), (", tolerance 0", 0.0)):
        red = _red(draws, MORE, level, limit)
        low, high = wilson(red, MORE)
        yield Claim(f"the same, {MORE} runs{name}", "none: a rate",
                    f"{100 * red / MORE:.1f} % ({100 * low:.1f}-{100 * high:.1f})", None)
    seen = _red(draws[:1], RUNS, level, tolerance, SLOWDOWN_PCT)
    yield Claim(f"one of {METRICS} calm metrics is {SLOWDOWN_PCT:g} % slower: red", ">= 95 of 100", str(seen),
                seen >= 95)


def _red(draws: list[Draw], runs: int, level: float, tolerance_pct: float, slower_pct: float = 0.0) -> int:
    """How many runs are red; the first metric of each is that much slower."""
    rng = np.random.default_rng(SEED)
    return sum(_is_red(draws, rng, level, tolerance_pct, slower_pct) for _ in range(runs))


def _is_red(draws: list[Draw], rng: np.random.Generator, level: float, tolerance_pct: float,
            slower_pct: float) -> bool:
    changes = [float(np.log1p(slower_pct / 100)), *[0.0] * (METRICS - 1)]
    found = [_sides.compared(draws[number % len(draws)](rng), level, change, tolerance_pct)
             for number, change in enumerate(changes)]
    q_values = benjamini_hochberg([item.p_value if item.p_value is not None else 1.0 for item in found])
    return any(item.status == "regressed" and q <= 1 - level for item, q in zip(found, q_values, strict=True))
