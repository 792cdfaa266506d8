"""BERT encoders (Devlin et al. 2019, arXiv:1810.04805) with the exact Gelu written out."""

from __future__ import annotations

from msgspec import Struct

from aaco.runner.zoo.attention import attend, heads, merge
from aaco.runner.zoo.builder import FLOAT, HIDDEN, INT64, GraphBuilder

EPSILON = 1e-12


class BertSize(Struct, frozen=True):
    """The numbers of a BERT configuration; the feed-forward layer is four times as wide."""

    layers: int
    width: int
    heads: int
    vocabulary: int = 30522
    positions: int = 512
    types: int = 2


def bert_base() -> GraphBuilder:
    """Return BERT-base, uncased: 12 layers of 768, 109,482,240 parameters."""
    return _bert("bert-base", BertSize(layers=12, width=768, heads=12))


def bert_tiny() -> GraphBuilder:
    """Return BERT-tiny (Turc et al. 2019, arXiv:1908.08962): 2 layers of 128, 4,385,920 parameters."""
    return _bert("bert-tiny", BertSize(layers=2, width=128, heads=2))


def _bert(name: str, size: BertSize) -> GraphBuilder:
    graph = GraphBuilder(name)
    x, bias = _embeddings(graph, size)
    for layer in range(size.layers):
        x = _layer(graph, x, bias, size, f"layer{layer}", last=layer == size.layers - 1)
    graph.output("last_hidden_state", ["batch", "sequence", size.width])
    first = graph.op("Gather", x, graph.integer(0), name="pooler/Gather", axis=1)
    graph.op("Tanh", graph.linear(first, size.width, size.width, "pooler"), name="pooler/Tanh", out="pooler_output")
    graph.output("pooler_output", ["batch", size.width])
    return graph


def _embeddings(graph: GraphBuilder, size: BertSize) -> tuple[str, str]:
    """Return the sum of word, position and type embeddings, and the attention bias [batch, 1, 1, sequence]."""
    ids = graph.input("input_ids", ["batch", "sequence"], INT64)
    mask = graph.input("attention_mask", ["batch", "sequence"], INT64)
    types = graph.input("token_type_ids", ["batch", "sequence"], INT64)
    words = graph.weight("embeddings.word.weight", size.vocabulary, size.width, std=0.02)
    kinds = graph.weight("embeddings.type.weight", size.types, size.width, std=0.02)
    x = graph.op("Add", graph.op("Gather", words, ids, name="embeddings.word/Gather"),
                 graph.op("Gather", kinds, types, name="embeddings.type/Gather"), name="embeddings/Add_type")
    x = graph.op("Add", x, _positions(graph, ids, size), name="embeddings/Add_position")
    return graph.layer_norm(x, size.width, "embeddings.norm", EPSILON), _bias(graph, mask)


def _positions(graph: GraphBuilder, ids: str, size: BertSize) -> str:
    """Return the first `sequence` rows of the position table."""
    table = graph.weight("embeddings.position.weight", size.positions, size.width, std=0.02)
    shape = graph.op("Shape", ids, name="embeddings.position/Shape", start=1, end=2)
    return graph.op("Slice", table, graph.ints(0), shape, graph.ints(0), name="embeddings.position/Slice")


def _bias(graph: GraphBuilder, mask: str) -> str:
    x = graph.op("Unsqueeze", mask, graph.ints(1, 2), name="mask/Unsqueeze")
    x = graph.op("Cast", x, name="mask/Cast", to=FLOAT)
    x = graph.op("Sub", graph.number(1.0), x, name="mask/Sub")
    return graph.op("Mul", x, graph.number(HIDDEN), name="mask/Mul")


def _layer(graph: GraphBuilder, x: str, bias: str, size: BertSize, name: str, last: bool) -> str:
    y = _attention(graph, x, bias, size, f"{name}.attention")
    x = graph.op("Add", y, x, name=f"{name}.attention/Add_residual")
    x = graph.layer_norm(x, size.width, f"{name}.attention.norm", EPSILON)
    y = _gelu(graph, graph.linear(x, size.width, 4 * size.width, f"{name}.intermediate"), f"{name}.gelu")
    y = graph.linear(y, 4 * size.width, size.width, f"{name}.output")
    x = graph.op("Add", y, x, name=f"{name}.output/Add_residual")
    return graph.layer_norm(x, size.width, f"{name}.output.norm", EPSILON, out="last_hidden_state" if last else "")


def _attention(graph: GraphBuilder, x: str, bias: str, size: BertSize, name: str) -> str:
    head_width = size.width // size.heads
    q, k, v = (heads(graph, graph.linear(x, size.width, size.width, f"{name}.{part}"), size.heads, head_width,
                     f"{name}.{part}") for part in ("query", "key", "value"))
    y = merge(graph, attend(graph, q, k, v, bias, head_width, name), size.heads, head_width, name)
    return graph.linear(y, size.width, size.width, f"{name}.output")


def _gelu(graph: GraphBuilder, x: str, name: str) -> str:
    """Return x / 2 * (1 + erf(x / sqrt(2))), Hendrycks & Gimpel 2016."""
    y = graph.op("Div", x, graph.number(2**0.5), name=f"{name}/Div")
    y = graph.op("Add", graph.op("Erf", y, name=f"{name}/Erf"), graph.number(1.0), name=f"{name}/Add")
    y = graph.op("Mul", x, y, name=f"{name}/Mul")
    return graph.op("Mul", y, graph.number(0.5), name=f"{name}/Mul_half")
