"""Latency, throughput and their steadiness, read from the iterations of the clean (unprofiled) pass."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aaco.core import statistics
from aaco.core.arrays import Array, Reals
from aaco.core.readings import Absent, Estimate
from aaco.core.registry import metric
from aaco.core.settling import settled_at

QUANTILE = "order statistics, linear interpolation (type 7); interval: exact binomial ranks at 95 %"
SOURCE = "docs/concepts/measuring.md"


@metric(unit="ms", better="lower", formula="mean of measured latencies; interval: Student t of the logarithm at 95 %",
        source=SOURCE)
def latency_mean_ms(latencies_ms: Reals) -> Estimate:
    """Mean time of one inference."""
    return statistics.mean_interval(latencies_ms)


@metric(unit="ms", better="lower", formula="standard deviation with n - 1", source=SOURCE)
def latency_std_ms(latencies_ms: Reals) -> float:
    """Spread of the time of one inference."""
    if len(latencies_ms) < 2:
        raise Absent("one iteration has no spread")
    return float(latencies_ms.std(ddof=1))


@metric(unit="ms", better="lower", formula=QUANTILE, source=SOURCE)
def latency_p50_ms(latencies_ms: Reals) -> Estimate:
    """Half of the inferences are faster."""
    return statistics.quantile(latencies_ms, 0.50)


@metric(unit="ms", better="lower", formula=QUANTILE, source=SOURCE)
def latency_p90_ms(latencies_ms: Reals) -> Estimate:
    """Nine of ten inferences are faster."""
    return statistics.quantile(latencies_ms, 0.90)


@metric(unit="ms", better="lower", formula=QUANTILE, source=SOURCE)
def latency_p95_ms(latencies_ms: Reals) -> Estimate:
    """Nineteen of twenty inferences are faster."""
    return statistics.quantile(latencies_ms, 0.95)


@metric(unit="ms", better="lower", formula=QUANTILE, source=SOURCE)
def latency_p99_ms(latencies_ms: Reals) -> Estimate:
    """99 of 100 inferences are faster; absent under 100 iterations, which cannot support it."""
    return statistics.quantile(latencies_ms, 0.99)


@metric(unit="ms", better="lower", formula="smallest measured latency", source=SOURCE)
def latency_min_ms(latencies_ms: Reals) -> float:
    """The fastest inference."""
    return float(latencies_ms.min())


@metric(unit="ms", better="lower", formula="largest measured latency", source=SOURCE)
def latency_max_ms(latencies_ms: Reals) -> float:
    """The slowest inference."""
    return float(latencies_ms.max())


@metric(unit="ms", better="lower", formula="p75 - p25", source=SOURCE)
def latency_iqr_ms(latencies_ms: Reals) -> float:
    """Width of the middle half of the latencies."""
    return statistics.quantile(latencies_ms, 0.75).value - statistics.quantile(latencies_ms, 0.25).value


@metric(unit="ms", better="lower", formula="1.4826 x median absolute deviation", source=SOURCE)
def latency_mad_ms(latencies_ms: Reals) -> float:
    """Robust spread; equals the standard deviation on normal noise and ignores outliers."""
    return statistics.mad_sigma(latencies_ms)


@metric(unit="pct", better="lower", formula="100 x standard deviation / mean", source=SOURCE, aliases=("cv",
        "cov_pct"),
        bands=("<=1 excellent", "<=3 good", "<=5 fair", "<=10 noisy", ">10 unstable"))
def latency_cov_pct(latency_std_ms: float, latency_mean_ms: float) -> float:
    """Coefficient of variation: how unsteady the measured latencies are."""
    return 100 * latency_std_ms / latency_mean_ms


@metric(unit="pct", better="lower", formula="100 x (largest - smallest median of a process) / median of all latencies",
        source="docs/concepts/methodology.md: a process is one sample", bands=("<=5 alike", ">5 processes differ"))
def process_spread_pct(process_medians_ms: Reals, latency_p50_ms: float) -> float:
    """How much the fresh processes differ; where they differ, the median over all of them describes none."""
    if len(process_medians_ms) < 2:
        raise Absent("one process has nothing to differ from")
    return 100 * float(np.ptp(process_medians_ms)) / latency_p50_ms


@metric(unit="1/s", better="higher", formula="batch x iterations / sum of latencies", source=SOURCE)
def throughput_per_s(latencies_ms: Reals, inference_iters: pa.Table) -> float:
    """Samples per second, one inference at a time; a batch of 8 counts 8."""
    return 1000 * float(inference_iters["batch"][0].as_py()) * len(latencies_ms) / float(latencies_ms.sum())


@metric(unit="pct", better="lower", formula="100 x (median warm-up - median measured) / median measured",
        source=SOURCE)
def warmup_effect_pct(warmup_ms: Reals, latency_p50_ms: float) -> float:
    """How much slower the warm-up iterations were."""
    return 100 * (float(np.median(warmup_ms)) / latency_p50_ms - 1)


@metric(unit="1", better="lower", formula="first five iterations no slower than the slowest five of the second half, "
        "by medians, worst process", source="docs/concepts/measuring.md")
def warmup_iterations_needed(inference_iters: pa.Table) -> float:
    """Iterations, warm-up included, until latency is steady; absent when it never settles."""
    return float(max(settled_at(run) for run in _by_process(inference_iters, inference_iters["latency_ms"])))


@metric(unit="1", better="lower", formula="iterations needed - warm-up iterations made, at least 0",
        source="docs/concepts/measuring.md", bands=("<=0 settled", ">0 measured while warming up"))
def warmup_shortfall(warmup_iterations_needed: float, inference_iters: pa.Table) -> float:
    """Measured iterations that still belong to the warm-up of the slowest process to settle."""
    warm = pc.equal(inference_iters["phase"].cast(pa.string()), "warmup")
    made = min(int(of_process.sum()) for of_process in _by_process(inference_iters, warm))
    return max(0.0, warmup_iterations_needed - made)


def _by_process(inference_iters: pa.Table, column: pa.ChunkedArray) -> list[Array]:
    """Return what a column holds of each process, in order, warm-up included."""
    process, values = inference_iters["process"].to_numpy(), column.to_numpy()
    return [values[process == index] for index in np.unique(process)]


@metric(unit="pct", better="lower", formula="share outside [p25 - 1.5 IQR, p75 + 1.5 IQR]", source="Tukey 1977")
def outliers_iqr_pct(latencies_ms: Reals) -> float:
    """Iterations outside Tukey's fences. Counted, never dropped."""
    low, high = np.quantile(latencies_ms, [0.25, 0.75])
    reach = 1.5 * (high - low)
    return _share((latencies_ms < low - reach) | (latencies_ms > high + reach))


@metric(unit="pct", better="lower", formula="share with |x - mean| > 3 standard deviations", source="three-sigma rule")
def outliers_z_pct(latencies_ms: Reals, latency_std_ms: float) -> float:
    """Iterations beyond three standard deviations. Counted, never dropped."""
    return _share(np.abs(latencies_ms - latencies_ms.mean()) > 3 * latency_std_ms)


@metric(unit="pct", better="lower", formula="share with |x - median| > 3.5 x 1.4826 MAD",
        source="Iglewicz and Hoaglin 1993")
def outliers_mad_pct(latencies_ms: Reals, latency_mad_ms: float) -> float:
    """Iterations far from the median by the robust spread. Counted, never dropped."""
    return _share(np.abs(latencies_ms - np.median(latencies_ms)) > 3.5 * latency_mad_ms)


def _share(chosen: NDArray[np.bool_]) -> float:
    return 100 * float(chosen.mean())
