"""Counters of one execution as those of another's kernels, against a plain dictionary."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aaco.core.tables import COUNTERS, KERNELS
from aaco.counted import Traced
from aaco.profiler.capture import Facts


def kernels(rows, process=1):
    """Kernels (dispatch, name) of one process, keyed by their position."""
    dispatches, names = zip(*rows, strict=True) if rows else ((), ())
    return KERNELS.build(kernel_id=np.arange(len(rows)), dispatch_id=list(dispatches), kernel_name=list(names),
                         process_id=np.full(len(rows), process))


def counters(values):
    """Counter C of kernels (key, value)."""
    keys, counts = zip(*values, strict=True)
    return COUNTERS.build(kernel_id=list(keys), counter=["C"] * len(keys), value=list(counts))


def join(traced, captures):
    trace = Traced()
    for index, piece in enumerate(traced):
        trace.saw(index, piece)
    pieces, account = trace.join([iter([*capture, Facts("f")]) for capture in captures], 3)
    found = [(capture, *row) for capture, piece in pieces for row in zip(
        piece["kernel_id"].to_pylist(), piece["value"].to_pylist(), piece["pass"].to_pylist(), strict=True)]
    return sorted(found), account


DISPATCHES = st.dictionaries(st.integers(1, 30), st.sampled_from("abc"), min_size=1)


@settings(deadline=None)
@given(DISPATCHES, st.data())
def test_every_counter_finds_the_kernel_of_its_dispatch(named, data):
    """Broken by: joining by position instead of dispatch; keeping the counter's own key."""
    traced = data.draw(st.permutations(sorted(named.items())))
    some = data.draw(st.lists(st.sampled_from(sorted(named.items())), min_size=1, unique=True))
    found, account = join([kernels(traced)], [[kernels(some), counters([(key, key + .5) for key in range(len(some))])]])
    place = {dispatch: key for key, (dispatch, _) in enumerate(traced)}
    assert found == sorted((0, place[dispatch], key + .5, 3) for key, (dispatch, _) in enumerate(some))
    assert (account.dispatches, account.joined, account.why_not) == (len(some), len(some), None)


def test_one_dispatch_that_is_another_kernel_spoils_them_all():
    """Broken by: taking those that agree; the program does not do the same each time, so that is chance."""
    found, account = join([kernels([(1, "a"), (2, "b"), (3, "c")])],
                          [[kernels([(1, "a"), (3, "b")], 9), counters([(0, 1.), (1, 2.)])]])
    assert not found and account.joined == 0
    assert account.why_not.startswith("1 of its 2 dispatches are other kernels than in the trace; the first, number 3, "
                                      "is b and was c")


def test_what_the_trace_lacks_is_counted_not_invented():
    found, account = join([kernels([(2, "b")])], [[kernels([(1, "a"), (2, "b")]), counters([(0, 1.), (1, 2.)])]])
    assert found == [(0, 0, 2., 3)] and (account.dispatches, account.joined) == (2, 1)


def test_processes_are_matched_by_their_place():
    """Broken by: matching process numbers, which are other ones in every run; keys that are unique per capture only."""
    found, account = join([kernels([(1, "a")], 10), kernels([(1, "b")], 11)],
                          [[kernels([(1, "a")], 20), counters([(0, 1.)])], [kernels([(1, "b")], 21),
                                                                           counters([(0, 2.)])]])
    assert found == [(0, 0, 1., 3), (1, 0, 2., 3)] and account.joined == 2


def test_reasons():
    assert join([kernels([])], [[kernels([(1, "a")])]])[1].why_not == "the kernels of the trace are none"
    assert join([kernels([(1, "a")])], [[kernels([])]])[1].why_not == "its kernels are none"
    assert join([kernels([(None, "a")])], [[kernels([(1, "a")])]])[1].why_not == (
        "the kernels of the trace have no dispatch numbers")
    assert join([kernels([(5, "a")])], [[kernels([(1, "a")])]])[1].why_not == "the trace has none of its dispatches"
    twice = join([kernels([(1, "a"), (1, "a")])], [[kernels([(1, "a")])]])[1]
    assert twice.why_not == "dispatch numbers of the trace are there more than once"
