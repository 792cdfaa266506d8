"""Work that leaves the result as it is: logits that are not read, products of the same row, tables made again,
tensors of all pairs of rows, and sorts of which a few places are read.

Each kind has a file of its own with its floor; done together they are the changes that are recorded as less work.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np

from aaco.analytics.advice.action import ACTS_ON, INFERENCE, OWN_CODE, PYTORCH, Action, Values
from aaco.analytics.advice.mechanism import Mechanism, Response
from aaco.analytics.advice.mechanisms.last_logits import LAST_LOGITS
from aaco.analytics.advice.mechanisms.made_again import MADE_AGAIN
from aaco.analytics.advice.mechanisms.product_before_gather import PRODUCT_BEFORE_GATHER
from aaco.analytics.advice.mechanisms.product_for_pairs import PRODUCT_FOR_PAIRS
from aaco.analytics.advice.mechanisms.topk_for_sort import TOPK_FOR_SORT
from aaco.analytics.advice.work import StepWork
from aaco.core.advice import Step
from aaco.core.arrays import Reals
from aaco.core.readings import Absent

KINDS = (LAST_LOGITS, PRODUCT_BEFORE_GATHER, MADE_AGAIN, PRODUCT_FOR_PAIRS, TOPK_FOR_SORT)


def _found(work: StepWork) -> list[tuple[Mechanism, Reals]]:
    """Return the kinds that a step has with their least times. Raise Absent with the reasons if it has none."""
    kinds, why = [], []
    for kind in KINDS:
        try:
            kinds.append((kind, kind.least_ns(work)))
        except Absent as reason:
            why.append(str(reason))
    if not kinds:
        raise Absent("; ".join(why))
    return kinds


def _least_ns(work: StepWork) -> Reals:
    return reduce(np.minimum, (least for _, least in _found(work)))


def _respond(work: StepWork, least: Reals) -> Response:
    """Return the step with every kind of work that it has gone."""
    responses = [kind.respond(work, of_kind) for kind, of_kind in _found(work) if kind.respond]
    return Response(reduce(np.minimum, (response.device_ns for response in responses)),
                    reduce(np.minimum, (response.left for response in responses)),
                    whole_calls=any(response.whole_calls for response in responses),
                    only_less=all(response.only_less for response in responses))


def _of(kind: Mechanism) -> Callable[[Values], float]:
    """Return the share of the step that a kind acts on; KeyError where the step has none of it."""
    return lambda values: values[ACTS_ON + kind.name]


LESS_WORK = Mechanism("less_work", "Leave out work that changes no result", "the least of its kinds", _least_ns,
                      respond=_respond)
ACTIONS = (
    Action("last_logits", "Compute logits of the last position only", _of(LAST_LOGITS),
           "kernels compute logits of every position", "low",
           (Step("logits_to_keep=1 of Hugging Face models; hidden[:, -1:] before the head", (PYTORCH, OWN_CODE)),),
           "compute_limited_pct", applies_if=(PYTORCH, INFERENCE), mechanism="less_work",
           or_confirm=("memory_limited_pct",)),
    Action("multiply_before_gather", "Multiply before rows are gathered", _of(PRODUCT_BEFORE_GATHER),
           "kernels gather rows several times each and multiply every copy", "low",
           (Step("layer(x)[index] in place of layer(x[index]), with what works on single elements",
                 (PYTORCH, OWN_CODE)),),
           "compute_limited_pct", applies_if=(PYTORCH, INFERENCE), mechanism="less_work",
           or_confirm=("memory_limited_pct",)),
    Action("make_tables_once", "Make tables of numbers once", _of(MADE_AGAIN),
           "kernels make the same biases, masks or positions more than once in a step", "low",
           (Step("compute them before the first step and keep them: register_buffer, an argument of each layer",
                 (PYTORCH, OWN_CODE)),),
           "memory_limited_pct", applies_if=(PYTORCH,), memory="the tables stay on the device",
           mechanism="less_work"),
    Action("product_for_pairs", "Compare all pairs of rows by a product of matrices", _of(PRODUCT_FOR_PAIRS),
           "kernels pass over tensors of all pairs of rows, column by column", "low",
           (Step("torch.cdist(a, b), or (a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T, for the squared "
                 "distances of rows; F.normalize(a) @ F.normalize(b).T for cosines", (PYTORCH, OWN_CODE)),),
           "memory_limited_pct", applies_if=(PYTORCH,), mechanism="less_work",
           accuracy="distances of rows that nearly agree lose digits"),
    Action("topk_for_sort", "Pick the first few in place of a sort", _of(TOPK_FOR_SORT),
           "kernels sort long rows of which only a few places are read", "low",
           (Step("x.topk(count, largest=False) in place of x.sort()[..][:, :count] or x.argsort()[:, :count]",
                 (PYTORCH, OWN_CODE)),),
           "memory_limited_pct", applies_if=(PYTORCH,), mechanism="less_work"))
