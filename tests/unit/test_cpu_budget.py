"""The budget of a run on CPUs: its parts sum to the wall, and planted parts are found where they were planted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.bottleneck import calibration
from aaco.analytics.bottleneck import cpu_budget as budgets
from aaco.analytics.bottleneck.cpu_budget import PARTS, CpuNode, CpuRun, ThreadTimes
from aaco.analytics.diagnosis import diagnose
from aaco.analytics.measure import measure
from aaco.core.config import Analysis
from aaco.core.inputs import Window
from aaco.core.readings import Absent
from aaco.core.tables import EXECUTED_NODES, INFERENCE_ITERS, KERNELS

MS = 1_000_000


def inferences(*latencies_ns, impact=None):
    ends = np.cumsum(latencies_ns)
    return INFERENCE_ITERS.build(
        iteration=range(len(ends)), phase=["measurement"] * len(ends), t_start_ns=ends - np.array(latencies_ns),
        t_end_ns=ends, latency_ms=np.array(latencies_ns) / 1e6, process=[0] * len(ends),
        noise_impact_pct=impact or [None] * len(ends))


def node(name="gemm", side="compute", time_ns=5 * MS, wait_ns=0, ideal_ns=4 * MS):
    return CpuNode(name, "MatMul", side, time_ns, wait_ns, ideal_ns)


def times(wall_ns, **changed):
    return ThreadTimes(**({"span_ns": wall_ns, "main_ran_ns": wall_ns, "main_waited_ns": 0, "threads": [wall_ns],
                           "pool_waited_ns": 0, "cpus": 2, "others_busy_ns": 0, "stolen_ns": 0} | changed))


def parts(nodes, iterations, run=None, profiled=1):
    window = Window(KERNELS.build(), profiled, 1, np.ones(profiled, np.int64))
    return budgets.cpu_budget(tuple(nodes), iterations, run, window).parts_ns


SMALL = [node(f"n{index}", "memory", 4000, ideal_ns=1) for index in range(100)]
amounts = st.integers(0, 10**9)
nodes_drawn = st.lists(st.builds(
    CpuNode, st.just("node"), st.just("MatMul"), st.sampled_from(budgets.NODES), st.floats(0, 1e8), st.floats(0, 1e8),
    st.none() | st.floats(0, 1e8)), max_size=5)
accounts = st.builds(
    ThreadTimes, threads=st.lists(amounts, max_size=4), cpus=st.integers(0, 4), throttled_ns=st.none() | amounts,
    **dict.fromkeys(("span_ns", "main_ran_ns", "main_waited_ns", "pool_waited_ns", "others_busy_ns", "stolen_ns"),
                    amounts))


@given(nodes_drawn, st.lists(st.integers(1, 10**8), min_size=1, max_size=6), st.none() | st.builds(
    CpuRun, st.lists(accounts, min_size=1, max_size=2).map(tuple), st.none() | accounts))
def test_the_parts_sum_to_the_wall_whatever_was_recorded(nodes, latencies, run):
    """Mutation: a part that is taken and not taken away from what is left."""
    found = parts(nodes, inferences(*latencies), run)
    assert set(found) == set(PARTS) and sum(found.values()) == sum(latencies)
    assert all(isinstance(part, int) and part >= 0 for part in found.values())


def test_the_profiles_own_time_of_each_node_is_no_work():
    """100 nodes of 4 us, of which the profile takes 3.5: a clean inference of 60 us is 60 us of overhead, not work.

    And a node of 1004 us beside them has 1000 us of work: what the shortest node takes, each takes.
    """
    small = [node(f"n{index}", "memory", 4000, ideal_ns=1) for index in range(100)]
    found = parts(small, inferences(60_000, 60_000))
    assert found["overhead"] == 120_000 - found["memory"] and found["memory"] <= 200
    found = parts([*small, node("gemm", "compute", 1_004_000, ideal_ns=900_000)], inferences(*[1_100_000] * 4))
    assert found["compute"] == 4 * 1_000_000
    assert found["overhead"] == pytest.approx(4 * 100_000, abs=500)


def test_a_single_node_is_work_though_it_is_the_shortest():
    assert parts([node()], inferences(5 * MS))["compute"] >= 0.99 * 5 * MS


def test_what_the_main_thread_waited_for_a_cpu_went_to_other_load():
    """Half of the wall waited: the node's time, which is longer for it in the profile too, has the other half."""
    run = CpuRun((times(20 * MS, main_ran_ns=10 * MS, main_waited_ns=10 * MS, others_busy_ns=20 * MS),))
    found = parts([node(time_ns=10 * MS)], inferences(10 * MS, 10 * MS), run)
    assert found["other_load"] == 10 * MS and found["compute"] == pytest.approx(10 * MS, rel=0.01)


def test_a_wait_for_a_cpu_that_an_own_thread_has_is_none_of_others():
    """Eight threads on two CPUs, and nothing else runs: they wait for each other."""
    run = CpuRun((times(20 * MS, main_ran_ns=5 * MS, main_waited_ns=15 * MS, threads=[5 * MS,] * 7),))
    found = parts([node(time_ns=5 * MS)], inferences(10 * MS, 10 * MS), run)
    assert found["threads"] == 15 * MS and not found["other_load"]


def test_waits_for_the_pool_are_taken_out_of_the_nodes():
    found = parts([node(wait_ns=2 * MS)], inferences(5 * MS))
    assert found["threads"] == 2 * MS and found["compute"] == pytest.approx(3 * MS, rel=0.01)


def test_waits_for_a_pool_that_others_held_up_are_the_others():
    """In the profile the pool's threads waited 2 ms for a CPU: that the main thread waited for them is no imbalance."""
    run = CpuRun((times(5 * MS),), times(5 * MS, pool_waited_ns=2 * MS, others_busy_ns=2 * MS))
    found = parts([node(wait_ns=2 * MS)], inferences(5 * MS), run)
    assert found["other_load"] == 2 * MS and not found["threads"]


def test_a_quota_takes_what_the_main_thread_was_off_its_cpu():
    """It slept 6 of 10 ms, and the quota throttled two threads for 12: 6 are the quota's, no more."""
    run = CpuRun((times(10 * MS, main_ran_ns=4 * MS, throttled_ns=12 * MS),))
    assert parts([node(time_ns=4 * MS)], inferences(10 * MS), run)["quota"] == 6 * MS


def test_where_others_left_too_little_work_and_overhead_are_cut_alike():
    """100 us of work and 300 us of overhead in a quiet inference, of which others left half: 50 and 150."""
    nodes = [*SMALL, node("gemm", "compute", 104_000, ideal_ns=90_000)]
    run = CpuRun((times(400_000, main_ran_ns=200_000, main_waited_ns=200_000, others_busy_ns=400_000),))
    found = parts(nodes, inferences(400_000), run)
    assert found["compute"] == pytest.approx(50_000, abs=100) and found["overhead"] == pytest.approx(150_000, abs=100)


def test_without_an_account_the_sentinels_estimate_stands_in():
    assert parts([node(time_ns=5 * MS)], inferences(10 * MS, impact=[100.0]))["other_load"] == 5 * MS


def test_what_nothing_tells_is_left_over():
    """Ten ms of which the one node had two, and nobody waited: overhead is at most 10 us a node."""
    found = parts([node(time_ns=2 * MS)], inferences(10 * MS), CpuRun((times(10 * MS),)))
    assert found["unexplained"] == 10 * MS - found["compute"] - found["overhead"] and found["overhead"] <= 10_000


def test_a_node_that_a_device_ran_has_no_budget_of_cpus():
    kernels = KERNELS.build(kernel_id=[0], executed_node=["a"], device_id=[0], dur_ns=[1], timed=["execution"],
                            iteration=[0])
    with pytest.raises(Absent, match="ran on a device"):
        budgets.cpu_nodes(Window(kernels, 1, 1, np.ones(1, np.int64)), EXECUTED_NODES.build())


def test_a_nodes_time_is_its_median_inference_and_its_side_the_familys_without_a_roof():
    kernels = KERNELS.build(kernel_id=range(6), executed_node=["a", "b"] * 3, dur_ns=[10, 1, 20, 1, 9000, 1],
                            pool_wait_ns=[1, None, 2, None, 3, 0], timed=["execution"] * 6,
                            iteration=[0, 0, 1, 1, 2, 2])
    executed = EXECUTED_NODES.build(executed_id=[0, 1], name=["a", "b"], op_type=["MatMul", "Softmax"],
                                    source_nodes=[[0], [1]])
    first, second = budgets.cpu_nodes(Window(kernels, 3, 1, np.ones(3, np.int64)), executed)
    assert (first.name, first.time_ns, first.wait_ns, first.side) == ("a", 20, 2, "compute")
    assert (second.name, second.time_ns, second.side) == ("b", 1, "memory")


def said(nodes, latencies, run=None):
    """The diagnosis of a budget, through the readings."""
    budget = budgets.cpu_budget(tuple(nodes), inferences(*latencies), run, None)
    return diagnose(measure({}, None, Analysis(), examined={"cpu_budget": budget, **({"cpu_run": run} if run else {})}))


@pytest.mark.parametrize(("label", "nodes", "latency", "run"), [
    ("compute_bound", [node()], 5 * MS, None),
    ("memory_bound", [node(side="memory")], 5 * MS, None),
    ("overhead_bound", SMALL, 60_000, None),
    ("threads_bound", [node(time_ns=2 * MS, ideal_ns=MS)], 10 * MS, times(
        10 * MS, main_ran_ns=2 * MS, main_waited_ns=8 * MS, threads=[2 * MS,] * 7)),
    ("contended", [node(time_ns=2 * MS, ideal_ns=MS)], 10 * MS, times(
        10 * MS, main_ran_ns=2 * MS, throttled_ns=8 * MS)),
    ("compute_bound", [node()], 10 * MS, times(10 * MS, main_ran_ns=2 * MS, main_waited_ns=8 * MS, others_busy_ns=MS)),
    ("balanced", [node(time_ns=5 * MS), node("add", "memory", 5 * MS)], 10 * MS, None),
])
def test_the_class_is_the_largest_part_of_the_runs_own_time(label, nodes, latency, run):
    """Four fifths taken by others leave the class of the rest, and are a condition beside it."""
    found = said(nodes, [latency], CpuRun((run,)) if run else None)
    assert found.label == label
    assert ("contended_cpus" in {verdict.label for verdict in found.conditions}) == bool(run and run.active <= run.cpus)


def test_advice_gains_no_more_than_its_part_and_not_what_is_so_already():
    """With every level of graph optimisation used, none is advised; threads that fit are not to be fitted."""
    run = CpuRun((times(10 * MS, main_ran_ns=2 * MS, main_waited_ns=8 * MS, others_busy_ns=MS),), levels_left=0)
    advice = {one.name: one for one in said([node(side="memory")], [10 * MS], run).recommendations}
    assert advice["quiet_cpus"].gain_pct == pytest.approx(80)
    assert not {"graph_level", "fit_threads", "raise_quota"} & set(advice)
    crowded = times(10 * MS, main_ran_ns=2 * MS, main_waited_ns=8 * MS, threads=[2 * MS,] * 7)
    advice = {one.name: one for one in said([node()], [10 * MS], CpuRun((crowded,), levels_left=1)).recommendations}
    assert advice["fit_threads"].gain_pct == pytest.approx(80) and "quiet_cpus" not in advice
    left = [one.name for one in said([node(side="memory")], [5 * MS], CpuRun((times(5 * MS),), levels_left=1)
                                     ).recommendations]
    assert "graph_level" in left


def test_a_run_on_cpus_has_no_confidence_from_recordings_of_devices():
    """Mutation: the reliability of 66 recordings of GPUs given to a run that none of them is like."""
    assert said([node()], [5 * MS]).confidence == calibration.CPU_RELIABILITY[-1].probability
    assert calibration.CPU_RELIABILITY[-1].probability < 1
