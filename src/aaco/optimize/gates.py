"""The gates that a change must pass, in words and figures. Pure.

They come in the order of what they cost: it computes the same, it is faster by enough, nothing else is worse.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.advice.action import HOST_BOUND
from aaco.core import statistics
from aaco.governance.agreement import Agreement, overall
from aaco.governance.interleaved.duet_verdict import DEVICE
from aaco.governance.verdict_document import MetricVerdict, RegressionVerdict
from aaco.tracelake.document_schemas.ledger import GuardedMetric, SearchTerms
from aaco.tracelake.history.measures import LATENCY

WORSE_MEMORY, LEAST_MEMORY = 1.1, 32 << 20  # times the baseline's, and bytes: less is the allocator's mood
WORSE_ENERGY, LEAST_OF_ENERGY = 1.1, 2  # times the baseline's; processes of either side
TAILS = (0.99, 0.9)  # the quantile that is judged: the first that the pairs of a process can show
NAMES = {LATENCY: "latency", DEVICE: "device time"}
WORSE_TAIL = math.log(1.05)
FAR = math.log(1.5)  # from the median of the ratios of a process
MOST_SLOWER = 0.02  # of the inputs


class GateOutcome(NamedTuple):
    """Whether a gate lets a change through, and why. error: as a share of the largest element, where there is one."""

    passed: bool
    why: str
    error: float | None = None


class TimeSaved(NamedTuple):
    """Time saved per sample, per cent of the baseline's, with its interval; None where it could not be estimated.

    of: the quantity that it is judged by.
    """

    percent: float | None
    low: float | None
    high: float | None
    of: str


def same_outputs(by_inputs: Sequence[Sequence[Agreement]], lossy: bool, accept_error: float,
                 error: float | None) -> GateOutcome:
    """Return whether the outputs agree for every set of inputs.

    lossy: the change is meant to alter the arithmetic, so its error must be known and accepted.
    """
    for number, agreements in enumerate(by_inputs):
        status = overall(agreements)
        if status in ("different", "unknown"):
            worst = next(agreement for agreement in agreements if agreement.status == status)
            return GateOutcome(False, f"output {worst.name}, inputs {number + 1}: {worst.why}", error)
    if not lossy:
        return GateOutcome(True, f"outputs agree for {len(by_inputs)} sets of inputs", error)
    if error is None:
        return GateOutcome(False, "it alters the arithmetic, and its error is not known")
    if error > accept_error:
        return GateOutcome(False, f"it alters the arithmetic: its error is {error:.2g} of the largest element; "
                              f"--accept-error {_rounded_up(error):g} accepts that", error)
    return GateOutcome(True, f"its error of {error:.2g} of the largest element is accepted", error)


def _rounded_up(error: float) -> float:
    """Return the error with two digits, not below it."""
    scale: float = 10.0 ** (math.floor(math.log10(error)) - 1) if error > 0 else 1.0
    return math.ceil(error / scale) * scale


def fills_latency(verdict: RegressionVerdict) -> bool:
    """Return whether the device's time is nearly all of the baseline's latency."""
    metrics = {metric.metric: metric for metric in verdict.metrics}
    device, latency = metrics.get(DEVICE), metrics.get(LATENCY)
    return bool(device and latency and device.baseline_value >= HOST_BOUND * latency.baseline_value)


def gain(verdict: RegressionVerdict, batch_factor: int = 1) -> TimeSaved:
    """Return the gain that a verdict states: of the device's time where that fills the latency, else of the latency,
    which is what a user waits for. batch_factor: how many times the samples an inference of `current` has.
    """
    latency = next((metric for metric in verdict.metrics if metric.metric == LATENCY), None)
    by_device = fills_latency(verdict)
    judged: RegressionVerdict | MetricVerdict = verdict if by_device or latency is None else latency
    percent, low, high = (None if change is None else 100 - (100 + change) / batch_factor
                          for change in (judged.effect_pct, judged.ci and judged.ci[1], judged.ci and judged.ci[0]))
    return TimeSaved(percent, low, high, NAMES[DEVICE if by_device else LATENCY])


def no_metric_worse(verdict: RegressionVerdict) -> GuardedMetric:
    """Return whether the latency or the device's time, as far as measured, got worse, be the other better."""
    worse = [metric.metric for metric in verdict.metrics if metric.status == "regressed"]
    measured = [name for metric, name in NAMES.items() if metric in {one.metric for one in verdict.metrics}]
    return GuardedMetric(metric=" and ".join(measured) or "latency", worse=bool(worse),
                         why=", ".join(worse) or "not worse")


def guarded(outcome: GateOutcome, guards: Iterable[GuardedMetric]) -> GateOutcome:
    """Return the outcome, or the refusal by the first guard that is worse."""
    worse = next((guard for guard in guards if guard.worse), None)
    return outcome if worse is None else GateOutcome(False, f"{worse.metric} is worse: {worse.why}", outcome.error)


def within_slo(verdict: RegressionVerdict, slo_ms: float | None) -> GuardedMetric:
    """Return whether a larger batch takes longer than the user allows."""
    latency = next((metric.current_value for metric in verdict.metrics if metric.metric == LATENCY),
                   verdict.current_value)
    if latency is None or slo_ms is None:
        return GuardedMetric(metric="latency", worse=True, why="no latency, or no objective to hold it against")
    return GuardedMetric(metric="latency", worse=latency > slo_ms, why=f"{latency:.3g} ms, {slo_ms:.3g} ms are allowed")


def fast_enough(measured: TimeSaved, terms: SearchTerms, why_not: str) -> GateOutcome:
    """Return whether a gain is kept: its interval is above 0, and its estimate is large enough."""
    if measured.percent is None or measured.low is None:
        return GateOutcome(False, f"it could not be judged: {why_not}")
    if measured.low <= 0:
        return GateOutcome(False, f"the interval of its gain holds 0: {measured.percent:.1f} % "
                                  f"[{measured.low:.1f}, {measured.high:.1f}] by {measured.of}")
    if measured.percent < terms.least_gain_pct:
        return GateOutcome(False, f"its gain of {measured.percent:.1f} % is below {terms.least_gain_pct:g} %")
    return GateOutcome(True, f"{measured.percent:.1f} % less time [{measured.low:.1f}, {measured.high:.1f}] "
                             f"by {measured.of}")


def memory(baseline: Sequence[int], changed: Sequence[int]) -> GuardedMetric:
    """Return whether peak memory is worse: more, by a tenth and 32 MiB, in every process than in any of the baseline's.
    """
    if not baseline or not changed:
        return GuardedMetric(metric="peak memory", worse=False, why="not measured")
    before, after = max(baseline), min(changed)
    worse = after > WORSE_MEMORY * before and after - before > LEAST_MEMORY
    return GuardedMetric(metric="peak memory", worse=worse, why=f"{before / 2**20:.0f} -> {after / 2**20:.0f} MiB")


def energy(baseline: Sequence[float], changed: Sequence[float], batch_factor: int, why_not: str) -> GuardedMetric:
    """Return whether a sample needs more energy: more, by a tenth, in every process than in any of the baseline's.

    The counters hold what else ran on the same hardware, and the loading of the model. why_not: why there are none.
    """
    if len(baseline) < LEAST_OF_ENERGY or len(changed) < LEAST_OF_ENERGY:
        return GuardedMetric(metric="energy", worse=False, why=f"not measured: {why_not or 'too few processes'}")
    before, after = max(baseline), min(changed) / batch_factor
    why = (f"{median(baseline):.3g} -> {median(changed) / batch_factor:.3g} J a process, other work on the hardware "
           "among it")
    return GuardedMetric(metric="energy", worse=after > WORSE_ENERGY * before, why=why)


def tail(pairs: pa.Table, level: float, batch_factor: int = 1) -> GuardedMetric:
    """Return whether the slowest inferences are worse, by the highest quantile that the pairs of a process show."""
    processes = _by_process(pairs)
    fewest = min((len(baseline) for baseline, _ in processes), default=0)
    q = next((quantile for quantile in TAILS if fewest >= statistics.smallest_sample(quantile)), None)
    if q is None or len(processes) < 2:
        return GuardedMetric(metric="tail", worse=False, why=f"not judged: {fewest} pairs in a process are too few")
    ratios = [math.log(float(np.quantile(current, q)) / float(np.quantile(baseline, q)) / batch_factor)
              for baseline, current in processes]
    estimate = statistics.mean_interval(np.array(ratios), level)
    worse = estimate.low is not None and estimate.low > WORSE_TAIL
    return GuardedMetric(metric=f"p{100 * q:g}", worse=worse, why=f"{100 * math.expm1(estimate.value):+.1f} %")


def some_inputs(pairs: pa.Table, level: float, batch_factor: int = 1) -> GuardedMetric:
    """Return whether inputs are slower than before, though most are faster. Both sides of a pair have the same input.

    What else runs on the machine delays either side of a pair, and more often the one that takes longer; an input that
    takes longer delays the changed one alone.
    """
    processes = _by_process(pairs)
    if len(processes) < 2:
        why = f"not judged: {len(processes)} processes are too few"
        return GuardedMetric(metric="some inputs", worse=False, why=why)
    excess = [_excess_slow(np.log(current / baseline / batch_factor)) for baseline, current in processes]
    estimate = statistics.mean_interval(np.array(excess), level)
    worse = estimate.low is not None and estimate.low > 0 and estimate.value > MOST_SLOWER
    why = f"{100 * max(0.0, estimate.value):.0f} % of the inputs are slower than before"
    return GuardedMetric(metric="some inputs", worse=worse, why=why)


def _excess_slow(log_ratios: np.ndarray) -> float:
    """Return the share of pairs far above the median, and slower than before, less the share as far below it."""
    middle = float(np.median(log_ratios))
    far = max(FAR, WORSE_TAIL - middle)
    return float((log_ratios > middle + far).mean() - (log_ratios < middle - far).mean())


def _by_process(pairs: pa.Table) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return for each process that ran both sides their latencies in ms, pair by pair."""
    changes = pairs.filter(pc.equal(pairs["kind"].cast(pa.string()), "change"))
    process = changes["process"].to_numpy()
    baseline, current = (changes[f"{side}_ms"].to_numpy() for side in ("baseline", "current"))
    return [(baseline[process == number], current[process == number]) for number in np.unique(process)]


def largest_error(by_inputs: Sequence[Mapping[str, tuple[np.ndarray, np.ndarray]]]) -> float | None:
    """Return the largest difference of any output, as a share of the largest element of the baseline's; None if no
    floating-point output was kept, infinite where only one side is a number.
    """
    shares = [_error_share(before, after) for outputs in by_inputs for before, after in outputs.values()
              if before.dtype.kind == "f" and before.size]
    return max(shares, default=None)


def _error_share(before: np.ndarray, after: np.ndarray) -> float:
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.abs(before.astype(np.float64) - after.astype(np.float64))
    both_odd = (before == after) | (np.isnan(before) & np.isnan(after))
    gap = np.where(both_odd, 0.0, gap)
    largest = float(np.abs(before[np.isfinite(before)]).max(initial=0.0))
    worst = float(gap.max()) if np.isfinite(gap).all() else math.inf
    return worst / largest if largest else (0.0 if worst == 0 else math.inf)
