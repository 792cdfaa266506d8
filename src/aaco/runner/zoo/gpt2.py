"""GPT-2 decoders (Radford et al. 2019) with a key-value cache in and out; a cache of length 0 is the first pass."""

from __future__ import annotations

from msgspec import Struct

from aaco.runner.zoo.attention import attend, cached, decoder_inputs, heads, merge
from aaco.runner.zoo.builder import GraphBuilder

EPSILON = 1e-5


class Gpt2Size(Struct, frozen=True):
    """The numbers of a GPT-2 configuration; the feed-forward layer is four times as wide."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    positions: int = 1024


def gpt2() -> GraphBuilder:
    """Return GPT-2 small: 12 layers of 768, 124,439,808 parameters."""
    return _gpt2("gpt2", Gpt2Size(layers=12, width=768, heads=12, vocabulary=50257))


def gpt2_tiny() -> GraphBuilder:
    """Return a GPT-2 of 2 layers of 128 for demonstrations and tests: 1.1 million parameters."""
    return _gpt2("gpt2-tiny", Gpt2Size(layers=2, width=128, heads=4, vocabulary=4096))


def _gpt2(name: str, size: Gpt2Size) -> GraphBuilder:
    graph = GraphBuilder(name)
    graph.output("logits", ["batch", "sequence", size.vocabulary])
    bias = decoder_inputs(graph)
    words = graph.weight("wte.weight", size.vocabulary, size.width, std=0.02)
    places = graph.weight("wpe.weight", size.positions, size.width, std=0.02)
    x = graph.op("Add", graph.op("Gather", words, "input_ids", name="wte/Gather"),
                 graph.op("Gather", places, "position_ids", name="wpe/Gather"), name="embeddings/Add")
    for layer in range(size.layers):
        x = _layer(graph, x, bias, size, layer)
    x = graph.layer_norm(x, size.width, "ln_f", EPSILON)
    # The output layer shares the word embeddings, as in the original.
    graph.op("MatMul", x, graph.op("Transpose", words, name="lm_head/Transpose", perm=[1, 0]), name="lm_head/MatMul",
             out="logits")
    return graph


def _layer(graph: GraphBuilder, x: str, bias: str, size: Gpt2Size, layer: int) -> str:
    name = f"layer{layer}"
    y = _attention(graph, graph.layer_norm(x, size.width, f"{name}.ln_1", EPSILON), bias, size, layer)
    x = graph.op("Add", x, y, name=f"{name}.attn/Add_residual")
    y = graph.linear(graph.layer_norm(x, size.width, f"{name}.ln_2", EPSILON), size.width, 4 * size.width,
                     f"{name}.mlp.c_fc")
    y = graph.linear(_gelu(graph, y, f"{name}.mlp.gelu"), 4 * size.width, size.width, f"{name}.mlp.c_proj")
    return graph.op("Add", x, y, name=f"{name}.mlp/Add_residual")


def _attention(graph: GraphBuilder, x: str, bias: str, size: Gpt2Size, layer: int) -> str:
    head_width, name = size.width // size.heads, f"layer{layer}.attn"
    parts = graph.split(graph.linear(x, size.width, 3 * size.width, f"{name}.c_attn"), 3, f"{name}/Split")
    q, k, v = (heads(graph, part, size.heads, head_width, f"{name}.{letter}") for letter, part in zip("qkv", parts,
                                                                                           strict=True))
    k, v = cached(graph, k, v, size.heads, head_width, layer)
    y = merge(graph, attend(graph, q, k, v, bias, head_width, name), size.heads, head_width, name)
    return graph.linear(y, size.width, size.width, f"{name}.c_proj")


def _gelu(graph: GraphBuilder, x: str, name: str) -> str:
    """Return GPT-2's approximation: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x**3)))."""
    y = graph.op("Pow", x, graph.number(3.0), name=f"{name}/Pow")
    y = graph.op("Mul", y, graph.number(0.044715), name=f"{name}/Mul_cubic")
    y = graph.op("Add", x, y, name=f"{name}/Add_cubic")
    y = graph.op("Mul", y, graph.number(0.7978845608028654), name=f"{name}/Mul_scale")
    y = graph.op("Add", graph.op("Tanh", y, name=f"{name}/Tanh"), graph.number(1.0), name=f"{name}/Add")
    y = graph.op("Mul", x, y, name=f"{name}/Mul")
    return graph.op("Mul", y, graph.number(0.5), name=f"{name}/Mul_half")
