"""Call trees against an oracle that compares every call with every other."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aaco.tracelake.ingest.calltree import NONE, Calls, Forest, Role

# Small numbers, so that equal starts, equal ends, empty calls and identical calls are common.
ROLES = st.sampled_from([Role.ANY, Role.HOLDS, Role.RETURNS, Role.HOLDS | Role.RETURNS])
CALLS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(0, 6), ROLES), max_size=40)


def in_order(drawn):
    """(thread, start, end, role) by start, of equal starts the longer first."""
    return sorted(((thread, start, start + length, role) for thread, start, length, role in drawn),
                  key=lambda call: (call[1], -call[2]))


def returned(calls):
    """The calls with no Python function that ends after one that was open when it began, and that holds."""
    settled = []
    for thread, start, end, role in calls:
        around = [other for other in settled if other[0] == thread and other[3] & Role.HOLDS and start < other[2]]
        if role & Role.RETURNS and around:
            end = min(end, around[-1][2])
        settled.append((thread, start, end, role))
    return settled


def oracle(calls):
    """Parent, preorder and subtree size of each call, straight from the definition."""
    calls, parents = [call[:3] for call in returned(calls)], []
    for here, (thread, start, end) in enumerate(calls):
        around = [other for other in range(here) if calls[other][0] == thread
                  and calls[other][1] <= start < calls[other][2] and end <= calls[other][2]]
        parents.append(max(around, default=NONE))
    sizes = [1] * len(calls)
    for here in reversed(range(len(calls))):
        if parents[here] != NONE:
            sizes[parents[here]] += sizes[here]
    return parents, walk(calls, parents), sizes


def walk(calls, parents):
    """Position of each call in a depth-first walk of its thread's tree."""
    children = {here: [] for here in range(NONE, len(calls))}
    for here, parent in enumerate(parents):
        children[parent].append(here)
    preorder, seen = [0] * len(calls), dict.fromkeys(range(3), 0)
    stack = list(reversed(children[NONE]))
    while stack:
        here = stack.pop()
        preorder[here] = seen[calls[here][0]]
        seen[calls[here][0]] += 1
        stack += reversed(children[here])
    return preorder


def grown(calls, cuts):
    """The same from the forest, fed in batches that end at the cuts."""
    forest, sizes = Forest(), {}
    parents, preorder = [], []
    for begin, end in zip([0, *cuts], [*cuts, len(calls)], strict=True):
        table = np.array(calls[begin:end], np.int64).reshape(-1, 4)
        found = forest.grow(Calls(table[:, 0], np.arange(begin, end), *table[:, 1:].T))
        parents += found.parent.tolist()
        preorder += found.preorder.tolist()
        sizes |= dict(zip(found.closed.tolist(), found.subtree.tolist(), strict=True))
    rest = dict(zip(*(column.tolist() for column in forest.close()), strict=True))
    assert not rest.keys() & sizes.keys()
    sizes |= rest
    return parents, preorder, [sizes[here] for here in range(len(calls))]


@settings(max_examples=150, deadline=None)
@given(CALLS, st.lists(st.integers(0, 40), max_size=6))
def test_trees_are_those_of_the_definition_however_they_arrive(drawn, cuts):
    """Mutations seen to fail: `>=` for `>` in what ends a call, an empty call inside one that just ended (`needs`
    without its instant), open calls not carried to the next batch, the sentinel between threads left out."""
    calls = in_order(drawn)
    cuts = sorted(min(cut, len(calls)) for cut in cuts)
    assert grown(calls, cuts) == oracle(calls)


def test_calls_that_only_overlap_are_not_inside_each_other():
    calls = [(0, 0, 10, Role.ANY), (0, 2, 12, Role.ANY), (0, 3, 9, Role.ANY), (0, 11, 14, Role.ANY)]
    assert grown(calls, [])[0] == [NONE, NONE, 1, NONE]


@settings(max_examples=150, deadline=None)
@given(CALLS, st.lists(st.integers(0, 40), max_size=6))
def test_trees_of_calls_that_nest_depend_on_no_role(drawn, cuts):
    calls = list[tuple[int, int, int, Role]]()
    for call in in_order(drawn):
        if all(call[0] != other[0] or call[1] >= other[2] or call[2] <= other[2] for other in calls):
            calls.append(call)
    cuts = sorted(min(cut, len(calls)) for cut in cuts)
    assert grown(calls, cuts) == grown([(*call[:3], Role.ANY) for call in calls], [])


def test_a_function_of_c_with_a_late_end_is_inside_what_called_it():
    operator, function, late = (0, 0, 50, Role.HOLDS), (0, 5, 40, Role.HOLDS | Role.RETURNS), (0, 10, 900, Role.RETURNS)
    launch, later = (0, 20, 25, Role.ANY), (0, 60, 70, Role.HOLDS)
    assert grown([operator, function, late, launch, later], [2])[0] == [NONE, 0, 1, 2, NONE]


def test_what_runs_after_a_late_end_is_not_cut_by_it():
    """A function that begins before a C function's late end and ends after it has its own end."""
    late, function, launch = (0, 0, 50, Role.RETURNS), (0, 40, 90, Role.HOLDS | Role.RETURNS), (0, 60, 70, Role.ANY)
    assert grown([late, function, launch], [])[0] == [NONE, NONE, 1]
