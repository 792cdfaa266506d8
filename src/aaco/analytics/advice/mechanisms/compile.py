"""A compiler for the model: pointwise work and conversions of layout gone, products at the roof of their type.

Attention that is one kernel already stays as it is: the compiler calls the same library for it.
"""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.floor import Mechanism
from aaco.analytics.advice.least import PRODUCTS, own_rate, own_time, product_roofs
from aaco.analytics.advice.work import COPY, StepWork
from aaco.core.arrays import Reals

KEPT = (*PRODUCTS, "collective", COPY)


def _least_ns(work: StepWork) -> Reals:
    kept = work.of_families(*KEPT) & ~work.copies("d2d", "memset")
    products = product_roofs(work, own_rate(work))
    return np.where(kept, np.where(work.of_families("attention"), own_time(work), products), 0.0)


COMPILE = Mechanism("compile", "Compile the model", "products at their roof + fused attention + collectives + copies "
                    "from and to the host", _least_ns)
