"""What operators of a graph say in sum is what its executed nodes did: no tensor inside a fused node is moved."""

from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from aaco.analytics import attribution
from aaco.analytics.graph import graph
from aaco.analytics.graph.executed_work import border_work, executed_work
from aaco.core import tables

KINDS = ("Relu", "Sigmoid", "Add", "Mul", "Reshape", "Identity", "Softmax")
SIZE = 4 * 6  # every tensor is float32 [2, 3]


@st.composite
def graphs(draw):
    """Nodes that read any tensors before them; each is fused with others into one of some executed nodes."""
    count = draw(st.integers(1, 9))
    nodes = []
    for number in range(count):
        known = ["x", "w", *(f"t{before}" for before in range(number))]
        kind = draw(st.sampled_from(KINDS))
        read = [draw(st.sampled_from(known)) for _ in range(2 if kind in ("Add", "Mul") else 1)]
        nodes.append((kind, read, draw(st.integers(0, 3))))
    results = draw(st.sets(st.sampled_from(range(count)), min_size=1))
    return nodes, results


def described(nodes, results):
    """The graph's nodes and edges, and its executed nodes."""
    made = [helper.make_node(kind, [*read, *(["shape"] if kind == "Reshape" else [])], [f"t{number}"],
                             name=f"/m/{kind}_{number}") for number, (kind, read, _) in enumerate(nodes)]
    held = [helper.make_tensor("w", TensorProto.FLOAT, [2, 3], [1.0] * 6),
            helper.make_tensor("shape", TensorProto.INT64, [2], [2, 3])]
    model = helper.make_model(helper.make_graph(
        made, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info(f"t{number}", TensorProto.FLOAT, [2, 3]) for number in sorted(results)], held))
    found = graph.describe(model)
    groups = sorted({group for *_, group in nodes})
    sources = [[number for number, (*_, mine) in enumerate(nodes) if mine == group] for group in groups]
    return found, tables.EXECUTED_NODES.build(executed_id=groups, name=[f"e{group}" for group in groups],
                                              source_nodes=sources)


def crossing(nodes, results, group):
    """The oracle: of a fused node, the bytes of each tensor that somebody computes with on the other side."""
    views = {f"t{number}": read[0] for number, (kind, read, _) in enumerate(nodes) if kind in ("Reshape", "Identity")}

    def origin(name):
        while name in views:
            name = views[name]
        return name

    home = {f"t{number}": mine for number, (*_, mine) in enumerate(nodes)}
    uses = {(origin(name), mine) for kind, read, mine in nodes if kind not in ("Reshape", "Identity") for name in read}
    uses |= {(origin(f"t{number}"), None) for number in results}
    entering = {name for name, mine in uses if mine == group and home.get(name) != group}
    leaving = {name for name, mine in uses if mine != group and home.get(name) == group}
    unread = {f"t{number}" for number, (*_, mine) in enumerate(nodes) if mine == group and f"t{number}" not in views
              and number not in results and not any(f"t{number}" in read for _, read, _ in nodes)}
    return SIZE * (len(entering) + len(leaving) + len(unread))


@settings(deadline=None)
@given(graphs())
def test_a_fused_node_moves_what_crosses_its_border(drawn):
    nodes, results = drawn
    found, executed = described(nodes, results)
    work = border_work(executed_work(executed, found.nodes, found.edges))
    for (_, moved), group, sources in zip(work.values(), executed["executed_id"].to_pylist(),
                                          executed["source_nodes"].to_pylist(), strict=True):
        alone = found.nodes["bytes_each"][sources[0]].as_py()
        assert moved == (alone if len(sources) == 1 else crossing(nodes, results, group))


@settings(deadline=None)
@given(graphs(), st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_operators_did_what_their_executed_nodes_did(drawn, ran):
    """Mutation: each source node's own bytes summed."""
    found, executed = described(*drawn)
    names = [f"e{group}" for group in ran if f"e{group}" in executed["name"].to_pylist()]
    kernels = tables.KERNELS.build(kernel_id=range(len(names)), executed_node=names, dur_ns=[7] * len(names))
    mapped = attribution.map_nodes(kernels, executed, found.nodes)
    each = executed_work(executed, found.nodes, found.edges)
    operators, mapped = attribution.of_graph(kernels, mapped, executed, found.nodes, each)
    work = border_work(each)
    said = operators.to_pylist()
    assert sum(one["flops"] for one in said) == sum(work[name][0] for name in names)
    assert sum(one["bytes"] for one in said) == sum(work[name][1] for name in names)
    assert sum(one["calls"] for one in said) == sum(one["kernels"] for one in said) == len(names)
    assert sum(one["device_ns"] for one in said) == sum(mapped["share_ns"].to_pylist()) == 7 * len(names)


def test_views_of_views_are_as_many_as_a_graph_has():
    """Mutation: a call for each."""
    views = [("Identity", [f"t{before}"], 1) for before in range(1, 1500)]
    found, executed = described([("Relu", ["x"], 0), ("Relu", ["t0"], 0), *views, ("Relu", ["t1500"], 2)], {1501})
    assert border_work(executed_work(executed, found.nodes, found.edges))["e0"][1] == 2 * SIZE
