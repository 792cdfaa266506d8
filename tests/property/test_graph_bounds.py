"""Longest path and live tensors against brute force: every chain tried, every step looked at."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aaco.analytics.graph.graph import describe
from aaco.analytics.graph.graph_bounds import graph_memory, longest, order
from aaco.core.readings import Absent
from tests.random_graphs import random_graph

VIEWS = {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"}


@st.composite
def weighted_dags(draw):
    count = draw(st.integers(1, 7))
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    names = draw(st.permutations(range(count)))  # numbers need not follow the edges
    weight = dict(enumerate(draw(st.lists(st.integers(0, 9).map(float), min_size=count, max_size=count))))
    return list(range(count)), [(names[a], names[b]) for a, b in edges], weight


def chains(nodes, edges):
    """Every chain of nodes."""
    after = {node: [b for a, b in edges if a == node] for node in nodes}

    def grow(chain):
        yield chain
        for following in after[chain[-1]]:
            yield from grow([*chain, following])

    for node in nodes:
        yield from grow([node])


@given(weighted_dags())
def test_the_longest_path_is_the_heaviest_of_all_chains(dag):
    """Mutation: taking the first edge into a node instead of the heaviest."""
    nodes, edges, weight = dag
    found = longest(nodes, edges, weight)
    best = max(sum(weight[node] for node in chain) for chain in chains(nodes, edges))
    assert found.length == best == sum(weight[node] for node in found.nodes)
    assert all(pair in edges for pair in zip(found.nodes, found.nodes[1:], strict=False))
    assert found.total == sum(weight.values())


@given(weighted_dags())
def test_the_order_has_every_source_before_its_targets(dag):
    nodes, edges, _ = dag
    place = {node: step for step, node in enumerate(order(nodes, edges))}
    assert sorted(place) == nodes and all(place[a] < place[b] for a, b in edges)


def test_a_cycle_is_no_graph():
    with pytest.raises(Absent, match="cycle"):
        order([0, 1], [(0, 1), (1, 0)])


def alive_by_steps(model):
    """The most bytes alive while any node runs, from the model itself."""
    graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {info.name: [dim.dim_value for dim in info.type.tensor_type.shape.dim]
              for info in [*graph.value_info, *graph.output]}
    made = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    widths = {info.name: onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type).itemsize
              for info in [*graph.value_info, *graph.output]}

    def shown(tensor):
        while tensor in made and (node := graph.node[made[tensor]]).op_type in VIEWS:
            tensor = node.input[0]
        return tensor

    outputs = {shown(info.name) for info in graph.output}
    real = [name for name in made if shown(name) == name and graph.node[made[name]].op_type != "Constant"]
    best = 0
    for step in range(len(graph.node)):
        later = {shown(name) for node in graph.node[step:] for name in node.input} | outputs
        read = {shown(name) for node in graph.node for name in node.input} | outputs
        alive = [name for name in real if made[name] <= step and name in later and name in read]
        best = max(best, sum(math.prod(shapes[name]) * widths[name] for name in alive))
    return best


@given(st.integers(0, 10**6), st.integers(1, 9), st.booleans())
@settings(max_examples=60)
def test_the_peak_is_that_of_the_fullest_step(seed, steps, transposes):
    """Mutation: letting a tensor die before its last reader has run; forgetting that a view keeps its tensor."""
    random = np.random.default_rng(seed)
    model = random_graph(lambda below: int(random.integers(below)), steps, transposes)
    graph = describe(model)
    found = graph_memory(graph.nodes, graph.edges)
    assert found.unknown == 0 and found.peak_bytes == alive_by_steps(model)
