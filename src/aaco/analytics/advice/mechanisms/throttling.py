"""The highest clock: no kernel gains more than the clock does. Copies do not depend on it.

The lowest clock that was sampled during the steps counts; clocks below it, between two samples, would not be seen.
"""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.floor import Mechanism
from aaco.analytics.advice.least import own_time
from aaco.analytics.advice.work import COPY, StepWork
from aaco.core.arrays import Reals
from aaco.core.readings import Absent


def _least_ns(work: StepWork) -> Reals:
    if work.clock is None:
        raise Absent("no clocks of the device were recorded during the steps")
    if work.clock >= 1.0:
        raise Absent("the device runs at its highest clock")
    return own_time(work) * np.where(work.of_families(COPY), 1.0, work.clock)


THROTTLING = Mechanism("throttling", "Let the device run at its highest clock", "D with kernels at clock / highest "
                       "clock", _least_ns, first=True)
