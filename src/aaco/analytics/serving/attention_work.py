"""FLOPs and bytes of attention in a serving step, from the sums over its requests and the shape of the model.

Pairs = sqsk - (sqsq - sq) / 2 under the causal rule (sqsk where each request has one query),
FLOPs = 2 Hq (dqk + dv) pairs, bytes = e_q sq Hq (dqk + dv) + e_kv sk Hkv (dqk + dv), and e_kv sk (rank + rope) where
latent attention is absorbed. Softmax is not counted. A window cuts contexts of which only the sums are known: the
result is a bound from above, and exact only where no context can reach the window, or there is one request.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from msgspec import Struct

from aaco.analytics.serving.annotations import StepAnnotation, TokenSums
from aaco.analytics.serving.model_config import CHUNKED, FULL, ModelShape
from aaco.analytics.serving.model_weights import DOT_PRODUCT, check_ranks, share
from aaco.core.readings import Absent

NO_SUMS = "the annotation of the step has no sums of tokens: record with the engine's detailed annotations"
NO_CONFIG = "the shape of the model is not known: pass its config.json with --model-config"


class AttentionWork(Struct, frozen=True):
    """FLOPs, bytes of queries and results, and bytes of keys and values. exact: whether it is the work, or a bound from
    above."""

    flops: int = 0
    query_bytes: int = 0
    kv_bytes: int = 0
    exact: bool = True

    @property
    def bytes(self) -> int:
        """Return the bytes that must move."""
        return self.query_bytes + self.kv_bytes

    def times(self, count: int) -> AttentionWork:
        """Return the work of `count` equal layers."""
        return AttentionWork(self.flops * count, self.query_bytes * count, self.kv_bytes * count, self.exact)


def total(works: Sequence[AttentionWork]) -> AttentionWork:
    """Return the sum, exact if all of them are."""
    return AttentionWork(sum(work.flops for work in works), sum(work.query_bytes for work in works),
                         sum(work.kv_bytes for work in works), all(work.exact for work in works))


def of_layer(sums: TokenSums, requests: int | None, shape: ModelShape, kind: str = FULL, *, tp: int = 1,
             absorbed: bool = True) -> AttentionWork:
    """Return the work of attention in one layer on one of `tp` ranks.

    absorbed: of latent attention, whether queries meet the compressed keys (as in decoding), or keys and values of
    every head (as with prompts). The cache's elements are as large as those of activations. Raise Absent if the model's
    configuration does not state a size.
    """
    check_ranks(shape, tp)
    if kind not in DOT_PRODUCT:
        raise Absent(f"layers of {kind} attention are not modelled")
    heads, kv_heads, width, value_width, kv_width = _widths(shape, tp, absorbed)
    pairs, keys, exact = _seen(sums, requests, None if kind == FULL else shape.need("window"), kind)
    bits = shape.element_bits
    return AttentionWork(2 * heads * (width + value_width) * pairs, sums.sq * heads * (width + value_width) * bits // 8,
                         keys * kv_heads * kv_width * bits // 8, exact)


def of_step(step: StepAnnotation, shape: ModelShape | None, *, tp: int = 1) -> tuple[AttentionWork, AttentionWork]:
    """Return the work of all layers for prompts and for generation. Raise Absent without sums, or without a model."""
    if shape is None:
        raise Absent(NO_CONFIG)
    if step.context is None or step.generation is None:
        raise Absent(NO_SUMS)
    kinds = [(kind, len(list(layers))) for kind, layers in groupby(sorted(shape.need("layer_kinds")))]
    context, generation = (
        total([of_layer(sums, requests, shape, kind, tp=tp, absorbed=absorbed).times(count) for kind, count in kinds])
        for sums, requests, absorbed in ((step.context, step.context_requests, False),
                                         (step.generation, step.generation_requests, True)))
    return context, generation


def _widths(shape: ModelShape, tp: int, absorbed: bool) -> tuple[int, int, int, int, int]:
    """Return query heads, KV heads, the widths of a query and of a result, and of what is read for each KV head."""
    heads, latent = shape.need("heads") // tp, shape.latent
    if latent is None:
        width = shape.need("head_dim")
        return heads, share(shape.need("kv_heads"), tp), width, width, 2 * width
    if absorbed:
        return heads, 1, latent.kv_rank + latent.rope, latent.kv_rank, latent.kv_rank + latent.rope
    width = latent.nope + latent.rope
    return heads, heads, width, latent.value_width, width + latent.value_width


def _seen(sums: TokenSums, requests: int | None, window: int | None, kind: str) -> tuple[int, int, bool]:
    """Return the pairs of query and key, the KV tokens that are read, and whether both are exact."""
    pairs = sums.sqsk - (sums.sqsq - sums.sq) // 2
    count = sums.sq if requests is None else requests
    if window is None or sums.sk - max(0, count - 1) <= window:  # the longest context that these sums allow
        return pairs, sums.sk, True
    if requests == 1:
        return _in_chunk(sums, window) if kind == CHUNKED else _in_window(sums, window)
    return min(pairs, sums.sq * window), min(sums.sk, sums.sq + count * (window - 1)), False


def _in_window(sums: TokenSums, window: int) -> tuple[int, int, bool]:
    """Return what the queries of one request see: the token at position p has min(p, window) keys."""
    before = sums.sk - sums.sq
    short = min(max(0, window - before), sums.sq)
    return (short * before + short * (short + 1) // 2 + (sums.sq - short) * window,
            min(sums.sk, sums.sq + window - 1), True)


def _in_chunk(sums: TokenSums, chunk: int) -> tuple[int, int, bool]:
    """Return what the queries of one request see: each the tokens of its own chunk up to itself."""
    before = sums.sk - sums.sq
    return _chunked_pairs(sums.sk, chunk) - _chunked_pairs(before, chunk), sums.sk - before // chunk * chunk, True


def _chunked_pairs(tokens: int, chunk: int) -> int:
    whole, remainder = divmod(tokens, chunk)
    return whole * chunk * (chunk + 1) // 2 + remainder * (remainder + 1) // 2
