"""A small LLaMA-style decoder (Touvron et al. 2023, arXiv:2302.13971), written out node by node.

RMSNorm, rotary positions (Su et al. 2021, arXiv:2104.09864), grouped-query attention (Ainslie et al. 2023,
arXiv:2305.13245), SwiGLU (Shazeer 2020, arXiv:2002.05202), and a key-value cache in and out.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from aaco.runner.zoo.attention import attend, cached, decoder_inputs, heads, merge
from aaco.runner.zoo.builder import FLOAT, GraphBuilder

EPSILON = 1e-5
ROTARY_BASE = 10000.0


class LlamaSize(Struct, frozen=True):
    """The numbers of a LLaMA configuration; `kv_heads` key-value heads serve `heads` query heads."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    feed_forward: int
    vocabulary: int

    @property
    def head_width(self) -> int:
        """Return the width of one head."""
        return self.width // self.heads


def llama_tiny() -> GraphBuilder:
    """Return 4 layers of 256 with 8 query heads on 2 key-value heads: 4.9 million parameters."""
    size = LlamaSize(layers=4, width=256, heads=8, kv_heads=2, feed_forward=688, vocabulary=4096)
    graph = GraphBuilder("llama-tiny")
    graph.output("logits", ["batch", "sequence", size.vocabulary])
    bias = graph.op("Unsqueeze", decoder_inputs(graph), graph.ints(1), name="mask/Unsqueeze_group")
    rotation = _rotation(graph, size.head_width)
    table = graph.weight("embed_tokens.weight", size.vocabulary, size.width, std=0.02)
    x = graph.op("Gather", table, "input_ids", name="embed_tokens/Gather")
    for layer in range(size.layers):
        x = _layer(graph, x, bias, rotation, size, layer)
    x = _rms_norm(graph, x, size.width, "norm")
    graph.linear(x, size.width, size.vocabulary, "lm_head", bias=False, out="logits")
    return graph


def _layer(graph: GraphBuilder, x: str, bias: str, rotation: tuple[str, str], size: LlamaSize, layer: int) -> str:
    name = f"layer{layer}"
    y = _attention(graph, _rms_norm(graph, x, size.width, f"{name}.input_norm"), bias, rotation, size, layer)
    x = graph.op("Add", x, y, name=f"{name}.attn/Add_residual")
    y = _swiglu(graph, _rms_norm(graph, x, size.width, f"{name}.mlp_norm"), size, f"{name}.mlp")
    return graph.op("Add", x, y, name=f"{name}.mlp/Add_residual")


def _attention(graph: GraphBuilder, x: str, bias: str, rotation: tuple[str, str], size: LlamaSize, layer: int) -> str:
    """Return the attention.

    Query heads fold into [batch, kv_heads, group, sequence, width] and share keys and values by broadcast.
    """
    name, head_width, groups = f"layer{layer}.attn", size.head_width, size.heads // size.kv_heads
    q = _rotate(graph, _project(graph, x, size, size.heads, f"{name}.q"), rotation, f"{name}.q.rotary")
    k = _rotate(graph, _project(graph, x, size, size.kv_heads, f"{name}.k"), rotation, f"{name}.k.rotary")
    k, v = cached(graph, k, _project(graph, x, size, size.kv_heads, f"{name}.v"), size.kv_heads, head_width, layer)
    q = graph.op("Reshape", q, graph.ints(0, size.kv_heads, groups, -1, head_width), name=f"{name}/Reshape_group")
    k, v = (graph.op("Unsqueeze", part, graph.ints(2), name=f"{name}/Unsqueeze_{letter}")
            for letter, part in (("k", k), ("v", v)))
    y = attend(graph, q, k, v, bias, head_width, name, batch_axes=3)
    y = graph.op("Reshape", y, graph.ints(0, size.heads, -1, head_width), name=f"{name}/Reshape_heads")
    return graph.linear(merge(graph, y, size.heads, head_width, name), size.width, size.width, f"{name}.o", bias=False)


def _project(graph: GraphBuilder, x: str, size: LlamaSize, count: int, name: str) -> str:
    x = graph.linear(x, size.width, count * size.head_width, name, bias=False)
    return heads(graph, x, count, size.head_width, name)


def _rotation(graph: GraphBuilder, width: int) -> tuple[str, str]:
    """Return cosine and sine [batch, 1, sequence, width] of position * base**(-2 i / width), the angles twice over."""
    frequencies = (ROTARY_BASE ** (-np.arange(0, width, 2) / width)).astype(np.float32)
    positions = graph.op("Cast", "position_ids", name="rotary/Cast", to=FLOAT)
    positions = graph.op("Unsqueeze", positions, graph.ints(1, 3), name="rotary/Unsqueeze")
    angles = graph.op("Mul", positions, graph.constant("rotary/frequencies", frequencies), name="rotary/Mul")
    angles = graph.op("Concat", angles, angles, name="rotary/Concat", axis=-1)
    return graph.op("Cos", angles, name="rotary/Cos"), graph.op("Sin", angles, name="rotary/Sin")


def _rotate(graph: GraphBuilder, x: str, rotation: tuple[str, str], name: str) -> str:
    """Return x cos + (-second half, first half) sin."""
    cosine, sine = rotation
    first, second = graph.split(x, 2, f"{name}/Split")
    turned = graph.op("Concat", graph.op("Neg", second, name=f"{name}/Neg"), first, name=f"{name}/Concat", axis=-1)
    straight = graph.op("Mul", x, cosine, name=f"{name}/Mul_cos")
    return graph.op("Add", straight, graph.op("Mul", turned, sine, name=f"{name}/Mul_sin"), name=f"{name}/Add")


def _rms_norm(graph: GraphBuilder, x: str, width: int, name: str) -> str:
    """Return x / sqrt(mean(x**2) + epsilon) * weight (Zhang & Sennrich 2019, arXiv:1910.07467)."""
    square = graph.op("Pow", x, graph.number(2.0), name=f"{name}/Pow")
    mean = graph.op("ReduceMean", square, name=f"{name}/ReduceMean", axes=[-1], keepdims=1)
    root = graph.op("Sqrt", graph.op("Add", mean, graph.number(EPSILON), name=f"{name}/Add"), name=f"{name}/Sqrt")
    weight = graph.weight(f"{name}.weight", width, std=0.02, mean=1.0)
    return graph.op("Mul", graph.op("Div", x, root, name=f"{name}/Div"), weight, name=f"{name}/Mul")


def _swiglu(graph: GraphBuilder, x: str, size: LlamaSize, name: str) -> str:
    """Return down(silu(gate(x)) * up(x))."""
    gate = graph.linear(x, size.width, size.feed_forward, f"{name}.gate", bias=False)
    up = graph.linear(x, size.width, size.feed_forward, f"{name}.up", bias=False)
    silu = graph.op("Mul", gate, graph.op("Sigmoid", gate, name=f"{name}/Sigmoid"), name=f"{name}/Mul_silu")
    y = graph.op("Mul", silu, up, name=f"{name}/Mul")
    return graph.linear(y, size.feed_forward, size.width, f"{name}.down", bias=False)
