"""More samples at once, the same samples in all: weights are read and updated once, kernels are few and full.

Nothing of D is sure to stay but arithmetic and bytes of each sample.
"""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.floor import Mechanism
from aaco.analytics.advice.least import PRODUCTS, memory_roofs, own_rate, product_roofs
from aaco.analytics.advice.mechanisms.fused_optimizer import OPTIMIZER
from aaco.analytics.advice.work import COPY, StepWork
from aaco.core.arrays import Reals


def _least_ns(work: StepWork) -> Reals:
    products = work.of_families(*PRODUCTS)
    once = work.operated(lambda operator: operator.phase == OPTIMIZER)
    roofs = np.where(products, product_roofs(work, own_rate(work), with_bytes=False),
                     memory_roofs(work, ~products & ~work.of_families(COPY)))
    return np.where(once | work.of_families(COPY), 0.0, roofs)


LARGER_BATCH = Mechanism("larger_batch", "Raise the batch",
                         "per sample: FLOPs of products / peak + bytes of the rest / bandwidth", _least_ns)
