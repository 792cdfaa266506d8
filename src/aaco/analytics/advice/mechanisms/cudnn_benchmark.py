"""The fastest of a library's algorithms for each convolution: its roof, in any type of its width.

What an algorithm needs around it, such as conversions of its operands, is part of the operator. All else stays.
"""

from __future__ import annotations

from aaco.analytics.advice.least import is_convolution, own_rate, product_names, product_roofs, tf32_too
from aaco.analytics.advice.mechanism import Mechanism
from aaco.analytics.advice.work import StepWork
from aaco.core.arrays import Reals
from aaco.core.readings import Absent


def _least_ns(work: StepWork) -> Reals:
    if not any(is_convolution(work.operators[number], names) for number, names in product_names(work).items()):
        raise Absent("nothing convolves")
    return product_roofs(work, tf32_too(work, own_rate(work)), is_meant=is_convolution)


CUDNN_BENCHMARK = Mechanism("cudnn_benchmark", "Try the algorithms of each convolution",
                            "D with convolutions at their roof", _least_ns, host_stays=True, other_kernels=True)
