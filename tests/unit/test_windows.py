"""What is judged of a capture, each rank's budget in it, and who the others wait for, with every time planted."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from aaco.analytics.bottleneck.rank_pass import RankPass
from aaco.analytics.streaming.link_launches import Callers
from aaco.analytics.timeline import arrivals, lone_waits, stragglers, windows
from aaco.analytics.timeline.trace import trace
from aaco.core.config import Analysis
from aaco.core.tables import API_CALLS, COLLECTIVES, COPIES
from aaco.report.sections import windows as in_words
from tests import timed
from tests.timed import at

STEP, STEPS, LATE = 100_000, 12, 30_000
NO_ARRIVALS = np.zeros(0, np.int64), np.zeros(0, np.int64)


def ranks_of(late=lambda turn: LATE, shift=0, ranks=2, scale=1):
    """Kernels of one all-reduce a step: rank 1 arrives `late` after the others; all leave 5 us after it does."""
    rows = []
    for turn in range(STEPS):
        begin = STEP * turn
        for rank in range(ranks):
            own = begin + 10_000 + (max(late(turn), 0) if rank == 1 else max(-late(turn), 0) if rank == 0 else 0)
            leave = begin + 10_000 + abs(late(turn)) + 5_000
            clock = shift if rank == 1 else 0
            rows.append(at(begin + clock, own + clock, capture=rank, device_id=0, kernel_name="gemm"))
            rows.append(at(own + clock, leave + clock, capture=rank, device_id=0, kernel_name="ncclDevKernel"))
    for row in rows:  # the clock's shift stays as it is
        off = shift if row["capture"] == 1 else 0
        row |= {name: (row[name] - off) * scale + off for name in ("t_start_ns", "t_end_ns")}
    return timed.kernels(*rows)


def waits_of(kernels):
    """Who waits for whom in these kernels."""
    names = kernels["kernel_name"].cast("string").to_pylist()
    mine = np.flatnonzero(np.array([name == "ncclDevKernel" for name in names]))
    ids = kernels["kernel_id"].to_numpy()[mine]
    table = COLLECTIVES.build(kernel_id=ids, operation=["allreduce"] * len(ids), group=["0"] * len(ids))
    column = [kernels[name].to_numpy()[mine] for name in ("t_start_ns", "t_end_ns", "capture")]
    devices = [(rank, 0) for rank in range(int(column[2].max()) + 1)]
    found = arrivals.arrivals(table, ids, *column, devices)
    return found, stragglers.stragglers(found, devices, {rank: rank for rank, _ in devices}), table


def test_a_late_rank_is_named_with_what_the_others_waited() -> None:
    _, found, _ = waits_of(ranks_of())
    assert found.late == 1 and (found.operations, found.apart, found.operation) == (STEPS - 1, 1, "allreduce")
    assert (found.ranks[1].last, found.ranks[1].others_waited_ns) == (STEPS - 1, LATE * (STEPS - 1))
    assert (found.ranks[1].apart_last, found.ranks[1].apart_others_waited_ns) == (1, LATE)
    assert (found.ranks[0].waited_ns, found.ranks[0].apart_waited_ns) == (LATE * (STEPS - 1), LATE)
    assert not found.shifted and found.clock_ns == 0


def test_the_cause_is_told_before_what_is_not_judged() -> None:
    """A first screen cuts the end of a text. Mutation: the cause comes last."""
    _, found, _ = waits_of(ranks_of())
    ranks = [SimpleNamespace(capture=rank, device_id=0, rank=rank) for rank in range(2)]
    cause = SimpleNamespace(part="pause", own_ns=300_000, others_ns=0, kernel=None)
    named, _ = in_words.straggler(SimpleNamespace(ranks=ranks, stragglers=found, cause=cause))
    assert named.text == (
        "rank 1 is last in 12 of 12 all-reduces; the other waited 360 us. Cause: rank 1's pauses of the host, 300 us "
        "(0 ns on the others). 30.0 us of that wait, in the first, is not judged: profilers do not start together")


def test_of_three_ranks_both_others_wait() -> None:
    _, found, _ = waits_of(ranks_of(ranks=3))
    assert found.late == 1 and found.ranks[1].others_waited_ns == 2 * LATE * (STEPS - 1)


def test_the_first_operation_names_nobody() -> None:
    """A profiler that started late on one rank."""
    _, found, _ = waits_of(ranks_of(late=lambda turn: 2 * LATE if turn == 0 else 0))
    assert found.late is None and found.ranks[1].apart_others_waited_ns == 2 * LATE
    assert found.ranks[1].others_waited_ns == 0


@pytest.mark.parametrize("late", [lambda turn: LATE if turn % 2 else -LATE, lambda turn: LATE if turn < 10 else -LATE,
                                  lambda turn: 1_000])
def test_ranks_that_are_late_in_turns_or_by_little_are_not_named(late) -> None:
    _, found, _ = waits_of(ranks_of(late))
    assert found.late is None and "late" in found.why_none


@pytest.mark.parametrize(("shift", "scale"), [(-3_000_000, 1), (400_000, 1), (7_000_000_000, 1), (-150_000, 10)])
def test_clocks_of_two_hosts_are_brought_together_before_anyone_is_named(shift, scale) -> None:
    """Ends of all-reduces that are 0.1 ms apart or more are a matter of clocks, even where the kernels overlap."""
    found, named, _ = waits_of(ranks_of(shift=shift, scale=scale))
    assert found.shifted and named.late == 1
    assert named.ranks[1].others_waited_ns == scale * LATE * (STEPS - 1)
    assert (found.own_start[found.device == 1] - found.start[found.device == 1] == shift).all()


def passed(kernels, device_window, capture, arrived, slices):
    """The time of a rank in a window, with its tables fed in so many pieces."""
    callers, calls = Callers(), API_CALLS.build()
    one = RankPass(device_window, 0, Analysis(), None, arrived[0], arrived, callers)
    edges = np.linspace(0, kernels.num_rows, slices + 1).astype(int).tolist()
    starts = [*kernels["t_start_ns"].to_pylist(), 2**60]
    for low, high in pairwise(edges):
        one.feed(kernels.slice(low, high - low), COPIES.build(), calls, callers.calls(calls), starts[high])
    return one.result(capture)


@pytest.mark.parametrize("slices", [1, 5, 24])
def test_waiting_is_straggler_and_the_parts_sum_to_the_window(slices) -> None:
    kernels = ranks_of()
    found, _, _ = waits_of(kernels)
    order = np.argsort(found.kernel_id)
    arrived = found.kernel_id[order], (found.own_start + found.wait)[order]
    begin, end = 2 * STEP, 11 * STEP + 10_000 + LATE + 5_000
    for capture, waited in ((0, LATE * 10), (1, 0)):
        window = windows.CaptureWindow(capture, "markers", "step", 2, 11, 10, begin, end, 0, end)
        rank = passed(kernels, window, capture, arrived, slices)
        assert rank.straggler_ns == waited and rank.parts_ns["communication"] == 5_000 * 10
        assert sum(rank.parts_ns.values()) + rank.straggler_ns + rank.idle.idle_ns == end - begin
        assert sum(part.ns for part in rank.idle.causes.values()) == rank.idle.idle_ns
        (gemm,) = rank.kernels
        assert (gemm.name, gemm.count, gemm.ns) == ("gemm", 10, 10 * (10_000 + (LATE if capture else 0)))


def test_a_lone_collective_waits_as_long_as_it_outlasts_its_kind() -> None:
    """Nothing of another rank was recorded. Mutations: a larger message taken for a wait; the first one not held
    against all that follow."""
    start = 100_000 * np.arange(20)
    end, size = start + 1_000, np.where(np.arange(20) == 9, 8, 1)
    end[[9, 15]] += 50_000
    waits = lone_waits.find(70 + np.arange(20), start, end, 0 * start, [size])
    assert (waits.kernel_id.tolist(), waits.arrived.tolist()) == ([85], [end[15] - 1_000]) and not waits.first
    start[0] -= 700_000
    waits = lone_waits.find(70 + np.arange(20), start, end, 0 * start, [size])
    assert waits.kernel_id.tolist() == [70, 85] and waits.first == {0: (-700_000, 1_000)}
    assert lone_waits.find(start, start, end, 0 * start, [np.arange(20)]).kernel_id.tolist() == [start[0]]


@pytest.mark.parametrize("marks", [True, False])
def test_no_window_begins_before_a_rank_that_had_not_started_was_there(marks) -> None:
    """Mutation: the end of the first collective is not asked for."""
    steps = [(1_000_000 + 1_000 * turn, 1_000_600 + 1_000 * turn) for turn in range(10)]
    (window,) = traced(steps, skews={0: (1_000_000, 1_001_500)}, marks=marks)
    assert window.t_start_ns == (1_002_000 if marks else 1_001_500)
    assert {span.name: span.ns for span in window.outside}["waiting for a rank that had not started"] == 1_500
    assert sum(span.ns for span in window.outside) + window.window_ns == window.trace_ns


def test_work_that_reaches_over_an_edge_is_cut_there() -> None:
    kernels = timed.kernels(at(0, 1_000, capture=0), at(900, 3_000, capture=0), at(5_000, 9_000, capture=0))
    window = windows.CaptureWindow(0, "markers", "step", 0, 0, 1, 500, 7_000, 0, 9_000)
    rank = passed(kernels, window, 0, NO_ARRIVALS, 3)
    assert (rank.time.t_start_ns, rank.time.t_end_ns) == (500, 7_000)
    assert rank.time.busy_ns == 2_500 + 2_000 and rank.idle.idle_ns == 2_000


def traced(steps, calls=(), before=(), skews=windows.NO_SKEWS, marks=True):
    """A capture with these (start, end) kernels, one launched in each step, and calls of the host."""
    launches = [at(start - 50, start - 40, name="cudaLaunchKernel", correlation_id=turn + 1, capture=0, domain="hip",
                   thread_id=1, process_id=1) for turn, (start, _) in enumerate(steps)]
    marks = [at(start - 60, start - 30, name=f"ProfilerStep#{turn + 3}", capture=0, domain="marker", thread_id=1,
                process_id=1) for turn, (start, _) in enumerate(steps) if marks]
    api_calls = timed.calls(*sorted([*launches, *marks, *calls], key=lambda row: row["t_start_ns"]))
    kernels = timed.kernels(*before, *(at(start, end, correlation_id=turn + 1, capture=0)
                                       for turn, (start, end) in enumerate(steps)))
    extents = windows.Extents()
    extents.feed(kernels, COPIES.build(), api_calls)
    return windows.choose(trace(kernels, Analysis(), api_calls=api_calls), extents.result(), skews)


def test_marked_steps_are_judged_and_what_lies_outside_has_names() -> None:
    steps = [(1_000_000 + 1_000 * turn, 1_000_600 + 1_000 * turn) for turn in range(10)]
    capture = [at(400_000, 400_010, name="cudaStreamBeginCapture_v10000", capture=0, domain="hip"),
               at(500_000, 500_010, name="cudaStreamEndCapture", capture=0, domain="hip")]
    (found,) = traced(steps, [at(0, 10, name="import", capture=0, domain="python"), *capture])
    assert (found.told_by, found.first, found.last, found.steps) == ("markers", 3, 12, 10)
    assert (found.t_start_ns, found.t_end_ns) == (1_000_000, 1_009_600)
    assert {span.name: span.ns for span in found.outside} == {"start-up": 1_000_000 - 100_010, "graph capture": 100_010}
    assert sum(span.ns for span in found.outside) + found.window_ns == found.trace_ns
    assert in_words.window(found).endswith("; not judged: start-up 900 us, graph capture 100 us")  # may be cut


def lone_step(host_end, device_end, before=()):
    """The tables of a capture with one step from 100 us: its only launch is at 300 us, and its kernel runs then."""
    calls = [at(100_000, host_end, name="ProfilerStep#6", capture=0, domain="marker", thread_id=1, process_id=1),
             at(299_000, 299_500, name="hipLaunchKernel", correlation_id=1, capture=0, domain="hip", thread_id=1,
                process_id=1)]
    kernels = timed.kernels(*before, at(300_000, device_end, correlation_id=1, capture=0, device_id=0))
    return kernels, timed.calls(*calls)


@pytest.mark.parametrize(("host_end", "device_end", "before", "start_ns"), [
    (1_000_000, 900_000, (), 100_000),  # the host prepares inputs for 200 us, which each such step takes
    (1_000_000, 900_000, (at(0, 250_000, capture=0, device_id=0),), 250_000),  # the device was busy with a step before
    (1_000_000, 900_000, (at(0, 50_000, capture=0, device_id=0),), 100_000),
    (400_000, 900_000, (), 300_000)])  # the host is ahead, and waits for the device
def test_the_window_of_a_single_step_holds_what_the_device_waits_for_its_first_launch(
        host_end, device_end, before, start_ns) -> None:
    """Mutations: the window begins with the device's work; with the host's range, busy device or not; host ahead."""
    kernels, api_calls = lone_step(host_end, device_end, before)
    extents = windows.Extents()
    extents.feed(kernels, COPIES.build(), api_calls)
    (window,) = windows.choose(trace(kernels, Analysis(), api_calls=api_calls), extents.result())
    assert (window.t_start_ns, window.t_end_ns, window.steps) == (start_ns, device_end, 1)
    assert window.lead_ns == 300_000 - start_ns
    assert sum(span.ns for span in window.outside) + window.window_ns == window.trace_ns


def test_the_host_s_work_before_the_first_launch_of_a_single_step_is_a_pause_of_it() -> None:
    """Mutation: a device counts as idle only after its first work."""
    kernels, api_calls = lone_step(2_000_000, 900_000)
    window = windows.CaptureWindow(0, "markers", "ProfilerStep#", 6, 6, 1, 20_000, 900_000, 0, 2_000_000,
                                   lead_ns=280_000)
    callers = Callers()
    rank_pass = RankPass(window, 0, Analysis(), None, NO_ARRIVALS[0], NO_ARRIVALS, callers)
    rank_pass.feed(kernels, COPIES.build(), api_calls, callers.calls(api_calls), 2**60)
    rank = rank_pass.result(None)
    assert (rank.time.t_start_ns, rank.time.busy_ns, rank.idle.idle_ns) == (20_000, 600_000, 280_000)
    assert rank.idle.causes["host_wait"].ns == rank.idle.paused_ns == 280_000


def test_slow_first_steps_are_warm_up() -> None:
    steps = [(0, 600), (50_000, 50_600)] + [(70_000 + 1_000 * turn, 70_600 + 1_000 * turn) for turn in range(8)]
    (found,) = traced([(start + 100, end + 100) for start, end in steps])
    assert (found.first, found.steps) == (5, 8)
    assert {span.name: span.ns for span in found.outside}["warm-up steps"] == 70_000


def test_without_steps_the_whole_trace_is_judged_and_says_so() -> None:
    kernels = timed.kernels(*(at(start, start + 5, kernel_name=f"k{start}", capture=0) for start in range(0, 900, 7)))
    extents = windows.Extents()
    extents.feed(kernels, COPIES.build(), API_CALLS.build())
    (found,) = windows.choose(trace(kernels, Analysis()), extents.result())
    assert found.told_by == "whole trace" and "no markers" in found.why_whole and found.window_ns == found.trace_ns
