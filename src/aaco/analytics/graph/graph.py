"""An ONNX model as tables: every node with its shapes, weights and cost, and every tensor passed between nodes."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pyarrow as pa
from msgspec import Struct, field
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, inliner, numpy_helper

from aaco.analytics import costs
from aaco.analytics.costs import TensorType, inference
from aaco.analytics.costs.inference import UNKNOWN
from aaco.analytics.graph import loop_counts
from aaco.core.errors import ModelError
from aaco.core.tables import GRAPH_EDGES, GRAPH_NODES
from aaco.runner.model_file import strip_weights

NOT_WEIGHTS = frozenset({"int64", "bool", "string", ""})  # indices, shapes, flags and texts
SHOWN = 16  # values of a tensor attribute
_BUILT = ("node_id", "name", "op_type", "domain", "category", "subgraph", "attributes", "inputs", "outputs",
          "input_shapes", "output_shapes", "dtype", "parameters", "executions",
          "flops_each", "bytes_each", "flops", "bytes", "why_no_cost")


class ModelGraph(Struct, frozen=True):
    """A model as tables `graph_nodes` and `graph_edges`, and its facts.

    `meta` holds ir_version, opset_imports, producer, graph_name, inputs and outputs (name, dtype, shape with a symbol
    or null for what is not known), node_count, op_counts, parameter_count, parameter_bytes, subgraph_count, total_flops
    and total_bytes (of the nodes with a known cost), unmodelled ({operator: nodes} that no rule covers), unknown_shapes
    (nodes with a rule that misses a shape), unknown_trips (nodes inside loops with an unknown count), inference_refused
    (why inference failed, else null).
    """

    nodes: pa.Table
    edges: pa.Table
    meta: dict[str, Any]


def describe(model: ModelProto, shapes: Mapping[str, TensorType] | None = None,
             bind: Mapping[str, Sequence[int]] | None = None) -> ModelGraph:
    """Return the graph of a model, subgraphs and local functions included; weights need no data.

    `bind` gives model inputs concrete shapes, and with them the dynamic dimensions of the same name everywhere;
    `shapes` states tensors' types outright. Node ids follow the graph, a control-flow node's bodies directly after it
    in attribute order, at the subgraph path `<node>/<attribute>`. Bodies count as often as they run, where the model
    says how often, branches of an If as taken, and the control-flow node itself as nothing. A weight belongs to the
    node that first uses it; parameters are weights of any type but int64, bool and string. Raise ModelError if `bind`
    does not fit the model's inputs.
    """
    whole = bound(inline(strip_weights(model)), bind or {})
    typed, refused = inference.infer(whole, shapes or {})
    reader = _GraphReader(shapes or {})
    reader.read(whole.graph, typed.graph)
    nodes = [reader.row(node_id) for node_id in range(len(reader.nodes))]
    table = GRAPH_NODES.build(**dict(zip(_BUILT, zip(*nodes, strict=True), strict=False)))
    return ModelGraph(table, reader.edges(whole.graph), _meta(whole, reader, table, refused))


def inline(model: ModelProto) -> ModelProto:
    """Return the model with its local functions written out; the model itself when it has none."""
    return inliner.inline_local_functions(model) if model.functions else model


def bound(model: ModelProto, shapes: Mapping[str, Sequence[int]]) -> ModelProto:
    """Return a copy with inputs of these shapes; a dynamic dimension that they agree on gets its size everywhere.

    Raise ModelError for an input the model does not have, another rank, or another size of a fixed dimension.
    """
    copy = ModelProto()
    copy.CopyFrom(model)
    inputs = {info.name: info for info in copy.graph.input}
    sizes: dict[str, set[int]] = {}
    for name, shape in shapes.items():
        if name not in inputs or not inputs[name].type.HasField("tensor_type"):
            raise ModelError(f"the model has no input tensor {name!r}", f"its inputs: {', '.join(inputs)}")
        for dim, size in zip(_dims(inputs[name], shape), shape, strict=True):
            sizes.setdefault(dim.dim_param, set()).add(size)
            dim.dim_value = size
    agreed = {symbol: next(iter(distinct)) for symbol, distinct in sizes.items() if symbol and len(distinct) == 1}
    _substitute(copy.graph, agreed)
    return copy


def _dims(info: onnx.ValueInfoProto, shape: Sequence[int]) -> Sequence[onnx.TensorShapeProto.Dimension]:
    """Return the input's dimensions, if `shape` fits them; added where the model leaves even the rank open."""
    tensor = info.type.tensor_type
    if not tensor.HasField("shape"):
        tensor.shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in shape)
    declared = inference.tensor_type(info.type).shape or ()
    if len(declared) != len(shape) or any(fixed and fixed != size for fixed, size in zip(declared, shape, strict=True)):
        raise ModelError(f"input {info.name!r} is {list(declared)} in the model, not {list(shape)}",
                         "None is a dynamic dimension; give sizes that fit the others")
    dims: Sequence[onnx.TensorShapeProto.Dimension] = tensor.shape.dim
    return dims


def _substitute(graph: GraphProto, sizes: Mapping[str, int]) -> None:
    for infos in (graph.input, graph.output, graph.value_info):
        for info in infos:
            for dim in info.type.tensor_type.shape.dim if info.type.HasField("tensor_type") else ():
                if dim.dim_param in sizes:
                    dim.dim_value = sizes[dim.dim_param]
    for node in graph.node:
        for _, body in inference.bodies(node):
            _substitute(body, sizes)


class _Scope(Struct, frozen=True):
    """The tensors of a graph or subgraph: types, weights, inputs, and who makes which.

    `inputs` maps an input of a body to the outer tensor that the control-flow node hands in for it; `values` holds the
    small constants that can be read here.
    """

    path: str
    types: Mapping[str, TensorType]
    weights: Mapping[str, TensorType]
    inputs: Mapping[str, str]
    outer: _Scope | None
    values: loop_counts.Values
    maker: dict[str, int] = field(default_factory=dict)

    def holder(self, tensor: str) -> _Scope | None:
        """Return the innermost scope that has this tensor."""
        scope: _Scope | None = self
        while scope and not any(tensor in names for names in (scope.maker, scope.weights, scope.inputs)):
            scope = scope.outer
        return scope

    def producer(self, tensor: str) -> int | None:
        """Return the node that makes this tensor, followed through body inputs; None for a model input or weight."""
        scope = self.holder(tensor)
        if scope and scope.outer and tensor in scope.inputs and tensor not in scope.maker:
            return scope.outer.producer(scope.inputs[tensor])
        return scope.maker.get(tensor) if scope else None


class _GraphReader:
    """One pass over a model and its bodies: numbers the nodes, then answers for rows and edges."""

    def __init__(self, shapes: Mapping[str, TensorType]) -> None:
        self.shapes = shapes
        self.nodes: list[tuple[NodeProto, str, _Scope]] = []
        self.executions: list[int | None] = []
        self.returned: list[tuple[_Scope, str, int | None]] = []
        self.weights_seen: dict[tuple[int, str], TensorType] = {}
        self.unmodelled: Counter[str] = Counter()
        self.unknown_shapes = 0

    def read(self, graph: GraphProto, typed_graph: GraphProto, path: str = "", outer: _Scope | None = None,
             control: int | None = None, executions: int | None = 1) -> None:
        """Number the nodes of a graph and of the bodies in it; `typed_graph` is the same graph with types.

        executions: how often the graph runs in one inference, None if that is not known.
        """
        types = inference.graph_types(typed_graph)
        scope = _Scope(path, types, inference.weight_types(graph), self._handed_in(graph, control), outer,
                       self._values(typed_graph, types, outer, control, executions))
        self.returned += [(scope, info.name, control) for info in graph.output]
        for node, typed in zip(graph.node, typed_graph.node, strict=True):
            node_id = len(self.nodes)
            name = node.name or f"{node.op_type}_{node_id}"
            self.nodes.append((node, name, scope))
            self.executions.append(executions)
            scope.maker.update(dict.fromkeys(filter(None, node.output), node_id))
            bodies = zip(inference.bodies(node), inference.bodies(typed), strict=True)
            for (label, body), (_, typed_body) in bodies:
                runs = self._trips(typed, typed_body, scope)
                times = None if runs is None or executions is None else runs * executions
                self.read(body, typed_body, f"{path}/{name}/{label}".lstrip("/"), scope, node_id, times)

    def _values(self, typed: GraphProto, types: Mapping[str, TensorType], outer: _Scope | None, control: int | None,
                executions: int | None) -> loop_counts.Values:
        """Return the small constants that a graph's nodes see; a loop that is known to go on hands its body a true
        condition."""
        values = {**(outer.values if outer else {}), **inference.known_values(typed, types)}
        if control is not None and executions is not None and self.nodes[control][0].op_type == "Loop":
            values[typed.input[1].name] = np.array(True)
        return values

    def _trips(self, node: NodeProto, body: GraphProto, scope: _Scope) -> int | None:
        inner = {**scope.values, **inference.known_values(body, inference.graph_types(body))}
        return loop_counts.loop_count(node, body, scope.values, inner, lambda tensor: self.type_of(scope, tensor))

    def _handed_in(self, graph: GraphProto, control: int | None) -> dict[str, str]:
        """Return the inputs of a body by name: Loop, Scan and SequenceMap pass theirs in order, the last to the last.
        """
        names = [info.name for info in graph.input]
        control_inputs = list(self.nodes[control][0].input) if control is not None else []
        return dict(zip(reversed(names), reversed([""] * len(names) + control_inputs), strict=False))

    def type_of(self, scope: _Scope, tensor: str) -> TensorType:
        """Return what is known of a tensor as seen from a scope."""
        holder = scope.holder(tensor)
        return self.shapes.get(tensor) or (holder.types.get(tensor, UNKNOWN) if holder else UNKNOWN)

    def row(self, node_id: int) -> tuple[Any, ...]:
        """Return the node's columns, in the order of _BUILT."""
        node, name, scope = self.nodes[node_id]
        attributes = {item.name: _plain(helper.get_attribute_value(item)) for item in node.attribute}
        ins, outs = ([self.type_of(scope, tensor) if tensor else None for tensor in side]
                     for side in (node.input, node.output))
        cost = costs.cost(node.op_type, node.domain, attributes, ins, outs, node.input)
        self._count_gaps(node, cost)
        per_execution, times = (cost.flops, cost.bytes) if cost else (None, None), self.executions[node_id]
        return (node_id, name, node.op_type, node.domain, costs.family(node.op_type, node.domain), scope.path,
                json.dumps(attributes), list(node.input), list(node.output), _shapes(ins), _shapes(outs),
                next((out.dtype or None for out in outs if out), None), self._parameters(node, scope),
                times, *per_execution, *(_times(amount, times) for amount in per_execution),
                _why_no_cost(node, cost, times))

    def _count_gaps(self, node: NodeProto, cost: costs.Cost | None) -> None:
        if not costs.modelled(node.op_type, node.domain):
            self.unmodelled[_operator(node.op_type, node.domain)] += 1
        elif cost is None:
            self.unknown_shapes += 1

    def _parameters(self, node: NodeProto, scope: _Scope) -> int:
        """Return the elements of the weights that no earlier node used."""
        fresh = {}
        for tensor in node.input:
            holder = scope.holder(tensor)
            if holder and tensor in holder.weights and tensor not in holder.maker:
                fresh[id(holder), tensor] = holder.weights[tensor]
        for item in node.attribute:
            if node.op_type == "Constant" and item.name == "value":
                fresh[id(scope), node.output[0]] = inference.weight_type(item.t)
        fresh = {key: kind for key, kind in fresh.items()
                 if key not in self.weights_seen and kind.dtype not in NOT_WEIGHTS}
        self.weights_seen |= fresh
        return sum(kind.elements or 0 for kind in fresh.values())

    def edges(self, graph: GraphProto) -> pa.Table:
        """Return one row per tensor and pair of nodes; what a body returns goes to its control-flow node."""
        uses = [(scope, tensor, node_id) for node_id, (node, _, scope) in enumerate(self.nodes)
                for tensor in node.input if tensor]
        rows = {(scope.producer(tensor), user, tensor): self.type_of(scope, tensor)
                for scope, tensor, user in [*uses, *self.returned]}
        cells = [(*key, _shape(kind), kind.dtype or None, kind.bytes) for key, kind in rows.items()]
        columns = zip(*cells, strict=True)
        return GRAPH_EDGES.build(**dict(zip(GRAPH_EDGES.columns, columns, strict=False)))


def _meta(model: ModelProto, reader: _GraphReader, nodes: pa.Table, refused: str) -> dict[str, Any]:
    weights = {tensor.name for tensor in model.graph.initializer}
    types = {name: reader.type_of(scope, name) for scope, name, control in reader.returned if control is None}
    sums = {name: sum(filter(None, nodes[name].to_pylist())) for name in ("parameters", "flops", "bytes")}
    return {
        "ir_version": model.ir_version,
        "opset_imports": {entry.domain: entry.version for entry in model.opset_import},
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "graph_name": model.graph.name,
        "inputs": [_port(info, inference.tensor_type(info.type)) for info in model.graph.input
                   if info.name not in weights],
        "outputs": [_port(info, types[info.name]) for info in model.graph.output],
        "node_count": nodes.num_rows,
        "op_counts": dict(Counter(_operator(node.op_type, node.domain) for node, _, _ in reader.nodes).most_common()),
        "parameter_count": sums["parameters"],
        "parameter_bytes": sum(kind.bytes or 0 for kind in reader.weights_seen.values()),
        "subgraph_count": len({scope.path for _, _, scope in reader.nodes} - {""}),
        "total_flops": sums["flops"],
        "total_bytes": sums["bytes"],
        "unmodelled": dict(reader.unmodelled),
        "unknown_shapes": reader.unknown_shapes,
        "unknown_trips": reader.executions.count(None),
        "inference_refused": refused or None,
    }


def _times(per_execution: int | None, executions: int | None) -> int | None:
    return None if per_execution is None or executions is None else per_execution * executions


def _why_no_cost(node: NodeProto, cost: costs.Cost | None, executions: int | None) -> str | None:
    if not costs.modelled(node.op_type, node.domain):
        return f"what {_operator(node.op_type, node.domain)} costs is not modelled"
    if cost is None:
        return "a shape that its cost depends on is not known"
    return loop_counts.UNKNOWN_COUNT if executions is None else None


def _port(info: onnx.ValueInfoProto, kind: TensorType) -> dict[str, Any]:
    """Return a model input or output; an open dimension shows its symbol."""
    symbols = [dim.dim_param or None for dim in info.type.tensor_type.shape.dim]
    sizes = None if kind.shape is None else [size if size is not None else symbol for size, symbol in
                                             itertools.zip_longest(kind.shape, symbols[:len(kind.shape)])]
    return {"name": info.name, "dtype": kind.dtype or None, "shape": sizes}


def _operator(op_type: str, domain: str) -> str:
    return f"{domain}:{op_type}" if domain else op_type


def _shape(kind: TensorType) -> str | None:
    return None if kind.shape is None else json.dumps(kind.shape)


def _shapes(kinds: Sequence[TensorType | None]) -> str:
    return json.dumps([kind and kind.shape for kind in kinds])


def _plain(value: Any) -> Any:
    """Return an attribute's value as JSON can hold it: of a tensor its type and few values, of a subgraph its name."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else str(value)  # single precision, without its noise
    if isinstance(value, (int, str)):
        return value
    if isinstance(value, TensorProto):
        return _plain_tensor(value)
    if isinstance(value, GraphProto):
        return value.name
    return [_plain(item) for item in value] if isinstance(value, Sequence) else type(value).__name__


def _plain_tensor(tensor: TensorProto) -> dict[str, Any]:
    kind = inference.weight_type(tensor)
    shown = inference.readable(tensor) and (kind.elements or 0) <= SHOWN
    values = {"values": _plain(numpy_helper.to_array(tensor).ravel().tolist())} if shown else {}
    return {"dtype": kind.dtype, "shape": kind.shape, **values}
