"""Counters of one execution as those of another's kernels, against a plain dictionary."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aaco.core.tables import COUNTERS, KERNELS
from aaco.profiler.capture import CaptureFacts
from aaco.steps.device.join_counters import TracedKernels


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
    trace = TracedKernels()
    for index, piece in enumerate(traced):
        trace.saw(index, piece)
    pieces, account = trace.join([iter([*capture, CaptureFacts("f")]) for capture in captures], 3)
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
    assert join([kernels([(None, "a"), (2, "a")])], [[kernels([(1, "a")])]])[1].why_not == (
        "the kernels of the trace have no dispatch numbers")
    assert join([kernels([(5, "a")])], [[kernels([(1, "a")])]])[1].why_not == "the trace has none of its dispatches"
    twice = join([kernels([(1, "a"), (1, "a")])], [[kernels([(1, "a")])]])[1]
    assert twice.why_not == "dispatch numbers of the trace are there more than once"


def launched(names, process=1, sizes=(), links=()):
    """Kernels of a trace without dispatch numbers, in the order of their starts."""
    count = len(names)
    return KERNELS.build(kernel_id=np.arange(count), kernel_name=list(names), process_id=np.full(count, process),
                         t_start_ns=np.arange(count) * 10, grid_x=list(sizes) or None,
                         correlation_id=list(links) or None)


@settings(deadline=None)
@given(st.lists(st.sampled_from("abc"), min_size=1), st.sets(st.sampled_from("abc"), min_size=1), st.data())
def test_without_dispatch_numbers_the_order_of_launches_joins(names, some, data):
    """The k-th kernel of the counted functions is the k-th that the trace launched, whenever it started.

    Broken by: joining by start; by position among all kernels; leaving counted functions' namespaces in.
    """
    order = data.draw(st.permutations(range(len(names))))  # the k-th to start was launched as order[k]
    traced = launched([f"_ZN2ns1{names[at]}IfEEvT_" for at in order], links=[7 + at for at in order])
    wanted = [name for name in names if name in some] or ["a"]
    counted = kernels([(at, f"void {name}<float>(T1)") for at, name in enumerate(wanted)])
    found, account = join([traced], [[counted, counters([(at, at + .5) for at in range(len(wanted))])]])
    launches = [at for at, name in enumerate(names) if name in wanted]
    if len(launches) != len(wanted):  # none of `some` was launched
        assert account.joined == 0 and account.why_not
        return
    assert found == sorted((0, order.index(launch), at + .5, 3) for at, launch in enumerate(launches))
    assert account.joined == len(wanted)


def test_one_launch_more_or_another_size_spoils_the_order():
    """Broken by: zipping what is there; comparing names alone."""
    def reason(traced, counted):
        found, account = join([traced], [[counted, counters([(0, 1.)])]])
        assert not found
        return account.why_not

    assert reason(launched("aab"), kernels([(0, "a")])).startswith("it has 1 kernels of the functions that were")
    assert reason(launched("ab"), kernels([(0, "b"), (1, "a")])).startswith(
        "2 of its 2 kernels are other launches than in the trace; the first, number 0, is b")
    assert "is a of 64 work-items and was a of 128" in reason(
        launched("a", sizes=[128]), launched("a", sizes=[64]).set_column(0, "kernel_id", [[0]]))
    assert reason(launched("a"), launched("")) == "its kernels are none"
