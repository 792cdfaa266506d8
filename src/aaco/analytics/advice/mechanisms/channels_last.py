"""Tensors of images in the order that convolutions want: no conversions, and what reads such tensors at its roof."""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.floor import Mechanism
from aaco.analytics.advice.least import LOCAL_COPIES, memory_roofs, own_rate, own_time, product_names, product_roofs
from aaco.analytics.advice.work import StepOperator, StepWork, WorkName
from aaco.core.arrays import Reals
from aaco.core.readings import Absent

CONVERSIONS = ("transpose", "copy")
READERS = ("norm", "pooling", "elementwise", "reduction", "softmax")


def _convolves(operator: StepOperator, names: tuple[WorkName, ...]) -> bool:
    return "conv" in operator.name or any(name.family == "conv" for name in names)


def _least_ns(work: StepWork) -> Reals:
    convolving = [rows for number, rows in work.rows_by_operator.items()
                  if _convolves(work.operators[number], product_names(work, rows))]
    if not convolving:
        raise Absent("nothing convolves")
    gone = work.of_families(*CONVERSIONS) | work.copies(*LOCAL_COPIES)
    roofs = np.minimum(product_roofs(work, own_rate(work), is_meant=_convolves),
                       memory_roofs(work, work.of_families(*READERS)))
    return np.where(gone, 0.0, np.minimum(roofs, own_time(work)))


CHANNELS_LAST = Mechanism("channels_last", "Keep images in channels_last order", "D - conversions and copies, with "
                          "convolutions, norms, pooling and pointwise kernels at their roof", _least_ns)
