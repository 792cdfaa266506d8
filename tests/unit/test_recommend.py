"""What to do next: never a gain beyond the time attributed, and only from what was measured."""

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.advice.expected import Expected
from aaco.analytics.advice.floor import FloorTarget, MechanismFloor
from aaco.analytics.advice.floors import NO_FLOORS, Floors, without_floors
from aaco.analytics.advice.mechanisms import MECHANISMS
from aaco.analytics.bottleneck import recommend
from aaco.analytics.diagnosis import diagnose
from aaco.core import registry
from aaco.core.config import Analysis
from aaco.core.readings import Absent, Reading

USED = ("launch_tax_pct", "host_pause_pct", "allocation_call_pct", "sync_limited_pct", "transfer_limited_pct",
        "pageable_copy_pct", "device_limited_pct", "memory_limited_pct", "compute_limited_pct",
        "memory_latency_limited_pct", "exposed_communication_pct")
OF_CPUS = {"quiet_cpus", "raise_quota", "fit_threads", "compare_threads", "graph_level", "fuse_nodes", "larger_batch",
           "int8_nodes"}
UNDECLARED = {"eight_bit_types"}  # no change to eight bits was recorded, and no floor of it is told yet
values = st.fixed_dictionaries({name: st.none() | st.floats(0, 100) for name in USED})


def readings(found):
    return {name: Reading(name, "pct", value, "" if value is not None else "not recorded", source="budget")
            for name, value in found.items()}


@given(values)
def test_no_gain_is_beyond_the_time_attributed(found):
    """Mutation: leaving out the clamp of `feasible` lets transfers hide behind more work than there is."""
    made = recommend.ranked(readings(found))
    assert [one.gain_pct for one in made] == sorted((one.gain_pct for one in made), reverse=True)
    for one in made:
        assert recommend.LEAST_PCT <= one.gain_pct <= one.share_pct <= 100
        assert one.speedup is None  # nothing says what must stay of the step
        assert one.entry().confirm.direction in ("up", "down")


def test_what_was_not_measured_is_not_advised():
    assert recommend.ranked(readings(dict.fromkeys(USED))) == ()
    only = {**dict.fromkeys(USED), "launch_tax_pct": 80.0}
    assert [one.name for one in recommend.ranked(readings(only))] == ["device_graph"]


def test_amdahl_bounds_what_has_no_floor():
    """60 % of a run on CPUs that other load took: 1 / (1 - 0.6) = 2.5 times faster at most."""
    (one,) = recommend.ranked(readings({"contended_pct": 60.0, "quota_pct": None}))
    assert math.isclose(one.gain_pct, 60) and math.isclose(one.speedup, 2.5)
    assert recommend.bounded((one,), None) == ((one,), ())


LAUNCHING = {**dict.fromkeys(USED), "launch_tax_pct": 80.0}


def floors(floor_ns=500_000.0, why_absent=""):
    """Of a step of 2 ms without a profiler."""
    return Floors(2e6, True, 3, 500_000.0, (MechanismFloor("graph", floor_ns, (), why_absent),))


def test_the_ceiling_is_the_step_over_what_must_stay_of_it():
    """2 ms / 0.5 ms; the estimate stays: 72 % is less. Mutation: `ceiling=ceiling` -> `ceiling=None`."""
    ((one,), spent) = recommend.bounded(recommend.ranked(readings(LAUNCHING)), floors())
    assert one.speedup == one.ceiling == 4 and one.floor_ms == 0.5 and not spent
    assert one.ceiling_of == "the step without a profiler" and math.isclose(one.gain_pct, 72)
    entry = one.entry()
    assert (entry.speedup_at_most, entry.floor_ms, entry.why_no_ceiling) == (4, 0.5, None)


def test_no_estimate_is_beyond_the_ceiling():
    """1.6 ms of 2 ms must stay: 1.25 times faster, 20 %. Mutation: `min(estimated, ` -> `max(estimated, `."""
    ((one,), _) = recommend.bounded(recommend.ranked(readings(LAUNCHING)), floors(1.6e6))
    assert one.ceiling == 1.25 and math.isclose(one.gain_pct, 20)


def test_an_action_with_nothing_to_gain_is_not_offered():
    """1.95 of 2 ms must stay. Mutation: `LEAST_GAIN = 1.05` -> `NOTHING_LEFT = 1.0`."""
    offered, (spent,) = recommend.bounded(recommend.ranked(readings(LAUNCHING)), floors(1.95e6))
    assert not offered and spent.name == "device_graph"
    assert spent.why == ("nothing to gain: 1.950 ms of the step without a profiler must stay, at most 1.03 x faster")


def expecting(factor, mechanism="graph", floor_ns=500_000.0):
    """Floors with an expected gain."""
    return replace(floors(floor_ns), expected={mechanism: Expected(factor, 0.8 * factor, 1.2 * factor, 18, 10, True)})


def test_what_recorded_changes_make_likely_ranks_and_is_told():
    """Device graphs remove 72 % by the estimate and 50 % as expected; pauses 60 %. Mutation: the estimate ranks."""
    found = {**LAUNCHING, "host_pause_pct": 66.7}
    assert [one.name for one in recommend.ranked(readings(found))] == ["device_graph", "move_host_work"]
    (first, second), _ = recommend.bounded(recommend.ranked(readings(found)), expecting(2.0))
    assert (first.name, second.name) == ("move_host_work", "device_graph")
    assert math.isclose(second.gain_pct, 50) and second.entry().expected.model_dump() == {
        "factor": 2.0, "low": 1.6, "high": 2.4, "pairs": 18, "workloads": 10, "own": True}


def test_what_is_expected_to_gain_nothing_is_not_offered():
    """Mutation: `advice.expected.factor < LEAST_GAIN` -> `advice.expected.factor < 1`."""
    offered, (spent,) = recommend.bounded(recommend.ranked(readings(LAUNCHING)), expecting(1.02))
    assert not offered and spent.why == "1.02 x expected (0.82 to 1.22, 18 recorded changes)"


def test_a_step_of_which_nothing_must_stay_has_an_expected_gain_and_no_ceiling():
    ((one,), _) = recommend.bounded(recommend.ranked(readings(LAUNCHING)), expecting(3.0, floor_ns=0.0))
    assert one.ceiling is None and one.expected.factor == 3 and "too little to tell" in one.why_no_ceiling


def test_the_share_of_a_mechanism_is_what_its_targets_take():
    """Half of a step is what channels_last acts on; without floors nothing says so, and it is not advised."""
    facts = {"framework": frozenset({"pytorch"}), "layout": frozenset({"nchw"})}
    acted = replace(floors(), floors=(MechanismFloor("channels_last", 1e6, (FloorTarget("nchwToNhwc", 1e6, 0.0),)),))
    (advice,) = [one for one in recommend.ranked(readings({}), facts, acted) if one.name == "channels_last"]
    assert math.isclose(advice.share_pct, 50)
    assert not recommend.ranked(readings({}), facts)


def test_what_the_workload_does_not_have_is_not_even_withheld():
    """Mutation: the fact that is none is listed."""
    found = readings({**dict.fromkeys(USED), "memory_limited_pct": 90.0})
    facts = {"framework": frozenset({"pytorch"}), "attention": frozenset({"none"}), "norms": frozenset({"fused"})}
    reasons = {action.name: action.why for action in recommend.withheld(found, facts)}
    assert "fuse_attention" not in reasons and reasons["fuse_norms"] == "already so: norms is fused"


def test_without_a_floor_there_is_no_ceiling_and_the_reason_is_told():
    for given_floors, why in ((None, NO_FLOORS), (floors(None, "no shapes"), "no shapes"),
                              (without_floors(Absent("no steps")), "no steps")):
        ((one,), spent) = recommend.bounded(recommend.ranked(readings(LAUNCHING)), given_floors)
        assert one.speedup is None and one.why_no_ceiling == why and not spent


def test_every_action_has_a_floor_or_is_of_runs_on_cpus():
    """Mutation: an action names a mechanism that has no file."""
    named = {action.mechanism for action in recommend.ACTIONS} - {""}
    assert named <= {*MECHANISMS, *UNDECLARED}
    for action in recommend.ACTIONS:
        assert action.mechanism or action.name in OF_CPUS


def test_each_action_is_confirmed_by_a_metric_that_exists():
    from aaco.analytics.measure import measure

    known = measure({}, None, Analysis())
    assert {one.confirm for one in recommend.ACTIONS} <= set(registry.METRICS)
    assert len({one.name for one in recommend.ACTIONS}) == len(recommend.ACTIONS)
    assert diagnose(known).recommendations == ()
