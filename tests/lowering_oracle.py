"""Truth for the lowering that shares no rule with it: run both graphs, and the claimed nodes alone, compare numbers.

Three checks for every executed node of the main graph:
closed    the original nodes between its output and its inputs are the ones it claims (or eliminated, or shared ones
          that another executed node claims because no tensor of the executed graph holds their result);
equal     those nodes, cut out of the original and fed what the executed node was fed, give what it gave;
exit      what leaves its own claim holds the same numbers as its output, whatever their order (so it also judges
          nodes inside the NCHWc layout, where no tensor of the original exists).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from aaco.analytics.costs.inference import bodies
from aaco.analytics.graph.lowering import Lowering

LEVELS = ort.GraphOptimizationLevel
EXTENDED, ALL, OFF = LEVELS.ORT_ENABLE_EXTENDED, LEVELS.ORT_ENABLE_ALL, LEVELS.ORT_DISABLE_ALL
# What an executed node may do again although another one does it too, for someone else.
RECOMPUTES = {"Transpose": {"Transpose"}, "Reshape": {"Reshape"}, "ReorderOutput": {"Transpose"},
              "Identity": {"Transpose"}, "FusedMatMul": {"Transpose", "Mul", "Div"}}
RECOMPUTES |= {f"QLinear{kind}": {"DequantizeLinear"} for kind in ("Conv", "Add", "Mul", "Sigmoid", "Concat")}
PRODUCTS = ("Conv", "ConvTranspose", "MatMul", "Gemm")
Values = dict[str, np.ndarray[Any, Any]]


def numbered_nodes(graph: onnx.GraphProto, path: str = "") -> Iterator[tuple[str, onnx.NodeProto]]:
    """Each node with the path of its subgraph, in the order of node_id."""
    for node in graph.node:
        yield path, node
        for name, body in bodies(node):
            yield from numbered_nodes(body, f"{path}/{node.name or node.op_type}/{name}")


def session(model: onnx.ModelProto, level: Any, dump: Path | None = None) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level, options.log_severity_level = level, 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    if dump:
        options.optimized_model_filepath = str(dump)
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def optimised(model: onnx.ModelProto, level: Any) -> onnx.ModelProto:
    """The graph ONNX Runtime makes of a model."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "dump.onnx"
        session(model, level, path)
        return onnx.load(path)


def random_feeds(model: onnx.ModelProto, sizes: dict[str, int], seed: int = 0) -> Values:
    """Inputs for a model; `sizes` gives its symbolic dimensions."""
    draw = np.random.default_rng(seed)
    weights = {weight.name for weight in model.graph.initializer}
    feeds: Values = {}
    for info in model.graph.input:
        if info.name not in weights:
            kind = info.type.tensor_type
            shape = [d.dim_value or sizes[d.dim_param] for d in kind.shape.dim]
            draws = {TensorProto.FLOAT: lambda s: draw.standard_normal(s, dtype=np.float32),
                     TensorProto.INT64: lambda s: draw.integers(0, 2, s), TensorProto.BOOL: lambda s: np.ones(s, bool)}
            feeds[info.name] = np.asarray(draws[kind.elem_type](shape))
    return feeds


def all_values(model: onnx.ModelProto, feeds: Values) -> Values:
    """Every tensor of the main graph, computed without further optimisation."""
    open_model = onnx.ModelProto()
    open_model.CopyFrom(model)
    names = list(dict.fromkeys(name for node in model.graph.node for name in node.output if name))
    del open_model.graph.output[:]
    open_model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    ready = session(open_model, OFF)
    wanted = {info.name for info in ready.get_inputs()}
    values = ready.run(names, {name: value for name, value in feeds.items() if name in wanted})
    return feeds | {name: value for name, value in zip(names, values, strict=True) if isinstance(value, np.ndarray)}


@dataclass
class Oracle:
    """Both graphs, their values on the same feeds, and the lowering to judge."""

    original: onnx.ModelProto
    executed: onnx.ModelProto
    lowering: Lowering
    feeds: Values

    def problems(self) -> list[str]:
        """What is wrong, in words; empty when all is well."""
        return [*self.conservation(), *self.products(), *self.duplicates(), *self.cones(), *self.exits()]

    @cached_property
    def nodes(self) -> list[tuple[str, onnx.NodeProto]]:
        return list(numbered_nodes(self.original.graph))

    @cached_property
    def ran(self) -> list[tuple[str, onnx.NodeProto]]:
        return list(numbered_nodes(self.executed.graph))

    @cached_property
    def claims(self) -> list[list[int]]:
        return self.lowering.executed["source_nodes"].to_pylist()

    @cached_property
    def gone(self) -> set[int]:
        return {node for node, fate in enumerate(self.lowering.fate) if fate == "eliminated"}

    @cached_property
    def before(self) -> Values:
        return all_values(self.original, self.feeds)

    @cached_property
    def after(self) -> Values:
        weights = {weight.name: numpy_helper.to_array(weight) for weight in self.original.graph.initializer}
        return all_values(self.executed, self.feeds | weights)

    @cached_property
    def quantised(self) -> bool:
        return any(proto.op_type == "QuantizeLinear" for _, proto in self.nodes)

    @cached_property
    def maker(self) -> dict[str, int]:
        return {out: node for node, (path, proto) in enumerate(self.nodes) if not path for out in proto.output if out}

    @cached_property
    def runner(self) -> dict[str, int]:
        return {out: node for node, (path, proto) in enumerate(self.ran) if not path for out in proto.output if out}

    def conservation(self) -> Iterator[str]:
        """Every original node is in exactly one claim, or eliminated with a decided reason."""
        claimed = sorted([node for claim in self.claims for node in claim] + list(self.gone))
        if claimed != list(range(len(self.nodes))):
            yield f"claimed {claimed} of {len(self.nodes)} nodes"
        for node in self.gone:
            if self.lowering.why[node] in (None, "unmatched"):
                yield f"node {node} {self.nodes[node][1].op_type}: {self.lowering.why[node]}"

    def products(self) -> Iterator[str]:
        """A convolution or matrix product computes exactly one, others none; attention computes several."""
        for claim, (_, proto) in zip(self.claims, self.ran, strict=True):
            heavy = [node for node in claim if self.nodes[node][1].op_type in PRODUCTS]
            expected = any(proto.op_type.endswith(kind) for kind in (*PRODUCTS, "ConvInteger", "MatMulInteger"))
            rescaled = proto.op_type == "Conv" and any(
                self.nodes[node][1].op_type in ("BatchNormalization", "Mul") for node in claim)
            if "Attention" not in proto.op_type and len(heavy) != expected and not (rescaled and not heavy):
                yield f"{proto.op_type} {proto.name} claims products {heavy}"

    def duplicates(self) -> Iterator[str]:
        """A duplicate holds what another operator of its kind holds, one that is no duplicate itself."""
        for node in self.gone:
            path, proto = self.nodes[node]
            if self.lowering.why[node] == "duplicate" and not path:
                kin = {name for (_, one), why in zip(self.nodes, self.lowering.why, strict=True)
                       if why != "duplicate" and one.op_type == proto.op_type for name in one.output}
                value = self.before[proto.output[0]]
                if not any(self.same_numbers(value, self.before[name]) for name in kin & self.before.keys()):
                    yield f"{proto.op_type} {proto.name} is no duplicate"

    def cones(self) -> Iterator[str]:
        """The checks `closed` and `equal`."""
        for node, (path, proto) in enumerate(self.ran):
            for out in proto.output:
                if not path and out in self.maker:
                    yield from self.cone(node, out)

    def cone(self, node: int, out: str) -> Iterator[str]:
        group, edge = self.group(node)
        claim = {source for one in group for source in self.claims[one] if not self.nodes[source][0]}
        needed = self.needed(out, edge)
        label = f"{self.ran[node][1].op_type} -> {out}"
        copies = {self.ran[one][1].op_type for one in group if not self.claims[one]}
        kinds = {self.ran[one][1].op_type for one in group}
        copies = copies.union({"Transpose"} if len(group) > 1 else {}, *(RECOMPUTES.get(kind, ()) for kind in kinds))
        for source in sorted(self.needed(out, edge, through=False) - claim - self.gone):
            proto = self.nodes[source][1]
            if any(name in self.runner for name in proto.output) and proto.op_type not in copies:
                yield f"{label}: needs {self.nodes[source][1].name or source}, which another node claims"
        repeats = {self.nodes[source][1].op_type for source in self.gone} | ({"Transpose"} if len(group) > 1 else set())
        idle = [self.nodes[source][1] for source in claim - (self.needed(out, set()) if len(group) > 1 else needed)]
        idle = [proto for proto in idle if proto.op_type not in repeats and edge.isdisjoint(proto.output)]
        if len(self.ran[node][1].output) == 1 and idle:
            yield f"{label}: claims {[proto.op_type for proto in idle]} and does not need them"
        for source in claim & needed:
            loose = {name for name in reads(self.nodes[source][1]) if name in self.feeds} - edge
            if loose:
                yield f"{label}: {self.nodes[source][1].name or source} reads {loose}, the executed node does not"
        if sorted(needed) != self.claims[node] or self.nodes[self.maker[out]][1].op_type != self.ran[node][1].op_type:
            yield from self.unequal(label, needed, out, edge)

    def group(self, node: int) -> tuple[set[int], set[str]]:
        """An executed node with those that feed it through tensors the original does not have; and what feeds them."""
        group, edge, ahead = {node}, set(), list(reads(self.ran[node][1]))
        while ahead:
            name = ahead.pop()
            if name in self.before or name not in self.runner:
                edge.add(name)
            elif self.runner[name] not in group:
                group.add(self.runner[name])
                ahead += reads(self.ran[self.runner[name]][1])
        return group, edge | {alias for name in edge for alias in self.aliases(name)}

    def aliases(self, name: str) -> Iterator[str]:
        """Where the node that makes this tensor was eliminated, the tensors of the original with the same numbers."""
        if name in self.maker and self.maker[name] in self.gone and name in self.before:
            value = self.before[name]
            yield from (other for other, one in self.before.items() if np.array_equal(one, value))

    def needed(self, out: str, edge: set[str], through: bool = True) -> set[int]:
        """The original nodes between a tensor and the edge; those above eliminated ones too?"""
        found: set[int] = set()
        ahead = [out]
        while ahead:
            source = self.maker.get(ahead.pop())
            if source is not None and source not in found and not self.is_repeat(source):
                found.add(source)
                if through or source not in self.gone:
                    ahead += [name for name in reads(self.nodes[source][1]) if name not in edge]
        return found

    def is_repeat(self, node: int) -> bool:
        """What was eliminated as another's duplicate is had from there; transposes are followed all the same."""
        return self.lowering.why[node] == "duplicate" and self.nodes[node][1].op_type != "Transpose"

    def unequal(self, label: str, needed: set[int], out: str, edge: set[str]) -> Iterator[str]:
        part = [self.nodes[source][1] for source in sorted(needed)]
        made = {name for proto in part for name in proto.output}
        fed = {name for proto in part for name in reads(proto)} - made
        known = self.before | {name: self.after[name] for name in edge if name in self.after}
        values = {name: known.get(name) for name in fed}
        given = {name: value for name, value in values.items() if value is not None}
        weights = [weight for weight in self.original.graph.initializer if weight.name in fed]
        infos = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
                 for name, value in given.items()]
        graph = helper.make_graph(part, "part", infos, [onnx.ValueInfoProto(name=out)], weights)
        ready = session(helper.make_model(graph, opset_imports=self.original.opset_import, ir_version=8), OFF)
        result = ready.run(None, {info.name: given[info.name] for info in ready.get_inputs()})[0]
        if not close(result, self.after[out], 0.1 if self.quantised else 1e-4):
            yield f"{label}: the claimed nodes give other numbers"

    def exits(self) -> Iterator[str]:
        """The check `exit`."""
        for node, (path, proto) in enumerate(self.ran):
            claim = {source for source in self.claims[node] if not self.nodes[source][0]}
            outs = [name for name in proto.output if name in self.after]
            if path or not claim or len(outs) != 1:
                continue
            leaving = self.leaving(claim)
            if sum(name in self.runner for name in leaving) > 1:
                yield f"{proto.op_type} {proto.name}: {leaving} leave its claim"
            elif not any(self.same_numbers(self.before[name], self.after[outs[0]]) for name in self.beyond(leaving)):
                yield f"{proto.op_type} {proto.name}: does not hold the numbers of {leaving}"

    def leaving(self, claim: set[int]) -> list[str]:
        inside = set(claim)
        for node in sorted(self.gone, reverse=True):
            if users := [user for name in self.nodes[node][1].output for user in self.users.get(name, [])]:
                inside |= {node} if inside.issuperset(users) else set()
        results = {info.name for info in self.original.graph.output}
        return [name for node in sorted(claim) for name in self.nodes[node][1].output if name and (
            name in results or not self.users.get(name) or not inside.issuperset(self.users[name]))]

    def beyond(self, names: list[str]) -> set[str]:
        """These tensors, and what eliminated nodes make of them."""
        found, ahead = set(names), list(names)
        while ahead:
            for user in self.users.get(ahead.pop(), []):
                if user in self.gone:
                    ahead += set(self.nodes[user][1].output) - found
                    found.update(self.nodes[user][1].output)
        return found

    def same_numbers(self, ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]) -> bool:
        """The same numbers in any order, within what rounding adds up to; a blocked layout may pad channels."""
        recoded = ours.dtype.kind != theirs.dtype.kind  # quantised, or from int8 to uint8
        ours, theirs = np.sort(ours.astype(float), axis=None), np.sort(theirs.astype(float), axis=None)
        if recoded:
            ours, theirs = ((one - one.min()) / max(np.ptp(one), 1e-4) for one in (ours, theirs))
        if theirs.size > ours.size:
            at = np.clip(np.searchsorted(theirs, ours), 1, theirs.size - 1)
            theirs = np.where(np.abs(theirs[at] - ours) < np.abs(theirs[at - 1] - ours), theirs[at], theirs[at - 1])
        atol = (0.1 if self.quantised else 2e-3) * np.abs(ours).max(initial=1e-3)
        return ours.size == theirs.size and bool(np.allclose(ours, theirs, rtol=1e-2, atol=atol))

    @cached_property
    def users(self) -> dict[str, list[int]]:
        users: dict[str, list[int]] = {}
        for node, (path, proto) in enumerate(self.nodes):
            if not path:
                for name in reads(proto):
                    users.setdefault(name, []).append(node)
        return users


def reads(node: onnx.NodeProto) -> set[str]:
    """The tensors a node reads, those its subgraphs see from outside included."""
    bodies = [attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH]
    return {name for name in node.input if name}.union(*(outer_reads(body) for body in bodies))


def outer_reads(graph: onnx.GraphProto) -> set[str]:
    own = {info.name for info in graph.input} | {weight.name for weight in graph.initializer}
    own.update(name for node in graph.node for name in node.output)
    return {name for node in graph.node for name in reads(node)} - own


def close(ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any], tolerance: float) -> bool:
    """Equal within rounding: one step for quantised values."""
    if ours.shape != theirs.shape:
        return False
    if ours.dtype in (np.int8, np.uint8):
        return bool(np.abs(ours.astype(int) - theirs.astype(int)).max(initial=0) <= 1)
    scale = np.abs(theirs).max(initial=1e-3) if theirs.dtype.kind == "f" else 1
    return bool(np.allclose(ours, theirs, rtol=1e-3, atol=tolerance * scale))


def stripped(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without the data of its larger weights, as a session keeps it."""
    light = onnx.ModelProto()
    light.CopyFrom(model)
    for weight in light.graph.initializer:
        if weight.ByteSize() > 256:
            weight.ClearField("raw_data")
    return light


def unnamed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model as an exporter leaves it that names no node and numbers its tensors."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for _, node in numbered_nodes(bare.graph):
        node.name = ""
    return bare
