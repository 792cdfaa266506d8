"""How the cost of something grows with its size: that is the code's, where seconds are also the machine's."""

from __future__ import annotations

import time
from collections.abc import Callable

FEWEST_S = 1e-4  # below this, what is measured is the call


def times_dearer(small: Callable[[], object], large: Callable[[], object]) -> float:
    """CPU time of `large` over that of `small`, each the least of three in turns: others' load only adds."""
    turns = [(_cpu_s(small), _cpu_s(large)) for _ in range(3)]
    least = [min(times) for times in zip(*turns, strict=True)]
    return max(least[1], FEWEST_S) / max(least[0], FEWEST_S)


def _cpu_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
