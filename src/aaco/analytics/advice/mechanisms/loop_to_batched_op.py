"""One batched operator for a loop of small ones: of those that are called LOOP times in a step and more only their
arithmetic stays, in any type of their width; of gathers of rows a block for each row. Copies that stack results go.

A loop over time is another matter: each call needs the one before, and no rate of arithmetic says how long that takes.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from aaco.analytics.advice.floor import Mechanism
from aaco.analytics.advice.least import (
    LOCAL_COPIES,
    MOST_UNKNOWN,
    PRODUCTS,
    block_ns,
    own_rate,
    own_time,
    product_roofs,
    row_gathers,
    tf32_too,
)
from aaco.analytics.advice.work import StepWork
from aaco.core.arrays import Flags, Reals
from aaco.core.readings import Absent

LOOP = 8  # calls of one operator in a step
STACKING = ("copy", "fill", "transpose")


def _looped(work: StepWork) -> Flags:
    """Return which rows are of operators that are called often in a step, by their names."""
    calls: Counter[str] = Counter()
    for number, rows in work.rows_by_operator.items():
        calls[work.operators[number].name] += len(rows) / work.operators[number].kernels  # type: ignore[assignment]
    return work.operated(lambda operator: calls[operator.name] >= LOOP * max(1, work.steps))


def _least_ns(work: StepWork) -> Reals:
    looped = _looped(work)
    if not looped.any():
        raise Absent(f"no operator is called {LOOP} times in a step")
    recurrent = looped & (work.of_families("recurrent") | work.operated(lambda operator: "_cell" in operator.outermost))
    if work.ns[recurrent].sum() > MOST_UNKNOWN * work.ns.sum():
        raise Absent("each call of the loop needs the one before; how long that takes at least is not known")
    # a library's own loop may take TF32 where the written one does not, as cuDNN's recurrent layers do
    products = product_roofs(work, tf32_too(work, own_rate(work)), with_bytes=False)
    of_products = work.of_families(*PRODUCTS) & looped
    gathers = np.where(row_gathers(work), block_ns(work, work.blocks_x), 0.0)
    batched = np.where(of_products, products, gathers)
    stacked = work.of_families(*STACKING) | work.copies(*LOCAL_COPIES)
    return np.where(looped, batched, np.where(stacked, 0.0, own_time(work)))


LOOP_TO_BATCHED_OP = Mechanism("loop_to_batched_op", "One batched operator for a loop of small ones",
                               "D with repeated operators at FLOPs / peak, or a block for each row that they gather",
                               _least_ns)
