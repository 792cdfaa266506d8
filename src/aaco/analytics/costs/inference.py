"""The type of every tensor in a model: ONNX's shape inference, helped by constant arithmetic and declarations."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper

from aaco.analytics.costs import substitutes
from aaco.analytics.costs.terms import TensorType

Values = dict[str, NDArray[Any]]
UNKNOWN = TensorType("", None)
SMALL = 1024  # elements; larger tensors are data, not shapes
# What exporters compute shapes with, beyond the few operators that ONNX's own data propagation follows.
_SHAPE_MATH = """Abs Add And Cast Ceil Concat ConstantOfShape Div Equal Expand Flatten Floor Gather Greater
    GreaterOrEqual Identity Less LessOrEqual Max Min Mod Mul Neg Not Or Range ReduceMax ReduceMin ReduceProd ReduceSum
    Reshape Slice Squeeze Sub Tile Transpose Unsqueeze Where"""
SHAPE_MATH = frozenset(_SHAPE_MATH.split())
_SPELLED = {"float": "float32", "double": "float64", "undefined": ""}  # where ONNX's name is not numpy's
_NAMES = {code: _SPELLED.get(name.lower(), name.lower()) for name, code in TensorProto.DataType.items()}
_CODES = {name: code for code, name in _NAMES.items()}
_TYPED = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")
_REFUSALS = (onnx.shape_inference.InferenceError, onnx.checker.ValidationError)


def tensor_type(proto: TypeProto) -> TensorType:
    """Return the type of a dense or sparse tensor; UNKNOWN for sequences, maps and optionals."""
    kind = proto.WhichOneof("value")
    if kind not in ("tensor_type", "sparse_tensor_type"):
        return UNKNOWN
    tensor = getattr(proto, kind)
    sizes = (dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None for dim in tensor.shape.dim)
    return TensorType(_NAMES.get(tensor.elem_type, ""), tuple(sizes) if tensor.HasField("shape") else None)


def weight_types(graph: GraphProto) -> dict[str, TensorType]:
    """Return the graph's own initializers; a sparse one has its dense shape."""
    dense = {tensor.name: weight_type(tensor) for tensor in graph.initializer}
    return dense | {sparse.values.name: TensorType(_NAMES.get(sparse.values.data_type, ""), tuple(sparse.dims))
                    for sparse in graph.sparse_initializer}


def weight_type(tensor: TensorProto) -> TensorType:
    """Return the type of a tensor that is part of the model."""
    return TensorType(_NAMES.get(tensor.data_type, ""), tuple(tensor.dims))


def graph_types(graph: GraphProto) -> dict[str, TensorType]:
    """Return what the graph says of its inputs, outputs, inner tensors and initializers; bodies of its nodes not
    included."""
    infos = itertools.chain(graph.value_info, graph.input, graph.output)
    return {info.name: tensor_type(info.type) for info in infos} | weight_types(graph)


def infer(model: ModelProto, stated_types: Mapping[str, TensorType]) -> tuple[ModelProto, str]:
    """Return the model with the types that could be inferred, node for node in the same order, and why inference was
    refused.

    `stated_types` are taken as true. Inference takes precedence over the model's own declarations of inner tensors,
    which may be older than a bound input; they fill in what it leaves open (outputs of custom operators). Weights need
    no data. A node that computes a shape may come back as an equal Constant, another as its substitute.
    """
    prepared = ModelProto()
    prepared.CopyFrom(model)
    prepared.functions.extend(substitutes.functions(_nodes(prepared.graph)))
    _import_missing(prepared)
    declared = graph_types(model.graph)
    _forget(prepared.graph)
    _state(prepared.graph, stated_types)
    unused = {name: kind for name, kind in declared.items() if name not in stated_types}
    try:
        while True:
            inferred = onnx.shape_inference.infer_shapes(prepared, data_prop=True)
            types = graph_types(inferred.graph)
            if not (_fold(prepared, types) or _carry(prepared.graph, inferred.graph, types)
                    or _declare(prepared.graph, types, unused)):
                return inferred, ""
    except _REFUSALS as error:
        return model, " ".join(str(error).split())


def _import_missing(model: ModelProto) -> None:
    """Add the missing operator-set imports of custom operators, which ONNX treats as errors even if no type is needed.
    """
    imported = {entry.domain for entry in model.opset_import}
    for domain in {node.domain for node in _nodes(model.graph)} - imported - {"ai.onnx"}:
        model.opset_import.append(helper.make_opsetid(domain, 1))


def _nodes(graph: GraphProto) -> Iterator[NodeProto]:
    for node in graph.node:
        yield node
        for _, body in bodies(node):
            yield from _nodes(body)


def bodies(node: NodeProto) -> Iterator[tuple[str, GraphProto]]:
    """Yield the subgraphs of a control-flow node in attribute order, each with its attribute's name."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.name, attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from ((f"{attribute.name}[{index}]", body) for index, body in enumerate(attribute.graphs))


def _forget(graph: GraphProto) -> None:
    """Drop what the main graph says of its inner tensors and of its outputs' shapes."""
    graph.ClearField("value_info")
    for output in graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")


def _state(graph: GraphProto, types: Mapping[str, TensorType]) -> None:
    """Write types into the main graph: of inputs and outputs in their place, of others among the inner tensors."""
    made = {name: helper.make_tensor_value_info(name, _CODES.get(kind.dtype, 0), kind.shape)
            for name, kind in types.items()}
    for info in (*graph.input, *graph.output):
        if info.name in made:
            info.CopyFrom(made.pop(info.name))
    kept = [info for info in graph.value_info if info.name not in made]
    graph.ClearField("value_info")
    graph.value_info.extend([*kept, *made.values()])


def _carry(graph: GraphProto, inferred: GraphProto, types: Mapping[str, TensorType]) -> bool:
    """Return a Loop returns a carried tensor as it came in, where its body takes and returns the very same shape.

    ONNX leaves such outputs open, for a body may change their shape from one iteration to the next.
    """
    carried: dict[str, TensorType] = {}
    stated = {info.name for info in graph.value_info}
    stated |= {info.name for info in graph.output if tensor_type(info.type).shape is not None}
    for node in inferred.node:
        for _, body in bodies(node) if node.op_type == "Loop" else ():
            for out, first, before, after in zip(node.output, node.input[2:], body.input[2:], body.output[1:],
                                                 strict=False):
                kinds = {types.get(first, UNKNOWN), tensor_type(before.type), tensor_type(after.type)}
                if len(kinds) == 1 and (kind := kinds.pop()).elements is not None and out not in stated:
                    carried[out] = kind
    _state(graph, carried)
    return bool(carried)


def _declare(graph: GraphProto, types: Mapping[str, TensorType], unused: dict[str, TensorType]) -> bool:
    """Take the declared type of each tensor that inference left open; each declaration is used once."""
    merged = {name: _merge(types.get(name, UNKNOWN), kind) for name, kind in unused.items()}
    taken = {name: kind for name, kind in merged.items() if kind.dtype and kind != types.get(name, UNKNOWN)}
    for name in taken:
        del unused[name]
    _state(graph, taken)
    return bool(taken)


def _merge(inferred: TensorType, declared: TensorType) -> TensorType:
    """Return the inferred type, with missing dimensions from a declaration of the same rank."""
    dtype = inferred.dtype or declared.dtype
    if inferred.shape is None or declared.shape is None or len(inferred.shape) != len(declared.shape):
        return TensorType(dtype, declared.shape if inferred.shape is None else inferred.shape)
    pairs = zip(inferred.shape, declared.shape, strict=True)
    return TensorType(dtype, tuple(stated if size is None else size for size, stated in pairs))


def _fold(model: ModelProto, types: Mapping[str, TensorType]) -> bool:
    """Replace the main graph's shape arithmetic on known values by Constant nodes; return whether there was any.

    Done only while some tensor is open, which is rare.
    """
    nodes = model.graph.node
    if all(types.get(name, UNKNOWN).elements is not None for node in nodes for name in node.output if name):
        return False
    values = known_values(model.graph, types)
    known_names, foldable = set(values), []
    for node in nodes:
        if _foldable(node, known_names, types):
            known_names.add(node.output[0])
            foldable.append(node)
    values |= _evaluate(foldable, values, {entry.domain: entry.version for entry in model.opset_import})
    folded = [node for node in nodes if node.op_type != "Constant" and node.output and node.output[0] in values]
    for node in folded:
        name, out = node.name, node.output[0]
        node.CopyFrom(helper.make_node("Constant", [], [out], name, value=numpy_helper.from_array(values[out], out)))
    return bool(folded)


def known_values(graph: GraphProto, types: Mapping[str, TensorType]) -> Values:
    """Return the small values by tensor name: initializers and Constant nodes with data, and inferred shapes."""
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer if readable(tensor)}
    for node in graph.node:
        value = _constant(node) if node.op_type == "Constant" else _shape_of(node, types)
        if value is not None:
            values[node.output[0]] = value
    return values


def _constant(node: NodeProto) -> NDArray[Any] | None:
    """Return the value of a Constant node, where it is numeric, small and there."""
    for attribute in node.attribute:
        if attribute.name == "value" and readable(attribute.t):
            return np.asarray(numpy_helper.to_array(attribute.t))
        if attribute.name in ("value_int", "value_ints"):
            return np.array(helper.get_attribute_value(attribute), np.int64)
        if attribute.name in ("value_float", "value_floats"):
            return np.array(helper.get_attribute_value(attribute), np.float32)
    return None


def _shape_of(node: NodeProto, types: Mapping[str, TensorType]) -> NDArray[Any] | None:
    """Return the value of a Shape node with a known input."""
    shape = types.get(node.input[0], UNKNOWN).shape if node.op_type == "Shape" else None
    if shape is None or None in shape:
        return None
    ends = {attribute.name: attribute.i for attribute in node.attribute}
    return np.array(shape, np.int64)[ends.get("start"):ends.get("end")]


def readable(tensor: TensorProto) -> bool:
    """Return whether the tensor is small and its data is in the model."""
    kind = weight_type(tensor)
    if tensor.data_location == TensorProto.EXTERNAL or (kind.elements or 0) > SMALL:
        return False
    return len(tensor.raw_data) == kind.bytes or any(len(getattr(tensor, name)) for name in _TYPED)


def _foldable(node: NodeProto, known_names: set[str], types: Mapping[str, TensorType]) -> bool:
    """Return whether a node computes one small tensor from known values by shape arithmetic."""
    if node.domain or node.op_type not in SHAPE_MATH or len(node.output) != 1 or node.output[0] in known_names:
        return False
    size = types.get(node.output[0], UNKNOWN).elements
    return size is not None and size <= SMALL and all(name in known_names for name in node.input if name)


def _evaluate(nodes: list[NodeProto], values: Values, opsets: dict[str, int]) -> Values:
    """Return what these nodes compute, by ONNX's reference; nothing if it refuses (a model with wrong arithmetic)."""
    from onnx.reference import ReferenceEvaluator  # takes its time to load, and is seldom needed

    outs = [node.output[0] for node in nodes]
    inputs, outputs = ([onnx.ValueInfoProto(name=name) for name in names] for names in (values, outs))
    graph = helper.make_graph(nodes, "shapes", inputs, outputs)
    try:
        results = ReferenceEvaluator(graph, opsets=opsets).run(None, values)
    except (ValueError, TypeError, IndexError, RuntimeError, ZeroDivisionError):
        return {}
    return dict(zip(outs, map(np.asarray, results), strict=True))
