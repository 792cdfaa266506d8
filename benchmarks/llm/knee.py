"""A rising load on a server that can answer so many requests a second: where it is called saturated."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from aaco.analytics.llm.load_sweep import LoadSweep, Over
from aaco.core.config import resolve
from aaco.workflows import load_sweep
from aaco.workflows.llm_run import LoadRequest
from aaco.workflows.load_sweep import RisingLoad
from benchmarks.claims import Claim
from benchmarks.llm import _loads

SLOTS, TTFT_US, PERIOD_US, CHUNKS = 8, 25_000, 5_000, 4  # 40 ms each: 200 requests a second at most
CAPACITY = SLOTS / (TTFT_US + PERIOD_US * (CHUNKS - 1)) * 1e6
LEAST, MOST, REQUESTS = CAPACITY / 12, CAPACITY * 16, None
MOST_OPEN = 16 * SLOTS
REQUESTS_OPEN = 400  # of each step: with 100 the intervals of the gains may hold the knee's
NEAR = 0.1  # of the capacity: a server of 8 that waits a millisecond too long for each loses 2.5 %


def claims(captures: Path) -> Iterator[Claim]:
    """Claims about rates at equal and random times, and about requests open at once."""
    with _loads.running(cpu=1, slots=SLOTS) as server:
        for over in ("rate", "poisson"):
            sweep = _swept(server.url, RisingLoad(over, load_sweep.doublings(LEAST, MOST), True), REQUESTS)
            yield Claim(f"{over}: the capacity of {CAPACITY:g} requests/s is between what is kept up with and what is "
                        "not", "it is", _range(sweep), _holds(sweep))
            most = sweep.most_answered_per_s
            yield Claim(f"{over}: most answers/s of any step", f"within {100 * NEAR:g} % of {CAPACITY:g}", f"{most:.4g}"
                        if most else "n/a", bool(most) and abs(most / CAPACITY - 1) <= NEAR)
        over_open: Over = "concurrency"
        sweep = _swept(server.url, RisingLoad(over_open, load_sweep.doublings(1, MOST_OPEN), False), REQUESTS_OPEN)
        yield Claim(f"open at once: the knee of a server that answers {SLOTS}", f"{SLOTS}", f"{sweep.knee}; saturated "
                    f"from {sweep.saturated_from}", (sweep.knee, sweep.saturated_from) == (SLOTS, 2 * SLOTS))


def _swept(url: str, rising: RisingLoad, requests: int | None) -> LoadSweep:
    schedule = f"ttft={TTFT_US} period={PERIOD_US} chunks={CHUNKS}"
    with tempfile.TemporaryDirectory() as folder:
        settings = resolve(overrides={"storage": {"sessions_dir": Path(folder)}})
        request = LoadRequest(url, "ref", prompt_tokens="8", body={"ref": schedule}, requests=requests)
        return load_sweep.sweep(request, rising, settings).sweep


def _range(sweep: LoadSweep) -> str:
    ends = (sweep.sustained, sweep.saturated_from)
    return " .. ".join("n/a" if end is None else f"{end:.4g}" for end in ends)


def _holds(sweep: LoadSweep) -> bool:
    """Whether the capacity is where the sweep says, to what a server that is driven by timers loses."""
    if sweep.sustained is None or sweep.saturated_from is None:
        return False
    return sweep.sustained <= CAPACITY and sweep.saturated_from >= CAPACITY * (1 - NEAR)
