"""Random small graphs of the operators that a runtime's optimiser fuses, moves and removes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from tests.graphs import FLOAT, Builder

Shape = tuple[int, ...]
Shapes = dict[str, Shape]


def random_graph(choose: Callable[[int], int], steps: int, transposes: bool) -> onnx.ModelProto:
    """A random graph; `choose(n)` gives a number below n. Tensors are [1, C, H, W]; some are outputs, some nodes dead.

    A graph has either transposes, which the runtime moves about, or quantisation and reshapes that change nothing,
    which it drops: where both meet, what computes what is at times a matter of taste.
    """
    b = Builder(choose(1000))
    shapes: Shapes = {"input": (1, 4, 6, 6)}
    kinds = [*PLAIN_STEPS, *((_transpose, _transpose) if transposes else VANISHING_STEPS)]
    for step in range(steps):
        names = list(shapes)
        x = names[-1 - min(choose(len(names)), choose(len(names)))]
        same = [name for name in names if shapes[name] == shapes[x]]
        shapes |= kinds[choose(len(kinds))](b, choose, x, same[choose(len(same))], shapes[x], f"n{step}")
    made = [name for name in shapes if name != "input"]
    results = {made[-1], *(name for name in made if not choose(6))}
    if choose(3) == 0:
        for node in b.nodes:
            node.name = ""
    outputs = {name: (FLOAT, list(shapes[name])) for name in made if name in results}
    return b.model({"input": (FLOAT, [1, 4, 6, 6])}, outputs)


def _conv(b: Builder, choose: Callable[[int], int], x: str, other: str, shape: Shape, n: str) -> Shapes:
    _, c, h, w = shape
    k, out = (1, 3)[choose(2)], (4, 8)[choose(2)]
    group = c if choose(4) == 0 and out % c == 0 else 1
    inputs = [x, b.weight(f"{n}.w", out, c // group, k, k)] + [b.weight(f"{n}.b", out)] * choose(2)
    return {b.op("Conv", inputs, n, kernel_shape=[k, k], pads=[k // 2] * 4, group=group): (1, out, h, w)}


def _normalise(b: Builder, choose: Callable[[int], int], x: str, other: str, shape: Shape, n: str) -> Shapes:
    return {b.op("BatchNormalization", [x, *b.norm(n, shape[1])], n): shape}


def _unary(b: Builder, choose: Callable[[int], int], x: str, other: str, shape: Shape, n: str) -> Shapes:
    kinds = ("Relu", "Sigmoid", "Identity", "HardSwish", "Dropout", "Tanh", "LeakyRelu", "Softmax", "Neg")
    return {b.op(kinds[choose(len(kinds))], [x], n): shape}


def _binary(b: Builder, choose: Callable[[int], int], x: str, other: str, shape: Shape, n: str) -> Shapes:
    return {b.op(("Add", "Mul", "Sub")[choose(3)], [x, other], n): shape}


def _with_constant(b: Builder, choose: Callable[[int], int], x: str, other: str, shape: Shape, n: str) -> Shapes:
    values = [1, 0.5, 3, b.random.uniform(1, 2, (shape[1], 1, 1))]
    value = b.const(f"{n}.c", np.asarray(values[choose(4)], np.float32))
    return {b.op(("Add", "Mul", "Div", "Sub")[choose(4)], [x, value], n): shape}


def _product(b: Builder, choose: Callable[[int], int], x: str, other: str, shape: Shape, n: str) -> Shapes:
    return {b.op("MatMul", [x, b.weight(f"{n}.w", shape[3], 6)], n): (*shape[:3], 6)}


def _concat(b: Builder, choose: Callable[[int], int], x: str, other: str, shape: Shape, n: str) -> Shapes:
    return {b.op("Concat", [x, other], n, axis=1): (1, 2 * shape[1], *shape[2:])} if shape[1] <= 8 else {}


def _pool(b: Builder, choose: Callable[[int], int], x: str, other: str, shape: Shape, n: str) -> Shapes:
    return {b.op("MaxPool", [x], n, kernel_shape=[3, 3], pads=[1] * 4): shape}


def _gate(b: Builder, choose: Callable[[int], int], x: str, other: str, shape: Shape, n: str) -> Shapes:
    mean = b.op("ReduceMean", [x], f"{n}/mean", axes=[2, 3], keepdims=1)
    return {b.op("Mul", [x, b.op("Sigmoid", [mean], f"{n}/gate")], n): shape}


def _transpose(b: Builder, choose: Callable[[int], int], x: str, other: str, shape: Shape, n: str) -> Shapes:
    order = ([0, 2, 3, 1], [0, 3, 1, 2], [0, 1, 3, 2], [0, 2, 1, 3])[choose(4)]
    return {b.op("Transpose", [x], n, perm=order): tuple(shape[axis] for axis in order)}


def _reshape(b: Builder, choose: Callable[[int], int], x: str, other: str, shape: Shape, n: str) -> Shapes:
    flat = b.op("Reshape", [x, b.const("flat", np.array([1, -1], np.int64))], f"{n}/flat")
    return {b.op("Reshape", [flat, b.const(f"{n}.s", np.array(shape, np.int64))], n): shape}


def _computed_shape(b: Builder, choose: Callable[[int], int], x: str, other: str, shape: Shape, n: str) -> Shapes:
    ends = [b.const(f"at{end}", np.array([end], np.int64)) for end in (1, 9)]
    tail = b.op("Slice", [b.op("Shape", [x], f"{n}/Shape"), *ends], f"{n}/Slice")
    return {b.op("Reshape", [other, b.op("Concat", [ends[0], tail], f"{n}/Concat", axis=0)], n): shape}


def _unsqueeze(b: Builder, choose: Callable[[int], int], x: str, other: str, shape: Shape, n: str) -> Shapes:
    axis = b.const("axis0", np.array([0], np.int64))
    return {b.op("Squeeze", [b.op("Unsqueeze", [x, axis], f"{n}/un"), axis], n): shape}


def _quantise(b: Builder, choose: Callable[[int], int], x: str, other: str, shape: Shape, n: str) -> Shapes:
    scale, zero = b.const("q.scale", np.float32(0.05)), b.const("q.zero", np.uint8(128))
    return {b.op("DequantizeLinear", [b.op("QuantizeLinear", [x, scale, zero], f"{n}/Q"), scale, zero], n): shape}


PLAIN_STEPS = (_conv, _conv, _conv, _normalise, _unary, _unary, _unary, _binary, _binary, _with_constant, _product,
               _concat, _pool, _gate)
VANISHING_STEPS = (_reshape, _computed_shape, _unsqueeze, _quantise)
