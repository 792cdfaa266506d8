"""Attention in one kernel: two batched products, the softmax, and all work up to the products before and after.

The products are gone too: a fused kernel skips what a mask hides, and how much that is the trace does not say. What the
second product makes is written all the same.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from aaco.analytics.advice.action import OWN_CODE, PYTORCH, Action, of_targets
from aaco.analytics.advice.least import PRODUCTS, made_bytes, own_time, without
from aaco.analytics.advice.mechanism import Mechanism, Response
from aaco.analytics.advice.responses import REACH, roofs_now
from aaco.analytics.advice.work import BACKWARD, StepOperator, StepWork
from aaco.core.advice import Step, fact_is
from aaco.core.arrays import Flags, Ints, Reals
from aaco.core.readings import Absent

NOT_WRITTEN_OUT = "no softmax lies between two batched products: no attention is written out"
BATCHED = frozenset(("aten::bmm", "aten::baddbmm", "aten::baddbmm_"))
ON_SCORES = frozenset(("aten::add", "aten::add_", "aten::masked_fill", "aten::masked_fill_", "aten::where"))
# Head sizes that PyTorch's fused kernels take are multiples of these, 16 bytes; without a mask those of 16 bits are
# filled up to one. It computes the others as they are written (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp).
HEAD_MULTIPLES = {"f32": 4, "bf16": 8, "f16": 8}


class Attentions(Struct, frozen=True):
    """Which rows written-out attention takes, which are its second products, and which it keeps as no kernel fuses it.
    """

    taken: Flags
    second: Flags
    unfused: Flags


def _attentions(work: StepWork) -> Attentions:
    """Return the attention that is written out in a step."""
    product, softmax = work.of_families(*PRODUCTS), work.of_families("softmax")
    batched = work.operated(lambda operator: operator.name in BATCHED)
    taken, second, unfused = np.zeros((3, len(work.ns)), bool)
    for lane in np.unique(work.lane).tolist() if softmax.any() else ():
        rows = np.flatnonzero(work.lane == lane)
        places, middle = np.flatnonzero(product[rows]), np.flatnonzero(softmax[rows])
        after = np.searchsorted(places, middle)
        after = after[(after > 0) & (after < len(places))]
        after = after[batched[rows[places[after - 1]]] & batched[rows[places[after]]]]
        taken[rows[_around(len(rows), places, after)]] = second[rows[places[after]]] = True
        not_fused = after[_has_no_kernel(work, rows, places, after)]
        unfused[rows[_around(len(rows), places, not_fused)]] = True
    return Attentions(taken, second, unfused)


def _around(count: int, places: Ints, after: Ints) -> Flags:
    """Return which of so many rows of a stream attention takes: from the product before its first one, to the one after
    its second, both left out. places: of the products; after: which of them are second ones.
    """
    bounds = np.r_[-1, places, count]  # of a stream that begins or ends with one of the two there is none outside
    edges = np.zeros(count + 1, np.int64)
    np.add.at(edges, bounds[after - 1] + 1, 1)
    np.add.at(edges, bounds[after + 2], -1)
    taken: Flags = np.cumsum(edges[:-1]) > 0
    return taken


def _has_no_kernel(work: StepWork, rows: Ints, places: Ints, after: Ints) -> Flags:
    """Return which attentions of a stream no fused kernel computes: by the size of their heads, and in 16 bits only if
    a mask or bias is put on the scores. The way back, where none is, goes as the way ahead does.
    """
    first = rows[places[after - 1]]
    held = np.cumsum(work.operated(_masks)[rows])
    masked = held[places[after]] > held[places[after - 1]]
    masked |= work.of_phase(BACKWARD)[first] & masked.any()
    return work.operated(_has_odd_heads)[first] & (masked | work.operated(_is_single)[first])


def _is_single(operator: StepOperator) -> bool:
    return operator.types == ("f32",)


def _has_odd_heads(operator: StepOperator) -> bool:
    """Return whether the vectors that the first product of attention multiplies fill no multiple of 16 bytes."""
    if operator.name not in BATCHED or len(operator.types) != 1 or not operator.shapes:
        return False
    vectors = operator.shapes[0 if operator.name == "aten::bmm" else 1]  # after what baddbmm adds to the product
    return vectors is not None and vectors[-1] % HEAD_MULTIPLES.get(operator.types[0], 1) > 0


def _masks(operator: StepOperator) -> bool:
    """Return whether an operator puts a tensor on scores that is not one square for all heads, as a causal mask is: a
    flag may stand for that.
    """
    tensors = [shape for shape in operator.shapes if shape and math.prod(shape) > 1]
    squares = (math.prod(shape[:-2]) == 1 and shape[-2:-1] == shape[-1:] for shape in tensors)
    return operator.name in ON_SCORES and len(tensors) > 1 and not any(squares)


def _least_ns(work: StepWork) -> Reals:
    found = work.once(_attentions)
    if not found.taken.any():
        raise Absent(NOT_WRITTEN_OUT)
    written = work.of_calls_ns(found.second, lambda operator: work.limits.memory_ns(made_bytes(operator)))
    return np.where(found.second, np.minimum(written, own_time(work)), without(work, found.taken))


def _one_attention(work: StepWork, least: Reals) -> Response:
    """Return the step with written-out attention as its products only, at the share of the roof that they reach; one
    that no fused kernel computes stays as it is.
    """
    taken = (least < work.sure_ns) & ~work.once(_attentions).unfused
    products = np.minimum(own_time(work), roofs_now(work) / REACH)
    kept = np.where(work.of_families(*PRODUCTS), products, 0.0)
    return Response(np.where(taken, kept, own_time(work)), np.where(taken, 0.0, 1.0))


ATTENTION_FUSION = Mechanism("attention_fusion", "Compute attention in one kernel", "D - the whole attention, its "
                             "products too, with its results written", _least_ns, respond=_one_attention)
ACTIONS = (Action(
    "fuse_attention", "Fuse attention that is written out", of_targets("attention_fusion", "memory_limited_pct"),
    "kernels compute attention that is written out", "low",
    (Step("F.scaled_dot_product_attention in place of products and softmax", (PYTORCH, OWN_CODE)),
     Step("with a bias, heads of a multiple of 8 numbers of 16 bits or 4 of 32: it computes others as they are written",
          (PYTORCH, OWN_CODE))),
    "memory_limited_pct", applies_if=(PYTORCH, fact_is("attention", "written_out")),
    already_done_if=(fact_is("attention", "fused"),), accuracy="sums in another order: last digits differ",
    mechanism="attention_fusion", of_limit="memory limits the device, and attention is written out"),)
