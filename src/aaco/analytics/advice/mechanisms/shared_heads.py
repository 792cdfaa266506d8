"""Keys and values that are copied for each head of queries that shares them: attention reads the ones that are there.

A copy of keys shows as one of a tensor (batch, heads of keys, copies, length, size), which attention or a batched
product then reads with heads of keys x copies heads. Of attention nothing but its arithmetic is sure to stay.
"""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.action import INFERENCE, OWN_CODE, PYTORCH, Action, of_targets
from aaco.analytics.advice.least import own_rate, own_time, product_roofs
from aaco.analytics.advice.mechanism import Mechanism
from aaco.analytics.advice.responses import without_rows
from aaco.analytics.advice.views import Shape
from aaco.analytics.advice.work import StepOperator, StepWork
from aaco.core.advice import Step
from aaco.core.arrays import Flags, Reals
from aaco.core.readings import Absent

COPIES = ("aten::copy_", "aten::clone", "aten::contiguous")


def _read_as(operator: StepOperator) -> set[Shape]:
    """Return the shapes in which attention can read what an operator copies for several heads; empty of others."""
    made = next(filter(None, operator.shapes), ())
    if operator.name not in COPIES or len(made) != 5 or made[2] == 1:
        return set()
    batch, heads, copies, length, size = made
    together = batch * heads * copies
    return {(batch, heads * copies, length, size), (together, length, size), (together, size, length)}


def _copied(work: StepWork) -> Flags:
    """Return the copies of keys and values. Raise Absent if there are none."""
    reads = {shape for number, names in work.names_by_operator.items() for shape in work.operators[number].shapes
             if any(name.family == "attention" for name in names) or "bmm" in work.operators[number].name}
    copied = work.operated(lambda operator: bool(_read_as(operator) & reads))
    if not copied.any():
        raise Absent("no keys are copied for several heads of queries")
    return copied


def _least_ns(work: StepWork) -> Reals:
    roofs = product_roofs(work, own_rate(work), with_bytes=False,
                          is_meant=lambda operator, names: any(name.family == "attention" for name in names))
    return np.where(work.once(_copied), 0.0, np.where(work.of_families("attention"), roofs, own_time(work)))


SHARED_HEADS = Mechanism("shared_heads", "Let heads of queries share keys", "D - copies of keys and values, attention "
                         "at its FLOPs / peak", _least_ns,
                         respond=lambda work, least: without_rows(work, work.once(_copied)))
ACTIONS = (Action(
    "share_heads", "Let heads of queries share keys", of_targets("shared_heads"),
    "kernels copy keys and values for each head of queries", "low",
    (Step("scaled_dot_product_attention(..., enable_gqa=True), or queries of one head of keys as its rows",
          (PYTORCH, OWN_CODE)),),
    "memory_limited_pct", applies_if=(PYTORCH, INFERENCE), mechanism="shared_heads"),)
