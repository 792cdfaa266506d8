"""How often a true change is seen with five processes a side and a history, beside whoever knows the true spread."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import NormalDist

import numpy as np

from benchmarks.claims import Claim
from benchmarks.governance import _sides
from benchmarks.governance._sides import EACH, Draw, Reals
from benchmarks.intervals import wilson

TRIALS, SEED, LEVEL = 2000, 42, 0.95
WITHIN = 0.05
ORACLES = (0.5, 0.8, 0.95)  # powers of the oracle, at whose changes both are compared


def claims(captures: Path) -> Iterator[Claim]:
    """Five sessions of one process a side and 20 of history; sessions of five processes; less history has no bar."""
    def exactly(drawn: Reals) -> float:
        return 0.01

    def measured(drawn: Reals) -> float:
        return float(drawn.std(ddof=1))

    singles = _sides.single(_sides.made(_sides.iid, 1, 1, 4))
    yield from _beside_oracle("S = 5, iid, 20 sessions of history", singles, exactly, True)
    yield from _beside_oracle("S = 5, AR(1) iterations, 20 of history",
                              _sides.single(_sides.made(_sides.autoregressive, 1, 1, 4)), None, True)
    recorded = _sides.medians(captures)
    if not recorded:
        yield Claim("power on the recording", "within 5 points", "absent: no recording there", None)
    for model, values in recorded.items():
        yield from _beside_oracle(f"S = 5, recorded {model}, 20 of history",
                                  _sides.single(_sides.of_processes({model: values}, 4)),
                                  lambda drawn, all_of=values: measured(all_of), True)
    yield from _beside_oracle("1 + 1 sessions of 5 processes, iid, 40 of history", _sides.made(_sides.iid, 1, 1, 40),
                              exactly, True)
    yield from _beside_oracle("the same, 14 of history", _sides.made(_sides.iid, 1, 1, 14), exactly, False)
    yield from _beside_oracle("S = 5, iid, no history", _sides.made(_sides.iid, 1, 1, 0), exactly, False)


def _beside_oracle(name: str, draw: Draw, sigma: Callable[[Reals], float] | None, has_bar: bool) -> Iterator[Claim]:
    """The power of the verdict and of a z test that knows the spread, on the very same draws and changes.

    sigma: the oracle's spread of a process from all values of a draw; None: from 10,000 sessions made for it.
    """
    rng = np.random.default_rng(SEED)
    drawn = [draw(rng) for _ in range(TRIALS)]
    if sigma is None:
        spread = float(np.concatenate([np.concatenate(before) for before, _, _ in
                                       (draw(rng) for _ in range(2000))]).std(ddof=1))
    else:
        spread = sigma(np.concatenate([np.concatenate([*before, *after, *(one for epoch in history for one in epoch)])
                                       for before, after, history in drawn[:1]]))
    error = spread * math.sqrt(2 / EACH)
    threshold = NormalDist().inv_cdf(0.5 + LEVEL / 2)
    for oracle in ORACLES:
        change = (threshold + NormalDist().inv_cdf(oracle)) * error
        ours = sum((_sides.compared(sides, LEVEL, change).p_value or 1.0) < 1 - LEVEL for sides in drawn) / TRIALS
        knows = sum(abs(np.concatenate(after).mean() + change - np.concatenate(before).mean()) > threshold * error
                    for before, after, _ in drawn) / TRIALS
        low, high = wilson(round(ours * TRIALS), TRIALS)
        yield Claim(f"power, {name}, at {100 * math.expm1(change):.2g} %",
                    "within 5 points of the oracle" if has_bar else "none",
                    f"{100 * ours:.1f} % ({100 * low:.1f}-{100 * high:.1f}), oracle {100 * knows:.1f} %",
                    ours >= knows - WITHIN if has_bar else None)
