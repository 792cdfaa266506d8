"""A model graph and its bodies as one flow of integer tensors, and which of these tensors are sure to be equal."""

from __future__ import annotations

import math

import onnx
from msgspec import Struct, field
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from aaco.analytics.costs.inference import bodies

NOBODY = -1
IDENTITY = frozenset({"Identity", "Dropout"})
NEUTRAL = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1}
FIRST_OVERRIDABLE = 4  # from this IR version on, an initializer that is also an input is only a default: never folded
SMALL = 64  # elements; the values of larger weights are not compared, nor are they kept in a session
DATA = frozenset({"raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data"})


class Flow(Struct):
    """Nodes in node_id order, bodies included; a control-flow node also reads what its bodies return.

    `order` is the order of the flow: bodies before their node. `keys` names each tensor by scope and name; the scope of
    a body begins with the first output of its node, a name that optimisers keep. An input left out is NOBODY, as is
    the producer of a model input or weight.
    """

    overridable: bool
    nodes: list[NodeProto] = field(default_factory=list)
    scopes: list[str] = field(default_factory=list)
    parents: list[tuple[int, str]] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    ins: list[list[int]] = field(default_factory=list)
    outs: list[list[int]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    producer: list[int] = field(default_factory=list)
    consumers: list[list[int]] = field(default_factory=list)
    weights: dict[int, TensorProto] = field(default_factory=dict)
    results: set[int] = field(default_factory=set)

    def op(self, node: int) -> str:
        """Return a node's operator."""
        return str(self.nodes[node].op_type)

    def reads(self, node: int) -> list[int]:
        """Return the tensors a node reads."""
        return [tensor for tensor in self.ins[node] if tensor != NOBODY]

    def add(self, key: str) -> int:
        """Return a new tensor."""
        self.keys.append(key)
        self.producer.append(NOBODY)
        self.consumers.append([])
        return len(self.keys) - 1


def read(model: ModelProto) -> Flow:
    """Return the flow of a model."""
    flow = Flow(model.ir_version >= FIRST_OVERRIDABLE)
    flow.results.update(_read_graph(flow, model.graph, "", {}, (NOBODY, "")))
    for node in range(len(flow.nodes)):
        for tensor in flow.reads(node):
            flow.consumers[tensor].append(node)
    return flow


def body_scope(scope: str, node: NodeProto, attribute: str) -> str:
    """Return the scope of a body of a control-flow node."""
    return f"{scope}{''.join(node.output[:1])}>{attribute}>"


def _read_graph(flow: Flow, graph: GraphProto, scope: str, outer: dict[str, int], parent: tuple[int, str]) -> list[int]:
    """Append a graph that can see the tensors `outer`; the tensors it returns."""
    seen = outer | {info.name: flow.add(scope + info.name) for info in graph.input}
    free = {info.name for info in graph.input} if flow.overridable else set[str]()
    for weight in [*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)]:
        if weight.name not in free:
            seen[weight.name] = flow.add(scope + weight.name)
            flow.weights[seen[weight.name]] = weight
    for node in graph.node:
        seen.update({name: flow.add(scope + name) for name in node.output if name})
    for node in graph.node:
        _read_node(flow, node, scope, seen, parent)
    return [seen[info.name] for info in graph.output if info.name in seen]


def _read_node(flow: Flow, node: NodeProto, scope: str, seen: dict[str, int], parent: tuple[int, str]) -> None:
    at = len(flow.nodes)
    for name in node.input:
        if name and name not in seen:
            seen[name] = flow.add(scope + name)
    flow.nodes.append(node)
    flow.scopes.append(scope)
    flow.parents.append(parent)
    flow.ins.append([seen[name] if name else NOBODY for name in node.input])
    flow.outs.append([seen[name] for name in node.output if name])
    for tensor in flow.outs[at]:
        flow.producer[tensor] = at
    for name, body in bodies(node):
        flow.ins[at] += _read_graph(flow, body, body_scope(scope, node, name), seen, (at, name))
    flow.order.append(at)


def dissolved(scope: str, branch: str) -> str:
    """Return how ONNX Runtime's names begin for what was in a branch of an If on a constant (Graph::InlineIfSubgraph).
    """
    return f"{scope}_if_{branch}_"


def tensors_by_key(flow: Flow) -> dict[str, int]:
    """Return tensors by key; those of a branch also by the key they get when their If is dissolved."""
    keys: dict[str, int] = {}
    for node, outs in enumerate(flow.outs):
        holder, branch = flow.parents[node]
        if holder != NOBODY:
            prefix = dissolved(flow.scopes[holder], branch)
            keys.update({prefix + flow.keys[tensor].removeprefix(flow.scopes[node]): tensor for tensor in outs})
    return keys | {key: tensor for tensor, key in enumerate(flow.keys)}


def constants(flow: Flow) -> set[int]:
    """Return tensors that are weights, or made only of weights."""
    constant = set(flow.weights)
    for node in flow.order:
        if constant.issuperset(flow.reads(node)):
            constant.update(flow.outs[node])
    return constant


class Equal(Struct):
    """Value numbers of a flow: `same[t]` is the first tensor sure to equal t; `passed[t]` is what t merely passes on.

    Passed on are the results of identities, of neutral arithmetic and of transposes that cancel out; equal, besides,
    are small weights of the same content and the results of repeated nodes (global value numbering, as in Muchnick,
    Advanced Compiler Design and Implementation, 1997, section 12.4).
    """

    same: list[int]
    passed: dict[int, int]


def number_values(flow: Flow, passing: frozenset[str] = IDENTITY) -> Equal:
    """Return which tensors are equal, where the operators `passing` change nothing."""
    equal = Equal(list(range(len(flow.keys))), {})
    numbers: dict[tuple[object, ...], list[int]] = {}
    orders: dict[int, tuple[int, tuple[int, ...]]] = {}
    for tensor, weight in flow.weights.items():
        if is_small(weight):
            equal.same[tensor] = numbers.setdefault(content(weight), [tensor])[0]
    for node in flow.order:
        outs, sources = flow.outs[node], flow.reads(node)
        if sources and (flow.op(node) in passing or _is_neutral(flow, node)):
            equal.passed[outs[0]] = sources[0]
        elif flow.op(node) == "Transpose":
            _number_transpose(flow, node, equal, numbers, orders)
            continue
        signature = _signature(flow, node, equal.same)
        if outs and outs[0] in equal.passed:
            equal.same[outs[0]] = equal.same[equal.passed[outs[0]]]
        elif signature is not None:
            _unite(equal, outs, numbers.setdefault(signature, outs))
    return equal


def _is_neutral(flow: Flow, node: int) -> bool:
    """Return whether it adds or takes away a scalar 0, or multiplies or divides by a scalar 1."""
    operand = flow.weights.get(flow.ins[node][1]) if flow.op(node) in NEUTRAL else None
    return (operand is not None and is_small(operand) and math.prod(operand.dims) == 1 and len(operand.dims) < 2
            and float(numpy_helper.to_array(operand).reshape(())) == NEUTRAL[flow.op(node)])


def _number_transpose(flow: Flow, node: int, equal: Equal, numbers: dict[tuple[object, ...], list[int]],
                      orders: dict[int, tuple[int, tuple[int, ...]]]) -> None:
    """Transposes in a row equal their product, or where that is the identity, the tensor before them."""
    outs, source = flow.outs[node], equal.same[flow.ins[node][0]]
    order = next((tuple(attribute.ints) for attribute in flow.nodes[node].attribute if attribute.name == "perm"), ())
    root, before = orders.get(source, (source, tuple(range(len(order)))))
    if len(before) != len(order) or not order:
        _unite(equal, outs, numbers.setdefault(("Transpose", source, order), outs))
        return
    after = tuple(before[axis] for axis in order)
    if after == tuple(range(len(order))):
        equal.passed[outs[0]], equal.same[outs[0]] = root, equal.same[root]
    else:
        _unite(equal, outs, numbers.setdefault(("Transpose", root, after), outs))
        orders[equal.same[outs[0]]] = root, after


def _unite(equal: Equal, tensors: list[int], first: list[int]) -> None:
    for tensor, representative in zip(tensors, first, strict=False):
        equal.same[tensor] = representative


def is_small(weight: TensorProto) -> bool:
    """Return whether its values are at hand, and few."""
    return math.prod(weight.dims) <= SMALL and any(field.name in DATA for field, _ in weight.ListFields())


def content(weight: TensorProto) -> tuple[object, ...]:
    """Return what makes two small weights equal; of a larger one, its name."""
    if not is_small(weight):
        return (weight.name,)
    return weight.data_type, tuple(weight.dims), numpy_helper.to_array(weight).tobytes()


def _signature(flow: Flow, node: int, same: list[int]) -> tuple[object, ...] | None:
    """Return what makes two nodes compute the same; None for nodes not compared (control flow, large constants)."""
    proto = flow.nodes[node]
    if any(True for _ in bodies(proto)) or not all(
            is_small(attribute.t) for attribute in proto.attribute if attribute.HasField("t")):
        return None
    inputs = tuple(same[tensor] if tensor != NOBODY else NOBODY for tensor in flow.ins[node])
    return proto.domain, proto.op_type, len(proto.output), inputs, *_attributes(proto)


def _attributes(node: NodeProto) -> list[bytes]:
    return sorted(attribute.SerializeToString() for attribute in node.attribute)


def same_attributes(node: NodeProto, explicit: NodeProto) -> bool:
    """Return whether the attributes are equal; `explicit` may spell out what the operator's schema gives by default."""
    first_attributes, spelled_out = set(_attributes(node)), list(explicit.attribute)
    extra = [attribute for attribute in spelled_out if attribute.SerializeToString() not in first_attributes]
    is_known = onnx.defs.has(explicit.op_type, explicit.domain)
    if len(spelled_out) - len(extra) != len(first_attributes) or (extra and not is_known):
        return False
    defaults = onnx.defs.get_schema(explicit.op_type, explicit.domain).attributes if extra else {}
    return all(attribute.name in defaults and _is_default(defaults[attribute.name].default_value, attribute)
               for attribute in extra)


def _is_default(default: onnx.AttributeProto, attribute: onnx.AttributeProto) -> bool:
    return bool(default.type and helper.get_attribute_value(default) == helper.get_attribute_value(attribute))


def truth(flow: Flow, tensor: int) -> bool | None:
    """Return the value of a condition that is a constant of the model; None if it takes computing."""
    weight, maker = flow.weights.get(tensor), flow.producer[tensor]
    if weight is None and maker != NOBODY and flow.op(maker) == "Constant":
        weight = next((attribute.t for attribute in flow.nodes[maker].attribute if attribute.name == "value"), None)
    return bool(numpy_helper.to_array(weight).any()) if weight is not None and is_small(weight) else None
