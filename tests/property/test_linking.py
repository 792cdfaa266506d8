"""Links and waits of any calls and kernels, however sliced, against a plain search through all of them.

Mutations that these tests caught: `until - SLACK_NS` -> `until` (a launch that the clocks put after its work is lost),
the order of runs reversed (the later of two calls with one id), `self._sync_open[own] = True`, `copying[tail, None]` ->
False.
"""

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics import linking
from aaco.analytics.lanes import NONE
from aaco.analytics.linking import Callers, Linker
from aaco.analytics.work import Lanes
from tests import timed

SLACK = 10
LAUNCH, SYNC, COPY, OTHER = "cudaLaunchKernel", "cudaStreamSynchronize", "cudaMemcpyAsync", "cudaGetDevice"
CALLS = st.lists(st.tuples(st.integers(0, 80), st.integers(0, 12), st.sampled_from([LAUNCH, LAUNCH, SYNC, COPY, OTHER]),
                           st.integers(0, 6), st.integers(0, 1), st.sampled_from([None, 3])), max_size=25)
WORK = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 6), st.sampled_from([None, 3])), min_size=1, max_size=15)


def tables_of(calls, work):
    rows = [timed.at(start, start + length, name=name, correlation_id=number, thread_id=thread, capture=capture)
            for start, length, name, number, thread, capture in calls]
    kernels = [timed.at(start, start + 1, correlation_id=number, capture=capture) for start, number, capture in work]
    return {"api_calls": timed.calls(*rows), "kernels": timed.kernels(*kernels)}


def run(tables, cuts):
    """Per kernel in start order: (launch start, end, synced, copied, first)."""
    lanes, callers, linker, found = Lanes(), Callers(), Linker(), []
    with patch.object(linking, "SLACK_NS", SLACK), patch.object(linking, "RUN", 3):
        for until, part in timed.sliced(tables, cuts):
            work, calls = lanes.work(part["kernels"], None), callers.calls(part["api_calls"])
            for linked in filter(None, (linker.feed(work, calls, until), *([linker.feed(work.take(slice(0, 0)),
                                 calls.take(slice(0, 0)), None)] if until == 2**62 else []))):
                call = linked.call
                found += zip(call.start.tolist(), call.end.tolist(), call.synced_from.tolist(),
                             call.synced_until.tolist(), call.copied_from.tolist(), call.copied_until.tolist(),
                             linked.first.tolist(), strict=True)
    return found


def plainly(tables):
    calls, used, found = tables["api_calls"].to_pylist(), set(), []
    for kernel in tables["kernels"].to_pylist():
        launches = [index for index, call in enumerate(calls)
                    if call["name"] in (LAUNCH, COPY) and call["correlation_id"] == kernel["correlation_id"] > 0
                    and call["capture"] == kernel["capture"] and call["t_start_ns"] < kernel["t_start_ns"] + SLACK]
        if not launches:
            found.append((NONE,) * 6 + (False,))
            continue
        index = launches[0]
        found.append((calls[index]["t_start_ns"], calls[index]["t_end_ns"], *waits_before(calls, index),
                      index not in used))
        used.add(index)
    return found


def waits_before(calls, index):
    synced, copied, going_on = (NONE, NONE), (NONE, NONE), False
    for call in calls[:index]:
        if any(call[name] != calls[index][name] for name in ("thread_id", "capture")) or call["name"] == OTHER:
            continue
        span = call["t_start_ns"], call["t_end_ns"]
        if call["name"] == SYNC:
            synced = (min(synced[0], span[0]), max(synced[1], span[1])) if going_on else span
        if call["name"] == COPY:
            copied = span
        going_on = call["name"] == SYNC
    return *synced, *copied


@given(CALLS, WORK, st.lists(st.integers(0, 90), max_size=8))
def test_links_and_waits_are_those_of_a_plain_search(calls, work, cuts):
    tables = tables_of(calls, work)
    assert run(tables, cuts) == plainly(tables)


def test_a_launch_is_forgotten_only_after_many_later_ones():
    rows = [timed.at(number, number + 1, correlation_id=number + 1) for number in range(20)]
    tables = {"api_calls": timed.calls(*rows), "kernels": timed.kernels(
        timed.at(1000, 1001, correlation_id=1), timed.at(1001, 1002, correlation_id=20))}
    with patch.object(linking, "REMEMBERED", 5):
        found = run(tables, [4, 8, 12, 16])
    assert [row[0] for row in found] == [NONE, 19]


@pytest.mark.parametrize("until", [5, 50])
def test_work_waits_for_calls_that_may_still_come(until):
    lanes, callers, linker = Lanes(), Callers(), Linker()
    with patch.object(linking, "SLACK_NS", SLACK):
        linked = linker.feed(lanes.work(timed.kernels(timed.at(30, 40)), None), callers.calls(timed.calls()), until)
    assert (linked is None) == (until - SLACK <= 30)
