"""Which node of the executed (optimised) graph computes each node of the original graph."""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import onnx
import pyarrow as pa

from aaco.core.tables import EXECUTED_NODES

NOBODY = -1
IDENTITY = frozenset({"Identity", "Dropout"})
# Nodes a runtime puts in to change layout, element type or device; the value stays what it was.
LAYOUT = {"ReorderInput": "Transpose", "ReorderOutput": "Transpose", "Transpose": "Transpose", "Cast": "Cast",
          "MemcpyToHost": "Memcpy", "MemcpyFromHost": "Memcpy"}
SMALL_BYTES = 1024
# ONNX Runtime's marks on the names it makes (Graph::GenerateNodeArgName, NchwcTransformer, EnsureUniqueDQForNodeUnit,
# PropagateCastOps, InsertCastTransformer); what is left names the tensor or node the new one stands for.
MARKS = re.compile(r"(_token_\d+|/duplicated|_nchwc)+$")
KINDS = re.compile(r"^(Fused|Nhwc|QLinear|Q(?=[A-Z]))+")
CAST_MARK = "InsertedPrecisionFreeCast_"


@dataclass(frozen=True)
class Lowering:
    """Where every original node went; the lists follow the original graph's node_id.

    `fate` is kept (one executed node computes it alone), fused (an executed node computes it and others) or eliminated;
    `why` says of an eliminated node which: constant_folded, identity, layout, duplicate, dead, or unmatched (not decided).
    """

    executed: pa.Table
    executed_as: list[str | None]
    fate: list[str]
    why: list[str | None]


def numbered_nodes(graph: onnx.GraphProto, path: str = "") -> Iterator[tuple[str, onnx.NodeProto]]:
    """Each node with the path of its subgraph; its position is its node_id.

    Main-graph nodes come in order, a control-flow node's subgraphs directly after it, in attribute order. The path is
    empty in the main graph and `<node>/<attribute>` (joined by `/`) below.
    """
    for node in graph.node:
        yield path, node
        for name, body in _bodies(node):
            yield from numbered_nodes(body, f"{path}/{node.name or node.op_type}/{name}".lstrip("/"))


def lower(original: onnx.ModelProto, stages: Sequence[onnx.ModelProto]) -> Lowering:
    """Map every original node through the runtime's dumps, in the order it made them; the last is what it executed.

    Each stage is matched with the one before by tensor cones: a tensor whose name survives is an anchor, and an executed
    node owns what lies between its output's anchor and the anchors above. A chain of stages keeps the cones small: the
    EXTENDED dump still has the tensor names that the NCHWc layout of the ALL dump replaces. Where several executed nodes
    compute a node (a shared transpose fused into two products), the first that reads one of its inputs owns it.
    """
    first = fine = _flatten(original.graph)
    home = list(range(len(first.nodes)))
    why: list[str | None] = [None] * len(home)
    for stage in stages:
        coarse = _flatten(stage.graph)
        owner, reason = _Stage(fine, coarse).solve()
        why = [old if at == NOBODY else reason[at] for at, old in zip(home, why, strict=True)]
        home = [at if at == NOBODY else owner[at] for at in home]
        fine = coarse
    return _report(fine, home, why)


def _report(executed: _Flat, home: list[int], why: list[str | None]) -> Lowering:
    sources: list[list[int]] = [[] for _ in executed.nodes]
    for node, at in enumerate(home):
        if at != NOBODY:
            sources[at].append(node)
    names = [node.name or f"{node.op_type}_{i}" for i, node in enumerate(executed.nodes)]
    table = EXECUTED_NODES.build(
        executed_id=list(range(len(names))), name=names, op_type=[node.op_type for node in executed.nodes],
        domain=[node.domain for node in executed.nodes],
        origin=[("inserted", "original")[len(some)] if len(some) < 2 else "fused" for some in sources], source_nodes=sources)
    fate = ["eliminated" if at == NOBODY else "kept" if len(sources[at]) == 1 else "fused" for at in home]
    return Lowering(table, [None if at == NOBODY else names[at] for at in home], fate, why)


def _bodies(node: onnx.NodeProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.name, attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from ((f"{attribute.name}[{i}]", body) for i, body in enumerate(attribute.graphs))



@dataclass
class _Flat:
    """A graph and its subgraphs as one flow of integer tensors; a control-flow node also reads what its bodies return.

    `order` is the order of the flow (bodies before their node), `keys` names each tensor by scope and name, where the
    scope is the first output of the control-flow node, which optimisers keep. An input that is left out is NOBODY.
    """

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    scopes: list[str] = field(default_factory=list)
    parents: list[tuple[int, str]] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    ins: list[list[int]] = field(default_factory=list)
    outs: list[list[int]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    producer: list[int] = field(default_factory=list)
    consumers: list[list[int]] = field(default_factory=list)
    weights: dict[int, onnx.TensorProto] = field(default_factory=dict)
    results: set[int] = field(default_factory=set)

    def add_tensor(self, key: str) -> int:
        """A new tensor."""
        self.keys.append(key)
        self.producer.append(NOBODY)
        self.consumers.append([])
        return len(self.keys) - 1

    def reads(self, node: int) -> list[int]:
        """The tensors a node reads."""
        return [tensor for tensor in self.ins[node] if tensor != NOBODY]

    def op(self, node: int) -> str:
        """A node's operator."""
        return str(self.nodes[node].op_type)


def _flatten(graph: onnx.GraphProto) -> _Flat:
    flat = _Flat()
    flat.results.update(_read_graph(flat, graph, "", {}, (NOBODY, "")))
    for node in range(len(flat.nodes)):
        for tensor in flat.reads(node):
            flat.consumers[tensor].append(node)
    return flat


def _read_graph(flat: _Flat, graph: onnx.GraphProto, scope: str, outer: dict[str, int], parent: tuple[int, str]) -> list[int]:
    """Append a (sub)graph that can see the tensors `outer`; returns the tensors it returns."""
    seen = dict(outer)
    free = [info.name for info in graph.input]
    seen.update({name: flat.add_tensor(scope + name) for name in free})
    for weight in [*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)]:
        if weight.name not in free:  # an initializer that is also an input can be overridden: nothing is folded into it
            seen[weight.name] = flat.add_tensor(scope + weight.name)
            flat.weights[seen[weight.name]] = weight
    for node in graph.node:
        seen.update({name: flat.add_tensor(scope + name) for name in node.output if name})
    for node in graph.node:
        _read_node(flat, node, scope, seen, parent)
    return [seen[info.name] for info in graph.output if info.name in seen]


def _read_node(flat: _Flat, node: onnx.NodeProto, scope: str, seen: dict[str, int], parent: tuple[int, str]) -> None:
    at = len(flat.nodes)
    for name in node.input:
        if name and name not in seen:
            seen[name] = flat.add_tensor(scope + name)
    flat.nodes.append(node)
    flat.scopes.append(scope)
    flat.parents.append(parent)
    flat.ins.append([seen[name] if name else NOBODY for name in node.input])
    flat.outs.append([seen[name] for name in node.output if name])
    for tensor in flat.outs[at]:
        flat.producer[tensor] = at
    for name, body in _bodies(node):
        flat.ins[at] += _read_graph(flat, body, f"{scope}{''.join(node.output[:1])}>{name}>", seen, (at, name))
    flat.order.append(at)


def _same_values(graph: _Flat) -> list[int]:
    """For each tensor the first tensor sure to hold the same value: identities, equal small weights, repeated nodes."""
    same = list(range(len(graph.keys)))
    known: dict[tuple[object, ...], list[int]] = {}
    for tensor, weight in graph.weights.items():
        if 0 < weight.ByteSize() <= SMALL_BYTES and _has_data(weight):
            values = (weight.data_type, tuple(weight.dims), onnx.numpy_helper.to_array(weight).tobytes())
            same[tensor] = known.setdefault(values, [tensor])[0]
    for node in graph.order:
        if graph.op(node) in IDENTITY and graph.ins[node]:
            same[graph.outs[node][0]] = same[graph.ins[node][0]]
        elif (twin := _signature(graph, node, same)) is not None:
            first = known.setdefault(twin, [same[tensor] for tensor in graph.outs[node]])
            for tensor, value in zip(graph.outs[node], first, strict=False):
                same[tensor] = value
    return same


def _has_data(weight: onnx.TensorProto) -> bool:
    return weight.HasField("raw_data") or bool(
        len(weight.float_data) + len(weight.int64_data) + len(weight.int32_data) + len(weight.double_data))


def _signature(graph: _Flat, node: int, same: list[int]) -> tuple[object, ...] | None:
    proto = graph.nodes[node]
    if any(True for _ in _bodies(proto)) or (not proto.input and proto.ByteSize() > SMALL_BYTES):
        return None
    inputs = tuple(same[tensor] if tensor != NOBODY else NOBODY for tensor in graph.ins[node])
    return proto.domain, proto.op_type, len(proto.output), inputs, *_attributes(proto)


def _attributes(node: onnx.NodeProto) -> list[bytes]:
    return sorted(attribute.SerializeToString() for attribute in node.attribute)


class _Stage:
    """Matches the nodes of one graph with those of the next, coarser one. Each step of `solve` says its rule."""

    def __init__(self, fine: _Flat, coarse: _Flat) -> None:
        self.fine, self.coarse = fine, coarse
        self.same = _same_values(fine)
        self.image: dict[int, int] = {}  # coarse tensor -> the fine tensor whose value it holds
        self.loose: dict[int, str] = {}  # coarse tensor -> operator (Transpose, Cast) that may lie between the two
        self.owner = [NOBODY] * len(fine.nodes)
        self.why: list[str | None] = [None] * len(fine.nodes)

    def solve(self) -> tuple[list[int], list[str | None]]:
        """For each fine node its coarse node, or NOBODY and why."""
        self.anchor_by_name()
        self.see_through_layout()
        self.own_anchored()
        self.walk_forward()
        self.claim_cones()
        self.release_folded()
        self.release_idle()
        self.explain_unowned()
        return self.owner, self.why

    # -- anchors: which fine tensor does a coarse tensor hold?

    def anchor_by_name(self) -> None:
        """A tensor keeps its name; else the name without the runtime's marks is that of a tensor, or of the node it came from."""
        tensors = self.fine_tensors()
        made = {self.fine.scopes[n] + node.name: n for n, node in reversed(list(enumerate(self.fine.nodes))) if node.name}
        for tensor, key in enumerate(self.coarse.keys):
            if key in tensors:
                self.image[tensor] = tensors[key]
                continue
            if self.coarse.producer[tensor] == NOBODY:
                continue
            scope, _, name = key.rpartition(">")
            base = f"{scope}>" * bool(scope) + MARKS.sub("", name.removeprefix(CAST_MARK))
            if base in tensors:
                self.hold(tensor, tensors[base], "Cast" if name.startswith(CAST_MARK) else "Transpose")
            elif base in made and len(self.fine.outs[made[base]]) == 1 and self.akin(self.coarse.producer[tensor], made[base]):
                self.hold(tensor, self.fine.outs[made[base]][0], "Transpose")

    def fine_tensors(self) -> dict[str, int]:
        """Fine tensors by key, and those of a branch also by the key it gets when its If is dissolved into the graph around."""
        keys: dict[str, int] = {}
        for node, outs in enumerate(self.fine.outs):
            holder, branch = self.fine.parents[node]
            if holder != NOBODY:
                prefix = f"{self.fine.scopes[holder]}_{self.fine.nodes[holder].name}_{branch}_"
                keys.update({prefix + self.fine.keys[t].removeprefix(self.fine.scopes[node]): t for t in outs})
        return keys | {key: tensor for tensor, key in enumerate(self.fine.keys)}

    def hold(self, tensor: int, value: int, loose: str) -> None:
        """A coarse tensor holds a fine one's value, up to what the operator `loose` changes."""
        self.image[tensor], self.loose[tensor] = value, loose

    def akin(self, coarse: int, fine: int) -> bool:
        """Is it the same operator, apart from a fused, quantised or re-laid-out variant?"""
        return KINDS.sub("", self.coarse.op(coarse)) == KINDS.sub("", self.fine.op(fine))

    def see_through_layout(self) -> None:
        """What a re-layout node was put in to make exists already before it: its input holds the value of its output."""
        for node in reversed(self.coarse.order):
            if self.is_inserted(node) and self.coarse.outs[node][0] in self.image:
                source = self.coarse.ins[node][0]
                if source not in self.image:
                    self.hold(source, self.image[self.coarse.outs[node][0]], LAYOUT[self.coarse.op(node)])

    def is_inserted(self, node: int) -> bool:
        """Was this re-layout node put in by the runtime (or else: is it a Transpose or Cast of the original graph)?"""
        if self.coarse.op(node) not in LAYOUT:
            return False
        source, result = self.image.get(self.coarse.ins[node][0]), self.image.get(self.coarse.outs[node][0])
        if result is None:
            return self.named_seed(node) == NOBODY
        if source is not None:
            return self.same[source] == self.same[result]
        return self.fine.op(self.maker(result)) != self.coarse.op(node)

    def maker(self, tensor: int) -> int:
        """The node that computes a fine tensor's value, identities passed by."""
        node = self.fine.producer[tensor]
        while node != NOBODY and self.fine.op(node) in IDENTITY and self.fine.producer[self.fine.ins[node][0]] != NOBODY:
            node = self.fine.producer[self.fine.ins[node][0]]
        return node
