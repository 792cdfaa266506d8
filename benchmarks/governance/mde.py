"""Is a change of the size that a verdict prints as its smallest detectable one seen four times in five?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.claims import Claim
from benchmarks.governance import _sides
from benchmarks.governance._sides import Draw
from benchmarks.intervals import wilson

TRIALS, SEED = 2000, 43


def claims(captures: Path) -> Iterator[Claim]:
    """The comparison of two equal sides prints its figure; then a change of that size is planted in one of them."""
    recorded = _sides.medians(captures)
    sets: dict[str, Draw] = {
        "iid, 5 + 5 processes": _sides.made(_sides.iid, 1, 1, 0),
        "iid, 14 of history": _sides.made(_sides.iid, 1, 1, 14),
        "sessions that differ, 8 + 1": _sides.made(_sides.drifting, 8, 1, 0),
        "AR(1) iterations": _sides.made(_sides.autoregressive, 1, 1, 8),
        "bimodal per session": _sides.made(_sides.bimodal, 1, 1, 8)}
    for model, values in recorded.items():
        sets[f"recorded {model}, 5 + 5, 8 of history"] = _sides.of_processes({model: values}, 8)
    for name, draw in sets.items():
        for level in (0.95, 0.99):
            yield _achieved(name, draw, level)


def _achieved(name: str, draw: Draw, level: float) -> Claim:
    rng = np.random.default_rng(SEED)
    printed, normal, seen = [], [], 0
    for _ in range(TRIALS):
        first = _sides.compared(sides := draw(rng), level)
        assert first.mde80_pct is not None and first.mde80_normal_pct is not None
        printed.append(first.mde80_pct)
        normal.append(first.mde80_normal_pct)
        seen += (_sides.compared(sides, level, math.log1p(first.mde80_pct / 100)).p_value or 1.0) < 1 - level
    low, high = wilson(seen, TRIALS)
    return Claim(f"power at the claimed smallest change, level {level:g}: {name}", "80 % +- 10 points",
                 f"{100 * seen / TRIALS:.1f} % ({100 * low:.1f}-{100 * high:.1f}), at {np.median(printed):.2g} % "
                 f"(normal {np.median(normal):.2g} %)", abs(seen / TRIALS - 0.8) <= 0.10)
