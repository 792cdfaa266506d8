"""When to stop measuring: the interval of the median is narrow, the budget is spent, or the count reached.

A warm-up ends when the latencies have settled.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from msgspec import Struct

from aaco.core import statistics
from aaco.core.readings import known
from aaco.core.settling import settled_at

Reason = Literal["iterations", "precision", "budget", "settled"]
FIRST_LOOK = 20


class Stop(Struct, frozen=True):
    """The rule of one run. Looks at the precision only at growing counts (20, 25, 31, ...), so looking stays cheap.

    Stopping on the width of an interval is not a test, so repeated looks cost coverage but decide nothing about
    regressions; those are judged over processes.
    """

    iterations: int
    budget_ns: int | None = None
    precision_pct: float | None = None
    settle: bool = False  # stop once the latencies have settled

    def reason(self, latencies_ns: list[int], elapsed_ns: int) -> Reason | None:
        """Return why to stop now, or None to go on."""
        if len(latencies_ns) >= self.iterations:
            return "iterations"
        if self.budget_ns is not None and elapsed_ns >= self.budget_ns:
            return "budget"
        if self.precision_pct is not None and _is_look(len(latencies_ns)) and self._is_precise(latencies_ns):
            return "precision"
        if self.settle and _is_look(len(latencies_ns)) and _is_settled(latencies_ns):
            return "settled"
        return None

    def _is_precise(self, latencies_ns: list[int]) -> bool:
        median = statistics.quantile(np.asarray(latencies_ns, np.float64), 0.5)
        if median.low is None or median.high is None or self.precision_pct is None:
            return False
        return 100 * (median.high - median.low) <= self.precision_pct * median.value


def _is_settled(latencies_ns: list[int]) -> bool:
    """Return whether the later half is steady from its first five on.

    Applied repeatedly, the rule for a whole series ends a slow warm-up too early, by chance: of one that decays over 20
    inferences, with 10 % of noise, it left 37 % of the excess in one case of ten; this rule left 10 %.
    """
    return known(settled_at, np.asarray(latencies_ns[len(latencies_ns) // 2:], np.float64)) == 0


def _is_look(count: int) -> bool:
    look = FIRST_LOOK
    while look < count:
        look += max(1, look // 4)
    return look == count
