"""A compiler for the model: pointwise work and conversions of layout gone, products at the roof of their type.

Attention that is one kernel already stays as it is: the compiler calls the same library for it.
"""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.floor import Mechanism
from aaco.analytics.advice.least import LOCAL_COPIES, PRODUCTS, own_rate, product_roofs
from aaco.analytics.advice.work import COLLECTIVE, COPY, StepOperator, StepWork, WorkName
from aaco.core.arrays import Reals

KEPT = (*PRODUCTS, COLLECTIVE, COPY)


def _is_compiled(operator: StepOperator, names: tuple[WorkName, ...]) -> bool:
    return not any(name.family == "attention" for name in names)


def _least_ns(work: StepWork) -> Reals:
    kept = work.of_families(*KEPT) & ~work.copies(*LOCAL_COPIES)
    return np.where(kept, product_roofs(work, own_rate(work), is_meant=_is_compiled), 0.0)


COMPILE = Mechanism("compile", "Compile the model", "products at their roof + fused attention + collectives + copies "
                    "from and to the host", _least_ns)
