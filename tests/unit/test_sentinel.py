"""Which inferences are clean: by what was recorded around them, never by their latency alone."""

import numpy as np
import pytest

from aaco.analytics import metrics as every
from aaco.analytics.quality import sentinel
from aaco.core import inputs, registry
from aaco.core.readings import Absent
from aaco.core.tables import INFERENCE_ITERS, ITERATION_FEATURES

registry.load(every, "aaco.metrics")  # in their usual order, whichever test comes first
noise = every.noise
COUNT = 200
STEADY = 10 + 0.02 * np.random.default_rng(1).standard_normal(COUNT)  # ms
SOME = np.arange(COUNT) % 10 == 0  # every tenth inference


def features(latency=STEADY, process=None, **columns):
    count = len(latency)
    return ITERATION_FEATURES.build(
        process=[0] * count if process is None else process, phase=["measurement"] * count,
        iteration=np.arange(count), latency_ms=latency, **columns)


def flagged(table):
    return ~np.array(sentinel.judge(table).clean.to_pylist())


def test_an_inference_that_waited_is_not_clean_and_says_why():
    """Mutation: LIMIT to 0.5."""
    wait = np.where(SOME, 1e6, 0.0)
    found = sentinel.judge(features(STEADY + wait / 1e6, run_queue_wait_ns=wait))
    assert (~np.array(found.clean.to_pylist()) == SOME).all()
    assert found.reasons.to_pylist()[0] == ["waiting for a CPU"] and found.reasons.to_pylist()[1] == []
    assert found.impact[0] == pytest.approx(0.1, abs=0.01) and found.impact[1] == pytest.approx(0, abs=1e-9)


def test_a_slow_inference_without_any_evidence_is_clean():
    """Mutation: latency itself as evidence: the statistics would choose their own answer."""
    assert not flagged(features(np.where(SOME, 20.0, STEADY), run_queue_wait_ns=np.zeros(COUNT))).any()


def test_no_inference_lost_more_than_it_took_beyond_the_fastest():
    """Nine inferences share a reading of 9 ms with one that waited. Mutation: no bound by the fastest."""
    latency = np.where(SOME, 19.0, 10.0)
    table = features(latency, run_queue_wait_ns=9e6 * latency / (19 + 90))
    assert not flagged(table)[~SOME].any()


def test_waiting_all_the_time_is_not_taken_for_quiet():
    """A neighbour that never rests. Mutation: the session's own median wait subtracted from each."""
    rng = np.random.default_rng(2)
    wait = rng.uniform(2e6, 8e6, COUNT)
    assert flagged(features(4 + wait / 1e6, run_queue_wait_ns=wait)).mean() > 0.8


def test_waking_up_is_no_interference():
    """Fifty wake-ups of 15 us in a parallel inference. Mutation: WAKE_NS = 0."""
    rng = np.random.default_rng(3)
    table = features(rng.uniform(9, 11, COUNT), run_queue_wait_ns=np.full(COUNT, 50 * 15_000.0),
                     switches_voluntary=np.full(COUNT, 50.0))
    assert not flagged(table).any()


@pytest.mark.parametrize("name", ["core_canary_ns", "memory_canary_ns"])
def test_a_slow_canary_counts_by_what_it_cost_this_workload(name):
    """Half of the session beside a neighbour that doubles the canary and costs 12 %. Mutation: `_curve` all zero."""
    beside = np.arange(COUNT) >= COUNT // 2
    rng = np.random.default_rng(4)
    canary = np.where(beside, 10_000, 5_000) * rng.uniform(1, 1.05, COUNT)
    found = sentinel.judge(features(np.where(beside, 1.12, 1) * STEADY, **{name: canary}))
    assert (~np.array(found.clean.to_pylist()) == beside).all()
    assert found.impact[beside].mean() == pytest.approx(0.12, abs=0.02)


def test_a_slow_canary_that_costs_nothing_is_no_noise():
    """Mutation: a fixed limit of the canary, whatever it costs."""
    beside = np.arange(COUNT) >= COUNT // 2
    assert not flagged(features(core_canary_ns=np.where(beside, 10_000.0, 5_000.0))).any()


def test_where_the_wait_is_known_canaries_and_preemptions_are_not_looked_at():
    """They would only add false alarms (`python -m benchmarks.sentinel`). Mutation: stand_in ignored."""
    beside = np.arange(COUNT) >= COUNT // 2
    slow = np.where(beside, 1.2, 1) * STEADY
    known = {"core_canary_ns": np.where(beside, 10_000.0, 5_000.0), "switches_involuntary": beside * 2.0}
    assert not flagged(features(slow, run_queue_wait_ns=np.zeros(COUNT), **known)).any()
    assert (flagged(features(slow, **known)) == beside).all()


def test_a_lower_clock_counts_upside_down():
    """Mutation: lower_is_worse ignored."""
    slow = np.arange(COUNT) >= COUNT // 2
    table = features(np.where(slow, 1.2, 1) * STEADY, cpu_mhz=np.where(slow, 2500.0, 3000.0))
    assert (flagged(table) == slow).all()


def test_a_state_below_its_floor_is_scatter():
    """A trend in latency goes with a canary that rises by 5 %. Mutation: no floor."""
    rising = np.linspace(0, 1, COUNT)
    assert not flagged(features(10 * (1 + 0.3 * rising), core_canary_ns=5000 * (1 + 0.05 * rising))).any()


def test_a_session_too_short_to_learn_from_has_no_states():
    table = features(STEADY[:15], core_canary_ns=np.linspace(5000, 10_000, 15))
    assert sentinel.judge(table).clean.null_count == 15


def test_two_causes_of_one_slowdown_count_once():
    """Both canaries see the same neighbour. Mutation: their costs multiplied."""
    beside = np.arange(COUNT) >= COUNT // 2
    canary = np.where(beside, 10_000.0, 5_000.0)
    found = sentinel.judge(features(np.where(beside, 1.2, 1) * STEADY, core_canary_ns=canary,
                                    memory_canary_ns=canary))
    assert found.impact[beside].mean() == pytest.approx(0.2, abs=0.02)


def test_processes_may_differ():
    """The second process is slower and its canary, too, by chance. Mutation: one median for all processes."""
    second = np.arange(COUNT) >= COUNT // 2
    table = features(np.where(second, 1.3, 1) * STEADY, process=second.astype(int),
                     core_canary_ns=np.where(second, 6000.0, 5000.0) * np.random.default_rng(5).uniform(1, 1.3, COUNT))
    assert not flagged(table).any()


def test_what_nothing_watched_is_null():
    """Mutation: unwatched counts as clean."""
    found = sentinel.judge(features())
    assert found.clean.null_count == COUNT and found.reasons.null_count == COUNT and np.isnan(found.impact).all()
    partly = sentinel.judge(features(run_queue_wait_ns=np.where(SOME, np.nan, 0.0)))
    assert partly.clean.null_count == SOME.sum()


def test_contamination_is_the_missions_formula():
    """At its limit a lone signal scores 0.5: 0.7 x 0.5 + 0.3 x 0.25 of two signals. Mutation: 0.3 of the maximum."""
    wait = np.where(SOME, 0.5e6, 0.0)
    found = sentinel.judge(features(np.where(SOME, 10.5, 10.0), run_queue_wait_ns=wait, steal_ns=np.zeros(COUNT)))
    assert found.contamination[0] == pytest.approx(0.7 * 0.5 + 0.3 * 0.25)


def test_readings_of_a_tagged_session():
    """Mutation: `noise_impact_pct` over everything, counted or not."""
    wait = np.where(SOME, 1e6, 0.0)
    latency = np.where(SOME, 11.0, 10.0)
    table = INFERENCE_ITERS.build(iteration=np.arange(COUNT), phase=["measurement"] * COUNT, latency_ms=latency,
                                  t_start_ns=[0] * COUNT, t_end_ns=[1] * COUNT, process=[0] * COUNT)
    with pytest.raises(Absent, match="no telemetry of the measured inferences"):
        noise.clean_pct(table)
    tagged = sentinel.tag(table, features(latency, run_queue_wait_ns=wait))
    assert noise.clean_pct(tagged) == pytest.approx(90)
    assert noise.noise_impact_pct(tagged) == pytest.approx(1)
    assert 0 < noise.contamination(tagged) < 0.5
    assert tagged["counted"].null_count == COUNT and noise.noise_on_median_pct(tagged) == pytest.approx(0)


def test_discarding_counts_clean_iterations_and_those_that_nothing_watched():
    """Mutation: `fill_null(clean, False)` drops what nothing watched; `invert(measured)` gone drops the warm-up."""
    latency = np.where(SOME, 11.0, 10.0)
    phases = ["warmup"] * 20 + ["measurement"] * (COUNT - 20)
    table = INFERENCE_ITERS.build(iteration=np.arange(COUNT), phase=phases, latency_ms=latency, process=[0] * COUNT,
                                  t_start_ns=[0] * COUNT, t_end_ns=[1] * COUNT)
    unwatched = np.arange(COUNT) >= 190
    watched = features(latency, run_queue_wait_ns=np.where(unwatched, np.nan, np.where(SOME, 1e6, 0.0)))
    tagged = sentinel.tag(table, watched, only_clean=True)
    assert (np.array(tagged["counted"].to_pylist()) == (~SOME | (np.arange(COUNT) < 20) | unwatched)).all()
    assert len(inputs.latencies_ms(tagged)) == (~SOME[20:190]).sum() + 10
    assert len(inputs.all_latencies_ms(tagged)) == COUNT - 20 and len(inputs.warmup_ms(tagged)) == 20
    assert noise.noise_impact_pct(tagged) == pytest.approx(0)


def test_where_none_is_clean_there_are_no_statistics():
    """Mutation: everything counts again where nothing does."""
    table = INFERENCE_ITERS.build(iteration=[0], phase=["measurement"], latency_ms=[10.0], process=[0], t_start_ns=[0],
                                  t_end_ns=[1], counted=[False])
    with pytest.raises(Absent, match="none of 1 measurement iterations is clean"):
        inputs.latencies_ms(table)
