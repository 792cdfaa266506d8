"""What could have been one kernel: patterns by name, their bytes, and that nothing has to run in between."""

from __future__ import annotations

import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aaco.analytics.fusion.fusion import FusionStep, Tensor, document, opportunities, steps_of
from aaco.analytics.graph.graph import describe
from aaco.core.tables import EXECUTED_NODES

KB = 1024
BANDWIDTH = 1e9


def found(text, own_ns=1e9, groups=None, **options):
    """The opportunities of a model each of whose nodes was executed alone, or in the groups given (of node ids)."""
    graph = describe(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}'))
    names, ops = (graph.nodes[name].to_pylist() for name in ("name", "op_type"))
    sources = groups or [[node] for node in range(len(names))]
    executed = EXECUTED_NODES.build(
        executed_id=range(len(sources)), name=[names[some[0]] for some in sources],
        op_type=[ops[some[0]] for some in sources], domain=[""] * len(sources), source_nodes=sources)
    steps = steps_of(executed, graph.nodes, graph.edges, dict.fromkeys(names, own_ns))
    return opportunities(steps, BANDWIDTH, **options)


def test_a_chain_saves_what_lies_between():
    one, = found("g (float[256] x) => (float[256] y) { a = Exp(x) b = Neg(a) y = Sqrt(b) }")
    assert one.pattern == "element by element" and one.op_types == ("Exp", "Neg", "Sqrt")
    assert one.saved_bytes == 2 * 2 * KB and one.saved_ns == pytest.approx(1e9 * 4 * KB / BANDWIDTH)


def test_what_others_read_is_still_written():
    """Mutation: counting the write of a tensor that leaves the group."""
    one, = found("g (float[256] x) => (float[256] y, float[256] b) { a = Exp(x) b = Neg(a) y = Sqrt(b) }")
    assert one.saved_bytes == 2 * KB + KB


def test_no_more_is_promised_than_the_kernels_take():
    """Mutation: leaving the cap out."""
    one, = found("g (float[256] x) => (float[256] y) { a = Exp(x) y = Neg(a) }", own_ns=10.0)
    assert one.saved_ns == one.own_ns == 20.0


def test_what_the_runtime_fused_is_no_opportunity():
    text = "g (float[256] x) => (float[256] y) { a = Exp(x) b = Neg(a) y = Sqrt(b) }"
    assert found(text, groups=[[0, 1, 2]]) == []
    one, = found(text, groups=[[0], [1, 2]])
    assert one.saved_bytes == 2 * KB and len(one.steps) == 2


def test_a_residual_round_a_product_is_not_joined():
    """Exp and Add touch, but the product would have to run between them. Mutation: not looking for that."""
    groups = found("g (float[8,8] x, float[8,8] w) => (float[8,8] y) { a = Exp(x) b = MatMul(a, w) y = Add(a, b) }")
    assert [one.op_types for one in groups] == [("MatMul", "Add")]


def test_attention_is_found():
    text = """g (float[2,16,8] q, float[2,8,16] k, float[2,16,8] v, float[2,16,16] m) => (float[2,16,8] y)
        <float s = {0.5}>
        { a = MatMul(q, k) b = Mul(a, s) c = Add(b, m) p = Softmax(c) y = MatMul(p, v) }"""
    one, = found(text)
    assert one.pattern == "attention" and len(one.steps) == 5
    assert one.saved_bytes == 4 * 2 * (2 * 16 * 16 * 4)


def test_gelu_and_the_norm_written_out_are_found():
    gelu, = found("""g (float[64] x) => (float[64] y) <float r = {1.41421}, float one = {1}, float half = {0.5}>
        { a = Div(x, r) b = Erf(a) c = Add(b, one) d = Mul(x, c) y = Mul(d, half) }""")
    assert gelu.pattern == "gelu written out" and len(gelu.steps) == 5
    norm, = found("""g (float[4,64] x) => (float[4,64] y) <float two = {2}, float eps = {1e-5}>
        { m = ReduceMean(x) c = Sub(x, m) q = Pow(c, two) v = ReduceMean(q) w = Add(v, eps) s = Sqrt(w)
          y = Div(c, s) }""")
    assert norm.pattern == "norm written out" and len(norm.steps) == 7


@pytest.mark.parametrize(("text", "pattern"), [
    ("g (float[1,3,8,8] x, float[4,3,3,3] w, float[4] s) => (float[1,4,6,6] y) { a = Conv(x, w) "
     "b = BatchNormalization(a, s, s, s, s) y = Relu(b) }", "conv + batch norm"),
    ("g (float[8,8] x, float[8,8] w, float[8] b) => (float[8,8] y) { a = MatMul(x, w) c = Add(a, b) y = Relu(c) }",
     "product + epilogue"),
    ("g (float[8,8] x, float[8,8] r, float[8] w) => (float[8,8] y) { a = Add(x, r) "
     "y = LayerNormalization(a, w) }", "residual + norm"),
])
def test_patterns_by_name(text, pattern):
    one, = found(text)
    assert one.pattern == pattern


def test_providers_are_not_joined():
    steps = [FusionStep("a", "Exp", "elementwise", ("CUDA",), 1.0),
             FusionStep("b", "Neg", "elementwise", ("CPU",), 1.0)]
    tensor = Tensor(0, KB, {1})
    steps[0].makes.append(tensor)
    steps[1].reads.append(tensor)
    assert opportunities(steps, BANDWIDTH) == []


def test_the_document_sums_those_alike():
    text = """g (float[256] x, float[256] u) => (float[256] y, float[256] z)
        { a = Exp(x) y = Neg(a) c = Exp(u) z = Neg(c) }"""
    row, = document(found(text), 1e12, BANDWIDTH, "measured")["opportunities"]
    assert row["times"] == 2 and row["saved_bytes"] == 4 * KB and row["saved_share_at_most"] == pytest.approx(4.096e-9)


FAMILIES = ("elementwise", "elementwise", "gemm", "conv", "softmax", "norm", "reduction", "copy")


@st.composite
def graphs(draw):
    count = draw(st.integers(2, 9))
    steps = [FusionStep(str(n), kind := draw(st.sampled_from(FAMILIES)), kind, (), 1.0) for n in range(count)]
    for maker in range(count - 1):
        readers = set(draw(st.lists(st.integers(maker + 1, count - 1), max_size=3)))
        tensor = Tensor(maker, draw(st.integers(0, 99)), readers, draw(st.booleans()) or not readers)
        steps[maker].makes.append(tensor)
        for reader in readers:
            steps[reader].reads.append(tensor)
    return steps


@given(graphs())
@settings(max_examples=300)
def test_what_is_joined_can_run_as_one_and_saves_its_traffic(steps):
    """Groups contracted leave no cycle; bytes saved are the traffic before less the traffic after. Mutation: looking
    for what lies between node by node instead of group by group."""
    made = opportunities(steps, BANDWIDTH)
    group = {int(step): number for number, one in enumerate(made) for step in one.steps}
    of = [group.get(step, f"alone {step}") for step in range(len(steps))]
    edges = {(of[tensor.maker], of[reader]) for step in steps for tensor in step.makes for reader in tensor.readers}
    left = {(a, b) for a, b in edges if a != b}
    while left:  # take away groups that nothing leads to
        sources = {a for a, _ in left} - {b for _, b in left}
        assert sources, "a cycle of kernels"
        left = {(a, b) for a, b in left if a not in sources}
    for number, one in enumerate(made):
        members = {int(step) for step in one.steps}
        before = sum(sum(t.bytes for t in steps[m].reads) + sum(t.bytes for t in steps[m].makes) for m in members)
        own = [t for m in members for t in steps[m].makes]
        into = {id(t): t for m in members for t in steps[m].reads if t.maker not in members}
        reads = [t.bytes for m in members for t in steps[m].reads if t.maker not in members]
        after = sum(reads) + sum(t.bytes for t in own if t.leaves or not t.readers or t.readers - members)
        assert one.saved_bytes == before - after and len(into) <= len(reads), number
