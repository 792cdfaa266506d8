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

BATCHED = frozenset(("aten::bmm", "aten::baddbmm", "aten::baddbmm_"))


def _written_out(rows: Ints, product: Flags, softmax: Flags, batched: Flags) -> tuple[Ints, Ints]:
    """Return the rows of one stream that attention takes: from the product before its first one, to the one after its
    second, both left out; and of these the second products. product, softmax, batched: of all rows.
    """
    places = np.flatnonzero(product[rows])
    taken, second = np.zeros((2, len(rows)), bool)
    for middle in np.flatnonzero(softmax[rows]).tolist():
        after = int(np.searchsorted(places, middle))
        if 0 < after < len(places) and batched[rows[places[after - 1:after + 1]]].all():
            before = places[after - 2] if after > 1 else -1
            taken[before + 1:places[after + 1] if after + 1 < len(places) else len(rows)] = True
            second[places[after]] = True
    return rows[taken], rows[second]


def _least_ns(work: StepWork) -> Reals:
    product, softmax = work.of_families(*PRODUCTS), work.of_families("softmax")
    batched = work.operated(lambda operator: operator.name in BATCHED)
    taken, second = np.zeros((2, len(work.ns)), bool)
    for lane in np.unique(work.lane).tolist():
        all_of_it, last = _written_out(np.flatnonzero(work.lane == lane), product, softmax, batched)
        taken[all_of_it] = second[last] = True
    if not taken.any():
        raise Absent("no softmax lies between two batched products: no attention is written out")
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
