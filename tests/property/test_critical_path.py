"""The graph of any small trace, against rules applied pair by pair; whatever the trace, the path fills its window.

Mutations that these tests caught: `_freed` without rows, `before` of the last row that started instead of the one that
ended last, the delay of a launch added to the call's length, returns numbered by call.
"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.critical_path import answer, dag
from aaco.analytics.critical_path.dag import Edge
from aaco.analytics.critical_path.events import COLUMNS, PathRecording
from aaco.analytics.streaming.calls import CallKind
from aaco.core import tables
from tests import timed

LAUNCH, GRAPH, SYNC, WAIT, COPY = ("hipLaunchKernel", "hipGraphLaunch", "hipDeviceSynchronize", "hipStreamSynchronize",
                                   "hipMemcpyAsync")
NAMES = (LAUNCH, LAUNCH, GRAPH, SYNC, WAIT, COPY, "hipEventRecord", "hipStreamWaitEvent", "hsa_signal_wait_relaxed")
CALLS = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 30), st.sampled_from(NAMES), st.integers(1, 8),
                           st.integers(0, 2)), max_size=20)
WORK = st.lists(st.tuples(st.integers(0, 120), st.integers(0, 25), st.integers(0, 8), st.booleans(),
                          st.integers(0, 1), st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=20)


def events_of(calls, work):
    called = [timed.at(start, start + length, name=name, correlation_id=number, thread_id=thread, domain="hip",
                       call_id=row, capture=0)
              for row, (start, length, name, number, thread) in enumerate(calls)]
    made = [(timed.at(start, start + length, correlation_id=number or None, device_id=device, stream_id=stream,
                      capture=capture), copy) for start, length, number, copy, device, stream, capture in work]
    rows = {"kernels": timed.kernels(*(row for row, copy in made if not copy)), "api_calls": timed.calls(*called),
            "copies": timed.copies(*(row | {"copy_id": n} for n, (row, copy) in enumerate(made) if copy))}
    recording = PathRecording()
    recording.feed(*(rows[name].select(columns) for name, columns in COLUMNS.items()))
    return recording.result()


def reach(graph):
    """Which nodes are after which, by any chain of edges."""
    after = np.eye(graph.nodes, dtype=np.float32)
    after[graph.source, graph.target] = 1
    for _ in range(graph.nodes.bit_length()):
        after = np.minimum(after @ after, 1)
    return after > 0


@given(CALLS, WORK)
def test_the_path_fills_the_window(calls, work):
    """Every ns once, in order, from the first event to the last end; nothing on it can wait."""
    found = events_of(calls, work)
    path = answer.find(found, np.full(len(found.work), -1))
    segments, graph = path.segments, path.graph.dag
    assert graph.holds()
    assert path.bound.dag.holds()
    edges = np.r_[graph.begin, segments.end]
    assert (np.r_[segments.start, graph.end] == edges).all()
    assert graph.end == found.work.end.max()
    assert graph.begin == min([found.work.start.min(), *found.calls.start[found.calls.start <= graph.end]])
    assert sum(answer.bound_by(segments).values()) == path.window_ns
    assert dag.window(path.bound.dag) == path.window_ns
    assert (path.slack >= 0).all()
    assert not path.slack[path.on_path > 0].any()
    assert (path.on_path <= found.work.end - found.work.start).all()
    assert path.critical_path_ns <= path.window_ns


@given(CALLS, WORK)
def test_a_stream_keeps_its_order(calls, work):
    """Of two pieces of work of a stream the one that started when the other had ended is after it, and there is no
    edge from one stream to another that nothing says."""
    found = events_of(calls, work)
    path = answer.find(found, np.full(len(found.work), -1))
    after, rows = reach(path.graph.dag), found.work
    for one in range(len(rows)):
        for other in range(one + 1, len(rows)):
            if rows.lane[one] == rows.lane[other] and rows.end[one] <= rows.start[other]:
                assert after[one, other]
    graph = path.graph.dag
    stream = np.flatnonzero(graph.kind == Edge.STREAM)
    assert (rows.lane[graph.source[stream]] == rows.lane[graph.target[stream]]).all()
    launch = np.flatnonzero(graph.kind == Edge.LAUNCH)
    assert not graph.part[launch].any()  # a kernel may start while its launch call still runs
    assert (found.work.launch[graph.target[launch]] == path.graph.call[graph.source[launch]]).all()


@given(CALLS, WORK)
def test_a_device_synchronisation_is_after_all_that_was_launched_before_it(calls, work):
    """Unless its times say that it did not wait, or it lies in another wait of its thread."""
    found = events_of(calls, work)
    path = answer.find(found, np.full(len(found.work), -1))
    after, rows, called = reach(path.graph.dag), found.work, found.calls
    returns = np.flatnonzero((path.graph.call >= 0) & (np.arange(path.graph.dag.nodes) >= len(rows) + len(called)))
    syncs = np.flatnonzero(called.part == CallKind.SYNC)
    for node in returns:
        call = path.graph.call[node]
        beside = syncs[(called.thread[syncs] == called.thread[call]) & (syncs != call)]
        alone = (called.end[beside] < called.start[call]) | (called.start[beside] > called.end[call])
        if called.part[call] == CallKind.SYNC and alone.all():
            launched = (rows.launch >= 0) & (called.start[rows.launch] < called.start[call])
            waited = np.flatnonzero(launched & (rows.end <= called.end[call]) & (rows.capture == 0))
            assert after[waited, node].all()


def test_a_session_without_collectives_has_a_path_for_each_capture():
    found = events_of([], [(0, 5, 0, False, 0, 0, 0), (3, 9, 0, False, 0, 0, 1)])
    assert (answer.operations(tables.COLLECTIVES.build(), found) == -1).all()
    assert len(list(answer.groups(found.work.capture, np.full(2, -1)))) == 2
