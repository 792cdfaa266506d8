"""Paths, slack and what-if on any small schedule, against trying it out.

The oracle plays the schedule: each node starts as soon as everything before it lets it. Slack is then what it says: a
node held back by that much leaves the end alone, by one ns more moves it.
"""

from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.critical_path import dag
from aaco.analytics.critical_path.dag import Dag, Edge
from benchmarks.schedules import played

NODES = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 9)), min_size=1, max_size=8)
EDGES = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(0, 9), st.integers(0, 9),
                           st.sampled_from(list(Edge))), max_size=16)
SCALES = st.sampled_from([0.0, 0.3, 0.5, 1.0, 1.5, 2.0, 7.0])


@st.composite
def schedules(draw):
    """Nodes in any order in time, edges that hold between them; several may join the same two. Some nodes count."""
    nodes = draw(NODES)
    start, length = (np.array(column, np.int64) for column in zip(*nodes, strict=True))
    rows = []
    for one, other, part, lag, kind in draw(EDGES):
        source, target = sorted((one % len(nodes), other % len(nodes)), key=lambda node: (start[node], node))
        room = int(start[target] - start[source])
        if source != target:
            part = min(part, int(length[source]), room)
            rows.append((source, target, part, min(lag, room - part), int(kind)))
    columns = np.array(rows, np.int64).reshape(-1, 5).T
    begin = int(start.min())
    counts = np.array([draw(st.booleans()) for _ in nodes])
    counts[draw(st.integers(0, len(nodes) - 1))] = True
    late = ~counts & (start > (start + length)[counts].max())
    start[late], length[late] = begin, 0
    kept = ~late[columns[0]] & ~late[columns[1]]
    return Dag(start, length, *columns[:, kept], inferred=np.zeros(int(kept.sum()), bool), counts=counts, begin=begin,
               end=int((start + length)[counts].max()))


@given(schedules())
def test_the_recorded_schedule_is_the_earliest(found):
    """Once what held each node is known. Mutation: `lag[chosen] += ...` left out of bind."""
    assert found.holds()
    bound = dag.bind(found)
    assert bound.dag.holds()
    start, end = played(bound.dag)
    assert [start[node] + found.begin for node in range(found.nodes)] == found.start.tolist()
    assert end == found.end - found.begin == dag.window(bound.dag)


@given(schedules())
def test_slack_is_what_a_node_can_wait(found):
    """Mutations: slack without `- dag.lag`; `spare` of zeros; the graph not reversed."""
    found = dag.bind(found).dag
    _, end = played(found)
    for node, free in enumerate(dag.slack(found).tolist()):
        assert played(found, node, min(free, 1000))[1] == end
        assert free == dag.NEVER or played(found, node, free + 1)[1] == end + 1


@given(schedules(), SCALES, st.integers(0, 1))
def test_what_if_is_the_schedule_played_again(found, scale, parity):
    """Also where a node overlaps its successor, and for slower kernels. Mutation: stretch always 1; part not scaled."""
    found = dag.bind(found).dag
    chosen = np.arange(found.nodes) % 2 == parity
    factor = np.where(chosen, scale, 1.0)
    start, end = played(found, scale=scale, chosen=set(np.flatnonzero(chosen).tolist()))
    assert dag.window(found, factor) == end
    assert dag.replay(found, factor)[0].tolist() == [start[node] for node in range(found.nodes)]


@given(schedules())
def test_the_path_leads_from_the_first_of_a_chain_to_the_end(found):
    """Its parts and lags fill the time to the end without a hole, and nothing on it has slack. Mutation: `before` of
    some other edge."""
    bound = dag.bind(found)
    last = int(np.argmax(np.where(found.counts, found.start + found.length, -1)))
    path = dag.walk(bound, last)
    assert path[-1] == last
    assert bound.edge[path[0]] == dag.NO_EDGE
    at = int(found.start[path[0]])
    for node in path[1:].tolist():
        edge = int(bound.edge[node])
        at += int(bound.dag.part[edge] + bound.dag.lag[edge])
        assert found.start[node] == at
    assert at + found.length[last] == found.end
    assert not dag.slack(bound.dag)[path].any()


@given(schedules())
def test_both_searches_say_the_same(found):
    """On lists and compiled. Mutations: parallel edges summed; `found` with the added node."""
    found, factor = dag.bind(found).dag, np.linspace(0, 2, found.nodes)
    ours = dag.slack(found).tolist(), dag.replay(found, factor)[0].tolist()
    with patch.object(dag, "FEW", -1):
        assert ours == (dag.slack(found).tolist(), dag.replay(found, factor)[0].tolist())


@given(schedules(), st.integers(0, 3))
def test_longest_sum_over_every_chain(found, modulus):
    """Every chain walked one by one. Mutation: lag counted."""
    counted = np.arange(found.nodes) % (modulus + 1) == 0

    def best(node):
        own = int(found.length[node]) if counted[node] else 0
        onward = [(int(found.part[edge]) if counted[node] else 0) + best(int(found.target[edge]))
                  for edge in np.flatnonzero(found.source == node).tolist()]
        return max([own, *onward])
    assert dag.longest_sum(found, counted) == max(best(node) for node in range(found.nodes))


def test_a_circle_of_no_length_ends_the_walk():
    """Two pieces of work of no length at one time, each before the other: only a false trace says that."""
    zeros, ends = np.zeros(2, np.int64), np.array([1, 0])
    found = dag.bind(Dag(zeros, zeros, np.array([0, 1]), ends, zeros, zeros, zeros, zeros == 1, zeros == 0, 0, 0))
    assert dag.walk(found, 0).tolist() == [1, 0]
    assert dag.slack(found.dag).tolist() == [0, 0]
    assert dag.window(found.dag) == 0


def test_what_begins_at_one_moment_is_followed_whatever_comes_first():
    """Two calls of no length before work that lasts. Mutation: edges at one moment followed in the order they have."""
    zeros, kind = np.zeros(3, np.int64), np.zeros(2, np.int64)
    found = Dag(zeros, np.array([0, 0, 5]), np.array([0, 1]), np.array([1, 2]), kind, kind, kind, kind == 1,
                np.array([False, False, True]), 0, 5)
    assert dag.slack(found).tolist() == [0, 0, 0]
