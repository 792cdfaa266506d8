"""Whether latencies are steady: independent, without drift, of one mode; in the process that made most of them."""

from __future__ import annotations

import numpy as np

from aaco.analytics.quality import stability
from aaco.core.arrays import Reals
from aaco.core.readings import Absent
from aaco.core.registry import metric

SOURCE = "docs/concepts/measuring.md"


@metric(unit="1", better="none", formula="lag-1 autocorrelation, of the process that made most iterations",
        source="Box and Jenkins 1970",
        bands=("<=0.2 independent", "<=0.5 correlated", ">0.5 strongly correlated"))
def latency_autocorrelation(longest_run_ms: Reals) -> float:
    """How well an inference's latency predicts the next one's."""
    return stability.autocorrelation(longest_run_ms)


@metric(unit="probability", better="higher",
        formula="Ljung-Box over 10 lags, or a fifth of the iterations, of the process that made most",
        source="Ljung and Box 1978", bands=("<0.01 correlated", ">=0.01 independent"))
def latency_independence_p(longest_run_ms: Reals) -> float:
    """Probability of such autocorrelations in a series without any."""
    return stability.ljung_box_p(longest_run_ms)


@metric(unit="1", better="higher",
        formula="n (1 - r) / (1 + r); n, r: iterations of the process that made most, their lag-1 autocorrelation, "
                "0 where negative",
        source="first-order autoregression")
def effective_iterations(longest_run_ms: Reals) -> float:
    """How many independent iterations would give the mean as precisely."""
    return stability.effective_size(longest_run_ms)


@metric(unit="pct", better="none",
        formula="100 x Theil-Sen slope x (n - 1) / median, over at most 400 parts, of the process that made most "
                "iterations",
        source="Theil 1950, Sen 1968")
def latency_drift_pct(longest_run_ms: Reals) -> float:
    """How far the latency moved from the first to the last measured inference."""
    median = float(np.median(longest_run_ms))
    if not median:
        raise Absent("the median latency is zero")
    return 100 * stability.drift(longest_run_ms)[0] / median


@metric(unit="probability", better="higher",
        formula="Mann-Kendall, two-sided, corrected for ties, of the process that made most iterations",
        source="Mann 1945, Kendall 1975", bands=("<0.01 drifts", ">=0.01 no trend"))
def latency_drift_p(longest_run_ms: Reals) -> float:
    """Probability of such a trend in a series without any."""
    return stability.drift(longest_run_ms)[1]


@metric(unit="1", better="lower", formula="peaks of a kernel density with a valley below 0.6 between them, each with a "
        "tenth of the iterations", source=SOURCE, bands=("<=1 one mode", ">1 several modes"))
def latency_modes(longest_run_ms: Reals) -> float:
    """How many latencies the run has: with several, a median describes none of them."""
    return float(stability.modes(longest_run_ms))
