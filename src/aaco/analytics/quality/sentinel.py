"""The noise sentinel: which inferences were disturbed, by what, and how much longer each took for it.

It decides from what was recorded around an inference: dropping slow inferences and calling the rest clean would choose
the answer. The latency only bounds the cost of a recorded interference. The records are of two kinds.

Lost time (waiting for a CPU, time the hypervisor gave to others) is an effect by itself: an inference of 10 ms that
waited 1 ms took 11 % longer. States (a lower clock, pressure, preemptions) are only causes; what they cost this
workload is estimated from the session: its otherwise quiet inferences are sorted by the state, and the medians of equal
parts show from which level on it is slower, and by how much. A state without a slowdown costs nothing, even if it is
unusual; a session too short for the estimate has lost time only.

An inference is clean if all of it together costs less than `LIMIT`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from numpy.typing import NDArray

from aaco.core.arrays import Flags, Reals
from aaco.core.statistics import mad_sigma
from aaco.core.tables import replaced

LIMIT = 0.05  # of the undisturbed latency (docs/concepts/measuring.md)
NAMED = 0.01  # a reason is named from here on; below, the session is clean
LOST = {"run_queue_wait_ns": "waiting for a CPU", "steal_ns": "time stolen by the hypervisor"}
USUAL = 0.05  # quantile of a process's latencies; what took no longer than that lost nothing
WAKE_NS = 20_000  # a thread that was woken waits this long for an idle CPU, too: no interference
QUIET = 0.10  # quantile of a state that counts as its quiet level
PART, PARTS = 10, 10  # inferences in a part at least, and parts at most
STEADY = 3.0  # standard errors by which a part's median must be above that of the quiet ones


class State(Struct, frozen=True):
    """A cause with an estimated cost: what it means, how its level is read, and from which level on it counts.

    relative: the level is the excess over the session's quiet one, as a share of it; otherwise it is as recorded.
    per_time: as a share of the latency. The floors are AACO's choice: levels below them are the instrument's own
    scatter. stand_in: used only if the wait for a CPU is unknown; in addition to the wait it only adds false alarms.
    """

    meaning: str
    floor: float
    relative: bool = False
    lower_is_worse: bool = False
    per_time: bool = False
    stand_in: bool = False


STATES = {
    "core_canary_ns": State("slower processor", 0.10, relative=True, stand_in=True),
    "memory_canary_ns": State("slower memory", 0.25, relative=True, stand_in=True),
    "cpu_mhz": State("lower clock", 0.03, relative=True, lower_is_worse=True),
    "sclk_mhz": State("lower device clock", 0.03, relative=True, lower_is_worse=True),
    "psi_cpu_us": State("CPU pressure", 0.01, per_time=True, stand_in=True),
    "psi_memory_us": State("memory pressure", 0.01, per_time=True),
    "psi_io_us": State("I/O pressure", 0.01, per_time=True),
    "switches_involuntary": State("preemption", 0.5, stand_in=True),
    "faults_major": State("page faults with I/O", 0.5),
}


class NoiseJudgement(Struct, frozen=True):
    """Per inference: whether it was clean, what disturbed it and how much longer it took, as a share; null unwatched.

    contamination: a score from 0 to 1, 0.7 x largest + 0.3 x mean of the scores of all signals watched, each of which
    is 0.5 where its cost is the limit; 0.5 is its border, too.
    """

    clean: pa.Array
    reasons: pa.Array
    impact: Reals
    contamination: Reals


def judge(features: pa.Table) -> NoiseJudgement:
    """Return the judgement of every row of an iteration_features table."""
    count, latency = features.num_rows, features["latency_ms"].to_numpy()
    process = features["process"].to_numpy()
    most = latency - _per_process(latency, process, USUAL)
    lost = dict(_lost_time(features, latency, most))
    taken = sum((np.nan_to_num(values) for values in lost.values()), np.zeros(count))  # as a share of what was not lost
    undisturbed = latency / (1 + taken)
    undisturbed /= _per_process(undisturbed, process, 0.5)  # processes may differ
    waits = lost.get("run_queue_wait_ns", np.full(count, np.nan))
    states = dict(_state_costs(features, undisturbed, taken < LIMIT, ~np.isnan(waits)))
    costs = np.array([*lost.values(), *states.values()]).reshape(-1, count)
    watched = ~np.isnan(costs).all(axis=0)
    worst = np.nanmax(np.vstack((np.zeros(count), *states.values())), axis=0)  # causes of one slowdown count once
    bound = np.maximum(most, 0) / (latency - np.maximum(most, 0))
    impact = np.where(watched, np.minimum((1 + taken) * (1 + worst) - 1, bound), np.nan)
    clean = pa.array(impact < LIMIT, mask=~watched)
    return NoiseJudgement(clean, _reasons([*lost, *states], costs, impact), impact, _contamination(costs, watched))


def tag(inference_iters: pa.Table, features: pa.Table, only_clean: bool = False) -> pa.Table:
    """Return the inference_iters table with what the sentinel says of each row; `features` has its rows, in its order.

    only_clean: measured iterations that are not clean do not count; those that nothing watched do.
    """
    judgement = judge(features)
    measured = pc.equal(inference_iters["phase"].cast(pa.string()), "measurement")
    columns = {"clean": judgement.clean, "noise_reasons": judgement.reasons,
               "noise_impact_pct": pa.array(100 * judgement.impact, mask=np.isnan(judgement.impact)),
               "contamination": pa.array(judgement.contamination, mask=np.isnan(judgement.contamination)),
               "counted": pc.or_(pc.invert(measured), pc.fill_null(judgement.clean, True)) if only_clean else
               pa.nulls(inference_iters.num_rows, pa.bool_())}
    for name, values in columns.items():
        inference_iters = replaced(inference_iters, name, values)
    return inference_iters


def _lost_time(features: pa.Table, latency_ms: Reals, most_ms: Reals) -> Iterator[tuple[str, Reals]]:
    """Yield lost time by its name, against what the inference took without it; NaN if it was not watched.

    Threads that waited side by side lost the same time twice, and an amount of several inferences is known of them
    together only; but none lost more than `most_ms`.
    """
    for name in LOST:
        lost_ms = _reals(features, name) / 1e6
        if np.isnan(lost_ms).all():
            continue
        if name == "run_queue_wait_ns":
            lost_ms = lost_ms - np.nan_to_num(_reals(features, "switches_voluntary")) * WAKE_NS / 1e6
        lost_ms = np.clip(lost_ms, 0, np.maximum(most_ms, 0))
        yield name, lost_ms / (latency_ms - lost_ms)


def _per_process(latency: Reals, process: NDArray[np.int64], q: float) -> Reals:
    """Return, per inference, the q-quantile of its process."""
    quantiles = {number: np.quantile(latency[process == number], q) for number in np.unique(process)}
    return np.array([quantiles[number] for number in process])


def _state_costs(features: pa.Table, undisturbed: Reals, quiet: Flags, waits: Flags) -> Iterator[tuple[str, Reals]]:
    """Yield what each state cost, as far as the session teaches it; a state that it does not is left out."""
    measured = features["phase"].cast(pa.string()).to_numpy(zero_copy_only=False) == "measurement"
    for name, state in STATES.items():
        level = _state_level(state, _reals(features, name), features["latency_ms"].to_numpy())
        if state.stand_in:
            level[waits] = np.nan
        teaching = quiet & measured & ~np.isnan(level)
        if teaching.sum() >= 2 * PART:
            cost = _cost_by_level(level[teaching], undisturbed[teaching])
            cost_at_level = np.interp(level, *cost) * (level >= state.floor)
            yield name, np.where(np.isnan(level), np.nan, cost_at_level)


def _state_level(state: State, values: Reals, latency_ms: Reals) -> Reals:
    """Return how bad the state was: larger is worse."""
    if state.per_time:
        return values / 1000 / latency_ms
    if not state.relative or np.isnan(values).all():
        return values
    if state.lower_is_worse:
        return float(np.nanquantile(values, 1 - QUIET)) / values - 1
    return values / float(np.nanquantile(values, QUIET)) - 1


def _cost_by_level(level: Reals, latency: Reals) -> tuple[Reals, Reals]:
    """Return the levels in rising order, and from each on how much longer inferences take than at the lowest ones, as a
    share.

    At a level they count as slower only if they are at all higher levels, too, and by more than their scatter.
    """
    order = np.argsort(level, kind="stable")
    parts = np.array_split(order, min(PARTS, len(order) // PART))
    levels = np.array([np.median(level[part]) for part in parts])
    medians = np.array([np.median(latency[part]) for part in parts])
    scatter = np.array([mad_sigma(latency[part]) / len(part) ** 0.5 for part in parts])
    lowest = medians[0]
    slower = np.where(medians - lowest > STEADY * np.hypot(scatter, scatter[0]), medians / lowest - 1, 0)
    return levels, np.minimum.accumulate(slower[::-1])[::-1]


def _reasons(names: list[str], costs: Reals, impact: Reals) -> pa.Array:
    """Return, per inference that is not clean, what cost it something, the largest first; empty for a clean one."""
    meanings = LOST | {name: state.meaning for name, state in STATES.items()}
    ranked = np.argsort(-np.nan_to_num(costs), axis=0, kind="stable")
    reasons = [None if np.isnan(total) else
               [meanings[names[row]] for row in ranked[:, place] if total >= LIMIT and costs[row, place] >= NAMED]
               for place, total in enumerate(impact)]
    return pa.array(reasons, pa.list_(pa.string()))


def _contamination(costs: Reals, watched: Flags) -> Reals:
    if not len(costs):
        return np.full(len(watched), np.nan)
    scores = np.minimum(np.nan_to_num(costs) / (2 * LIMIT), 1.0)
    return np.where(watched, 0.7 * scores.max(axis=0) + 0.3 * scores.mean(axis=0), np.nan)


def _reals(features: pa.Table, name: str) -> Reals:
    """Return a column as numbers, NaN if it is null."""
    return np.array(features[name].cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
