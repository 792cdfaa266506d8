"""Whatever ONNX Runtime makes of a random graph, every original node is accounted for once and the numbers agree."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from aaco.analytics.graph.lowering import lower
from tests.lowering_oracle import ALL, EXTENDED, Oracle, optimised, random_feeds, stripped
from tests.random_graphs import random_graph

# Derandomised: a few in ten thousand graphs have no single right answer (what a copied transpose belongs to).
STEADY = settings(max_examples=80, deadline=None, derandomize=True, database=None,
                  suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def judged(data: DataObject, transposes: bool) -> Oracle:
    original = random_graph(lambda n: data.draw(st.integers(0, n - 1)), data.draw(st.integers(1, 20)), transposes)
    stages = [optimised(original, EXTENDED), optimised(original, ALL)]
    lowered = lower(stripped(original), [stripped(stage) for stage in stages])
    return Oracle(original, stages[-1], lowered, random_feeds(original, {}))


@STEADY
@given(st.data())
def test_random_graphs_with_nodes_that_vanish(data: DataObject) -> None:
    assert judged(data, transposes=False).problems() == []


@STEADY
@given(st.data())
def test_random_graphs_with_transposes_that_move(data: DataObject) -> None:
    oracle = judged(data, transposes=True)
    assert [*oracle.conservation(), *oracle.products(), *oracle.duplicates(), *oracle.exits()] == []
