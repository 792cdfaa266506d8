"""Longest paths and live tensors of models whose answer is known."""

from __future__ import annotations

import onnx.parser
import pytest

from aaco.analytics.graph.graph import describe
from aaco.analytics.graph.graph_bounds import graph_memory, longest
from aaco.analytics.metrics.graph import graph_peak_live_bytes
from aaco.core.readings import Absent


def model(text):
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}')


def memory(text, **bind):
    graph = describe(model(text), bind=bind)
    return graph_memory(graph.nodes, graph.edges)


def test_a_chain_holds_two_tensors_at_once():
    found = memory("g (float[256] x) => (float[256] y) { a = Relu(x) b = Relu(a) c = Relu(b) y = Relu(c) }")
    assert found.peak_bytes == 2 * 1024


def test_a_residual_is_alive_until_it_is_added():
    """Mutation: ending a tensor's life at its first reader."""
    found = memory("g (float[256] x) => (float[256] y) { a = Relu(x) b = Relu(a) c = Relu(b) y = Add(a, c) }")
    assert found.peak_bytes == 3 * 1024


def test_views_are_no_tensors_of_their_own():
    found = memory("g (float[16,16] x) => (float[256] y) <int64[1] flat = {256}> "
                   "{ a = Relu(x) b = Reshape(a, flat) c = Relu(b) y = Add(b, c) }")
    assert found.peak_bytes == 3 * 1024  # a (as b), c, y


def test_what_a_loop_reads_lives_until_the_loop_ends():
    """In the body `a` is read first; each further trip needs it again. Mutation: ending its life at the body's node."""
    text = """g (float[256] x) => (float[256] y) <int64 trips = {3}, bool go = {1}> {
        a = Relu(x)
        r = Loop <body = b (int64 i, bool c, float[256] s) => (bool d, float[256] t) {
            d = Identity(c)
            p = Add(s, a)
            q = Relu(p)
            t = Relu(q)
        }> (trips, go, x)
        y = Relu(r)
    }"""
    found = memory(text)
    assert found.peak_bytes == 3 * 1024


def test_an_unknown_size_is_said():
    text = "g (float[N] x) => (float[N] y) { a = Relu(x) y = Relu(a) }"
    assert memory(text).unknown == 2 and memory(text, x=[256]).peak_bytes == 2048
    with pytest.raises(Absent, match="2 tensors"):
        graph_peak_live_bytes(memory(text))


def test_two_branches_could_run_at_once():
    found = longest([0, 1, 2, 3], [(0, 1), (0, 2), (1, 3), (2, 3)], {0: 1.0, 1: 5.0, 2: 4.0, 3: 1.0})
    assert found.nodes == (0, 1, 3) and found.length == 7 and found.parallelism == pytest.approx(11 / 7)
