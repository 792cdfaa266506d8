"""Links and waits of any calls and kernels, however sliced, against a plain search through all of them.

Mutations that these tests caught: `until - SLACK_NS` -> `until` (a launch that the clocks put after its work is lost),
the order of runs reversed (the later of two calls with one id), `self._sync_open[own] = True`, `copying[tail, None]` ->
False; of what waits took: `< PAUSE_NS` -> `<=`, `| (previous == Does.FILL)` left out, `self._trip[own]` -> 0, and
`before` without the calls that go on for longer than later ones.
"""

from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.streaming import launch_ids, link_launches
from aaco.analytics.streaming.launch_ids import LaunchFinder
from aaco.analytics.streaming.link_launches import Callers, Linker
from aaco.analytics.streaming.stream_ids import NONE
from aaco.analytics.streaming.work import WorkReader
from aaco.core.tables import replaced
from tests import timed

SLACK, PAUSE = 10, 6
LAUNCH, SYNC, COPY, OTHER = "cudaLaunchKernel", "cudaStreamSynchronize", "cudaMemcpyAsync", "cudaGetDevice"
FILL = "cudaMemsetAsync"
NAMES = st.sampled_from([LAUNCH, LAUNCH, SYNC, COPY, FILL, OTHER])
CALLS = st.lists(st.tuples(st.integers(0, 80), st.integers(0, 12), NAMES, st.integers(0, 6), st.integers(0, 1),
                           st.sampled_from([None, 3])), max_size=25)
WORK = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 6), st.sampled_from([None, 3])), min_size=1, max_size=15)


def tables_of(calls, work):
    rows = [timed.at(start, start + length, name=name, correlation_id=number, thread_id=thread, capture=capture)
            for start, length, name, number, thread, capture in calls]
    kernels = [timed.at(start, start + 1, correlation_id=number, capture=capture) for start, number, capture in work]
    return {"api_calls": timed.calls(*rows), "kernels": timed.kernels(*kernels)}


def with_ids(tables, cuts):
    """The tables with the launches of kernels, found piece by piece as an import finds them."""
    calls = replaced(tables["api_calls"], "call_id", pa.array(range(tables["api_calls"].num_rows), pa.int64()))
    finder, pieces = LaunchFinder(), [part for _, part in timed.sliced(tables | {"api_calls": calls}, cuts)]
    with patch.object(launch_ids, "SLACK_NS", SLACK), patch.object(link_launches, "SLACK_NS", SLACK):
        launches = [finder.launching(piece["api_calls"]) for piece in pieces]
        found = finder.ids((part for part in launches if part.num_rows), (piece["kernels"] for piece in pieces))
        ids = pa.chunked_array([*found], pa.int64())
    kernels = replaced(tables["kernels"], "launch_id", ids)
    return {"api_calls": calls, "kernels": replaced(kernels, "correlation_id", pa.nulls(len(ids), pa.int64()))}


def run(tables, cuts, with_launches=False, columns=link_launches.CALL_FIELDS):
    """Per kernel in start order: (launch start, end, synced, took, copied, first)."""
    lanes, callers, linker, found = WorkReader(None, with_launches), Callers(with_launches), Linker(columns), []
    with patch.object(link_launches, "SLACK_NS", SLACK), patch.object(link_launches, "RUN", 3), \
            patch.object(link_launches, "PAUSE_NS", PAUSE):
        for until, part in timed.sliced(tables, cuts):
            work, calls = lanes.work(part["kernels"], None), callers.calls(part["api_calls"])
            for linked in filter(None, (linker.feed(work, calls, until), *([linker.feed(work.take(slice(0, 0)),
                                 calls.take(slice(0, 0)), None)] if until == 2**62 else []))):
                call = linked.call
                found += zip(call.start.tolist(), call.end.tolist(), call.synced_from.tolist(),
                             call.synced_until.tolist(), call.synced_ns.tolist(), call.copied_from.tolist(),
                             call.copied_until.tolist(), linked.first.tolist(), strict=True)
    return found


def plainly(tables):
    calls, used, found = tables["api_calls"].to_pylist(), set(), []
    for kernel in tables["kernels"].to_pylist():
        launches = [index for index, call in enumerate(calls)
                    if call["name"] in (LAUNCH, COPY, FILL) and call["correlation_id"] == kernel["correlation_id"] > 0
                    and call["capture"] == kernel["capture"] and call["t_start_ns"] < kernel["t_start_ns"] + SLACK]
        if not launches:
            found.append((NONE,) * 7 + (False,))
            continue
        index = launches[0]
        found.append((calls[index]["t_start_ns"], calls[index]["t_end_ns"], *waits_before(calls, index),
                      index not in used))
        used.add(index)
    return found


def waits_before(calls, index):
    synced, took, copied, going_on = (NONE, NONE), NONE, (NONE, NONE), False
    mine = [call for call in calls[:index] if call["name"] != OTHER
            and all(call[name] == calls[index][name] for name in ("thread_id", "capture"))]
    for place, call in enumerate(mine):
        span = call["t_start_ns"], call["t_end_ns"]
        if call["name"] == SYNC:
            synced = (min(synced[0], span[0]), max(synced[1], span[1])) if going_on else span
            took = took_until(mine, place)
        if call["name"] == COPY:
            copied = span
        going_on = call["name"] == SYNC
    return *synced, took, *copied


def took_until(calls, last):
    """The time of the waits that end with this one, the copies before them, and the ways to them, call by call."""
    first = last
    while first and calls[first - 1]["name"] == SYNC:
        first -= 1
    while first and calls[first - 1]["name"] == COPY:
        first -= 1
    took = 0
    for place in range(first, last + 1):
        start, end = calls[place]["t_start_ns"], calls[place]["t_end_ns"]
        free = max((other["t_end_ns"] for other in calls[:place]), default=start)
        took += max(0, end - (free if start - free < PAUSE else start))
    return took


@given(CALLS, WORK, st.lists(st.integers(0, 90), max_size=8))
def test_links_and_waits_are_those_of_a_plain_search(calls, work, cuts):
    tables = tables_of(calls, work)
    assert run(tables, cuts) == plainly(tables)


@given(CALLS, WORK, st.lists(st.integers(0, 90), max_size=8), st.lists(st.integers(0, 90), max_size=8))
def test_a_launch_found_once_is_that_of_a_plain_search(calls, work, written, read):
    """Whatever the pieces that were written, and those that are read."""
    tables = tables_of(calls, work)
    assert run(with_ids(tables, written), read, with_launches=True) == plainly(tables)


@given(CALLS, WORK, st.lists(st.integers(0, 90), max_size=8))
def test_columns_that_are_asked_for_are_the_same_without_the_others(calls, work, cuts):
    """Mutation: the columns change places."""
    whole, asked = run(tables := tables_of(calls, work), cuts), run(tables, cuts, columns=("copied_until", "end"))
    assert asked == [(start, end, NONE, NONE, NONE, NONE, until, first) for start, end, *_, until, first in whole]


HOST = st.lists(st.tuples(st.integers(-4, 9), st.integers(0, 9), st.sampled_from([LAUNCH, SYNC, SYNC, COPY, FILL]),
                          st.sampled_from([0, 0, 0, 1])), min_size=3, max_size=25)


@given(HOST, st.lists(st.integers(0, 90), max_size=8))
def test_what_waits_took_is_that_of_a_plain_search(host, cuts):
    """Every call that launches has its work, so that each of them is looked at."""
    calls, now = [], 0
    for number, (pause, length, name, thread) in enumerate(host, 1):
        now = max(0, now + pause)
        calls.append((now, length, name, number, thread, None))
        now += length
    calls.sort(key=lambda call: call[0])
    tables = tables_of(calls, sorted((start + 1, number, None) for start, _, _, number, _, _ in calls))
    assert run(tables, cuts) == plainly(tables)


def test_a_launch_is_forgotten_only_after_many_later_ones():
    rows = [timed.at(number, number + 1, correlation_id=number + 1) for number in range(20)]
    tables = {"api_calls": timed.calls(*rows), "kernels": timed.kernels(
        timed.at(1000, 1001, correlation_id=1), timed.at(1001, 1002, correlation_id=20))}
    with patch.object(link_launches, "REMEMBERED", 5):
        found = run(tables, [4, 8, 12, 16])
    assert [row[0] for row in found] == [NONE, 19]


@pytest.mark.parametrize("until", [5, 50])
def test_work_waits_for_calls_that_may_still_come(until):
    lanes, callers, linker = WorkReader(), Callers(), Linker()
    with patch.object(link_launches, "SLACK_NS", SLACK):
        linked = linker.feed(lanes.work(timed.kernels(timed.at(30, 40)), None), callers.calls(timed.calls()), until)
    assert (linked is None) == (until - SLACK <= 30)
