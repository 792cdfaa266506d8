"""Attention in one kernel: two batched products, the softmax, and all work up to the products before and after.

The products are gone too: a fused kernel skips what a mask hides, and how much that is the trace does not say. What the
second product makes is written all the same.
"""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.action import OWN_CODE, PYTORCH, Action, of_targets
from aaco.analytics.advice.least import PRODUCTS, made_bytes, own_time, without
from aaco.analytics.advice.mechanism import Mechanism, Response
from aaco.analytics.advice.responses import REACH, roofs_now
from aaco.analytics.advice.work import StepWork
from aaco.core.advice import Step, fact_is
from aaco.core.arrays import Flags, Ints, Reals
from aaco.core.readings import Absent

NOT_WRITTEN_OUT = "no softmax lies between two batched products: no attention is written out"
BATCHED = frozenset(("aten::bmm", "aten::baddbmm", "aten::baddbmm_"))


def _written_out(rows: Ints, product: Flags, softmax: Flags, batched: Flags) -> tuple[Ints, Ints]:
    """Return the rows of one stream that attention takes: from the product before its first one, to the one after its
    second, both left out; and of these the second products. product, softmax, batched: of all rows.
    """
    places, middle = np.flatnonzero(product[rows]), np.flatnonzero(softmax[rows])
    after = np.searchsorted(places, middle)
    after = after[(after > 0) & (after < len(places))]
    after = after[batched[rows[places[after - 1]]] & batched[rows[places[after]]]]
    bounds = np.r_[-1, places, len(rows)]  # of a stream that begins or ends with one of the two there is none outside
    edges = np.zeros(len(rows) + 1, np.int64)
    np.add.at(edges, bounds[after - 1] + 1, 1)
    np.add.at(edges, bounds[after + 2], -1)
    taken, second = np.cumsum(edges[:-1]) > 0, np.zeros(len(rows), bool)
    second[places[after]] = True
    return rows[taken], rows[second]


def _least_ns(work: StepWork) -> Reals:
    product, softmax = work.of_families(*PRODUCTS), work.of_families("softmax")
    if not softmax.any():
        raise Absent(NOT_WRITTEN_OUT)
    batched = work.operated(lambda operator: operator.name in BATCHED)
    taken, second = np.zeros((2, len(work.ns)), bool)
    for lane in np.unique(work.lane).tolist():
        all_of_it, last = _written_out(np.flatnonzero(work.lane == lane), product, softmax, batched)
        taken[all_of_it] = second[last] = True
    if not taken.any():
        raise Absent(NOT_WRITTEN_OUT)
    written = work.of_calls_ns(second, lambda operator: work.limits.memory_ns(made_bytes(operator)))
    return np.where(second, np.minimum(written, own_time(work)), without(work, taken))


def _one_attention(work: StepWork, least: Reals) -> Response:
    """Return the step with written-out attention as its products only, at the share of the roof that they reach."""
    taken = least < work.sure_ns
    products = np.minimum(own_time(work), roofs_now(work) / REACH)
    kept = np.where(work.of_families(*PRODUCTS), products, 0.0)
    return Response(np.where(taken, kept, own_time(work)), np.where(taken, 0.0, 1.0))


ATTENTION_FUSION = Mechanism("attention_fusion", "Compute attention in one kernel", "D - the whole attention, its "
                             "products too, with its results written", _least_ns, respond=_one_attention)
ACTIONS = (Action(
    "fuse_attention", "Fuse attention that is written out", of_targets("attention_fusion", "memory_limited_pct"),
    "kernels compute attention that is written out", "low",
    (Step("F.scaled_dot_product_attention in place of products and softmax", (PYTORCH, OWN_CODE)),),
    "memory_limited_pct", applies_if=(PYTORCH, fact_is("attention", "written_out")),
    already_done_if=(fact_is("attention", "fused"),), accuracy="sums in another order: last digits differ",
    mechanism="attention_fusion", of_limit="memory limits the device, and attention is written out"),)
