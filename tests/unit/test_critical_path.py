"""What bounds small traces whose answer is plain, and the traps that real ones set."""

from __future__ import annotations

import numpy as np
import pytest

from aaco.analytics.critical_path import answer, describe
from aaco.analytics.critical_path.dag import Edge
from aaco.analytics.critical_path.events import COLUMNS, PathRecording
from aaco.core import tables
from aaco.report.sections.findings.critical_path import rows
from tests.timed import at, calls, copies, kernels

US = 1000


def events(work=(), called=(), copied=(), shifts=()):
    recording = PathRecording()
    given = {"kernels": kernels(*work), "copies": copies(*({"copy_id": row} | one for row, one in enumerate(copied))),
             "api_calls": calls(*({"call_id": row} | one for row, one in enumerate(called)))}
    recording.feed(*(given[name].select(columns) for name, columns in COLUMNS.items()))
    return recording.result(shifts)


def found(work=(), called=(), copied=(), collectives=None):
    told = events(work, called, copied)
    joined = tables.COLLECTIVES.build() if collectives is None else collectives
    path = answer.find(told, answer.operations(joined, told))
    segments = path.segments
    assert path.graph.dag.holds()
    assert segments.start[0] == path.graph.dag.begin
    assert segments.end[-1] == path.graph.dag.end
    assert (segments.start[1:] == segments.end[:-1]).all()
    assert sum(answer.bound_by(segments).values()) == path.window_ns
    return path


def us(start, end, **more):
    return at(round(start * US), round(end * US), **more)


def parts(path):
    """{kind: us} without the kinds that have none."""
    return {kind: ns / US for kind, ns in answer.bound_by(path.segments).items() if ns}


def slack(path):
    return (path.slack / US).tolist()


def edges(path, kind, inferred=None):
    """How many edges of a kind."""
    chosen = path.graph.dag.kind == kind
    return int((chosen if inferred is None else chosen & (path.graph.dag.inferred == inferred)).sum())


# The mission's four: a dispatch alone, a stream's order, streams beside each other, order implied by times.
def test_one_dispatch_is_the_path():
    path = found([us(5, 15)])
    assert (path.window_ns, path.critical_path_ns, slack(path)) == (10 * US, 10 * US, [0])


def test_a_stream_runs_in_order():
    """And what passes between its kernels is on the path too."""
    path = found([us(0, 10), us(12, 20), us(50, 60)])
    assert parts(path) == {"compute": 28, "kernel_wait": 2, "unknown": 30}
    assert (path.critical_path_ns, slack(path)) == (28 * US, [0, 0, 0])


def test_of_streams_beside_each_other_the_longer_is_the_path():
    path = found([us(0, 10), us(0, 4, stream_id=8), us(10, 30), us(4, 12, stream_id=8)])
    assert parts(path) == {"compute": 30}
    assert path.critical_path_ns == 30 * US
    assert slack(path) == [0, 18, 18, 0]


def test_without_calls_the_order_of_times_implies_an_edge_between_queues():
    """Flagged. Mutation: `inferred=True` of _between_streams left out."""
    path = found([us(0, 10, stream_id=None, queue_id=1), us(12, 20, stream_id=None, queue_id=2),
                  us(24, 30, stream_id=None, queue_id=1)])
    assert edges(path, Edge.EVENT, inferred=True) == 2
    assert parts(path) == {"compute": 18 + 6, "kernel_wait": 2 + 4}
    assert path.critical_path_ns == 24 * US
    assert path.segments.inferred.sum() == 2


@pytest.mark.parametrize("apart", [{"device_id": 1}, {"process_id": 2}, {"capture": 1}])
def test_one_queue_number_on_two_agents_or_of_two_processes_is_two_queues(apart):
    """Mutation: a column left out of the lane's key."""
    same = {"process_id": 1, "capture": 0, "stream_id": None, "queue_id": 0}
    path = found([us(0, 10, **same), us(2, 6, **same | apart), us(20, 40, **same)])
    assert edges(path, Edge.STREAM) == 1
    assert slack(path)[1] == 34


def test_a_late_launch_is_on_the_path_with_the_host_before_it():
    """The first launch call is launching, too. Mutations: the launch edge left out; calls are all the host's."""
    path = found([us(10, 20, correlation_id=1), us(47, 50, correlation_id=2)],
                 [us(0, 4, correlation_id=1), us(40, 44, correlation_id=2)])
    assert parts(path) == {"host": 36, "launch": 4 + 7, "compute": 3}
    assert slack(path) == [27, 0]


def test_a_launch_in_time_is_not():
    path = found([us(10, 50, correlation_id=1), us(52, 60, correlation_id=2)],
                 [us(0, 4, correlation_id=1), us(5, 9, correlation_id=2)])
    assert parts(path) == {"launch": 10, "compute": 48, "kernel_wait": 2}


def test_what_a_launch_took_beyond_reason_is_not_the_launch():
    """The call had returned, launches take 10 us here, this one 400. Mutation: `cut` at the work's start."""
    many = [(us(100 * n + 10, 100 * n + 20, correlation_id=n + 1), us(100 * n, 100 * n + 4, correlation_id=n + 1))
            for n in range(20)]
    path = found([work for work, _ in many] + [us(2500, 2510, correlation_id=99)],
                 [call for _, call in many] + [us(2100, 2104, correlation_id=99)])
    assert parts(path) == {"host": 2020, "launch": 20 * 4 + 10, "unknown": 390, "compute": 10}


def test_a_graph_launch_starts_all_its_kernels():
    """One call, many kernels. Mutation: only the first work of a launch linked."""
    path = found([us(10 + 5 * n, 14 + 5 * n, correlation_id=7, stream_id=7 + n % 2) for n in range(6)],
                 [us(0, 5, name="hipGraphLaunch", domain="hip", correlation_id=7)])
    assert edges(path, Edge.LAUNCH) == 6
    assert path.window_ns == 39 * US


def test_a_device_synchronisation_waits_for_every_stream():
    """It returns after the last; the launch after it comes late because of that. Mutation: only one stream."""
    path = found([us(10, 60, correlation_id=1), us(10, 40, stream_id=8, correlation_id=2),
                  us(80, 90, correlation_id=3)],
                 [us(0, 2, correlation_id=1), us(3, 5, correlation_id=2),
                  us(6, 64, name="hipDeviceSynchronize", domain="hip"), us(72, 75, correlation_id=3)])
    assert edges(path, Edge.SYNC, inferred=False) == 2
    assert parts(path) == {"launch": 10 + 8, "compute": 50 + 10, "sync": 4, "host": 8}
    assert slack(path) == [0, 24, 0]


def test_work_whose_launch_was_not_recorded_is_waited_for_too():
    """It ran within the wait; nobody can have launched it there. Mutation: its own start stands for its launch."""
    path = found([us(0, 10), us(12, 60), us(90, 95, correlation_id=3)],
                 [us(5, 64, name="hipDeviceSynchronize", domain="hip"), us(80, 84, correlation_id=3)])
    assert parts(path) == {"compute": 10 + 48 + 5, "kernel_wait": 2, "sync": 4, "host": 16, "launch": 10}


def test_a_wait_that_returned_before_the_work_had_ended_did_not_wait_for_it():
    path = found([us(10, 60, correlation_id=1), us(70, 80, correlation_id=2)],
                 [us(0, 2, correlation_id=1), us(3, 30, name="hipDeviceSynchronize", domain="hip"),
                  us(61, 64, correlation_id=2)])
    assert edges(path, Edge.SYNC) == 0


def test_a_wait_for_a_stream_is_inferred_where_there_are_several():
    """One stream leaves no doubt. Mutation: `inferred=False`."""
    work = [us(10, 60, correlation_id=1), us(10, 40, stream_id=8, correlation_id=2), us(80, 90, correlation_id=3)]
    called = [us(0, 2, correlation_id=1), us(3, 5, correlation_id=2), us(6, 64, name="cudaStreamSynchronize"),
              us(72, 75, correlation_id=3)]
    path = found(work, called)
    assert edges(path, Edge.SYNC, inferred=True) == 1
    assert parts(path)["sync"] == 4
    alone = found([work[0], work[2]], called)
    assert edges(alone, Edge.SYNC, inferred=False) == 1


@pytest.mark.parametrize(("name", "inferred"), [("hipMemcpy", False), ("hipMemcpyWithStream", False),
                                                ("hipMemcpyAsync", True)])
def test_a_copy_that_returned_after_its_end_had_waited(name, inferred):
    """By name where the call is synchronous, else by what it did."""
    path = found([us(60, 70, correlation_id=2)], [us(0, 44, name=name, domain="hip", correlation_id=1),
                                                 us(50, 53, correlation_id=2)], [us(10, 40, correlation_id=1)])
    assert edges(path, Edge.SYNC, inferred=inferred) == 1
    assert parts(path) == {"launch": 10 + 10, "copy": 30, "sync": 4, "host": 6, "compute": 10}


def test_work_after_an_event_of_another_stream():
    """Recorded and waited for by the host; which events and streams those were the capture does not say."""
    path = found([us(10, 50, correlation_id=1), us(70, 90, stream_id=8, correlation_id=2)],
                 [us(0, 2, correlation_id=1), us(3, 4, name="cudaEventRecord"), us(5, 6, name="cudaStreamWaitEvent"),
                  us(7, 9, correlation_id=2)])
    assert edges(path, Edge.EVENT, inferred=True) == 1
    assert parts(path) == {"launch": 10, "compute": 60, "unknown": 20}


def test_a_stream_that_went_on_when_another_ended():
    """Launched long before, and its own stream was idle. Mutation: `near` without the launch."""
    path = found([us(10, 50, correlation_id=1), us(52, 90, stream_id=8, correlation_id=2)],
                 [us(0, 2, correlation_id=1), us(7, 9, correlation_id=2)])
    assert parts(path) == {"launch": 10, "compute": 78, "kernel_wait": 2}
    late = found([us(10, 50, correlation_id=1), us(54, 90, stream_id=8, correlation_id=2)],
                 [us(0, 2, correlation_id=1), us(51, 53, correlation_id=2)])
    assert edges(late, Edge.EVENT) == 0


def test_work_that_overlaps_on_a_stream_is_held_by_the_start_before():
    """Never twice on the path, and inferred. What ended later is waited for all the same."""
    path = found([us(0, 100), us(10, 20), us(30, 40), us(100, 110)])
    assert parts(path) == {"compute": 110}
    assert edges(path, Edge.STREAM, inferred=True) == 2
    assert slack(path) == [0, 60, 60, 0]


def test_a_thread_that_was_silent_while_another_worked():
    """The backward pass of a framework runs on a thread of its own. Mutation: _handed_over returns nothing."""
    path = found([us(10, 20, correlation_id=1), us(410, 420, correlation_id=2), us(810, 820, correlation_id=3)],
                 [us(0, 2, correlation_id=1), us(400, 405, correlation_id=2, thread_id=2),
                  us(800, 805, correlation_id=3)])
    assert edges(path, Edge.HOST, inferred=True) == 2
    assert parts(path) == {"host": 793, "launch": 2 + 5 + 10, "compute": 10}


def test_threads_that_call_all_the_time_do_not_wait_for_each_other():
    path = found([us(1000, 1010, correlation_id=20)],
                 [us(10 * n, 10 * n + 4, correlation_id=n + 1, thread_id=n % 2) for n in range(20)])
    assert edges(path, Edge.HOST, inferred=True) == 0


def test_calls_after_the_last_work_are_not_in_the_window():
    path = found([us(10, 20, correlation_id=1)],
                 [us(0, 2, correlation_id=1), us(3, 30, name="hipDeviceSynchronize", domain="hip"), us(40, 50)])
    assert path.window_ns == 20 * US


def test_calls_inside_calls():
    """hipDeviceSynchronize waits by a wait for a signal; both are recorded."""
    path = found([us(10, 60, correlation_id=1), us(80, 90, correlation_id=3)],
                 [us(0, 2, correlation_id=1), us(6, 66, name="hipDeviceSynchronize", domain="hip"),
                  us(8, 62, name="hsa_signal_wait_scacquire", domain="hsa"), us(72, 75, correlation_id=3)])
    assert parts(path) == {"launch": 10 + 8, "compute": 60, "sync": 2, "host": 4 + 6}


def two_ranks(late_by):
    """All-reduces on two ranks, the second of which comes late; both end together."""
    work = [us(0, 10, capture=0), us(10, 40 + late_by, capture=0, kernel_name="ncclDevKernel_AllReduce"),
            us(0, 10 + late_by, capture=1, kernel_name="slow"),
            us(10 + late_by, 40 + late_by, capture=1, kernel_name="ncclDevKernel_AllReduce"),
            us(40 + late_by, 60 + late_by, capture=0)]
    rows = kernels(*work)
    reduces = [row["kernel_id"] for row in rows.to_pylist() if row["kernel_name"].startswith("nccl")]
    return work, tables.COLLECTIVES.build(kernel_id=reduces, operation=["allreduce"] * 2, group=["0"] * 2,
                                          group_size=[2] * 2, sequence=[0] * 2)


def test_a_collective_waits_for_the_rank_that_comes_last():
    """The path goes through that rank; what the other waited is its slack. Mutation: `came` the first to start."""
    work, collectives = two_ranks(25)
    path = found(work, collectives=collectives)
    assert parts(path) == {"compute": 35 + 20, "communication": 30}
    on = path.events.work.capture[path.segments.work]
    assert on.tolist() == [1, 0, 0] or on.tolist() == [1, 1, 0]
    waited = int(np.flatnonzero((path.events.work.capture == 0) & (path.events.work.start == 10 * US))[0])
    assert path.slack[waited] == 25 * US
    assert answer.what_if(path, {"slow": 10 / 35}) == path.window_ns - 25 * US
    assert [group.sum() for group in answer.groups(path.events.work.capture, np.full(5, -1))] == [3, 2]


def test_ranks_on_other_clocks_are_not_connected():
    """An operation of which one rank began after the other had ended cannot be one."""
    work, collectives = two_ranks(25)
    shifted = [row | us(row["t_start_ns"] / US + 1000, row["t_end_ns"] / US + 1000) if row["capture"] else row
               for row in work]
    told = events(shifted)
    assert (answer.operations(collectives, told) == -1).all()
    moved = events(shifted, shifts=[{"capture": 1, "origin_ns": 0, "offset_ns": -1000 * US, "drift_ppm": 0.0}])
    assert moved.work.end.max() == 85 * US


def test_what_if_is_bounded_by_what_comes_next():
    """Half the kernel gains until the other stream holds; no more. Mutation: the kernel's share subtracted."""
    path = found([us(0, 40, kernel_name="big"), us(0, 30, stream_id=8), us(40, 50)])
    assert answer.what_if(path, {"big": 0.5}) == 30 * US
    assert answer.what_if(path, {"big": 1.0}) == 50 * US
    assert answer.what_if(path, {"big": 2.0}) == 90 * US
    began, ended = answer.replayed(path, {"big": 0.5})
    assert ((began / US).tolist(), (ended / US).tolist()) == ([0, 0, 20], [20, 30, 30])
    with pytest.raises(KeyError):
        answer.what_if(path, {"other": 0.5})


def test_what_adds_most_comes_first_with_its_priority():
    """Mutation: fraction of kernel time instead of the window's."""
    path = found([us(0, 40, kernel_name="big"), us(0, 30, stream_id=8, kernel_name="beside"), us(40, 50), us(90, 100)])
    first, *others = describe.contributions(path, {"big": 0.5})
    assert (first.kernel_name, first.fraction, first.ceiling) == ("big", 0.4, 100 / 60)
    assert (first.headroom, first.priority) == (0.5, 0.2)
    assert [(one.kernel_name, one.path_ns, one.slack_min_ns, one.priority) for one in others] == [
        ("k", 20 * US, 0, None), ("beside", 0, 70 * US, None)]
    (course,) = describe.summarise([path]).paths
    assert (course.dominant_symbol, course.fraction, course.without_slack) == ("big", 0.4, 3)
    text = " ".join(row.text for row in rows(describe.summarise([path], {"big": 0.5})))
    assert "priority 0.20, 1.25x at most" in text
