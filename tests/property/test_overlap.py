"""Events in iterations, against a loop over every event and every iteration."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.metrics import system
from aaco.analytics.quality.features import of_iterations as features_of
from aaco.analytics.streaming import overlap
from aaco.core import tables
from aaco.core.inputs import MeasuredSpans
from aaco.core.readings import Absent
from aaco.core.tables import INFERENCE_ITERS, SYSTEM_EVENTS

BASE = st.sampled_from([0, 10**15])
LONG = 2**40  # ns, 18 minutes: sums of many such times near 10**15 wrap around
events = st.lists(st.tuples(st.integers(0, LONG), st.integers(0, LONG)), max_size=12)
spans = st.lists(st.tuples(st.integers(0, LONG), st.integers(0, LONG)), max_size=8)


def arrays(pairs: list[tuple[int, int]], base: int) -> tuple[np.ndarray, np.ndarray]:
    begin = np.array([base + first for first, _ in pairs], np.int64)
    return begin, begin + np.array([length for _, length in pairs], np.int64)


@given(events, spans, BASE)
def test_overlaps_are_summed_exactly(happened, wanted, base):
    """Any events, any intervals, to the ns. Mutations: floats; searchsorted to the left of an equal end; an event
    that covers the whole interval not counted."""
    (begin, end), (start, stop) = arrays(happened, base), arrays(wanted, base)
    expected = [sum(max(0, min(int(e), int(y)) - max(int(b), int(x))) for b, e in zip(begin, end, strict=True))
                for x, y in zip(start, stop, strict=True)]
    assert overlap.overlap_ns(begin, end, start, stop).tolist() == expected


@given(events, spans, BASE)
def test_what_begins_in_an_interval_is_counted_there(happened, wanted, base):
    """Half open: an event at the end belongs to the next. Mutation: "right" in either search."""
    (at, _), (start, stop) = arrays(happened, base), arrays(wanted, base)
    each = np.arange(len(at)) + 1
    expected = [int(each[(at >= x) & (at < y)].sum()) for x, y in zip(start, stop, strict=True)]
    assert overlap.sum_amounts(at, each, start, stop).tolist() == expected


def iterations(*pairs: tuple[int, int]) -> pa.Table:
    start, end = arrays(list(pairs), 0)
    count = len(start)
    return INFERENCE_ITERS.build(iteration=range(count), phase=["measurement"] * count, t_start_ns=start, t_end_ns=end,
                                 latency_ms=(end - start) / 1e6, process=[0] * count)


def system_events(*rows: tuple) -> pa.Table:
    """(tier, kind, t_ns, dur_ns, value, unit)"""
    tier, kind, at, length, value, unit = zip(*rows, strict=True)
    return SYSTEM_EVENTS.build(t_ns=at, dur_ns=length, kind=kind, tier=tier, value=value, unit=unit,
                               lost_before=[5 if one == "lost" else None for one in kind])


BOTH = system_events(
    ("T1", "sample", 100, 100, 3, "threads"), ("T1", "switch_involuntary", 100, None, 50.0, "count"),
    ("T1", "run_queue_wait", 100, 70, None, None), ("T1", "steal", 100, 20, None, None),
    ("T2", "watched", 10, 90, None, None), ("T2", "switch_involuntary", 18, 4, None, None),
    ("T2", "switch_involuntary", 30, None, None, None), ("T2", "lost", 32, None, 5.0, "count"))


def test_a_signal_comes_from_one_tier_only():
    """T2 counts and times preemptions; of run-queue wait it knows nothing, so the samples are spread.

    Mutations: samples added to single events; a tier that does not record a kind taken for one that saw none; an
    iteration before the recording began taken for a quiet one; an event of unknown duration taken for one of none.
    """
    table = iterations((5, 10), (20, 15), (40, 10))
    exact = overlap.of_iterations(table, BOTH)
    assert exact.column("tier").to_pylist() == ["T2"] * 3
    assert exact["preempted_ns"].to_pylist() == [None, 2, 0]
    assert exact["switches_involuntary"].to_pylist() == [None, 1, 0]
    assert exact["lost"].to_pylist() == [None, 5, 0]
    assert exact["run_queue_wait_ns"].null_count == 3
    assert exact["fault_ns"].null_count == 3
    found = features_of(table, BOTH, None, None, exact)
    assert found["switches_involuntary"].to_pylist() == [None, 1, 0]
    assert found["run_queue_wait_ns"].to_pylist() == pytest.approx([7, 10.5, 7])
    assert found["steal_ns"].to_pylist() == pytest.approx([2, 3, 2])
    assert found["preempted_ns"].to_pylist() == [None, 2, 0]


def test_samples_alone_are_no_single_events():
    assert overlap.of_iterations(iterations((5, 10)), tables.sampled(BOTH)) is None


def test_without_word_of_the_watch_it_lies_between_first_and_last_event():
    traced = system_events(("T3", "run_queue_wait", 12, 6, None, None), ("T3", "irq", 40, 2, None, None))
    found = overlap.of_iterations(iterations((5, 10), (15, 15), (36, 9)), traced)
    assert found["run_queue_wait_ns"].to_pylist() == [None, 3, None]
    assert found["irq_ns"].to_pylist() == [None, 0, None]


def test_readings_name_the_tier_they_come_from():
    """Mutations: T1's samples summed with T3's events; the wall of the samples under events."""
    spans = MeasuredSpans(np.array([10]), np.array([60]))
    sampled = tables.sampled(BOTH)
    wait = system.scheduler_interference(BOTH, spans, sampled)
    assert (wait.value, wait.method[:2]) == (0.7, "T1")
    preempted = system.preemptions_per_s(BOTH, spans, sampled)
    assert (preempted.value, preempted.method[:2]) == (1e9 * 2 / 50, "T2")
    traced = pa.concat_tables([BOTH, system_events(
        ("T3", "run_queue_wait", 5, 10, None, None), ("T3", "fault_major", 20, 15, 1.0, "count"),
        ("T3", "irq", 55, 10, None, None))])
    wait = system.scheduler_interference(traced, spans, sampled)
    assert (wait.value, wait.method[:2]) == (5 / 50, "T3")
    assert system.fault_penalty(traced, spans).value == 15 / 50
    assert system.major_faults_per_s(traced, spans, sampled).value == 1e9 / 50
    assert system.interrupt_share(traced, spans).value == 5 / 50
    with pytest.raises(Absent, match="not traced"):
        system.fault_penalty(BOTH, spans)
    untimed = pa.concat_tables([traced, system_events(("T3", "fault_minor", 30, None, 1.0, "count"))])
    with pytest.raises(Absent, match="fentry"):
        system.fault_penalty(untimed, spans)
