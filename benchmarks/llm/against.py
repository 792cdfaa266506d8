"""Two endpoints asked in turns: how often equal ones look different, and how often a planted change is seen.

False alarms: pairs are drawn from one recorded load on one server, which end is which at random, so that nothing but
the client, the machine and the server's own scatter is in them; then ratios of pairs are simulated, of which some are
far off, or like their neighbours. Power: loads on two servers of which one takes longer for each token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aaco.core.readings import Absent
from aaco.core.tables import REQUESTS
from aaco.governance.interleaved import duet_verdict, request_pairs
from aaco.governance.interleaved.duet_verdict import TPOT
from benchmarks.claims import Claim
from benchmarks.llm._loads import asked, running
from tests.fakes.llm_server import Running

ALPHA, TOLERANCE_PCT, PERIOD_US = 0.05, 5.0, 2000
PAIRS, RECORDED, COMPARISONS, LOADS = 100, 2000, 1000, 20
MANY = 0.1  # of the comparisons without a verdict: there are fewer alarms then


def claims(captures: Path) -> Iterator[Claim]:
    """False alarms of the interval and of the verdict, then power for 5 and 10 %."""
    with running() as server:
        recorded = asked(server, [_schedule(1.0)] * (2 * RECORDED), most_open=4).requests
        differs, regressed = _alarms(recorded)
        yield Claim(f"equal ends: {COMPARISONS:,} comparisons of {PAIRS} recorded pairs of which the interval at 95 % "
                    "leaves out zero", "3 to 7 %", f"{100 * differs:.1f} %", 0.03 <= differs <= 0.07)
        yield Claim(f"the same that are called regressed at a tolerance of {TOLERANCE_PCT:g} %", "at most 2.5 %",
                    f"{100 * regressed:.1f} %", regressed <= 0.025)
        for noise in NOISES:
            differs, no_verdict = _simulated(noise)
            least = 0.0 if no_verdict > MANY * COMPARISONS else 0.03
            yield Claim(f"{COMPARISONS:,} simulated loads of {PAIRS} pairs, {noise}: intervals at 95 % without zero; "
                        "pairs that are too much alike have no verdict", "3 to 7 %, less where many have none",
                        f"{100 * differs / COMPARISONS:.1f} %, {no_verdict:,} have none",
                        least <= differs / COMPARISONS <= 0.07)
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


def _simulated(noise: str) -> tuple[int, int]:
    """How many simulated comparisons have an interval without zero, and how many no verdict."""
    generator, draw = np.random.default_rng(2), NOISES[noise]
    differs = no_verdict = 0
    for _ in range(COMPARISONS):
        ratios = np.exp(np.clip(draw(generator) / 20, -5, 5))
        pairs = request_pairs.table(_answered(np.full(PAIRS, 1e8)), _answered(1e8 * ratios))
        seen = duet_verdict.find_requests(pairs, request_pairs.terms(pairs, TOLERANCE_PCT, ALPHA)).each[TPOT].comparison
        assert seen.low_pct is not None and seen.high_pct is not None
        no_verdict += bool(seen.veto)
        differs += not seen.veto and not seen.low_pct <= 0 <= seen.high_pct
    return differs, no_verdict


def _answered(decode_ns: NDArray[np.float64]) -> pa.Table:
    send = np.arange(PAIRS) * 10**9
    return REQUESTS.build(request_id=np.arange(PAIRS), t_send_ns=send, t_first_ns=send + 10**7,
                          t_last_ns=send + 10**7 + decode_ns.astype(np.int64), output_tokens=np.full(PAIRS, 11),
                          status=["ok"] * PAIRS)


def _fading(innovations: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """An autoregression: of each value this share is in the next."""
    for at in range(1, len(innovations)):
        innovations[at] += share * innovations[at - 1]
    return innovations


def _disturbed(generator: np.random.Generator, length: int) -> NDArray[np.float64]:
    """Now and then so many in a row are all as far off."""
    values = generator.normal(size=PAIRS)
    for _ in range(generator.poisson(0.15 * PAIRS / length)):
        begin = int(generator.integers(-length, PAIRS))
        values[max(begin, 0):begin + length] += 8 * generator.normal()
    return values


# Ratios of the pairs of a load, in their order.
NOISES: dict[str, Callable[[np.random.Generator], NDArray[np.float64]]] = {
    "normal": lambda generator: generator.normal(size=PAIRS),
    "t of 2 degrees": lambda generator: generator.standard_t(2, PAIRS),
    "Cauchy": lambda generator: generator.standard_cauchy(PAIRS),
    "half of each in the next": lambda generator: _fading(generator.normal(size=PAIRS), 0.5),
    "t of 2 degrees, half of each in the next": lambda generator: _fading(generator.standard_t(2, PAIRS), 0.5),
    "four fifths of each in the next": lambda generator: _fading(generator.normal(size=PAIRS), 0.8),
    "nine tenths of each in the next": lambda generator: _fading(generator.normal(size=PAIRS), 0.9),
    "nineteen twentieths of each in the next": lambda generator: _fading(generator.normal(size=PAIRS), 0.95),
    "disturbances of ten pairs": lambda generator: _disturbed(generator, PAIRS // 10),
    "disturbances of thirty pairs": lambda generator: _disturbed(generator, 3 * PAIRS // 10)}


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
