"""Spikes with planted causes: each is found, its cause comes first, and quiet runs have none."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.quality.co_tenants import run_devices
from aaco.analytics.quality.features import of_iterations
from aaco.analytics.quality.spikes import spikes
from aaco.core.tables import GPU_EVENTS, INFERENCE_ITERS, SYSTEM_EVENTS

COUNT, STEP = 200, 1_000_000


def run(seed: int, spike_at: int, extra_ns: int) -> tuple[pa.Table, np.ndarray, np.ndarray]:
    """Iterations of about 1 ms with 1 % noise; one takes longer."""
    generator = np.random.default_rng(seed)
    took = np.rint(generator.normal(STEP, STEP / 100, COUNT)).astype(np.int64)
    took[spike_at] += extra_ns
    end = np.cumsum(took + 1_000)
    start = end - took
    table = INFERENCE_ITERS.build(iteration=np.arange(COUNT), phase=["measurement"] * COUNT, t_start_ns=start,
                                  t_end_ns=end, latency_ms=took / 1e6, batch=[1] * COUNT, process=[0] * COUNT)
    return table, start, end


def sampled(kind: str, start: np.ndarray, end: np.ndarray, amounts: np.ndarray) -> pa.Table:
    """One sample per iteration: how long the interval was, and how much of `kind` there was."""
    times = np.repeat(end, 2)
    value = np.column_stack((np.ones(COUNT), amounts)).ravel()
    waits = kind in ("run_queue_wait", "steal")
    return SYSTEM_EVENTS.build(
        t_ns=times, kind=["sample", kind] * COUNT, tier=["T1"] * 2 * COUNT, value=None if waits else value,
        dur_ns=np.column_stack((end - start, amounts if waits else end - start)).ravel().astype(np.int64))


@given(seed=st.integers(0, 500), at=st.integers(5, COUNT - 5))
def test_a_wait_for_a_cpu_explains_its_spike(seed, at):
    """Mutations: compared with all iterations instead of those beside it; ranked by z before what it explains."""
    table, start, end = run(seed, at, 2 * STEP)
    amounts = np.full(COUNT, 5_000)
    amounts[at] = 1_900_000
    found = spikes(of_iterations(table, sampled("run_queue_wait", start, end, amounts), None))
    assert [spike.iteration for spike in found] == [at]
    cause = found[0].differences[0]
    assert cause.feature == "run_queue_wait_ns" and cause.explains_ms == pytest.approx(1.9, abs=0.05)


def test_a_wait_is_explained_once():
    """Being preempted is waiting. Mutation: both are listed, and explain the spike twice."""
    table, start, end = run(1, 50, 2 * STEP)
    amounts = np.full(COUNT, 5_000)
    amounts[50] = 1_900_000
    features = of_iterations(table, sampled("run_queue_wait", start, end, amounts), None)
    place = features.schema.get_field_index("preempted_ns")
    features = features.set_column(place, features.schema.field(place), features["run_queue_wait_ns"])
    assert [item.feature for item in spikes(features)[0].differences] == ["run_queue_wait_ns"]


@given(seed=st.integers(0, 500), at=st.integers(5, COUNT - 5))
def test_a_lower_clock_explains_its_spike(seed, at):
    """Mutation: clocks taken as worse when they are higher."""
    table, start, _ = run(seed, at, STEP)
    clock = np.full(COUNT, 2100.0)
    clock[at] = 1050.0
    telemetry = GPU_EVENTS.build(t_ns=start + 10, device_id=[0] * COUNT, sclk_mhz=clock, power_w=[300.0] * COUNT)
    cause = spikes(of_iterations(table, None, run_devices(telemetry)))[0].differences[0]
    assert cause.feature == "sclk_mhz" and cause.explains_ms == pytest.approx(1.0, abs=0.1)


@given(seed=st.integers(0, 500), at=st.integers(5, COUNT - 5))
def test_what_is_counted_is_evidence_without_a_time(seed, at):
    table, start, end = run(seed, at, 2 * STEP)
    amounts = np.zeros(COUNT)
    amounts[at] = 40
    found = spikes(of_iterations(table, sampled("fault_major", start, end, amounts), None))
    assert [(item.feature, item.explains_ms) for item in found[0].differences] == [("faults_major", None)]


@given(seed=st.integers(0, 2000))
def test_a_quiet_run_has_no_spikes(seed):
    table, start, end = run(seed, 10, 0)
    assert not spikes(of_iterations(table, sampled("run_queue_wait", start, end, np.full(COUNT, 5_000)), None))


def test_a_spike_that_nothing_explains_says_so():
    table, start, end = run(1, 50, 2 * STEP)
    found = spikes(of_iterations(table, sampled("run_queue_wait", start, end, np.full(COUNT, 5_000)), None))
    assert len(found) == 1 and not found[0].differences


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 100)), min_size=1, max_size=12),
       st.lists(st.tuples(st.integers(1, 20), st.integers(0, 5)), min_size=1, max_size=12))
def test_what_is_sampled_is_shared_out_by_time(samples, iterations):
    """Against a sum over every single ns. Mutation: intervals taken to end at their start."""
    ends = np.cumsum([length for length, _ in samples])
    times = np.repeat(ends, 2)
    events = SYSTEM_EVENTS.build(
        t_ns=times, kind=["sample", "run_queue_wait"] * len(samples), tier=["T1"] * len(times),
        dur_ns=[value for length, amount in samples for value in (length, amount)])
    took = np.array([length for length, _ in iterations])
    start = np.cumsum(took + np.array([gap for _, gap in iterations])) - took
    table = INFERENCE_ITERS.build(iteration=np.arange(len(took)), phase=["measurement"] * len(took), t_start_ns=start,
                                  t_end_ns=start + took, latency_ms=took / 1e6, batch=[1] * len(took),
                                  process=[0] * len(took))
    rate = np.concatenate([np.full(length, amount / length) for length, amount in samples])
    found = of_iterations(table, events, None)["run_queue_wait_ns"].to_pylist()
    for first, length, amount in zip(start.tolist(), took.tolist(), found, strict=True):
        covered = max(0, min(first + length, len(rate)) - first)
        if covered < 0.5 * length:
            assert amount is None
        else:
            assert amount == pytest.approx(rate[first:first + length].sum())


@given(seed=st.integers(0, 500), at=st.integers(5, COUNT - 5))
def test_a_spike_names_who_preempted_it_and_which_interrupt(seed, at):
    """Short preemptions by "tick" are everywhere; one long one by "hog" is in the spike alone, and an interrupt.

    A thread that idles all the time is no cause. Mutations: what quiet iterations hold as well, or in a time as long,
    counted as a cause; events beyond the spike's end counted whole;
    kinds that lie in each other both listed; T1's sums taken for events.
    """
    table, start, end = run(seed, at, 3 * STEP)
    ticks = [("switch_involuntary", "tick", 7, begin + 100, 50_000) for begin in start.tolist()]
    rows = [*ticks, ("switch_involuntary", "hog", 42, int(start[at]) + 200_000, 2 * STEP),
            ("run_queue_wait", None, None, int(start[at]) + 200_000, 2 * STEP),
            ("irq", "virtio0", None, int(end[at]) - 300_000, 900_000),
            ("switch_voluntary", "futex", 1, 0, int(end[-1]))]
    kind, detail, other, begin, length = zip(*rows, strict=True)
    events = SYSTEM_EVENTS.build(t_ns=begin, dur_ns=length, kind=kind, detail=detail, other_process=other,
                                 tier=["T3"] * len(rows))
    samples = sampled("switch_involuntary", start, end, np.full(COUNT, 100))
    found = spikes(of_iterations(table, None, None), pa.concat_tables([events, samples]))[0]
    assert found.iteration == at
    assert [(item.kind, item.detail, item.other_process, item.count, item.ms) for item in found.events] == [
        ("switch_involuntary", "hog", 42, 1, 2.0), ("irq", "virtio0", None, 1, 0.3)]


def test_events_of_a_lesser_tier_have_no_names():
    table, start, _ = run(3, 50, 3 * STEP)
    events = SYSTEM_EVENTS.build(t_ns=[int(start[50]) + 5], dur_ns=[2 * STEP], kind=["switch_involuntary"], tier=["T2"])
    found = spikes(of_iterations(table, None, None), events)[0].events
    assert [(item.detail, item.other_process, item.ms) for item in found] == [(None, None, 2.0)]
