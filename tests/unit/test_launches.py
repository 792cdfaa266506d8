"""Launch statistics of traces with planted answers, and of real ones."""

import numpy as np
import pytest

from aaco.analytics.streaming.link_launches import Callers, Linker
from aaco.analytics.streaming.work import WorkReader
from aaco.analytics.timeline import launches
from aaco.analytics.timeline.launches import LaunchCounter
from tests import kineto_rows, timed
from tests.timed import at


def of_tables(found):
    lanes, callers, launching = WorkReader(), Callers(), LaunchCounter()
    linked = Linker().feed(lanes.work(found["kernels"], found["copies"]), callers.calls(found["api_calls"]), None)
    launching.feed(linked)
    return launching.result(callers.names.known, lanes.names.known)


def launching(kernels, calls, copies=()):
    return of_tables({"kernels": timed.kernels(*kernels), "copies": timed.copies(*copies),
                      "api_calls": timed.calls(*calls)})


def test_each_runtime_is_joined_by_its_correlation_id():
    names = ("cudaLaunchKernel", "hipModuleLaunchKernel", "hsa_amd_memory_async_copy_on_engine")
    calls = [at(100 * n, 100 * n + 10 + n, name=name, correlation_id=n + 1,
                domain=("cuda_runtime", "hip", "hsa")[n]) for n, name in enumerate(names)]
    found = launching([at(30, 90, correlation_id=1), at(140, 150, correlation_id=2)], calls,
                      [at(220, 290, correlation_id=3)])
    sums = {one.name: (one.launches, one.host.sum_ns, one.delay.sum_ns, one.device.sum_ns) for one in found.functions}
    assert sums == {names[0]: (1, 10, 30, 60), names[1]: (1, 11, 40, 10), names[2]: (1, 12, 20, 70)}
    assert (found.work, found.linked, found.launches) == (3, 3, 3)
    assert (found.host.sum_ns, found.delay.sum_ns, found.delay.min_ns, found.device.max_ns) == (33, 90, 20, 70)


def test_a_graph_launch_is_one_launch_of_many_kernels():
    """Mutation: `rows[linked.first[rows]]` -> `rows`."""
    kernels = [at(start, start + 5, correlation_id=1) for start in (20, 30, 40)]
    (graph,) = launching(kernels, [at(0, 10, name="hipGraphLaunch", domain="hip", correlation_id=1)]).functions
    assert (graph.launches, graph.work, graph.delay.max_ns, graph.device.count) == (1, 3, 20, 3)


def test_work_without_a_launch_is_counted_and_in_no_statistic():
    found = launching([at(0, 10), at(20, 30, correlation_id=9), at(50, 60, correlation_id=1)],
                      [at(40, 45, correlation_id=1)])
    assert (found.work, found.linked, found.launches) == (3, 1, 1)


def test_launches_longer_than_their_work_and_calls_that_stand_out():
    starts = range(0, 100_000, 1000)
    calls = [at(start, start + (900 if start == 50_000 else 100 + start // 1000), correlation_id=start + 1)
             for start in starts]
    kernels = [at(start + 920, start + 920 + (50 if start < 10_000 else 5000), correlation_id=start + 1)
               for start in starts]
    found = launching(kernels, calls)
    (function,) = found.functions
    assert (function.outlived, function.host.beyond) == (10, 1)
    assert (found.slowest[0].host_ns, found.slowest[0].t_start_ns, found.slowest[0].kernel) == (900, 50_000, "k")


def test_very_many_functions_are_summed():
    calls = [at(100 * n, 100 * n + 10, name=f"hipLaunchKernel_{n}", domain="hip", correlation_id=n + 1)
             for n in range(launches.MOST_FUNCTIONS + 5)]
    kernels = [at(call["t_start_ns"] + 20, call["t_start_ns"] + 30, correlation_id=call["correlation_id"])
               for call in calls]
    found = launching(kernels, calls)
    assert len(found.functions) == launches.MOST_FUNCTIONS + 1
    assert found.functions[0].name == launches.OTHERS and found.functions[0].launches == 5


@pytest.mark.captures
@pytest.mark.parametrize(("name", "linked", "work"), [
    ("kineto/mi300_Qwen_Qwen1.5-0.5B-Chat__1016005", 1054, 1517),
    ("kineto/h100_Qwen_Qwen1.5-0.5B-Chat__1016005", 1198, 1707),
    ("kineto/inference_vllm_decode_full_graph_execution", 434, 434),
])
def test_real_traces(name, linked, work):
    """The rows of the file, and a join of it by Python's own dictionaries. A peer finds 0 launches in the first."""
    tables = kineto_rows.read(f"{name}.json.gz")
    found = of_tables(tables)
    assert (found.linked, found.work) == (linked, work)
    calls = {row["correlation_id"]: row for row in tables["api_calls"].to_pylist() if row["correlation_id"]}
    rows = [row for name in ("kernels", "copies") for row in tables[name].to_pylist() if row["correlation_id"] in calls]
    for function in found.functions:
        mine = [row for row in rows if calls[row["correlation_id"]]["name"] == function.name]
        took = [row["dur_ns"] for row in mine]
        assert (function.work, function.device.sum_ns, function.device.max_ns) == (len(mine), sum(took), max(took))
        if len(mine) > 1:
            assert function.device.p50.value_ns == pytest.approx(np.quantile(took, 0.5, method="nearest"), rel=0.02)
        assert function.launches == len({row["correlation_id"] for row in mine})
