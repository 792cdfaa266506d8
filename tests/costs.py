"""Short spellings for tests of the cost model."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from aaco.analytics.costs import TensorType, cost

MICROSOFT, NCHWC = "com.microsoft", "com.microsoft.nchwc"


def f32(*shape):
    return TensorType("float32", shape)


def i8(*shape):
    return TensorType("int8", shape)


def i64(*shape):
    return TensorType("int64", shape)


def flops(op_type, ins, outs, domain="", **attributes):
    found = cost(op_type, domain, attributes, ins, outs)
    assert found is not None, op_type
    return found.flops


def moved(op_type, ins, outs, domain="", names=(), **attributes):
    found = cost(op_type, domain, attributes, ins, outs, names)
    assert found is not None, op_type
    return found.bytes


def model_of(nodes, inputs, outputs, opset=21, initializers=()):
    """A model; an input is (name, shape) in float32 or (name, shape, type), an output only a name."""
    ins = [helper.make_tensor_value_info(name, *(kind or [TensorProto.FLOAT]), shape) for name, shape, *kind in inputs]
    graph = helper.make_graph(nodes, "g", ins, [onnx.ValueInfoProto(name=name) for name in outputs], list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def loop_matmul(a, b):
    """(flops, result shape) of numpy.matmul, from a loop that does it."""
    left, right = np.zeros(a), np.zeros(b)
    result = np.matmul(left, right)
    depth = left.shape[-1]
    count = 0
    for _ in range(result.size):
        for _ in range(depth):
            count += 2
    return count, result.shape
