"""How often the body of a control-flow node runs in one inference, as far as the model itself says it.

Sources: the ONNX operator specification of If, Loop, Scan and SequenceMap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray
from onnx import GraphProto, NodeProto

from aaco.analytics.costs import TensorType

UNKNOWN_COUNT = "it is inside a loop, and how often that runs its body is not in the model"
Values = Mapping[str, NDArray[Any]]
TypeOf = Callable[[str], TensorType]


def loop_count(node: NodeProto, body: GraphProto, values: Values, inner: Values, type_of: TypeOf) -> int | None:
    """Return the executions of `body` per execution of its node; None if data decide. A branch of an If counts as
    taken.

    values: small constants by tensor name that the node sees; inner: those that the body's own nodes see.
    """
    if node.op_type == "If":
        return 1
    if node.op_type == "Loop":
        return _of_loop(node, body, values, inner)
    if node.op_type == "Scan":
        return _of_scan(node, body, type_of)
    return None


def _of_loop(node: NodeProto, body: GraphProto, values: Values, inner: Values) -> int | None:
    """Return the trip count, where it is a constant and nothing can end the loop before."""
    inputs = (*node.input, "", "")[:2]
    count, go = values.get(inputs[0]), values.get(inputs[1])
    begins = True if not inputs[1] else None if go is None or go.size != 1 else bool(go.item())
    if count is None or count.size != 1 or begins is None:
        return None
    if not begins or count.item() <= 0:
        return 0
    return int(count.item()) if _goes_on(body, inner) else None


def _goes_on(body: GraphProto, inner: Values) -> bool:
    """Return whether the body always asks for another trip: its condition is a constant true, or the one it was handed.
    """
    makers = {output: maker for maker in body.node for output in maker.output}
    name, handed = body.output[0].name, body.input[1].name
    while name in makers and makers[name].op_type == "Identity":
        name = makers[name].input[0]
    if name == handed:
        return True
    value = inner.get(name)
    return value is not None and value.size == 1 and bool(value.item())


def _of_scan(node: NodeProto, body: GraphProto, type_of: TypeOf) -> int | None:
    """Return the length of the first scanned input along its axis.

    In operator set 8 the inputs have another meaning than the body's; then return None.
    """
    numbers = {attribute.name: attribute for attribute in node.attribute}
    scanned = numbers["num_scan_inputs"].i if "num_scan_inputs" in numbers else 0
    if not 0 < scanned <= len(node.input) or len(node.input) != len(body.input):
        return None
    axes = numbers["scan_input_axes"].ints if "scan_input_axes" in numbers else [0]
    shape = type_of(node.input[len(node.input) - scanned]).shape
    return shape[axes[0]] if shape and len(axes) and -len(shape) <= axes[0] < len(shape) else None
