"""Two endpoints asked in turns: how often equal ones look different, and how often a planted change is seen.

False alarms: pairs are drawn from one recorded load on one server, which end is which at random, so that nothing but
the client, the machine and the server's own scatter is in them. Student's t keeps its level where a few blocks were
disturbed, and is below it then: on a busy machine fewer than 5 % of the intervals leave out zero. Power: loads on two
servers of which one takes longer for each token.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from aaco.core.readings import Absent
from aaco.governance.interleaved import duet_verdict, request_pairs
from aaco.governance.interleaved.duet_verdict import TPOT
from benchmarks.claims import Claim
from benchmarks.llm._loads import asked, running
from tests.fakes.llm_server import Running

ALPHA, TOLERANCE_PCT, PERIOD_US = 0.05, 5.0, 2000
PAIRS, RECORDED, COMPARISONS, LOADS = 100, 2000, 1000, 20


def claims(captures: Path) -> Iterator[Claim]:
    """False alarms of the interval and of the verdict, then power for 5 and 10 %."""
    with running() as server:
        recorded = asked(server, [_schedule(1.0)] * (2 * RECORDED), most_open=4).requests
        differs, regressed = _alarms(recorded)
        yield Claim(f"equal ends: {COMPARISONS:,} comparisons of {PAIRS} recorded pairs of which the interval at 95 % "
                    "leaves out zero", "at most 7 %", f"{100 * differs:.1f} %", differs <= 0.07)
        yield Claim(f"the same that are called regressed at a tolerance of {TOLERANCE_PCT:g} %", "at most 2.5 %",
                    f"{100 * regressed:.1f} %", regressed <= 0.025)
        for factor, tolerance_pct in ((1.05, 2.0), (1.10, 5.0)):
            seen = sum(_planted(server, factor, tolerance_pct, load) for load in range(LOADS))
            yield Claim(f"TPOT of {100 * (factor - 1):.0f} % more, tolerance {tolerance_pct:g} %: of {LOADS} loads of "
                        f"{PAIRS} pairs that are called regressed", "at least 80 %", f"{100 * seen / LOADS:.0f} %",
                        seen >= 0.8 * LOADS)


def _schedule(factor: float) -> str:
    return f"ttft=2000 spread=1000 period={PERIOD_US * factor:.0f} chunks=16"


def _alarms(recorded: pa.Table) -> tuple[float, float]:
    """Shares of comparisons with an interval without zero, and with a regression."""
    generator = np.random.default_rng(1)
    differs = regressed = 0
    for _ in range(COMPARISONS):
        start = 2 * int(generator.integers(0, RECORDED - PAIRS))
        rows = np.arange(start, start + 2 * PAIRS).reshape(-1, 2)
        sides = request_pairs.sides(PAIRS, int(generator.integers(1 << 30))).reshape(-1, 2)
        low, high, status = _judged(*(recorded.take(rows[sides == side]) for side in (0, 1)), TOLERANCE_PCT)
        differs += not low <= 0 <= high
        regressed += status == "regressed"
    return differs / COMPARISONS, regressed / COMPARISONS


def _planted(server: Running, factor: float, tolerance_pct: float, seed: int) -> bool:
    """Whether a slower end is called so, in a load of its own."""
    sides = request_pairs.sides(PAIRS, seed)
    requests = asked(server, [_schedule(factor if side else 1.0) for side in sides], most_open=4).requests
    return _judged(*(requests.filter(pa.array(sides == side)) for side in (0, 1)), tolerance_pct)[2] == "regressed"


def _judged(baseline: pa.Table, current: pa.Table, tolerance_pct: float) -> tuple[float, float, str]:
    pairs = request_pairs.table(baseline, current)
    try:
        found = duet_verdict.find_requests(pairs, request_pairs.terms(pairs, tolerance_pct, ALPHA))
    except Absent:
        return 0.0, 0.0, "inconclusive"
    seen = found.each[TPOT].comparison
    assert seen.low_pct is not None and seen.high_pct is not None
    return seen.low_pct, seen.high_pct, seen.status
