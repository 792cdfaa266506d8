"""Shapes for operators ONNX does not know: each is replaced by standard operators with a result of the same type.

Only types matter here, so a substitute may leave the arithmetic out. ONNX's inference reads them as local functions. If
a result depends on more than a function can say (a cache, NCHWc blocks), there is none and the shape stays open.
Source: ONNX Runtime's ContribOperators.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from onnx import FunctionProto, NodeProto, helper, parser

MICROSOFT = "com.microsoft"
_CONV = ("auto_pad: string = @auto_pad, dilations: ints = @dilations, group: int = @group, "
         "kernel_shape: ints = @kernel_shape, pads: ints = @pads, strides: ints = @strides")
_GEMM = "transA: int = @transA, transB: int = @transB"
_SAME = "Y = Identity(X)"
_SKIP = "Y = Identity(X) S = Identity(X)"
_GROUPED = ("Q, K, V, past_k, past_v, lengths, total, cos, sin, positions, bias, sink, k_scale, v_scale, q_norm, "
            "k_norm")
# The heads of the queries, out of those of queries, keys and values side by side.
_UNPACKED = """all = Constant <value_ints = [0, 0, {total}, -1]> () from = Constant <value_ints = [0]> ()
    to = Constant <value_ints = [{heads}]> () axis = Constant <value_ints = [2]> () each = Reshape(Q, all)
    queries = Slice(each, from, to, axis) flat = Constant <value_ints = [0, 0, -1]> () Y = Reshape(queries, flat)"""
# (domain, operator): inputs, outputs, body.
_BODIES: dict[tuple[str, str], tuple[str, str, str]] = {
    ("", "SimplifiedLayerNormalization"): ("X, scale", "Y", _SAME),
    ("", "LayerNormalization"): ("X, scale, b", "Y, mean, inverse", _SAME),  # ONNX Runtime's own, below opset 17
    **{(MICROSOFT, name): ("X", "Y", _SAME) for name in ("Gelu", "QuickGelu")},
    **{(MICROSOFT, name): ("X, b", "Y", _SAME) for name in ("BiasGelu", "FastGelu", "BiasSoftmax")},
    (MICROSOFT, "BiasAdd"): ("X, b, skip", "Y", _SAME),
    (MICROSOFT, "RotaryEmbedding"): ("X, position, cos, sin", "Y", _SAME),
    (MICROSOFT, "GroupNorm"): ("X, scale, b", "Y", _SAME),
    (MICROSOFT, "MoE"): ("X, router, w1, b1, w2, b2, w3, b3", "Y", _SAME),
    (MICROSOFT, "SkipLayerNormalization"): ("X, skip, scale, beta, b", "Y, mean, inverse, S", _SKIP),
    (MICROSOFT, "SkipSimplifiedLayerNormalization"): ("X, skip, scale, b", "Y, mean, inverse, S", _SKIP),
    (MICROSOFT, "EmbedLayerNormalization"): ("ids, segments, words, places, kinds, scale, b, mask, positions",
                                             "Y, index, S", "Y = Gather(words, ids) S = Identity(Y)"),
    (MICROSOFT, "FusedConv"): ("X, W, b, Z", "Y", f"Y = Conv <{_CONV}> (X, W)"),
    (MICROSOFT, "FusedGemm"): ("A, B, C", "Y", f"Y = Gemm <{_GEMM}> (A, B)"),
    (MICROSOFT, "GemmFastGelu"): ("A, B, b", "Y", "Y = MatMul(A, B)"),
    (MICROSOFT, "MatMulNBits"): ("A, B, scale, zero, group, b", "Y", """
        B_like = CastLike(B, A) Y = Einsum <equation = "...k,nbs->...n"> (A, B_like)"""),
    (MICROSOFT, "DynamicQuantizeMatMul"): ("A, B, scale, zero, b", "Y", """
        B_like = CastLike(B, A) Y = MatMul(A, B_like)"""),
    (MICROSOFT, "MatMulIntegerToFloat"): ("A, B, a_scale, b_scale, a_zero, b_zero, b", "Y", """
        P = MatMulInteger(A, B) Y = CastLike(P, a_scale)"""),
    **{(MICROSOFT, name): ("A, a_scale, a_zero, B, b_scale, b_zero, y_scale, y_zero", "Y", "Y = Add(A, B)")
       for name in ("QLinearAdd", "QLinearMul")},
    (MICROSOFT, "MultiHeadAttention"): ("Q, K, V, b, padding, bias, past_k, past_v, past, beams", "Y, k, v, qk", """
        Y = Einsum <equation = "bsh,blv->bsv"> (Q, V)"""),
    (MICROSOFT, "GroupQueryAttention"): (_GROUPED, "Y, k, v, qk", _SAME.replace("X", "Q")),
    (MICROSOFT, "Attention"): ("X, W, b, mask, past, bias, filled", "Y, present", """
        P = MatMul(X, W) Y, key, value = Split <axis = -1, num_outputs = 3> (P)"""),
}
_REFERENCE = re.compile(r"@(\w+)")
_UNEQUAL = "qkv_hidden_sizes"  # an Attention with a projection not cut into thirds


def functions(nodes: Iterator[NodeProto]) -> list[FunctionProto]:
    """Return the substitutes of these nodes; a node may be rewritten to call one made for its attributes."""
    needed: dict[tuple[str, str], FunctionProto] = {}
    for node in nodes:
        key = (node.domain, node.op_type)
        if key in ((MICROSOFT, "FusedMatMul"), (MICROSOFT, "TransposeMatMul")):
            _spell_out_product(node)
        elif key in _BODIES and all(item.name != _UNEQUAL for item in node.attribute):
            inputs, outputs, body = _BODIES[key]
            if node.op_type == "GroupQueryAttention" and not "".join(node.input[1:2]):
                body = _unpack(node)
            missing = outputs.count(",") + 1 - len(node.output)  # ONNX wants a place for each output of a function
            node.output.extend([""] * missing)
            if (node.domain, node.op_type) not in needed:
                needed[node.domain, node.op_type] = _function(node, inputs, outputs, body)
    return list(needed.values())


def _unpack(node: NodeProto) -> str:
    """Return a body for queries, keys and values in one tensor, under a name of its own."""
    counts = {item.name: item.i for item in node.attribute}
    heads, groups = counts.get("num_heads", 0), counts.get("kv_num_heads", 0)
    node.op_type += f"_{heads}_{groups}"
    return _UNPACKED.format(total=heads + 2 * groups, heads=heads)


def _spell_out_product(node: NodeProto) -> None:
    flags = {item.name: item.i for item in node.attribute}
    left, right = (_operand(pair, flags.get(f"trans{side}", 0), flags.get(f"transBatch{side}", 0))
                   for side, pair in (("A", "mk"), ("B", "kn")))
    product = helper.make_node("Einsum", node.input, node.output, node.name, equation=f"{left},{right}->...mn")
    node.CopyFrom(product)


def _operand(pair: str, turned: int, batched: int) -> str:
    first, second = (pair[1], pair[0]) if turned else (pair[0], pair[1])
    return f"{first}...{second}" if batched else f"...{first}{second}"


def _function(node: NodeProto, inputs: str, outputs: str, body: str) -> FunctionProto:
    attributes = f"<{', '.join(_REFERENCE.findall(body))}>" if "@" in body else ""
    head = f'<domain: "{node.domain}", opset_import: ["" : 18]> {node.op_type} {attributes} ({inputs}) => ({outputs})'
    return parser.parse_function(f"{head} {{ {body} }}")
