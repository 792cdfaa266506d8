"""What to do next: never a gain beyond the time attributed, and only from what was measured."""

import math
import re
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from aaco.analytics import rules
from aaco.analytics.advice import recommend
from aaco.analytics.advice.expected import SHOWN_DIGITS, Expected
from aaco.analytics.advice.floor import FloorTarget, MechanismFloor, floor
from aaco.analytics.advice.floors import NO_FLOORS, Floors, without_floors
from aaco.analytics.advice.mechanisms import ACTIONS, MECHANISMS
from aaco.analytics.diagnosis import diagnose
from aaco.core import registry
from aaco.core.advice import fact_is, fact_is_not, offered, why_not
from aaco.core.config import Analysis
from aaco.core.readings import Absent, Reading
from aaco.tracelake.document_schemas.answers import Together
from tests import step_pieces

USED = ("launch_tax_pct", "host_pause_pct", "allocation_call_pct", "sync_limited_pct", "transfer_limited_pct",
        "pageable_copy_pct", "device_limited_pct", "memory_limited_pct", "compute_limited_pct",
        "memory_latency_limited_pct", "exposed_communication_pct")
OF_CPUS = {"quiet_cpus", "raise_quota", "fit_threads", "compare_threads", "graph_level", "fuse_nodes", "larger_batch",
           "int8_nodes", "nodes_on_device"}
values = st.fixed_dictionaries({name: st.none() | st.floats(0, 100) for name in USED})


def readings(found):
    return {name: Reading(name, "pct", value, "" if value is not None else "not recorded", source="budget")
            for name, value in found.items()}


@given(values)
def test_no_gain_is_beyond_the_time_attributed(found):
    """An action gains at most its share of the time (Amdahl). Mutation: the share is added to itself."""
    made = recommend.gaining(readings(found))
    shown = [round(one.change.gain, SHOWN_DIGITS) for one in made if not one.action.surpasses]
    assert shown == sorted(shown, reverse=True)
    for one in made:
        assert recommend.LEAST_PCT <= one.gain_pct * 1.000001 <= one.share_pct * 1.000002 <= 100.001
        assert one.speedup is None  # nothing says what must stay of the step
        assert one.entry().confirm.direction in ("up", "down")


def test_a_compiler_comes_before_the_norms_that_it_fuses_as_well():
    """What surpasses another is the name of an action, and every one is there."""
    names = {action.name: action for action in recommend.ACTIONS}
    assert names["fusion"].surpasses == "fuse_norms"
    assert {action.surpasses for action in names.values()} - {""} <= set(names)


def test_what_was_not_measured_is_not_advised():
    assert recommend.gaining(readings(dict.fromkeys(USED))) == ()
    only = {**dict.fromkeys(USED), "launch_tax_pct": 80.0}
    assert [one.name for one in recommend.gaining(readings(only))] == ["device_graph"]


def test_amdahl_bounds_what_has_no_floor():
    """60 % of a run on CPUs that other load took: 1 / (1 - 0.6) = 2.5 times faster at most."""
    (one,) = recommend.gaining(readings({"contended_pct": 60.0, "quota_pct": None}))
    assert math.isclose(one.gain_pct, 60) and math.isclose(one.speedup, 2.5)
    assert recommend.bounded((one,), None) == ((one,), ())


LAUNCHING = readings({**dict.fromkeys(USED), "launch_tax_pct": 80.0})
NO_BATCH = {"phase": frozenset({"serving"}), "framework": frozenset({"pytorch"}), "vendor": frozenset({"nvidia"}),
            "graph_capture": frozenset({"possible"})}  # of a program whose batch is not its own


def launching():
    """The advice of a program that waits for launches in 80 % of its time."""
    return recommend.gaining(LAUNCHING, NO_BATCH)


def floors(floor_ns=500_000.0, why_absent=""):
    """Of a step of 2 ms without a profiler."""
    return Floors(2e6, True, 3, 500_000.0, (MechanismFloor("graph", floor_ns, (), why_absent),))


@pytest.mark.parametrize(("graph", "offered"), [(2.8, True), (2.9, False)])
def test_two_changes_together_are_offered_where_they_gain_more_than_either(graph, offered):
    """3 x together, 1.2 x in 16 bits; 2.9 x of a graph alone is as good."""
    def one(name, gain):
        action = next(action for action in ACTIONS if action.name == name)
        return recommend.Recommendation(action, 50.0, 1.0, (), expected=Expected(gain, gain, gain, 9, 9, True))

    listed = [one("narrow_graph", 3.0), one("device_graph", graph), one("narrower_types", 1.2)]
    left = [advice.name for advice in recommend.bounded(tuple(listed), None)[0]]
    assert ("narrow_graph" in left) is offered and {"device_graph", "narrower_types"} < {*left, "narrow_graph"}


@pytest.mark.parametrize(("pauses", "whole", "words"), [
    (None, None, "80 % of the time the device waits for launches"),
    (None, True, "75 % of the time the device waits for the host"),
    (90.0, True, "40 % of the time the device waits for launches")])
def test_what_a_graph_acts_on_is_named_as_its_share_is_measured(pauses, whole, words):
    """A step without a profiler shows all that the device waits for the host, the trace what launches take of that.
    Mutation: 75 % waits for launches, of which the time budget on the same screen says 40 %."""
    launches = 80.0 if pauses is None else 40.0
    found = readings({**dict.fromkeys(USED), "launch_tax_pct": launches, "host_pause_pct": pauses})
    (one,) = [advice for advice in recommend.gaining(found, NO_BATCH, floors() if whole else None)
              if advice.name == "device_graph"]
    assert one.evidence == words


def test_a_device_that_works_on_several_streams_waits_for_the_host_for_the_rest():
    """Its longest stream runs 25 % of the step, all of them 80 %. Mutation: 75 % of the time it waits for the host."""
    found = LAUNCHING | readings({"launch_tax_pct": 15.0, "device_limited_pct": 80.0})
    ((one,), _) = recommend.bounded(recommend.gaining(found, NO_BATCH, floors()), floors())
    assert one.evidence == "20 % of the time the device waits for the host; the device works 80 % of it"
    copying = found | readings({"transfer_limited_pct": 5.0})
    (one,) = (one for one in recommend.gaining(copying, NO_BATCH, floors()) if one.name == "device_graph")
    assert one.acts == "15 % of the time the device waits for the host"  # not where it copies


@pytest.mark.parametrize(("share", "offered"), [(2.0, False), (4.1, True)])
def test_more_reads_at_once_are_no_advice_for_little_of_the_devices_work(share, offered):
    """Of 80 %: without a profiler 2 % of a step are 2.5 % at most. Mutation: all that an engine of which memory takes
    72 % is told is to hasten 2 %."""
    found = readings({**dict.fromkeys(USED), "memory_latency_limited_pct": share, "device_limited_pct": 80.0})
    names = [one.name for one in recommend.gaining(found, {"framework": frozenset({"vllm"})})]
    assert ("more_in_flight" in names) is offered


def test_the_ceiling_is_the_step_over_what_must_stay_of_it():
    """2 ms / 0.5 ms; 80 % of the time gone would be 5 x. Mutation: `ceiling=most` -> `ceiling=None`."""
    ((one,), spent) = recommend.bounded(launching(), floors())
    assert one.speedup == one.ceiling == 4 and one.floor_ms == 0.5 and not spent
    assert one.ceiling_of == "the step without a profiler" and math.isclose(one.gain_pct, 75)
    entry = one.entry()
    assert (entry.speedup_at_most, entry.floor_ms, entry.why_no_ceiling) == (4, 0.5, None)


def test_no_gain_is_beyond_the_ceiling():
    """1.6 ms of 2 ms must stay: 1.25 times faster, 20 %. Mutation: the share alone counts."""
    ((one,), _) = recommend.bounded(launching(), floors(1.6e6))
    assert one.ceiling == 1.25 and math.isclose(one.gain_pct, 20)


def test_an_action_with_nothing_to_gain_is_not_offered():
    """1.95 of 2 ms must stay. Mutation: `LEAST_GAIN = 1.05` -> `NOTHING_LEFT = 1.0`."""
    offered, (spent,) = recommend.bounded(launching(), floors(1.95e6))
    assert not offered and spent.name == "device_graph"
    assert spent.why == ("nothing to gain: 1.950 ms of the step without a profiler must stay, at most 1.03 x faster")


def expecting(factor, mechanism="graph", floor_ns=500_000.0, spread=0.2, chance=0.8):
    """Floors with an expected gain."""
    likely = Expected(factor, (1 - spread) * factor, (1 + spread) * factor, 18, 10, True, chance=chance)
    return replace(floors(floor_ns), expected={mechanism: likely})


def test_what_recorded_changes_make_likely_ranks_and_is_told():
    """Device graphs act on 80 % and remove 50 % as expected; pauses 60 %. Mutation: what is expected does not count."""
    found = {**LAUNCHING, **readings({"host_pause_pct": 60.0})}
    assert [one.name for one in recommend.gaining(found, NO_BATCH)] == ["device_graph", "move_host_work"]
    (first, second), _ = recommend.bounded(recommend.gaining(found, NO_BATCH), expecting(2.0))
    assert (first.name, second.name) == ("move_host_work", "device_graph")
    assert math.isclose(second.gain_pct, 50) and second.entry().expected.model_dump() == {
        "factor": 2.0, "low": 1.6, "high": 2.4, "pairs": 18, "workloads": 10, "own": True, "samples": 1.0,
        "here": False, "chance": 0.8}


def test_what_is_expected_to_gain_nothing_is_not_offered():
    """Mutation: `advice.expected.factor < LEAST_GAIN` -> `advice.expected.factor < 1`."""
    offered, (spent,) = recommend.bounded(launching(), expecting(1.02, spread=0.01))
    assert not offered and spent.why == "1.02 x expected (1.01 to 1.03, 18 recorded changes)"
    _, (spent,) = recommend.bounded(launching(), expecting(1.02, spread=0.0))
    assert spent.why == "1.02 x expected (18 recorded changes)"


def test_what_gains_nothing_in_more_than_a_third_of_cases_is_not_offered():
    for chance, count in ((0.67, 1), (0.66, 0)):
        assert len(recommend.bounded(launching(), expecting(1.07, chance=chance))[0]) == count


def test_a_step_of_which_nothing_must_stay_has_an_expected_gain_and_no_ceiling():
    ((one,), _) = recommend.bounded(launching(), expecting(3.0, floor_ns=0.0))
    assert one.ceiling is None and one.expected.factor == 3 and "too little to tell" in one.why_no_ceiling


def test_the_share_of_a_mechanism_is_what_its_targets_take():
    """Half of a step is what channels_last acts on, and the host's changes on all of it that the device waits; without
    floors nothing says so, and none is advised."""
    facts = {"framework": frozenset({"pytorch"}), "layout": frozenset({"nchw"})}
    acted = replace(floors(), floors=(MechanismFloor("channels_last", 1e6, (FloorTarget("nchwToNhwc", 1e6, 0.0),)),))
    (advice,) = [one for one in recommend.gaining(readings({}), facts, acted) if one.name == "channels_last"]
    assert math.isclose(advice.share_pct, 50) and advice.feasible_ratio == 1
    usual = replace(acted, saved_ns={"channels_last": 300_000.0})
    (advice,) = [one for one in recommend.gaining(readings({}), facts, usual) if one.name == "channels_last"]
    assert math.isclose(advice.feasible_ratio, 0.3) and math.isclose(advice.gain_pct, 15)
    assert not recommend.gaining(readings({}), facts)


def test_the_share_of_a_mechanism_in_streams_that_run_at_once_is_of_their_sum():
    """8 ms of work in a step of 2 ms: 1 ms is an eighth of it. Mutation: shares of the step."""
    facts = {"framework": frozenset({"pytorch"}), "layout": frozenset({"nchw"})}
    acted = replace(floors(), floors=(MechanismFloor("channels_last", 1e6, (FloorTarget("nchwToNhwc", 1e6, 0.0),)),),
                    work_ns=8e6)
    (advice,) = [one for one in recommend.gaining(readings({}), facts, acted) if one.name == "channels_last"]
    assert math.isclose(advice.share_pct, 12.5)


def test_what_the_workload_does_not_have_is_not_even_withheld():
    """Mutation: the fact that is none is listed."""
    found = readings({**dict.fromkeys(USED), "memory_limited_pct": 90.0, "compute_limited_pct": 10.0})
    facts = {"framework": frozenset({"pytorch"}), "attention": frozenset({"none"}), "product_type": frozenset({"bf16"})}
    reasons = {action.name: action.why for action in recommend.withheld(found, facts)}
    assert "fuse_attention" not in reasons and reasons["narrower_types"] == "already so: product type is bf16"


@pytest.mark.parametrize("types", [{"fp32"}, {"bf16"}, set()])
def test_a_narrower_type_than_float64_is_not_even_withheld_where_no_float64_shows(types):
    """Mutation: a fact that is not known keeps an action in the list."""
    found = readings({**dict.fromkeys(USED), "memory_limited_pct": 90.0})
    facts = {"framework": frozenset({"pytorch"}), "element_type": frozenset(types)}
    told = [*recommend.gaining(found, facts), *recommend.withheld(found, facts)]
    assert "single_precision" not in [action.name for action in told]
    assert "single_precision" in [one.name for one in recommend.gaining(
        found, {**facts, "element_type": frozenset({"fp64"})})]


def test_nodes_that_fall_back_to_the_cpu_are_named():
    """73 % of the runs: 1 / (1 - 0.73) = 3.7 times faster at most. Mutation: the names go to every advice."""
    found = readings({"cpu_node_pct": 73.0, "contended_pct": 5.0, "quota_pct": None})
    for vendor, words in (("nvidia", "CUDA provider"), ("amd", "migraphx-driver")):
        facts = {"framework": frozenset({"onnxruntime"}), "vendor": frozenset({vendor})}
        first, other = recommend.with_fallen_back(recommend.gaining(found, facts), ["det_0 (Det)"])
        assert (first.name, first.targets, other.targets) == ("nodes_on_device", ("det_0 (Det)",), ())
        assert math.isclose(first.speedup, 1 / 0.27) and words in first.attempt


def test_changes_of_a_run_on_cpus_gain_no_more_than_what_they_act_on():
    """Others have a half, of which the quota is 30; eight samples share 24 of overhead; threads wait where they are too
    many; eight bits save three quarters of 60.
    """
    found = readings({"quota_pct": 30.0, "contended_pct": 50.0, "runtime_overhead_pct": 24.0, "batch_is_free": 1.0,
                      "node_compute_pct": 60.0, "int8_saving_pct": 45.0, "node_fusible_pct": 25.0,
                      "thread_wait_pct": 40.0, "threads_per_cpu": 2.0})
    gains = {one.name: one.gain_pct for one in recommend.gaining(found, {})}
    assert gains == pytest.approx({"raise_quota": 30, "quiet_cpus": 20, "larger_batch": 24 * 7 / 8, "int8_nodes": 45,
                                   "fuse_nodes": 25, "fit_threads": 40})


def test_what_memory_limits_is_no_share_of_the_optimizer():
    """Where no steps show what its kernels take. Mutation: `of_targets("fused_optimizer", "memory_limited_pct")`."""
    found = readings({**dict.fromkeys(USED), "memory_limited_pct": 90.0})
    for optimizer in ("loop", "fused"):
        facts = {"framework": frozenset({"pytorch"}), "optimizer": frozenset({optimizer})}
        told = [*recommend.gaining(found, facts), *recommend.withheld(found, facts)]
        assert "fuse_optimizer" not in [one.name for one in told]


def test_what_limits_the_device_is_told_as_that_where_no_steps_show_the_kernels():
    """60 % is what arithmetic limits, not what products in fp32 take; of steps it is the half that they take."""
    computing = readings({"compute_limited_pct": 60.0})
    target = FloorTarget("gemm", 1e6, 1e5)
    shown = replace(floors(), chain_ns=2e6, floors=(MechanismFloor("narrower_types", 1e6, (target,)),))
    for known, share, what in ((None, 60, "arithmetic limits the device"), (shown, 50, "kernels compute or move")):
        (one,) = [one for one in recommend.gaining(computing, None, known) if one.name == "narrower_types"]
        assert one.evidence.startswith(f"{share} % of the time {what}")


def test_without_a_floor_there_is_no_ceiling_and_the_reason_is_told():
    for given_floors, why in ((None, NO_FLOORS), (floors(None, "no shapes"), "no shapes"),
                              (without_floors(Absent("no steps")), "no steps")):
        ((one,), spent) = recommend.bounded(launching(), given_floors)
        assert one.speedup is None and one.why_no_ceiling == why and not spent


def test_the_ceiling_of_sorted_reads_is_that_of_no_other_advice():
    """More queries at once may gain more than their order does. Mutation: `more_in_flight` has the floor of sorting."""
    found, gather = readings({"memory_latency_limited_pct": 60.0}), FloorTarget("gather", 1e6, 1e5)
    known = replace(floors(), chain_ns=2e6, floors=(MechanismFloor("sorted_reads", 1.6e6, (gather,)),
                                                    floor(step_pieces.step(), [MECHANISMS["more_in_flight"]])))
    advised = {one.name: one for one in recommend.bounded(recommend.gaining(found, None, known), known)[0]}
    assert advised["sort_indices"].ceiling == 1.25 and advised["sort_indices"].share_pct == 50
    assert advised["more_in_flight"].ceiling is None and "on their way" in advised["more_in_flight"].why_no_ceiling
    none_reads = replace(known, floors=known.floors[1:])
    assert [one.name for one in recommend.gaining(found, None, none_reads)] == ["more_in_flight"]


def test_every_action_has_a_floor_or_is_of_runs_on_cpus():
    """Mutation: an action names a mechanism that has no file."""
    assert {action.mechanism for action in ACTIONS} - {""} <= {*MECHANISMS}
    for action in ACTIONS:
        assert action.mechanism or action.name in OF_CPUS


def test_each_action_is_confirmed_by_a_metric_that_exists():
    from aaco.analytics.measure import measure

    known = measure({}, None, Analysis())
    assert {name for one in ACTIONS for name in (one.confirm, *one.or_confirm)} <= set(registry.METRICS)
    assert len({one.name for one in ACTIONS}) == len(ACTIONS)
    assert diagnose(known).recommendations == ()


def test_what_confirms_an_action_is_not_nothing_before_it():
    """Products that memory limits have no share that arithmetic limits. Mutation: the first metric always confirms."""
    target = FloorTarget("gemm", 1e6, 1e5)
    known = replace(floors(), chain_ns=2e6, floors=(MechanismFloor("narrower_types", 1e6, (target,)),))
    for compute, memory, metric in ((0.0, 60.0, "memory_limited_pct"), (60.0, 10.0, "compute_limited_pct"),
                                    (None, None, "compute_limited_pct")):
        found = readings({"compute_limited_pct": compute, "memory_limited_pct": memory})
        (one,) = (one for one in recommend.gaining(found, None, known) if one.name == "narrower_types")
        assert one.entry().confirm.metric == metric


def test_an_action_on_little_of_the_time_is_not_offered():
    """3 % of the time. Mutation: `advice.change.gain < LEAST_GAIN` -> `advice.change.gain < 1`."""
    ((spent,), offered) = recommend.bounded(recommend.gaining(readings({"transfer_limited_pct": 3.0})), floors())[::-1]
    profiled, _ = recommend.bounded(recommend.gaining(readings({"transfer_limited_pct": 3.0})), None)
    assert profiled and not offered and spent.why == "too little to gain: 3 % of the time the step waits for its inputs"


def test_what_is_done_together_has_a_ceiling_of_its_own():
    """Graphs and no host work together leave 0.5 ms of 2. Mutation: `!= set(mechanisms)`."""
    found = {**LAUNCHING, **readings({"host_pause_pct": 60.0})}
    both = replace(floors(), floors=(*floors().floors, MechanismFloor("host_work", 1e6)),
                   together=(MechanismFloor("host_work + graph", 500_000.0), MechanismFloor("graph + tf32", 1e6)))
    advised, _ = recommend.bounded(recommend.gaining(found, NO_BATCH), both)
    assert recommend.together(advised, both) == Together(
        actions=["device_graph", "move_host_work"], ceiling=4.0, floor_ms=0.5)
    assert recommend.together(advised[:1], both) is None and recommend.together(advised, None) is None


def test_only_shorter_kernels_do_not_help_a_step_that_waits_for_the_host():
    """The device works a quarter of a step without a profiler; of products nothing else is known. Mutation:
    `> 100 * (1 - HOST_BOUND)` -> `> 100`; copies taken for waits, so that a step computing for 60 % got no such advice.
    """
    computing = readings({"compute_limited_pct": 60.0})
    assert "narrower_types" in [one.name for one in recommend.gaining(computing)]
    assert "narrower_types" not in [one.name for one in recommend.gaining(computing, None, floors())]
    copying = computing | readings({"transfer_limited_pct": 70.0})
    assert "narrower_types" in [one.name for one in recommend.gaining(copying, None, floors())]


def test_a_larger_batch_is_offered_of_a_profiled_step_where_recorded_changes_say_what_it_usually_gains():
    """It and the graph act on the launches, and the one that usually gains more comes first. Mutation: no `USUAL`."""
    found = {**LAUNCHING, **readings({"host_limited_pct": 80.0})}
    profiled = replace(floors(), unprofiled=False, floors=(*floors().floors, MechanismFloor("larger_batch", 1e5)))
    assert [one.name for one in recommend.gaining(found, None, profiled)] == ["device_graph"]
    for gain, first in ((3.0, "larger_device_batch"), (1.5, "device_graph")):
        usual = replace(profiled, usual={"graph": 2.0, "larger_batch": gain})
        advised, _ = recommend.bounded(recommend.gaining(found, None, usual), usual)
        assert len(advised) == 2 and advised[0].name == first and not any(one.expected for one in advised)


def test_no_larger_batch_is_advised_where_it_acts_on_nothing():
    """As where a step works on its samples one by one."""
    for shown, names in ((True, ["device_graph", "larger_device_batch"]), (False, ["device_graph"])):
        batch = MechanismFloor("larger_batch", 1e5 if shown else None, shown=shown)
        known = replace(floors(), unprofiled=False, usual={"graph": 2.0, "larger_batch": 1.5},
                        floors=(*floors().floors, batch))
        found = recommend.gaining({**LAUNCHING, **readings({"host_limited_pct": 80.0})}, None, known)
        assert [one.name for one in found] == names


def test_what_is_usual_is_no_more_than_the_readings_leave():
    """Launches are 20 % of the time, the host's own work 60 %: a graph gains 1.25 x, whatever others did. Mutation: no
    `at_most_pct`.
    """
    found = readings({**dict.fromkeys(USED), "launch_tax_pct": 20.0, "host_pause_pct": 60.0})
    usual = replace(floors(), unprofiled=False, floors=(*floors().floors, MechanismFloor("host_work", 1e5)),
                    usual={"graph": 3.0, "host_work": 2.0})
    advised, _ = recommend.bounded(recommend.gaining(found, NO_BATCH, usual), usual)
    assert [(one.name, one.usual) for one in advised] == [("move_host_work", 2.0), ("device_graph", 1.25)]


def test_neither_a_graph_nor_a_batch_does_the_work_of_the_host():
    """Where the host loads and computes for longer than it launches, both take away its launches at most: of 20 %
    1.25 x. Else the time in which the device waits, 75 % of this step.
    """
    launching = {**dict.fromkeys(USED), "launch_tax_pct": 20.0, "host_limited_pct": 75.0}
    likely = Expected(3.0, 2.0, 4.0, 9, 9, True)
    known = replace(floors(), expected={"graph": likely, "larger_batch": likely},
                    floors=(*floors().floors, MechanismFloor("larger_batch", 100_000.0)))
    for pause, share, factor in ((21.0, 20.0, 1.25), (19.0, 75.0, 3.0)):
        found = recommend.gaining(readings({**launching, "host_pause_pct": pause}), None, known)
        offered = {one.name: one for one in recommend.bounded(found, known)[0]}
        for name in ("device_graph", "larger_device_batch"):
            assert (offered[name].share_pct, offered[name].expected.factor) == (share, factor)


@pytest.mark.parametrize("name", ["narrow_graph", "tf32_graph"])
def test_a_narrower_type_with_a_graph_leaves_the_hosts_own_work(name):
    """Launches are 10 % of the time, what becomes narrower 10 %, the host's own work 75 %: 1.25 x, whatever others did.
    Mutation: no `at_most`, and a change of a fifth of the time comes before that of the rest.
    """
    facts = {**NO_BATCH, "product_type": frozenset({"fp32"}), "phase": frozenset({"training"})}
    wide = MechanismFloor(name, 100_000.0, (FloorTarget("sgemm", 200_000.0, 20_000.0),))
    known = replace(floors(), unprofiled=False, floors=(wide, MechanismFloor("host_work", 1e5)),
                    usual={name: 19.0, "host_work": 3.0})
    for pause, usual in ((75.0, 1.25), (9.0, 19.0)):
        found = readings({**dict.fromkeys(USED), "launch_tax_pct": 10.0, "host_pause_pct": pause})
        advised, _ = recommend.bounded(recommend.gaining(found, facts, known), known)
        assert math.isclose(next(one.usual for one in advised if one.name == name), usual)
        assert (advised[0].name == "move_host_work") is (pause > 10)


def test_what_the_host_computes_is_its_own_work():
    """For 30 % of the step it computes on tensors of its own, and launches for 20 %: they bound what a graph gains, and
    its own work can leave the step though the trace shows no pause. Less than 1 % of the step says nothing.
    """
    found = readings({**dict.fromkeys(USED), "launch_tax_pct": 20.0})
    computing = replace(floors(), floors=(*floors().floors, MechanismFloor("host_work", 1e5)),
                        computes_ns=0.3 * floors().step_ns)
    shares = {one.name: one.share_pct for one in recommend.gaining(found, NO_BATCH, computing)}
    assert math.isclose(shares["move_host_work"], 30) and shares["device_graph"] == 20
    idle = readings({**dict.fromkeys(USED), "launch_tax_pct": 0.0})
    little = replace(floors(), computes_ns=0.009 * floors().step_ns)
    (graph,) = recommend.gaining(idle, NO_BATCH, little)
    assert (graph.name, graph.share_pct) == ("device_graph", 75)


def test_no_more_is_expected_of_waits_than_the_time_that_the_device_is_idle_for_them():
    """Recorded changes make 1.5 x likely, up to 2 x; the device is idle for 20 % of the time: 1.25 x."""
    waits = {**dict.fromkeys(USED), "sync_limited_pct": 20.0, "removable_wait_pct": 10.0}
    (one,) = (advice for advice in recommend.gaining(readings(waits)) if advice.name == "remove_waits")
    likely = Expected(1.5, 1.1, 2.0, 9, 9, True)
    known = replace(floors(), floors=(MechanismFloor("remove_syncs", 500_000.0),), expected={"remove_syncs": likely})
    ((bounded,), _) = recommend.bounded((one,), known)
    assert bounded.expected == replace(likely, factor=1.25, high=1.25) and bounded.ceiling == 4
    idle = readings({**waits, "sync_limited_pct": 4.0, "removable_wait_pct": 4.0})
    assert recommend.bounded(recommend.gaining(idle), known)[0] == ()


def test_waits_are_not_taken_out_where_the_work_shows_that_the_host_needs_what_it_reads():
    waits = readings({**dict.fromkeys(USED), "sync_limited_pct": 20.0, "removable_wait_pct": 10.0})
    for shown in (True, False):
        known = replace(floors(), floors=(*floors().floors, MechanismFloor("remove_syncs", 500_000.0, shown=shown)))
        offered = {advice.name for advice in recommend.gaining(waits, NO_BATCH, known)}
        assert ("remove_waits" in offered) is shown


def test_no_more_is_expected_of_the_hosts_own_work_than_its_part_of_the_time():
    """Of 60 % in which the host does something else 20 % are calls that allocate: 1.25 x, and 1.67 x of the others."""
    own = {**dict.fromkeys(USED), "host_pause_pct": 60.0, "allocation_call_pct": 20.0}
    known = replace(floors(), floors=(MechanismFloor("host_work", 100_000.0),),
                    expected={"host_work": Expected(3.0, 2.0, 4.0, 9, 9, True)})
    found = recommend.bounded(recommend.gaining(readings(own), NO_BATCH, known), known)[0]
    factors = {one.name: round(one.expected.factor, 9) for one in found if one.mechanism == "host_work"}
    assert factors == {"move_host_work": round(1 / 0.6, 9), "keep_memory": 1.25}


def test_the_hosts_own_work_makes_the_inputs_that_a_step_copies():
    """3 % of the time are copies, 60 % the host's own work: 2.7 x at most. A step without copies has no such inputs."""
    found = readings({**dict.fromkeys(USED), "transfer_limited_pct": 3.0, "host_pause_pct": 60.0})
    copies = (FloorTarget("memory copy h2d", 50_000.0, 0.0),)
    known = replace(floors(), floors=(MechanismFloor("prefetching", 100_000.0, copies),),
                    expected={"prefetching": Expected(9.0, 2.0, 9.0, 9, 9, True)})
    (loaded,) = (one for one in recommend.bounded(recommend.gaining(found, NO_BATCH, known), known)[0]
                 if one.name == "overlap_transfers")
    assert loaded.share_pct == 63 and math.isclose(loaded.expected.factor, 1 / 0.37)
    (copied,) = (one for one in recommend.gaining(found, NO_BATCH, floors()) if one.name == "overlap_transfers")
    assert copied.share_pct == 3


@pytest.mark.parametrize(("pause", "usual", "share"), [(60.0, 2.0, 63.0), (None, 2.0, 3.0), (60.0, None, 3.0)])
def test_the_hosts_own_work_counts_to_inputs_that_could_lie_on_the_device(pause, usual, share):
    """Mutation: nine times faster by 3 % of the time. It is what goes down if that worked. Where nothing says what it
    takes without a profiler, it does not count.
    """
    found = readings({**dict.fromkeys(USED), "transfer_limited_pct": 3.0, "host_pause_pct": pause})
    copies = (FloorTarget("memory copy h2d", 60_000.0, 0.0),)
    known = replace(floors(), floors=(MechanismFloor("inputs_on_device", 100_000.0, copies),),
                    expected={"inputs_on_device": Expected(9.0, 2.0, 9.0, 9, 9, True)},
                    usual={"inputs_on_device": usual} if usual else {})
    training = {**NO_BATCH, "phase": frozenset({"training"})}
    advised, _ = recommend.bounded(recommend.gaining(found, training, known), known)
    (one,) = (advice for advice in advised if advice.name == "inputs_on_device")
    assert one.share_pct == share and one.confirm == ("host_pause_pct" if pause else "transfer_limited_pct")


def test_one_graph_of_the_step_is_offered_where_the_host_waits_in_it():
    """Launches and waits are 25 % of the time, and the host's own work is longer than its launches."""
    found = readings({**dict.fromkeys(USED), "launch_tax_pct": 20.0, "host_pause_pct": 21.0, "sync_limited_pct": 5.0})
    facts = {**NO_BATCH, "host_waits": frozenset({"waits"})}
    known = replace(floors(), floors=(*floors().floors, MechanismFloor("whole_graph", 100_000.0)))
    (one,) = (one for one in recommend.gaining(found, facts, known) if one.name == "whole_graph")
    assert one.share_pct == one.at_most_pct == 25
    assert "whole_graph" not in [one.name for one in recommend.gaining(found, facts, floors())]
    assert "whole_graph" not in [one.name for one in recommend.gaining(found, NO_BATCH, known)]


def test_a_step_without_a_growing_cache_has_none_to_keep():
    """Mutation: "Not advised: a cache of fixed size (not here: graph capture is possible)" of any network."""
    found = readings({**dict.fromkeys(USED), "launch_tax_pct": 80.0})
    known = replace(floors(), floors=(*floors().floors, MechanismFloor("fixed_cache_graph", 100_000.0)))
    for capture, told in (("possible", False), ("growing", False), ("", True)):
        facts = {**NO_BATCH, "graph_capture": frozenset(filter(None, [capture]))}
        assert ("fixed_cache_graph" in [one.name for one in recommend.withheld(found, facts, known)]) is told
        assert ("fixed_cache_graph" in [one.name for one in recommend.gaining(found, facts, known)]) is (
            capture == "growing")


def test_groups_of_one_size_make_a_graph_possible_where_data_decide_sizes():
    """Mutation: no `sized_by_data` among the steps of the loop."""
    (loop,) = (action for action in ACTIONS if action.name == "batch_the_loop")
    for capture, is_offered in (("sized_by_data", True), ("possible", False)):
        tries = offered(loop.attempts, {**NO_BATCH, "graph_capture": frozenset({capture})})
        assert any("filled up to one size" in text for text in tries) == is_offered


def test_a_graph_of_a_training_step_needs_an_adam_that_can_be_captured():
    training = {**NO_BATCH, "optimizer": frozenset({"loop"})}
    assert "capturable=True" in recommend.gaining(LAUNCHING, training)[0].attempt
    assert "capturable=True" not in recommend.gaining(LAUNCHING, NO_BATCH)[0].attempt


@pytest.mark.parametrize(("vendor", "option"), [("nvidia", "GGML_CUDA_GRAPHS"), ("amd", "GGML_HIP_GRAPHS")])
def test_the_graphs_of_llama_cpp_are_its_own(vendor, option):
    """It is built and run with options; other programs do not hear of them. Mutation: no `*LLAMA_GRAPHS`."""
    facts = {**NO_BATCH, "vendor": frozenset({vendor}), "framework": frozenset({"llama.cpp"})}
    (advice,) = recommend.gaining(LAUNCHING, facts)
    assert advice.name == "device_graph" and option in advice.attempt and "DISABLE_GRAPHS" in advice.attempt
    few = recommend.gaining(LAUNCHING, {**facts, "graph_capture": frozenset({"too_short"})})
    assert [one.tries for one in few] == [advice.tries]  # who runs it cannot change where the host reads
    registry.load(rules, "aaco.rules")
    steps = registry.RULES["launch_bound"].steps
    assert advice.attempt in offered(steps, facts)
    assert advice.attempt not in offered(steps, {**facts, "device_graph": frozenset({"replayed"})})
    assert option not in str(recommend.gaining(LAUNCHING, NO_BATCH)[0].tries)


def test_evidence_is_a_sentence_after_its_share():
    """"12 % of the time of the highest clock is missing" is none. Mutation: that evidence of raise_the_clock."""
    for action in ACTIONS:
        assert action.evidence.split()[0] not in ("of", "for", "in", "by", "with"), action.evidence


@pytest.mark.parametrize(("pause", "told"), [
    (16.0, "16 % of the time the device waits for the host's own work; the device works 25 % of it"),
    (74.0, "74 % of the time the device waits for the host's own work")])
def test_evidence_says_what_its_share_does_not_explain_of_the_ceiling(pause, told):
    """4 x of a step in which the device works a quarter. Mutation: the share alone is told."""
    known = replace(floors(), floors=(MechanismFloor("host_work", 500_000.0),))
    ((one,), _) = recommend.bounded(recommend.gaining(readings({"host_pause_pct": pause}), None, known), known)
    assert one.ceiling == 4 and one.evidence == told and one.entry().evidence == told


def test_evidence_of_streams_that_run_at_once_names_none_of_them():
    """1.2 ms of products in two streams, of which the longest works 1 of 2 ms. Mutation: that half is told."""
    target = FloorTarget("gemm", 1.2e6, 1e4)
    for chain_ns, told in ((1e6, False), (1.3e6, True)):
        known = replace(floors(), chain_ns=chain_ns, floors=(MechanismFloor("tf32", 2e5, (target,)),))
        (one,) = (one for one in recommend.bounded(recommend.gaining(readings({}), None, known), known)[0]
                  if one.name == "allow_tf32")
        assert one.ceiling == 10 and one.share_pct == 60 and ("the device works" in one.evidence) is told


def test_evidence_says_what_else_the_ceiling_of_a_compiler_takes():
    """Of 25 % in which the device works 10 go to passes over memory, and 5 must stay: products are shorter."""
    for floor_ns, takes in ((1e5, True), (4.9e5, False)):
        known = replace(floors(), floors=(MechanismFloor("compile", floor_ns, (FloorTarget("add", 2e5, 0.0),)),))
        advised, _ = recommend.bounded(recommend.gaining(readings({"pointwise_pct": 10.0}), None, known), known)
        (one,) = (one for one in advised if one.name == "fusion")
        assert one.evidence.endswith("the ceiling takes products at their roof") is takes
        assert "the device works 25 % of it" in one.evidence


VENDOR_WORDS = {"nvidia": re.compile(r"nvidia-|(?<!torch\.)\b(?:cuda[A-Z]|CUDA)|NCCL|MPS|\bMIG\b|(?i:cudnn)"),
                "amd": re.compile(r"amd-|rocm-|HIP|\bhip[A-Z]|RCCL|AITER|TUNABLEOP|HIPBLASLT|MIOPEN|MIOpen")}
BOTH = ("torch.cuda.CUDAGraph", "torch.backends.cudnn.benchmark")  # names of PyTorch that its build for AMD has, too


def all_steps():
    """Everything that actions and rules can say to try, with the conditions of its action."""
    registry.load(rules, "aaco.rules")
    yield from ((step, action.applies_if) for action in ACTIONS for step in action.attempts)
    yield from ((step, ()) for rule in registry.RULES.values() for step in rule.steps)


def test_words_of_one_vendor_are_only_said_on_its_devices():
    """Mutation: the rule shared_device_bound names amd-smi whatever the vendor is."""
    for step, of_action in all_steps():
        text = reduce(lambda text, word: text.replace(word, ""), BOTH, step.text)
        vendors = {value for condition in (*step.applies_if, *of_action) if condition.fact == "vendor"
                   for value in condition.values}
        for whose, words in VENDOR_WORDS.items():
            assert not words.search(text) or vendors == {whose}, step.text


CODE = re.compile(r"torch\.|\.item\(|\.pin_memory\(|non_blocking|async_op|io_binding|\bhip[A-Z]|cuda[A-Z]"
                  r"|of its own, the|per operation|per step|elementwise and copy")


@pytest.mark.parametrize("engine", [{"pytorch", "vllm"}, {"pytorch", "sglang"}, {"tensorrt_llm"}, {"llama.cpp"}])
def test_users_of_an_engine_are_not_told_to_change_its_code(engine):
    """They start it with options. Mutation: `remove_waits` says "read results once per step" to all."""
    facts = {"framework": frozenset(engine), "phase": frozenset({"serving"})}
    for step, of_action in all_steps():
        conditions = [condition for condition in (*step.applies_if, *of_action) if condition.fact in facts]
        assert not CODE.search(step.text) or not all(condition.holds(facts) for condition in conditions), step.text


def with_fp32(vendor, kind, units="yes"):
    facts = {"framework": {"pytorch"}, "vendor": {vendor}, "product_type": {"fp32"}, "product_kind": {kind},
             "tf32_units": {units}}
    return {name: frozenset(values) for name, values in facts.items()}


COMPUTING = readings({**dict.fromkeys(USED), "compute_limited_pct": 80.0})


@pytest.mark.parametrize(("vendor", "kind", "attempts"), [
    ("nvidia", "gemm", ['torch.set_float32_matmul_precision("high")']),
    ("nvidia", "conv", ["torch.backends.cudnn.allow_tf32 = True"]),
    ("amd", "gemm", ['torch.set_float32_matmul_precision("high"); an older PyTorch also needs HIPBLASLT_ALLOW_TF32=1']),
    ("amd", "conv", [])])
def test_tf32_is_allowed_where_the_products_are_computed(vendor, kind, attempts):
    """Mutation: the precision of products of matrices is raised for convolutions."""
    advised = recommend.gaining(COMPUTING, with_fp32(vendor, kind))
    assert [advice.attempt for advice in advised if advice.name == "allow_tf32"] == attempts


@pytest.mark.parametrize("vendor", ["nvidia", "amd"])
def test_tf32_is_not_even_withheld_where_the_device_has_none(vendor):
    """V100, T4, MI210, Radeon. Mutation: `"none", "no"` -> `"none"`."""
    without = with_fp32(vendor, "gemm", "no")
    for facts in (without, {**without, "product_type": frozenset({"bf16"})}):
        told = [*recommend.gaining(COMPUTING, facts), *recommend.withheld(COMPUTING, facts)]
        assert "allow_tf32" not in [action.name for action in told]


def test_why_not_names_the_value_that_the_fact_has():
    """Not those that the condition would take. Mutation: `self.values & values or values` -> `self.values`."""
    narrow = (fact_is("product_type", "fp16", "bf16", "fp8"),)
    assert why_not({"product_type": frozenset({"bf16"})}, (), narrow) == "already so: product type is bf16"
    for facts, condition, reason in (
            ({"copies": frozenset({"pinned"})}, fact_is("copies", "pageable"), "not here: copies are pinned"),
            ({"eight_bit_units": frozenset({"no"})}, fact_is("eight_bit_units", "yes"), "not here: no eight bit units"),
            ({"framework": frozenset({"pytorch", "vllm"})}, fact_is_not("framework", "sglang", "vllm"),
             "not here: framework is vllm"),
            ({}, fact_is("optimizer", "loop"), "not here: optimizer is not known"),
            ({"graph_capture": frozenset({"sized_by_data"})}, fact_is("graph_capture", "possible"),
             "not here: data decide sizes, which are fixed in a graph")):
        assert why_not(facts, (condition,), ()) == reason and why_not(facts, (), ()) == ""
