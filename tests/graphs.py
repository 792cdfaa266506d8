"""Small ONNX graphs, seeded and without a hub, that give a runtime's optimiser real work to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


class Builder:
    """Nodes and weights collected one call at a time; the random weights come from one seed."""

    def __init__(self, seed: int = 0) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(seed)

    def weight(self, name: str, *shape: int, scale: float = 0.2) -> str:
        """A random float32 weight."""
        return self.const(name, (self.random.standard_normal(shape) * scale).astype(np.float32))

    def positive(self, name: str, *shape: int) -> str:
        """A random float32 weight in [0.5, 1.5], for scales and variances."""
        return self.const(name, self.random.uniform(0.5, 1.5, shape).astype(np.float32))

    def norm(self, name: str, channels: int) -> list[str]:
        """Scale, bias, mean and variance of a BatchNormalization."""
        return [self.positive(f"{name}.g", channels), self.weight(f"{name}.b", channels),
                self.weight(f"{name}.m", channels), self.positive(f"{name}.v", channels)]

    def const(self, name: str, value: ArrayLike) -> str:
        """An initializer, given once however often it is asked for."""
        if all(known.name != name for known in self.weights):
            self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def op(self, kind: str, inputs: list[str], name: str, **attributes: Any) -> str:
        """A node with one output, called `<name>_out`."""
        self.nodes.append(helper.make_node(kind, inputs, [f"{name}_out"], name=name, **attributes))
        return f"{name}_out"

    def rename(self, tensor: str, wanted: str) -> None:
        """Give the output of a node the name that a model output needs."""
        for node in self.nodes:
            node.input[:] = [wanted if one == tensor else one for one in node.input]
            node.output[:] = [wanted if one == tensor else one for one in node.output]

    def body(self, name: str, inputs: dict[str, tuple[int, list[Any]]],
             outputs: dict[str, tuple[int, list[Any]]]) -> onnx.GraphProto:
        """The finished graph of an If or a Loop."""
        given, made = ([helper.make_tensor_value_info(one, *kind) for one, kind in side.items()]
                       for side in (inputs, outputs))
        return helper.make_graph(self.nodes, name, given, made, self.weights)

    def model(self, inputs: dict[str, tuple[int, list[Any]]], outputs: dict[str, tuple[int, list[Any]]],
              opset: int = 17) -> onnx.ModelProto:
        """The finished model; inputs and outputs map a name to (element type, shape)."""
        opsets = [helper.make_opsetid("", opset)]
        return helper.make_model(self.body("g", inputs, outputs), opset_imports=opsets, ir_version=8)


def resnet(stages: tuple[int, ...] = (1, 2), width: int = 8, image: int = 16) -> onnx.ModelProto:
    """ResNet bottlenecks with Conv, BatchNormalization and Relu apart; (3, 4, 6, 3) at width 64 is ResNet-50."""
    b = Builder()

    def conv(x: str, ci: int, co: int, k: int, stride: int, name: str, relu: bool = True) -> str:
        weight = b.weight(f"{name}.w", co, ci, k, k, scale=(2 / (ci * k * k)) ** 0.5)
        x = b.op("Conv", [x, weight], f"{name}/Conv", kernel_shape=[k, k], strides=[stride, stride], pads=[k // 2] * 4)
        x = b.op("BatchNormalization", [x, *b.norm(name, co)], f"{name}/BN")
        return b.op("Relu", [x], f"{name}/Relu") if relu else x

    x = conv("input", 3, width, 7, 2, "stem")
    x = b.op("MaxPool", [x], "stem/MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = width
    for stage, blocks in enumerate(stages):
        inner = width << stage
        for block in range(blocks):
            name, stride = f"layer{stage + 1}.{block}", 2 if stage and not block else 1
            y = conv(x, channels, inner, 1, 1, f"{name}.a")
            y = conv(y, inner, inner, 3, stride, f"{name}.b")
            y = conv(y, inner, inner * 4, 1, 1, f"{name}.c", relu=False)
            x = x if block else conv(x, channels, inner * 4, 1, stride, f"{name}.down", relu=False)
            x = b.op("Relu", [b.op("Add", [x, y], f"{name}/Add")], f"{name}/Relu")
            channels = inner * 4
    x = b.op("Flatten", [b.op("GlobalAveragePool", [x], "gap")], "flatten")
    b.op("Gemm", [x, b.weight("fc.w", 10, channels), b.weight("fc.b", 10)], "fc", transB=1)
    return b.model({"input": (FLOAT, ["N", 3, image, image])}, {"fc_out": (FLOAT, ["N", 10])})


def _linear(b: Builder, x: str, inner: int, outer: int, name: str) -> str:
    product = b.op("MatMul", [x, b.weight(f"{name}.w", inner, outer)], f"{name}/MatMul")
    return b.op("Add", [product, b.weight(f"{name}.b", outer)], f"{name}/Add")


def gpt2(layers: int = 2, width: int = 32, heads: int = 4, vocabulary: int = 50) -> onnx.ModelProto:
    """A GPT-2 decoder with its KV cache as inputs and outputs, in plain operators."""
    b = Builder()
    head = width // heads
    b.const("split", np.array([0, 0, heads, head], np.int64))
    b.const("join", np.array([0, 0, width], np.int64))
    b.const("scale", np.float32(head**-0.5))
    words = b.weight("wte", vocabulary, width)
    x = b.op("Add", [b.op("Gather", [words, "input_ids"], "embed"),
                     b.op("Gather", [b.weight("wpe", 64, width), "position_ids"], "pos")], "embed/Add")

    def norm(x: str, name: str) -> str:
        scale, bias = b.positive(f"{name}.g", width), b.weight(f"{name}.b", width)
        return b.op("LayerNormalization", [x, scale, bias], f"{name}/LN")

    for layer in range(layers):
        n = f"h.{layer}"
        y = norm(x, f"{n}.ln1")
        part = {}
        for t in "qkv":
            split = b.op("Reshape", [_linear(b, y, width, width, f"{n}.{t}"), "split"], f"{n}.{t}/Reshape")
            part[t] = b.op("Transpose", [split], f"{n}.{t}/Transpose", perm=[0, 2, 1, 3])
        for t in "kv":
            b.rename(b.op("Concat", [f"past_{layer}_{t}", part[t]], f"{n}.{t}/Concat", axis=2), f"present_{layer}_{t}")
        turned = b.op("Transpose", [f"present_{layer}_k"], f"{n}.kT", perm=[0, 1, 3, 2])
        score = b.op("Mul", [b.op("MatMul", [part["q"], turned], f"{n}/QK"), "scale"], f"{n}/Scale")
        score = b.op("Softmax", [b.op("Add", [score, "mask"], f"{n}/Mask")], f"{n}/Softmax", axis=-1)
        o = b.op("MatMul", [score, f"present_{layer}_v"], f"{n}/PV")
        o = b.op("Reshape", [b.op("Transpose", [o], f"{n}.o/Transpose", perm=[0, 2, 1, 3]), "join"], f"{n}.o/Reshape")
        x = b.op("Add", [x, _linear(b, o, width, width, f"{n}.o")], f"{n}/res1")
        y = _linear(b, norm(x, f"{n}.ln2"), width, 4 * width, f"{n}.fc")
        y = b.op("Gelu", [y], f"{n}.gelu", approximate="tanh")
        x = b.op("Add", [x, _linear(b, y, 4 * width, width, f"{n}.proj")], f"{n}/res2")
    b.op("MatMul", [norm(x, "ln_f"), b.op("Transpose", [words], "wteT", perm=[1, 0])], "lm_head")
    cache = {f"{when}_{layer}_{t}": (FLOAT, ["B", heads, f"{when}_len", head])
             for when in ("past", "present") for layer in range(layers) for t in "kv"}
    past, present = ({name: kind for name, kind in cache.items() if name.startswith(when)}
                     for when in ("past", "present"))
    ids: dict[str, tuple[int, list[Any]]] = {name: (INT64, ["B", "S"]) for name in ("input_ids", "position_ids")}
    ids["mask"] = (FLOAT, ["B", 1, "S", "total"])
    return b.model(ids | past, {"lm_head_out": (FLOAT, ["B", "S", vocabulary])} | present, opset=20)


def bert(layers: int = 2, width: int = 32, heads: int = 4, gelu: str = "erf", opset: int = 14) -> onnx.ModelProto:
    """A BERT encoder as older exporters write it: LayerNorm, Gelu, attention and mask in small operators.

    At opset 12 ONNX Runtime recognises the attention too and makes one node of it.
    """
    b = Builder()
    head = width // heads
    scalars = {"two": 2.0, "half": 0.5, "one": 1.0, "three": 3.0, "sqrt2": 2**0.5, "eps": 1e-6, "scale": head**0.5,
               "minus": -10000.0, "cubic": 0.044715, "root": (2 / np.pi) ** 0.5}
    for name, value in scalars.items():
        b.const(name, np.float32(value))
    b.const("split", np.array([0, 0, heads, head], np.int64))
    b.const("join", np.array([0, 0, width], np.int64))
    b.const("axis1", np.array([1], np.int64))
    b.const("axis2", np.array([2], np.int64))

    def norm(x: str, n: str) -> str:
        centred = b.op("Sub", [x, b.op("ReduceMean", [x], f"{n}/mean", axes=[-1])], f"{n}/Sub")
        spread = b.op("ReduceMean", [b.op("Pow", [centred, "two"], f"{n}/Pow")], f"{n}/var", axes=[-1])
        root = b.op("Sqrt", [b.op("Add", [spread, "eps"], f"{n}/eps")], f"{n}/Sqrt")
        x = b.op("Mul", [b.op("Div", [centred, root], f"{n}/Div"), b.positive(f"{n}.g", width)], f"{n}/Mul")
        return b.op("Add", [x, b.weight(f"{n}.b", width)], f"{n}/Add")

    def erf_gelu(x: str, n: str) -> str:
        y = b.op("Add", [b.op("Erf", [b.op("Div", [x, "sqrt2"], f"{n}/Div")], f"{n}/Erf"), "one"], f"{n}/Add")
        return b.op("Mul", [b.op("Mul", [x, y], f"{n}/Mul"), "half"], f"{n}/Half")

    def tanh_gelu(x: str, n: str) -> str:
        y = b.op("Mul", [b.op("Pow", [x, "three"], f"{n}/Pow"), "cubic"], f"{n}/Cubic")
        y = b.op("Mul", [b.op("Add", [x, y], f"{n}/Add"), "root"], f"{n}/Root")
        y = b.op("Add", [b.op("Tanh", [y], f"{n}/Tanh"), "one"], f"{n}/One")
        return b.op("Mul", [b.op("Mul", [x, "half"], f"{n}/Half"), y], f"{n}/Mul")

    mask = "mask"
    for axis in (1, 2):
        given = {"axes": [axis]} if opset < 13 else {}
        mask = b.op("Unsqueeze", [mask] + [f"axis{axis}"] * (opset > 12), f"mask/{axis}", **given)
    mask = b.op("Sub", ["one", b.op("Cast", [mask], "mask/Cast", to=FLOAT)], "mask/Sub")
    mask = b.op("Mul", [mask, "minus"], "mask/Mul")
    x = b.op("Add", [b.op("Gather", [b.weight("word", 50, width), "input_ids"], "word/Gather"),
                     b.op("Gather", [b.weight("type", 2, width), "type_ids"], "type/Gather")], "embed/Add1")
    x = norm(b.op("Add", [x, b.weight("position", 1, 8, width)], "embed/Add2"), "embed/ln")
    for layer in range(layers):
        n = f"l.{layer}"
        part = {}
        for t, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
            y = b.op("Reshape", [_linear(b, x, width, width, f"{n}.{t}"), "split"], f"{n}.{t}/Reshape")
            part[t] = b.op("Transpose", [y], f"{n}.{t}/Transpose", perm=perm)
        y = b.op("Div", [b.op("MatMul", [part["q"], part["k"]], f"{n}/QK"), "scale"], f"{n}/Scale")
        y = b.op("Softmax", [b.op("Add", [y, mask], f"{n}/Mask")], f"{n}/Softmax", axis=3)
        y = b.op("Transpose", [b.op("MatMul", [y, part["v"]], f"{n}/PV")], f"{n}.o/Transpose", perm=[0, 2, 1, 3])
        y = _linear(b, b.op("Reshape", [y, "join"], f"{n}.o/Reshape"), width, width, f"{n}.o")
        x = norm(b.op("Add", [y, x], f"{n}/res1"), f"{n}.ln1")
        y = _linear(b, x, width, 4 * width, f"{n}.fc")
        y = (erf_gelu if gelu == "erf" else tanh_gelu)(y, f"{n}.gelu")
        x = norm(b.op("Add", [_linear(b, y, 4 * width, width, f"{n}.proj"), x], f"{n}/res2"), f"{n}.ln2")
    b.rename(x, "hidden")
    ids: dict[str, tuple[int, list[Any]]] = {name: (INT64, ["B", 8]) for name in ("input_ids", "type_ids", "mask")}
    return b.model(ids, {"hidden": (FLOAT, ["B", 8, width])}, opset)


def mobilenet(blocks: int = 3, width: int = 8, image: int = 16) -> onnx.ModelProto:
    """MobileNet blocks: depthwise Conv, Clip, squeeze-and-excite, HardSwish both as one operator and spelled out."""
    b = Builder()
    b.const("zero", np.float32(0))
    b.const("six", np.float32(6))
    b.const("three", np.float32(3))

    def conv(x: str, ci: int, co: int, k: int, name: str, group: int = 1) -> str:
        x = b.op("Conv", [x, b.weight(f"{name}.w", co, ci // group, k, k)], f"{name}/Conv", kernel_shape=[k, k],
                 pads=[k // 2] * 4, group=group)
        return b.op("BatchNormalization", [x, *b.norm(name, co)], f"{name}/BN")

    def activate(x: str, kind: int, name: str) -> str:
        if kind == 0:
            return b.op("Clip", [x, "zero", "six"], f"{name}/Clip")
        if kind == 1:
            return b.op("HardSwish", [x], f"{name}/HardSwish")
        gate = b.op("Clip", [b.op("Add", [x, "three"], f"{name}/Add"), "zero", "six"], f"{name}/Clip")
        return b.op("Div", [b.op("Mul", [x, gate], f"{name}/Mul"), "six"], f"{name}/Div")

    x = activate(conv("input", 3, width, 3, "stem"), 1, "stem")
    for block in range(blocks):
        n, wide = f"b{block}", width * 4
        y = activate(conv(x, width, wide, 1, f"{n}.expand"), block % 3, f"{n}.expand")
        y = activate(conv(y, wide, wide, 3, f"{n}.depth", group=wide), block % 3, f"{n}.depth")
        s = b.op("GlobalAveragePool", [y], f"{n}.se/Pool")
        s = b.op("Conv", [s, b.weight(f"{n}.se1.w", 8, wide, 1, 1), b.weight(f"{n}.se1.b", 8)], f"{n}.se1/Conv")
        s = b.op("Relu", [s], f"{n}.se/Relu")
        s = b.op("Conv", [s, b.weight(f"{n}.se2.w", wide, 8, 1, 1), b.weight(f"{n}.se2.b", wide)], f"{n}.se2/Conv")
        y = b.op("Mul", [y, b.op("HardSigmoid", [s], f"{n}.se/HardSigmoid", alpha=1 / 6)], f"{n}.se/Mul")
        x = b.op("Add", [x, conv(y, wide, width, 1, f"{n}.project")], f"{n}/Add")
    x = b.op("Squeeze", [b.op("GlobalAveragePool", [x], "gap"), b.const("axes", np.array([2, 3], np.int64))], "squeeze")
    b.rename(b.op("Dropout", [_linear(b, x, width, 10, "head")], "dropout"), "scores")
    return b.model({"input": (FLOAT, [1, 3, image, image])}, {"scores": (FLOAT, [1, 10])})


def shapes() -> onnx.ModelProto:
    """Chains that compute shapes, folded constants, an identity, a duplicate and a node no one reads."""
    b = Builder()
    for axis in (0, 1):
        b.const(f"i{axis}", np.int64(axis))
    b.const("axis0", np.array([0], np.int64))
    b.const("four", np.array([4], np.int64))
    b.const("minus1", np.array([-1], np.int64))

    def dim(x: str, axis: int, name: str) -> str:
        picked = b.op("Gather", [b.op("Shape", [x], f"{name}/Shape"), f"i{axis}"], f"{name}/Gather", axis=0)
        return b.op("Unsqueeze", [picked, "axis0"], f"{name}/Unsqueeze")

    x = _linear(b, "input", 16, 16, "first")
    wanted = b.op("Concat", [dim(x, 0, "d0"), dim(x, 1, "d1"), "four", "minus1"], "shape/Concat", axis=0)
    y = b.op("Transpose", [b.op("Reshape", [x, wanted], "split")], "turn", perm=[0, 2, 1, 3])
    y = b.op("Identity", [y], "same")
    constant = b.op("Mul", [b.weight("c1", 4, 4), b.weight("c2", 4, 4)], "c/Mul")
    y = b.op("MatMul", [y, b.op("Transpose", [constant], "c/Transpose", perm=[1, 0])], "product")
    y = b.op("Add", [b.op("Relu", [y], "relu1"), b.op("Relu", [y], "relu2")], "twice")
    b.op("Exp", [y], "dead")
    y = b.op("Transpose", [y], "turn_back", perm=[0, 2, 1, 3])
    flat = b.op("Concat", [dim(x, 0, "e0"), dim("input", 1, "e1"), "minus1"], "flat/Concat", axis=0)
    b.rename(b.op("Reshape", [y, flat], "join"), "result")
    return b.model({"input": (FLOAT, ["B", "S", 16])}, {"result": (FLOAT, ["B", "S", 16])})


def control_flow() -> onnx.ModelProto:
    """An If and a Loop (which holds an If) whose bodies have work to fuse."""
    b = Builder()
    x = _linear(b, "input", 8, 8, "outer")

    def branch(name: str, kind: str) -> onnx.GraphProto:
        inner = Builder(len(name))
        inner.op(kind, [_linear(inner, x, 8, 8, name)], f"{name}/act")
        return inner.body(name, {}, {f"{name}/act_out": (FLOAT, ["B", 8])})

    choice = b.op("If", ["flag"], "if", then_branch=branch("then", "Relu"), else_branch=branch("else", "Sigmoid"))
    body = Builder(5)
    y = body.op("Add", [_linear(body, "carried", 8, 8, "body"), choice], "body/skip")
    small = [Builder(), Builder()]
    for inner, kind in zip(small, ("Tanh", "Relu"), strict=True):
        inner.op(kind, [y], f"nested/{kind}")
    tanh, relu = (inner.body(kind, {}, {f"nested/{kind}_out": (FLOAT, ["B", 8])})
                  for inner, kind in zip(small, ("Tanh", "Relu"), strict=True))
    y = body.op("If", ["keep_going"], "nested", then_branch=tanh, else_branch=relu)
    again = body.op("Identity", ["keep_going"], "again")
    loop = body.body("body", {"step": (INT64, []), "keep_going": (BOOL, []), "carried": (FLOAT, ["B", 8])},
                     {again: (BOOL, []), y: (FLOAT, ["B", 8])})
    b.const("three", np.int64(3))
    y = b.op("Loop", ["three", "flag", choice], "loop", body=loop)
    b.rename(b.op("Relu", [_linear(b, y, 8, 8, "last")], "final"), "result")
    return b.model({"input": (FLOAT, ["B", 8]), "flag": (BOOL, [])}, {"result": (FLOAT, ["B", 8])})


def channels_last() -> onnx.ModelProto:
    """Convolutions between transposes, as TensorFlow's converter leaves them: the runtime moves most of them away."""
    b = Builder()

    def conv(x: str, ci: int, co: int, n: str) -> str:
        x = b.op("Transpose", [x], f"{n}/in", perm=[0, 3, 1, 2])
        x = b.op("Conv", [x, b.weight(f"{n}.w", co, ci, 3, 3), b.weight(f"{n}.b", co)], f"{n}/Conv", pads=[1] * 4)
        return b.op("Transpose", [x], f"{n}/out", perm=[0, 2, 3, 1])

    x = b.op("Relu", [conv("input", 3, 8, "c1")], "relu")
    y = b.op("Mul", [conv(x, 8, 8, "c2"), b.weight("scale", 8)], "mul")
    x = b.op("Add", [x, b.op("Add", [y, b.weight("bias", 8)], "bias")], "add")
    x = b.op("Sub", [x, b.op("ReduceMean", [x], "mean", axes=[1, 2], keepdims=1)], "sub")
    p = b.op("Pad", [x, b.const("pads", np.array([0, 1, 1, 0, 0, 1, 1, 0], np.int64))], "pad")
    x = b.op("Transpose", [b.op("Concat", [conv(p, 8, 4, "c3"), p], "cat", axis=3)], "t1", perm=[0, 2, 1, 3])
    b.rename(b.op("Transpose", [b.op("Sigmoid", [x], "sigmoid")], "t2", perm=[0, 2, 1, 3]), "output")
    return b.model({"input": (FLOAT, [1, 16, 16, 3])}, {"output": (FLOAT, [1, 18, 18, 12])}, opset=13)


def exported() -> onnx.ModelProto:
    """What PyTorch's exporter makes of an attention block: shape arithmetic, Constant nodes, much that does nothing."""
    b = Builder()

    def const(value: ArrayLike) -> str:
        return b.op("Constant", [], f"/Constant_{len(b.nodes)}", value=numpy_helper.from_array(np.asarray(value)))

    def size(x: str, axis: int, n: str) -> str:
        picked = b.op("Gather", [b.op("Shape", [x], f"{n}/Shape"), const(np.int64(axis))], f"{n}/Gather", axis=0)
        return b.op("Unsqueeze", [picked, const(np.array([0]))], f"{n}/Unsqueeze")

    def shaped(x: str, tail: list[int], n: str) -> str:
        dims = [size(x, 0, f"{n}/0"), size(x, 1, f"{n}/1"), *(const(np.array([dim])) for dim in tail)]
        return b.op("Reshape", [x, b.op("Concat", dims, f"{n}/Concat", axis=0)], n)

    x = shaped(_linear(b, "input", 32, 96, "qkv"), [3, 4, 8], "/split")
    x = b.op("Transpose", [x], "/turn", perm=[2, 0, 3, 1, 4])
    q, k, v = (b.op("Gather", [x, const(np.int64(i))], f"/{t}", axis=0) for i, t in enumerate("qkv"))
    score = b.op("MatMul", [q, b.op("Transpose", [k], "/kT", perm=[0, 1, 3, 2])], "/qk")
    score = b.op("Softmax", [b.op("Div", [score, const(np.float32(8**0.5))], "/scale")], "/softmax", axis=-1)
    y = b.op("Transpose", [b.op("MatMul", [score, v], "/pv")], "/turn_back", perm=[0, 2, 1, 3])
    y = b.op("Add", [_linear(b, shaped(y, [32], "/join"), 32, 32, "proj"), "input"], "/residual")
    y = b.op("LayerNormalization", [y, b.positive("ln.g", 32), b.weight("ln.b", 32)], "/norm")
    y = b.op("Mul", [y, b.op("Sigmoid", [y], "/sigmoid")], "/silu")
    y = b.op("Cast", [b.op("Add", [y, const(np.float32(0))], "/plus0")], "/cast", to=FLOAT)
    y = b.op("Slice", [y, const(np.array([0])), const(np.array([2**63 - 1])), const(np.array([1]))], "/slice")
    b.rename(b.op("Mul", [y, const(np.float32(1))], "/times1"), "output")
    return b.model({"input": (FLOAT, ["B", "S", 32])}, {"output": (FLOAT, ["B", "S", 32])})


def dissolved() -> onnx.ModelProto:
    """Three Ifs on constants, which the runtime replaces by one branch each; one of these is a mere Identity."""
    b = Builder()
    x = "input"
    for i, choice in enumerate((True, False, True)):
        then, other = Builder(i), Builder(9 + i)
        then.op("Identity" if i == 2 else "Relu", [x], f"then{i}")
        other.op("Tanh", [_linear(other, x, 8, 8, f"else{i}")], f"else{i}/act")
        x = b.op("If", [b.const(f"condition{i}", np.bool_(choice))], f"if{i}",
                 then_branch=then.body("then", {}, {f"then{i}_out": (FLOAT, ["B", 8])}),
                 else_branch=other.body("else", {}, {f"else{i}/act_out": (FLOAT, ["B", 8])}))
        x = _linear(b, x, 8, 8, f"after{i}")
    b.rename(b.op("Sigmoid", [x], "end"), "output")
    return b.model({"input": (FLOAT, ["B", 8])}, {"output": (FLOAT, ["B", 8])})


def local_functions() -> onnx.ModelProto:
    """Blocks that are calls of a function of the model's own."""
    b = Builder()
    x = "input"
    for i in range(3):
        x = b.op("Block", [x, b.weight(f"w{i}", 8, 8), b.weight(f"b{i}", 8)], f"block{i}", domain="local")
    b.rename(b.op("Softmax", [x], "softmax"), "output")
    model = b.model({"input": (FLOAT, ["B", 8])}, {"output": (FLOAT, ["B", 8])})
    steps = [("MatMul", ["x", "w"], "m"), ("Add", ["m", "b"], "a"), ("Relu", ["a"], "r"), ("Sigmoid", ["r"], "s"),
             ("Mul", ["r", "s"], "y")]
    body = [helper.make_node(kind, given, [made]) for kind, given, made in steps]
    model.functions.append(helper.make_function("local", "Block", ["x", "w", "b"], ["y"], body, model.opset_import))
    model.opset_import.append(helper.make_opsetid("local", 1))
    return model


def half_precision() -> onnx.ModelProto:
    """float16 inside, for which the CPU has few kernels: the runtime casts, and writes Softmax out."""
    b = Builder()
    weight = b.const("w", b.random.standard_normal((8, 8)).astype(np.float16))
    bias = b.const("b", np.ones(8, np.float16))
    x = b.op("Cast", ["input"], "halve", to=TensorProto.FLOAT16)
    x = b.op("Relu", [b.op("Add", [b.op("MatMul", [x, weight], "product"), bias], "bias")], "relu")
    x = b.op("LayerNormalization", [b.op("Softmax", [x], "softmax"), bias, bias], "norm")
    b.rename(b.op("Cast", [x], "restore", to=FLOAT), "output")
    return b.model({"input": (FLOAT, ["B", 8])}, {"output": (FLOAT, ["B", 8])})


class _Calibration(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self) -> None:
        draws = np.random.default_rng(0)
        self.feeds = iter([{"input": draws.standard_normal((1, 3, 16, 16), np.float32)} for _ in range(3)])

    def get_next(self) -> dict[str, np.ndarray[Any, Any]] | None:
        """The next sample, or None after the last."""
        return next(self.feeds, None)


def quantised(folder: Path, activations: QuantType) -> onnx.ModelProto:
    """A small CNN with a residual, quantised statically by ONNX Runtime's own tool (QDQ format).

    The runtime turns int8 activations into uint8, under tensor names of its own.
    """
    b = Builder()

    def conv(x: str, ci: int, co: int, n: str) -> str:
        x = b.op("Conv", [x, b.weight(f"{n}.w", co, ci, 3, 3), b.weight(f"{n}.b", co)], f"{n}/Conv", pads=[1] * 4)
        return b.op("Relu", [x], f"{n}/Relu")

    x = conv("input", 3, 8, "c1")
    x = b.op("Add", [x, conv(conv(x, 8, 8, "c2"), 8, 8, "c3")], "add")
    x = b.op("MaxPool", [x], "pool", kernel_shape=[2, 2], strides=[2, 2])
    x = b.op("GlobalAveragePool", [b.op("Concat", [x, conv(x, 8, 4, "c4")], "cat", axis=1)], "gap")
    x = b.op("Gemm", [b.op("Flatten", [x], "flatten"), b.weight("fc.w", 12, 10), b.weight("fc.b", 10)], "fc")
    b.rename(b.op("Softmax", [b.op("MatMul", [x, b.weight("mm.w", 10, 6)], "mm")], "softmax"), "scores")
    onnx.save(b.model({"input": (FLOAT, [1, 3, 16, 16])}, {"scores": (FLOAT, [1, 6])}, opset=13), folder / "float.onnx")
    quantize_static(folder / "float.onnx", folder / "qdq.onnx", _Calibration(), quant_format=QuantFormat.QDQ,
                    activation_type=activations)
    return onnx.load(folder / "qdq.onnx")
