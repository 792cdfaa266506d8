"""An expected gain is positive and at most the ceiling, its interval holds it, and a lower floor never lowers it."""

from __future__ import annotations

import math
from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.advice.achieved import REPLAY_GAP_NS, ChangedStep, changed_step
from aaco.analytics.advice.expected import RankedChange, expected, ranked
from aaco.analytics.advice.floor import MechanismFloor, StepTime, ceiling, device_chain_ns, floor
from aaco.analytics.advice.mechanisms import MECHANISMS
from aaco.analytics.advice.track_record import DEVICE, HOST, HostHabits, Residual, TrackRecord, prediction_interval
from aaco.core.readings import Absent
from tests.property.test_floor import NOISE, SEVERAL, STEPS

SHARES = st.floats(0, 1)
NS = st.floats(0, 1e9)
HABITS = st.builds(HostHabits, st.floats(100, 1e5), SHARES)
VALUES = st.lists(st.floats(-3, 3), min_size=2, max_size=40)
RECORDS = st.builds(
    lambda habits, values, bounds: TrackRecord(habits, tuple(
        Residual(f"w{number}", "b", "c", "graph", bounds[number % len(bounds)], value)
        for number, value in enumerate(values))),
    HABITS, VALUES, st.lists(st.sampled_from([DEVICE, HOST]), min_size=1, max_size=3))
CHANGED = st.builds(ChangedStep, NS, st.none() | NS, st.floats(0, 1e4), SHARES, NS, st.floats(1, 64), st.booleans())
STEP_NS = st.floats(1e4, 1e9)
NAMES = st.sampled_from([["graph"], ["tf32"], ["compile", "graph"]])


@given(STEP_NS, st.floats(0, 1), CHANGED, NAMES, RECORDS)
def test_a_gain_is_positive_at_most_the_ceiling_and_in_its_interval(step_ns, share, changed, names, record):
    step, least = StepTime(step_ns, True), MechanismFloor("x", share * step_ns)
    try:
        found = expected(step, least, changed, names, record)
    except Absent:
        return
    assert 0 < found.low <= found.factor <= found.high <= (ceiling(step, least) or math.inf) * NOISE


@given(STEP_NS, st.floats(0.001, 1), st.floats(0.001, 1), CHANGED, NAMES, RECORDS)
def test_a_higher_ceiling_never_lowers_a_gain(step_ns, one, other, changed, names, record):
    step = StepTime(step_ns, True)
    try:
        high, low = (expected(step, MechanismFloor("x", share * step_ns), changed, names, record)
                     for share in sorted((one, other)))
    except Absent:
        return
    assert low.factor <= high.factor * NOISE and low.low <= high.low * NOISE and low.high <= high.high * NOISE


@given(STEPS, SEVERAL, st.floats(1, 20), st.floats(1, 16))
def test_a_changed_step_has_no_more_work_and_no_more_calls(work, names, stretch, samples):
    step = StepTime(max(1.0, stretch * device_chain_ns(work)), True)
    try:
        changed = changed_step(work, step, [MECHANISMS[name] for name in names], samples)
    except Absent:
        return
    gaps_ns = changed.replayed * REPLAY_GAP_NS * len(work.ns)
    assert 0 <= changed.device_ns <= (work.sure_ns.sum() + gaps_ns) / work.steps * NOISE
    assert 0 <= changed.calls_left <= NOISE and changed.waits_ns >= 0
    assert changed.host_ns is None or changed.host_ns == step.ns


@given(STEPS, SEVERAL)
def test_where_there_is_no_floor_there_is_no_changed_step(work, names):
    meant = [MECHANISMS[name] for name in names]
    known = floor(work, meant).floor_ns is not None and all(MECHANISMS[name].respond for name in names)
    try:
        changed_step(work, StepTime(1e6, True), meant)
    except Absent:
        assert not known


@given(HABITS, CHANGED, STEP_NS, SHARES)
def test_fewer_calls_and_more_samples_never_lengthen_the_hosts_path(habits, changed, step_ns, share):
    fewer = ChangedStep(changed.device_ns, changed.host_ns, changed.calls, share * changed.calls_left,
                        changed.waits_ns, changed.samples / max(share, 0.1), changed.replayed)
    assert habits.host_ns(fewer, step_ns) <= habits.host_ns(changed, step_ns) * NOISE


@given(VALUES, st.floats(-1, 1))
def test_an_interval_moves_with_its_values_and_holds_their_median(values, shift):
    low, high = prediction_interval(values)
    moved = prediction_interval([value + shift for value in values])
    assert abs(moved[0] - low - shift) < 1e-6 and abs(moved[1] - high - shift) < 1e-6
    assert len(values) < 19 or low <= median(values) <= high


@given(st.lists(st.builds(RankedChange, st.text(max_size=3), st.none() | st.floats(0.5, 50), st.none(),
                          st.integers(0, 3), st.just(50.0)), max_size=8))
def test_ranking_orders_by_gain_and_drops_what_gains_nothing(options):
    best = ranked(options)
    assert [change.gain for change in best] == sorted((change.gain for change in best), reverse=True)
    assert len(best) == sum(change.gain is not None and change.gain >= 1.05 for change in options)
