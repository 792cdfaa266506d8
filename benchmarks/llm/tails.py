"""Intervals of p99 over simulated loads: how often they hold the truth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from aaco.core import statistics
from benchmarks.claims import Claim

RUNS, REQUESTS = 2000, 2000
TRUTH = float(np.exp(0.5 * 2.3263478740408408))  # p99 of exp(N(0, 0.5))


def claims(captures: Path) -> Iterator[Claim]:
    """One claim."""
    generator = np.random.default_rng(0)
    held = 0
    for _ in range(RUNS):
        estimate = statistics.quantile(np.exp(generator.normal(0, 0.5, REQUESTS)), 0.99)
        held += estimate.low is not None and estimate.high is not None and estimate.low <= TRUTH <= estimate.high
    yield Claim(f"intervals of p99 of {REQUESTS:,} latencies that hold the truth, of {RUNS:,}", "93 to 97 %",
                f"{100 * held / RUNS:.1f} %", 0.93 <= held / RUNS <= 0.97)
