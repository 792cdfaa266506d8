"""The common parts of the transformer recipes: heads, masks as additive biases, attention over a key-value cache."""

from __future__ import annotations

from aaco.runner.zoo.builder import HIDDEN, INT64, GraphBuilder


def heads(graph: GraphBuilder, x: str, count: int, width: int, name: str) -> str:
    """Return [batch, sequence, count * width] as [batch, count, sequence, width]."""
    x = graph.op("Reshape", x, graph.ints(0, 0, count, width), name=f"{name}/Reshape")
    return graph.op("Transpose", x, name=f"{name}/Transpose", perm=[0, 2, 1, 3])


def attend(graph: GraphBuilder, q: str, k: str, v: str, bias: str, width: int, name: str, batch_axes: int = 2) -> str:
    """Return softmax(q k' / sqrt(width) + bias) v over the last two axes, after `batch_axes` leading ones."""
    swapped = [*range(batch_axes), batch_axes + 1, batch_axes]
    k = graph.op("Transpose", k, name=f"{name}/Transpose_k", perm=swapped)
    scores = graph.op("MatMul", q, k, name=f"{name}/MatMul_qk")
    scores = graph.op("Div", scores, graph.number(width**0.5), name=f"{name}/Div")
    scores = graph.op("Add", scores, bias, name=f"{name}/Add")
    return graph.op("MatMul", graph.op("Softmax", scores, name=f"{name}/Softmax", axis=-1), v, name=f"{name}/MatMul_v")


def merge(graph: GraphBuilder, x: str, count: int, width: int, name: str) -> str:
    """Return [batch, count, sequence, width] as [batch, sequence, count * width]."""
    x = graph.op("Transpose", x, name=f"{name}/Transpose_out", perm=[0, 2, 1, 3])
    return graph.op("Reshape", x, graph.ints(0, 0, count * width), name=f"{name}/Reshape_out")


def decoder_inputs(graph: GraphBuilder) -> str:
    """Declare input_ids, attention_mask and position_ids; return the causal bias [batch, 1, sequence, total].

    Key j is visible to query i (at position past + i, past = total - sequence) when j <= past + i and the attention
    mask has a 1 at j.
    """
    ids = graph.input("input_ids", ["batch", "sequence"], INT64)
    mask = graph.input("attention_mask", ["batch", "total_sequence"], INT64)
    graph.input("position_ids", ["batch", "sequence"], INT64)
    sequence, total = _length(graph, ids, "mask/sequence"), _length(graph, mask, "mask/total")
    zero, unit = graph.integer(0), graph.integer(1)
    past = graph.op("Sub", total, sequence, name="mask/Sub")
    queries = graph.op("Range", past, total, unit, name="mask/Range_queries")
    queries = graph.op("Unsqueeze", queries, graph.ints(1), name="mask/Unsqueeze_queries")
    keys = graph.op("Range", zero, total, unit, name="mask/Range_keys")
    causal = graph.op("LessOrEqual", keys, queries, name="mask/LessOrEqual")
    kept = graph.op("Cast", mask, name="mask/Cast", to=9)  # TensorProto.BOOL
    kept = graph.op("Unsqueeze", kept, graph.ints(1, 2), name="mask/Unsqueeze")
    visible = graph.op("And", causal, kept, name="mask/And")
    return graph.op("Where", visible, graph.number(0.0), graph.number(HIDDEN), name="mask/Where")


def cached(graph: GraphBuilder, k: str, v: str, count: int, width: int, layer: int) -> tuple[str, str]:
    """Append the new keys and values to the cache: past_key_values.<layer>.* in, present.<layer>.* out."""
    grown = []
    for part, new in (("key", k), ("value", v)):
        past = graph.input(f"past_key_values.{layer}.{part}", ["batch", count, "past_sequence", width])
        present = f"present.{layer}.{part}"
        graph.op("Concat", past, new, name=f"layer{layer}.cache/Concat_{part}", out=present, axis=2)
        graph.output(present, ["batch", count, "total_sequence", width])
        grown.append(present)
    return grown[0], grown[1]


def _length(graph: GraphBuilder, x: str, name: str) -> str:
    """Return the size of axis 1, as a scalar."""
    shape = graph.op("Shape", x, name=f"{name}/Shape")
    return graph.op("Gather", shape, graph.integer(1), name=f"{name}/Gather", axis=0)
