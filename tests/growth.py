"""How the cost of something grows with its size: that is the code's, where seconds are also the machine's."""

from __future__ import annotations

import time
from collections.abc import Callable

FEWEST_S = 1e-4  # below this, what is measured is the call
TURNS, MOST_TURNS, ENOUGH_S = 3, 30, 0.2


def times_dearer(small: Callable[[], object], large: Callable[[], object]) -> float:
    """CPU time of `large` over that of `small`, each the least of some in turns: others' load only adds.

    What is short takes more turns, since one disturbance may lie over several.
    """
    turns: list[tuple[float, float]] = []
    while len(turns) < TURNS or (len(turns) < MOST_TURNS and sum(map(sum, turns)) < ENOUGH_S):
        turns.append((_cpu_s(small), _cpu_s(large)))
    least = [min(times) for times in zip(*turns, strict=True)]
    return max(least[1], FEWEST_S) / max(least[0], FEWEST_S)


def _cpu_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
