"""How long the host launches a traced step, against a count of every microsecond."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aaco.analytics.advice.work import CALL_NS
from aaco.core.session import Session
from aaco.core.tables import API_CALLS
from aaco.steps.findings import host_calls
from aaco.steps.findings.host_calls import HostCalls
from aaco.steps.findings.own_operators import OwnOperators
from aaco.steps.findings.step_work import computing
from aaco.tracelake import store

US = 1000
LAUNCH, WAIT, OTHER = "cudaLaunchKernel", "cudaStreamSynchronize", "aten::add"
Call = tuple[int, int, int, str]


def calls(*rows: Call, first: int | None = 1, last: int | None = None, captures: tuple[int, ...] = (),
          capture: int | None = 0) -> HostCalls:
    """What is read of calls (start us, us, link, name), in a session; 0 links nothing. last: by default the last link.
    """
    start, took, link = ([row[column] for row in rows] for column in range(3))
    with tempfile.TemporaryDirectory() as folder:
        session = Session.create(Path(folder), {"kind": "import"}, "", "0")
        store.write(session, API_CALLS, API_CALLS.build(
            call_id=range(len(rows)), name=[row[3] for row in rows], t_start_ns=[US * at for at in start],
            t_end_ns=[US * (at + us) for at, us in zip(start, took, strict=True)],
            correlation_id=[each or None for each in link], capture=captures or [0] * len(rows)))
        return host_calls.read(session, capture, first, max(link, default=0) if last is None else last)


def launches(*starts: int) -> list[Call]:
    """Launches of 5 us that are linked in their order, from 1 on."""
    return [(start, 5, number, LAUNCH) for number, start in enumerate(starts, 1)]


def test_a_capture_without_calls_has_no_waits():
    assert calls().waits_between(0, 1) == 0 and calls().launching_ns(1) == 0.0


def test_calls_are_those_of_their_capture_that_launch_copy_or_wait():
    """A range of the host and another capture's call are none of them."""
    rows = [*launches(0), (0, 9, 0, OTHER), (10, 5, 0, WAIT), (20, 5, 2, LAUNCH)]
    found = calls(*rows, captures=(0, 0, 0, 1))
    assert (found.asked.tolist(), found.start.tolist(), found.synchronises.tolist()) == ([0], [10 * US], [True])
    assert len(calls(*rows, captures=(0, 0, 0, 1), capture=None).asked) == 2


def test_a_call_without_a_name_is_none_of_them():
    assert calls(*launches(0), (10, 5, 0, None)).asked.tolist() == [0]


def test_batches_that_other_processes_make_are_taken_within_the_window():
    """Not what the host loads itself, nor another capture's."""
    ready, alone = (f"enumerate(DataLoader)#_{kind}ProcessingDataLoaderIter.__next__" for kind in ("Multi", "Single"))
    rows = [(0, 30, 0, ready), (50, 40, 0, ready), (0, 80, 0, alone), (60, 9, 0, ready)]
    found = calls(*rows, captures=(0, 0, 0, 1))
    assert found.fetching_between(10 * US, 70 * US) == (20 + 20) * US
    assert calls(*rows, captures=(0, 0, 0, 1), capture=None).fetching_between(0, 100 * US) == (30 + 40 + 9) * US


def test_a_step_is_launched_from_the_first_call_of_all_steps_to_the_end_of_the_last():
    assert calls(*launches(0, 10, 20, 30)).launching_ns(2) == (20 + 15) / 2 * US


def test_what_the_host_did_in_one_step_of_three_counts_in_no_other():
    """The second step has 500 us between its launches."""
    assert calls(*launches(0, 10, 20, 520, 530, 540)).launching_ns(3) == 20 * US


def test_steps_with_other_counts_of_calls_share_their_time():
    assert calls(*launches(0, 10, 100)).launching_ns(2) == 105 / 2 * US


def test_waits_do_not_launch_and_neither_does_what_a_call_takes_beyond_its_usual_time():
    """A wait of 40 us in which another thread waits for 20; a launch of 100 us that waits for room after CALL_NS."""
    waited = calls(*launches(0, 10), (20, 40, 0, WAIT), (30, 20, 0, WAIT), (60, 100, 3, LAUNCH))
    assert waited.launching_ns(1) == 20 * US + CALL_NS


@pytest.mark.parametrize(("first", "last"), [(9, 2), (1, 9), (2, 1), (None, None)])
def test_nothing_is_known_of_work_without_its_calls_or_in_another_order(first, last):
    assert calls(*launches(0, 10), first=first, last=last or 0).launching_ns(1) == 0.0


def test_waits_are_counted_that_reach_into_a_window():
    """A launch that waits for room is none of them."""
    waits = calls((0, 10, 0, WAIT), (10, 10, 0, WAIT), (15, 90, 1, LAUNCH), (20, 10, 0, WAIT))
    assert waits.waits_between(10 * US, 20 * US) == 1 and waits.waits_between(0, 99 * US) == 3


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 90), st.just(0), st.sampled_from([LAUNCH, WAIT])),
                max_size=8), st.integers(1, 120))
def test_equal_to_a_count_of_every_microsecond(between, last):
    found = calls((0, 0, 1, LAUNCH), *between, (last, 1, 2, LAUNCH)).launching_ns(1)
    waiting = np.zeros(400, bool)
    for start, took, _, name in between:
        waiting[start + (0 if name == WAIT else round(CALL_NS) // US):start + took] = True
    assert found == US * int(np.count_nonzero(~waiting[:last + 1]))


# The host's own operators
def own_us(*rows, **options):
    found = calls(*rows, **options)
    return found.own_ns() / US


def test_the_host_works_on_tensors_of_its_own_where_operators_give_the_device_nothing():
    """From the first to the end of the last, with what is between them; a view is no work, nor is what launches."""
    assert own_us((0, 5, 0, "aten::view"), (10, 20, 0, "aten::mul"), (12, 4, 0, "aten::empty"),
                  (40, 10, 0, "aten::cat"), (60, 10, 0, "aten::add"), (65, 2, 1, LAUNCH), (80, 5, 0, "Mine")) == 40
    assert own_us((0, 5, 0, "aten::_conj"), (6, 5, 0, "aten::mT"), (12, 5, 0, "aten::to")) == 0
    assert own_us((0, 5, 0, OTHER), (10, 5, 0, WAIT), (20, 5, 0, OTHER)) == 10
    assert own_us() == 0


def test_operators_around_others_work_as_long_as_they():
    assert own_us((0, 30, 0, "aten::pad"), (5, 4, 0, "aten::fill_"), (20, 15, 0, "aten::copy_")) == 35


def test_what_an_operator_counts_before_it_launches_is_no_work_of_the_hosts_own():
    rows = [(0, 30, 0, "aten::repeat"), (0, 9, 0, "aten::arange"), (20, 5, 1, LAUNCH), (30, 5, 0, OTHER)]
    assert own_us(*rows) == 5


@pytest.mark.parametrize("launched", [43, 68])
def test_an_operator_that_launches_reaches_from_one_piece_of_the_trace_into_the_next(launched):
    """Of a large trace a piece is read at a time. It launches in either of two, and a part of it begins in the second.
    """
    own, given = OwnOperators(["aten::add"]), np.array([launched])
    own.add(np.array([0, 0]), np.array([0, 40]), np.array([30, 70]), given[given < 50])
    own.add(np.array([0, 0]), np.array([56, 80]), np.array([58, 85]), given[given > 50])
    assert [part.tolist() for part in own.spans(given)] == [[0, 80], [30, 85]]


def test_the_steps_that_an_optimizer_counts_are_no_work_of_the_host():
    rows = [(0, 5, 0, OTHER), (10, 50, 0, "Optimizer.step#Adam.step"), (20, 30, 0, "aten::_foreach_add_"),
            (22, 5, 0, "aten::add_")]
    assert own_us(*rows) == 5
    assert own_us(*rows, (70, 5, 0, OTHER)) == 75


def test_what_the_host_does_for_the_first_step_lies_before_the_window():
    """20 of 40 us of work in two steps; the window begins with the device's work, and half of the kernels are in it."""
    found = calls((0, 20, 0, OTHER), (30, 5, 1, LAUNCH), (60, 20, 0, OTHER), (90, 5, 2, LAUNCH))
    assert (found.own_ns(), found.own_between(0, 70 * US)) == (40 * US, 30 * US)
    assert computing(found, (30 * US, 110 * US), 1.0) == 40 / (80 + 20)
    assert computing(found, (30 * US, 110 * US), 0.25) == 10 / 80
