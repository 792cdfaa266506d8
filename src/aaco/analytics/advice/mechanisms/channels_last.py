"""Tensors of images in the order that convolutions want: no conversions, and what reads such tensors at its roof.

Vectorised pointwise kernels stay as they are: they run only over tensors that all have one order already (ATen,
CUDALoops.cuh), and the order makes no difference to them. Products of matrices stay, too.
"""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.floor import Mechanism
from aaco.analytics.advice.least import (
    LOCAL_COPIES,
    is_convolution,
    memory_roofs,
    own_rate,
    own_time,
    product_names,
    product_roofs,
)
from aaco.analytics.advice.work import StepWork
from aaco.core.arrays import Reals
from aaco.core.readings import Absent

CONVERSIONS = ("transpose", "copy")
READERS = ("norm", "pooling", "elementwise", "reduction", "softmax")
VECTORISED = "vectorized_elementwise_kernel"


def _least_ns(work: StepWork) -> Reals:
    convolving = [rows for number, rows in work.rows_by_operator.items()
                  if is_convolution(work.operators[number], product_names(work, rows))]
    if not convolving:
        raise Absent("nothing convolves")
    gone = work.of_families(*CONVERSIONS) | work.copies(*LOCAL_COPIES)
    reads = work.of_families(*READERS) & ~work.named(lambda name: VECTORISED in name.name)
    roofs = np.minimum(product_roofs(work, own_rate(work), is_meant=is_convolution), memory_roofs(work, reads))
    return np.where(gone, 0.0, np.minimum(roofs, own_time(work)))


CHANNELS_LAST = Mechanism("channels_last", "Keep images in channels_last order", "D - conversions and copies, with "
                          "convolutions, norms, pooling and pointwise kernels at their roof", _least_ns)
