"""Queue lengths of streams that run in order, however sliced, against counting at every nanosecond.

Mutations that these tests caught: `self.waited += int(grown - ...)` left out (a graph cut by a slice), `CAP - 1` ->
`CAP`, `reach[:-1]` -> no reach (overlapping full times counted twice), side="right" -> "left".
"""

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.streaming import link_launches
from aaco.analytics.streaming.link_launches import Callers, Linker
from aaco.analytics.streaming.work import WorkReader
from aaco.analytics.timeline import queues
from aaco.analytics.timeline.queues import Queues
from tests import timed

CAP = 3
# per launch: pause before the call, its length, and per piece of work: pause before it, its length
LAUNCHES = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3),
                              st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), min_size=1, max_size=3),
                              st.integers(0, 1)), min_size=1, max_size=14)


def laid_out(launches):
    """Calls and kernels of in-order streams, and per stream the (joined, departed) of its launches."""
    calls, kernels, spans, now = [], [], {0: [], 1: []}, 0
    free = {0: 0, 1: 0}
    for number, (pause, took, work, stream) in enumerate(launches, 1):
        now += pause
        calls.append(timed.at(now, now + took, correlation_id=number, name="cudaGraphLaunch"))
        joined, begin = now, max(now + took, free[stream])
        for wait, length in work:
            begin += wait
            kernels.append(timed.at(begin, begin + length, correlation_id=number, stream_id=stream))
            begin += length
        free[stream] = begin
        spans[stream].append((joined, begin))
        now += took + 1
    return {"api_calls": timed.calls(*calls), "kernels": timed.kernels(*kernels)}, spans


def run(tables, cuts, most=1000):
    lanes, callers, linker, found = WorkReader(), Callers(), Linker(), Queues()
    with patch.object(link_launches, "SLACK_NS", 2), patch.object(queues, "CAP", CAP), \
            patch.object(queues, "MOST", most):
        for until, part in timed.sliced(tables, cuts):
            linked = linker.feed(lanes.work(part["kernels"], None), callers.calls(part["api_calls"]),
                                 None if until == 2**62 else until)
            if linked:
                found.feed(linked)
        return {queue.stream_id: queue for queue in found.result(lanes.streams.known)}


@given(LAUNCHES, st.lists(st.integers(0, 150), max_size=8))
def test_lengths_are_those_of_counting_every_nanosecond(launches, cuts):
    tables, spans = laid_out(launches)
    found = run(tables, cuts)
    for stream, entries in spans.items():
        if not entries:
            continue
        queue, first, last = found[stream], entries[0][0], entries[-1][1]
        lengths = [sum(joined <= ns < departed for joined, departed in entries) for ns in range(first, last)]
        at_calls = [sum(joined <= call < departed or joined == call for joined, departed in entries)
                    for call, _ in entries]
        assert (queue.launches, queue.longest) == (len(entries), max(at_calls))
        assert (queue.t_start_ns, queue.t_end_ns) == (first, last)
        assert queue.at_cap_ns == sum(length >= CAP for length in lengths)
        assert abs(queue.mean * max(1, last - first) - sum(lengths)) < 1e-6


@given(LAUNCHES, st.lists(st.integers(0, 150), max_size=8))
def test_a_queue_longer_than_is_kept_is_cut_off_alike_however_sliced(launches, cuts):
    tables, _ = laid_out(launches)
    assert run(tables, cuts, most=CAP + 1) == run(tables, [], most=CAP + 1)
