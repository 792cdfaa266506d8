"""The work of a whole serving step: matrix products and attention, and the bytes that it moves.

Executed work has the padding of the replayed graph in its products; what padded requests do in attention is not known,
and counted as nothing. Not counted: norms, embedding, sampling, writing new keys and values.
"""

from __future__ import annotations

from msgspec import Struct

from aaco.analytics.serving import attention_work
from aaco.analytics.serving.annotations import StepAnnotation
from aaco.analytics.serving.attention_work import NO_CONFIG, NO_SUMS
from aaco.analytics.serving.model_config import ModelShape
from aaco.analytics.serving.model_weights import WeightProduct, products
from aaco.core.readings import Absent


class StepCost(Struct, frozen=True):
    """FLOPs and least bytes of a step. exact: no window makes it a bound from above."""

    flops: int
    bytes: int
    exact: bool = True


class StepBytes(Struct, frozen=True):
    """What a step must move on one rank, bytes: weights (`most_weights` if all tokens go to other experts), keys and
    values of the cache, and activations."""

    weights: int
    most_weights: int
    kv: int
    activations: int
    exact: bool = True

    @property
    def total(self) -> int:
        """Return the least bytes."""
        return self.weights + self.kv + self.activations


def executed(step: StepAnnotation, shape: ModelShape | None, *, tp: int = 1) -> StepCost:
    """Return the work with the padding of the step's graph. Raise Absent if annotation or configuration leave something
    out.
    """
    made = step_products(step, shape, tp=tp, padded=True)
    attention = attention_work.total(attention_work.of_step(step, shape, tp=tp))
    return StepCost(sum(product.times * product.flops for product in made) + attention.flops,
                    sum(product.times * product.bytes for product in made) + attention.bytes, attention.exact)


def step_bytes(step: StepAnnotation, shape: ModelShape | None, *, tp: int = 1) -> StepBytes:
    """Return what the step must move for its scheduled requests, by kind. Raise Absent as `executed` does."""
    made = step_products(step, shape, tp=tp)
    attention = attention_work.total(attention_work.of_step(step, shape, tp=tp))
    fewest, most = (sum(product.times * product.weight_bytes[end] for product in made) for end in (0, 1))
    activations = sum(product.times * product.activation_bytes for product in made)
    return StepBytes(fewest, most, attention.kv_bytes, activations + attention.query_bytes, attention.exact)


def step_products(step: StepAnnotation, shape: ModelShape | None, *, tp: int = 1,
                  padded: bool = False) -> list[WeightProduct]:
    """Return the matrix products of a step, of its scheduled tokens or as its graph executes them."""
    if shape is None:
        raise Absent(NO_CONFIG)
    if step.context is None or step.generation is None or step.context_requests is None:
        raise Absent(NO_SUMS)
    tokens, sampled = step.context.sq + step.generation.sq, step.context_requests + step.generation.sq
    if padded and step.graph_batch and step.generation_requests and step.phase == "decode":
        per_request = step.generation.sq // step.generation_requests  # more than one with speculative tokens
        tokens = sampled = max(tokens, per_request * step.graph_batch)
    return products(shape, tokens, sampled, tp)
