"""Whether a candidate's gain is kept: from times that fresh processes measured in turns with the baseline. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np
from msgspec import Struct

from aaco.core.statistics import mean_interval
from aaco.governance.multiplicity import shared_level
from aaco.optimize.kernels.equivalence import Pair

LEAST_GAIN_PCT = 2.0
ALPHA = 0.05
FINALISTS, PROCESSES = 3, 6
WORSE_PCT = 1.0  # a guard: on another shape the candidate may take so much more


class Gain(Struct, frozen=True):
    """Time saved, percent of the baseline's, with its interval at a level that all candidates share."""

    percent: float
    low: float
    high: float
    level: float
    processes: int


class Acceptance(Struct, frozen=True):
    """Whether the gain is kept, and why."""

    kept: bool
    why: str
    gain: Gain


def screened_pct(pairs: Sequence[Pair]) -> float:
    """Return the time that a first look saved, percent: of the median ratio of its pairs."""
    return 100 * (1 - math.exp(-_log_gain(pairs)))


def finalists(screened: Mapping[str, float], most: int = FINALISTS) -> list[str]:
    """Return the names to confirm, the largest gain first. screened: percent by name.

    What saves less than half of the least gain at first sight is not worth the processes.
    """
    faster = [name for name, percent in screened.items() if percent >= LEAST_GAIN_PCT / 2]
    return sorted(faster, key=lambda name: (-screened[name], name))[:most]


def gain(processes: Sequence[Sequence[Pair]], candidates: int, alpha: float = ALPHA) -> Gain:
    """Return the gain over fresh processes: each counts once, by the median of its pairs.

    candidates: how many the search timed; each has a share of alpha, whichever of them are confirmed.
    """
    level = shared_level(alpha, max(1, candidates))
    ratios = np.array([math.exp(_log_gain(pairs)) for pairs in processes])
    estimate = mean_interval(ratios, level)
    low, high = (estimate.value if end is None else end for end in (estimate.low, estimate.high))
    if len(processes) < 2:
        low, high = 0.0, math.inf
    return Gain(_percent(estimate.value), _percent(low), _percent(high), level, len(processes))


def _percent(ratio: float) -> float:
    return 100 * (1 - 1 / ratio) if ratio > 0 else -math.inf


def judge(processes: Sequence[Sequence[Pair]], candidates: int, guards: Mapping[str, Gain] | None = None,
          least_pct: float = LEAST_GAIN_PCT) -> Acceptance:
    """Return whether a candidate is kept. guards: its gain on other captures, by their names."""
    measured = gain(processes, candidates)
    interval = f"{measured.percent:.1f} % [{measured.low:.1f}, {measured.high:.1f}]"
    if measured.low <= 0:
        return Acceptance(False, f"the interval of its gain holds 0: {interval}", measured)
    if measured.percent < least_pct:
        return Acceptance(False, f"its gain of {interval} is below {least_pct:g} %", measured)
    for name, guard in (guards or {}).items():
        if guard.percent < -WORSE_PCT:
            return Acceptance(False, f"{-guard.percent:.1f} % slower on capture {name}", measured)
    return Acceptance(True, f"{interval} less time, of {measured.processes} processes", measured)


def _log_gain(pairs: Sequence[Pair]) -> float:
    return median(math.log(baseline / candidate) for baseline, candidate in pairs)
