"""The matrix products of one step of a decoder, and the bytes of the weights that they multiply with.

Products are those that engines run: queries, keys and values in one, gate and up in one. Embeddings, norms and biases
are left out: they are less than a hundredth of a step. Tensor parallelism divides heads, the feed-forward width and the
vocabulary. The keys and values of latent attention come from one product, whether it is absorbed into others or not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from msgspec import Struct
from msgspec.structs import replace

from aaco.analytics.serving.model_config import CHUNKED, FULL, SLIDING, ModelShape
from aaco.core.errors import UsageError
from aaco.core.readings import Absent

DOT_PRODUCT = {FULL, SLIDING, CHUNKED}
EXPERT = "expert_"


class WeightProduct(Struct, frozen=True):
    """A product of a step, run `times` times: m x k by k x n. `copies`: how many weights of that size it reads, fewest
    and most; one, or those of the experts that the tokens reach."""

    name: str
    m: int
    n: int
    k: int
    times: int
    weight_bits: Fraction
    element_bits: int
    copies: tuple[int, int] = (1, 1)

    @property
    def flops(self) -> int:
        """Return the FLOPs of one of them: a multiplication and an addition for each of m x n x k."""
        return 2 * self.m * self.n * self.k

    @property
    def weight_bytes(self) -> tuple[int, int]:
        """Return the fewest and the most bytes of weights that one of them reads."""
        fewest, most = (math.ceil(self.weight_bits * self.n * self.k * copies / 8) for copies in self.copies)
        return fewest, most

    @property
    def activation_bytes(self) -> int:
        """Return the bytes of the operand and the result of one of them."""
        return self.m * (self.k + self.n) * self.element_bits // 8

    @property
    def bytes(self) -> int:
        """Return the least bytes that one of them moves."""
        return self.weight_bytes[0] + self.activation_bytes


def products(shape: ModelShape, tokens: int, sampled: int, tp: int = 1) -> list[WeightProduct]:
    """Return the products of a step on one of `tp` ranks: `tokens` query tokens, `sampled` of which reach lm_head.

    Raise Absent if the configuration does not state a size, or has layers that are not modelled; UsageError if `tp`
    divides no heads.
    """
    check_ranks(shape, tp)
    if unknown := set(shape.need("layer_kinds")) - DOT_PRODUCT:
        raise Absent(f"layers of {min(unknown)} attention are not modelled")
    lm_head = _weights(shape, "lm_head", sampled, share(shape.need("vocabulary"), tp), shape.need("hidden"), 1)
    made = [*_of_attention(shape, tokens, tp), *_of_dense_layers(shape, tokens, tp), *_of_experts(shape, tokens, tp)]
    return [product for product in (*made, lm_head) if product.m and product.times]


def check_ranks(shape: ModelShape, tp: int) -> None:
    """Raise UsageError if the heads cannot be divided among the ranks."""
    heads = shape.need("heads")
    if tp < 1 or heads % tp:
        raise UsageError(f"a tensor-parallel size of {tp} does not divide {heads} heads",
                         "pass the size that the engine was started with")


def share(size: int, tp: int) -> int:
    """Return the part of a size that one rank has; what does not divide is padded, one head is copied."""
    return -(-size // tp)


def _of_attention(shape: ModelShape, tokens: int, tp: int) -> Iterator[WeightProduct]:
    layers, hidden, heads = shape.need("layers"), shape.need("hidden"), shape.need("heads") // tp
    if shape.latent is None:
        width = shape.need("head_dim")
        outputs = (heads + 2 * share(shape.need("kv_heads"), tp)) * width
        yield _weights(shape, "qkv_proj", tokens, outputs, hidden, layers)
        yield _weights(shape, "o_proj", tokens, hidden, heads * width, layers)
        return
    latent = shape.latent
    queries = heads * (latent.nope + latent.rope)
    if latent.query_rank is not None:
        yield _weights(shape, "q_a_proj", tokens, latent.query_rank, hidden, layers)
    yield _weights(shape, "q_b_proj", tokens, queries, latent.query_rank or hidden, layers)
    yield _weights(shape, "kv_a_proj", tokens, latent.kv_rank + latent.rope, hidden, layers)
    yield _weights(shape, "kv_b_proj", tokens, heads * (latent.nope + latent.value_width), latent.kv_rank, layers)
    yield _weights(shape, "o_proj", tokens, hidden, heads * latent.value_width, layers)


def _of_dense_layers(shape: ModelShape, tokens: int, tp: int) -> Iterator[WeightProduct]:
    dense = shape.need("layers") - (sum(shape.experts.layers) if shape.experts else 0)
    if dense:
        yield from _block(shape, "", tokens, share(shape.need("intermediate"), tp), dense)


def _of_experts(shape: ModelShape, tokens: int, tp: int) -> Iterator[WeightProduct]:
    """Yield router, experts and shared experts. Tokens reach at least the experts of one, at most one each time."""
    experts = shape.experts
    if experts is None:
        if "experts" in shape.absent:
            raise Absent(shape.absent["experts"])
        return
    layers, rows = sum(experts.layers), tokens * experts.per_token
    copies = (experts.per_token, min(experts.count, rows))
    yield _weights(shape, "router", tokens, experts.count, shape.need("hidden"), layers)
    for product in _block(shape, EXPERT, rows, share(experts.intermediate, tp), layers):
        yield replace(product, copies=copies)
    if experts.shared_intermediate:
        yield from _block(shape, "shared_", tokens, share(experts.shared_intermediate, tp), layers)


def _block(shape: ModelShape, prefix: str, rows: int, width: int, layers: int) -> Iterator[WeightProduct]:
    first, factor = ("gate_up_proj", 2) if shape.gated else ("up_proj", 1)
    yield _weights(shape, prefix + first, rows, factor * width, shape.need("hidden"), layers)
    yield _weights(shape, prefix + "down_proj", rows, shape.need("hidden"), width, layers)


def _weights(shape: ModelShape, name: str, m: int, n: int, k: int, times: int) -> WeightProduct:
    return WeightProduct(name, m, n, k, times, _bits(shape, name), shape.element_bits)


def _bits(shape: ModelShape, name: str) -> Fraction:
    """Return the bits of one weight, its part of the scales included."""
    quantization = shape.quantization
    if quantization is None or name == "router":
        return Fraction(shape.element_bits)
    kept = {"lm_head": quantization.lm_head, "qkv_proj": quantization.attention, "o_proj": quantization.attention}
    if not kept.get(name, quantization.dense or name.startswith(EXPERT)):
        return Fraction(shape.element_bits)
    if quantization.bits is None:
        raise Absent(shape.absent.get("quantization", "the bits of the quantized weights are not known"))
    return Fraction(quantization.bits) + Fraction(quantization.scale_bits)
