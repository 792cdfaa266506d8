"""Kernels laid to nodes by order: the probabilities are those of all ways through the model, each weighed by hand."""

from itertools import product
from math import exp, inf, isclose

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aaco.analytics.attribution import sequence
from aaco.analytics.attribution.sequence import AFTER, BEFORE, MAIN, Beliefs, SequenceNode

FAMILIES = ("conv", "elementwise", "gemm", "copy", "transpose", "unknown")
NODE = st.builds(SequenceNode, st.sampled_from(("Conv", "Relu", "Reshape", "aten::add_")), st.sampled_from(FAMILIES),
                 st.booleans())
FEED, FETCH = "feed", "fetch"


def moves(nodes, beliefs, state):
    """Probabilities of what comes after a state (None: the begin): states, and None for the end."""
    found = {}
    if state == FETCH:
        return {FETCH: beliefs.outside, None: 1.0}
    if state in (None, FEED):
        found[FEED] = beliefs.outside
        at, leave = -1, 1.0
    else:
        at, phase = state
        helped = nodes[at].family in sequence.HELPED
        finished = beliefs.finished if helped else beliefs.helper
        found[at, phase] = beliefs.again
        on = 1 - beliefs.again
        if phase == BEFORE:
            found[at, MAIN] = on
            return found
        if phase == MAIN:
            found[at, AFTER] = on * finished
            on *= 1 - finished
        leave = on
    passed = 1.0
    for later in range(at + 1, len(nodes)):
        node = nodes[later]
        view = sequence.plain(node.op_type) in sequence.VIEWS
        skip = 1 - 1e-9 if node.silent else beliefs.skips_view if view else beliefs.skips
        prepared = beliefs.prepared if node.family in sequence.HELPED else beliefs.helper
        found[later, BEFORE] = leave * passed * (1 - skip) * prepared
        found[later, MAIN] = leave * passed * (1 - skip) * (1 - prepared)
        passed *= skip
    if state is not None:
        found[FETCH] = leave * passed * beliefs.outside
        found[None] = leave * passed
    return found


def walks(nodes, beliefs, seen, states):
    """The probability of each (kernel, state), by adding up all walks."""
    total = np.zeros((len(seen), len(states)))
    for walk in product(states, repeat=len(seen)):
        chance, before = 1.0, None
        for place, state in enumerate(walk):
            chance *= moves(nodes, beliefs, before).get(state, 0.0) * exp(seen[place, states.index(state)])
            if not chance:
                break
            before = state
        else:
            chance *= moves(nodes, beliefs, before).get(None, 0.0)
            for place, state in enumerate(walk):
                total[place, states.index(state)] += chance
    return total / total.sum(axis=1, keepdims=True)


@settings(max_examples=40, deadline=None)
@given(st.lists(NODE, min_size=1, max_size=2), st.lists(st.sampled_from(FAMILIES), min_size=1, max_size=3))
def test_probabilities_are_those_of_all_walks(nodes, families):
    """Mutations: a node skipped for nothing; no way behind the last node; helpers that nothing follows."""
    beliefs = Beliefs(rounds=0)
    model = sequence._Model(nodes, beliefs)
    seen = sequence._SequenceKernels(model, families, families).seen()
    states = [*((at, phase) for at in range(len(nodes)) for phase in (BEFORE, MAIN, AFTER)), FEED, FETCH]
    expected = walks(nodes, beliefs, seen, states)
    laid = sequence.lay(families, families, nodes, beliefs)
    by_node = np.stack([*(expected[:, 3 * at:3 * at + 3].sum(axis=1) for at in range(len(nodes))),
                        expected[:, -2:].sum(axis=1)], axis=1)
    for place, node in enumerate(laid.node):
        column = len(nodes) if node == sequence.OUTSIDE else node
        assert isclose(laid.confidence[place], by_node[place, column], rel_tol=1e-6, abs_tol=1e-9)
        assert by_node[place, column] >= by_node[place].max() - 1e-9
    assert -inf < laid.confidence.min()
