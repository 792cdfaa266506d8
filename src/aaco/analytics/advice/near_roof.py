"""How near their roof products run already: whether another choice of kernels can gain, by what AMD's libraries reach.

A floor takes products at the peak of the data sheet, which no library reaches: power and clock keep them far below.
By their floor, products that are as fast as such kernels get would still be worth tuning.
"""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.expected import LEAST_GAIN
from aaco.analytics.advice.least import own_time
from aaco.analytics.advice.mechanism import NothingToChange
from aaco.analytics.advice.responses import FIXED_NS
from aaco.analytics.advice.work import StepWork
from aaco.core.arrays import Reals
from aaco.core.readings import Absent

# The share of the peak that hipBLASLt reaches at best on an MI300X: bf16 708 of 1307.4 TFLOP/s, at 1.2 of 2.1 GHz. fp16
# reaches 654, fp8 1273 of 2614.9. AMD, "Measuring Max-Achievable FLOPs, part 2", ROCm blogs, 2025.
MOST_OF_PEAK = 708 / 1307.4
# The share of the memory's rate: 4.18 TB/s of 5.3 is the least that AMD accepts of a sound MI300X copying (BabelStream;
# AMD Instinct customer acceptance guide).
MOST_OF_MEMORY = 4.177 / 5.3248


def at_best(work: StepWork, least: Reals, reach: float = MOST_OF_PEAK) -> Reals:
    """Return the time of each row if the products in question ran as the best ones do, ns, at most its own.

    least: the time of each row with them at their roof; those without a known one, at 0, stay. reach: the share of the
    roof that the best ones reach.
    """
    own = own_time(work)
    best = np.maximum(least / reach, np.maximum(_streamed(work), np.minimum(own, FIXED_NS)))
    return np.where((least > 0) & (least < own), np.minimum(own, best), own)


def refuse_if_near(work: StepWork, least: Reals, reach: float = MOST_OF_PEAK) -> None:
    """Raise NothingToChange if the best kernels would gain less than is worth a try, and Absent if most of the
    products' work is not known. least, reach: as above.
    """
    own = own_time(work)
    known, unknown = own[(least > 0) & (least < own)], own[least == 0]
    if known.sum() < unknown.sum():
        raise Absent("the shapes, types or peaks of most of these products are not known")
    gained = float((own - at_best(work, least, reach)).sum()) / max(1.0, float(own.sum()))
    if (1 - gained) * LEAST_GAIN > 1:
        raise NothingToChange("as fast as AMD's libraries compute at best, these products would leave the device "
                              f"{100 * gained:.1f} % less to do")


def _streamed(work: StepWork) -> Reals:
    """Return what each row needs to move its operands at the rate that memory is read at, ns. 0 where they are not
    known, or the last cache may hold all of a step's.
    """
    bytes_per_s = work.limits.dram_bytes_per_s
    moved = np.array([*(operator.bytes or 0.0 for operator in work.operators), 0.0]) * work.operator_calls
    if not bytes_per_s or moved.sum() <= work.steps * (work.limits.cache_bytes or 0):
        return np.zeros(len(work.ns))
    per_operator = 1e9 * moved / (MOST_OF_MEMORY * bytes_per_s) / np.maximum(1.0, work.operator_ns)
    streamed: Reals = per_operator[work.operator] * own_time(work)
    return streamed
