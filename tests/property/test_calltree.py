"""Call trees against an oracle that compares every call with every other."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aaco.tracelake.ingest.calltree import NONE, Calls, Forest

# Small numbers, so that equal starts, equal ends, empty calls and identical calls are common.
CALLS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(0, 6)), max_size=40)


def in_order(drawn):
    """(thread, start, end) by start, of equal starts the longer first."""
    return sorted(((thread, start, start + length) for thread, start, length in drawn),
                  key=lambda call: (call[1], -call[2]))


def oracle(calls):
    """Parent, preorder and subtree size of each call, straight from the definition."""
    parents = []
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
        table = np.array(calls[begin:end], np.int64).reshape(-1, 3)
        found = forest.grow(Calls(table[:, 0], np.arange(begin, end), table[:, 1], table[:, 2]))
        parents += found.parent.tolist()
        preorder += found.preorder.tolist()
        sizes |= dict(zip(found.closed.tolist(), found.subtree.tolist(), strict=True))
    rest = dict(zip(*(column.tolist() for column in forest.close()), strict=True))
    assert not rest.keys() & sizes.keys()
    sizes |= rest
    return parents, preorder, [sizes[here] for here in range(len(calls))]


@settings(max_examples=400, deadline=None)
@given(CALLS, st.lists(st.integers(0, 40), max_size=6))
def test_trees_are_those_of_the_definition_however_they_arrive(drawn, cuts):
    """Mutations seen to fail: `>=` for `>` in what ends a call, an empty call inside one that just ended (`needs`
    without its instant), open calls not carried to the next batch, the sentinel between threads left out."""
    calls = in_order(drawn)
    cuts = sorted(min(cut, len(calls)) for cut in cuts)
    assert grown(calls, cuts) == oracle(calls)


def test_calls_that_only_overlap_are_not_inside_each_other():
    calls = [(0, 0, 10), (0, 2, 12), (0, 3, 9), (0, 11, 14)]
    assert grown(calls, [])[0] == [NONE, NONE, 1, NONE]
