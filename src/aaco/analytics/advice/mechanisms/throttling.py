"""The highest clock: no kernel gains more than the clock does. Copies do not depend on it.

The lowest clock that was sampled during the steps counts; clocks below it, between two samples, would not be seen.
"""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.action import AMD, NVIDIA, Action, Values
from aaco.analytics.advice.least import own_time
from aaco.analytics.advice.mechanism import Mechanism
from aaco.analytics.advice.work import COPY, StepWork
from aaco.core.advice import Step
from aaco.core.arrays import Reals
from aaco.core.readings import Absent

MOSTLY_PCT = 50.0  # of the samples with a reason to throttle


def _least_ns(work: StepWork) -> Reals:
    if work.clock is None:
        raise Absent("no clocks of the device were recorded during the steps")
    if work.clock >= 1.0:
        raise Absent("the device runs at its highest clock")
    return own_time(work) * np.where(work.of_families(COPY), 1.0, work.clock)


THROTTLING = Mechanism("throttling", "Let the device run at its highest clock", "D with kernels at clock / highest "
                       "clock", _least_ns, first=True, host_stays=True)


def _held_down(values: Values) -> float:
    """Return how far the clock is below its highest. Raise KeyError unless the driver held it down most of the time."""
    if values["device_throttled_pct"] < MOSTLY_PCT:
        raise KeyError("device_throttled_pct")
    return values["device_clock_below_max_pct"]


ACTIONS = (Action(
    "raise_the_clock", "Let the device run at its highest clock", _held_down, "goes to a clock below its highest",
    "medium", (
        Step("let the device cool, or raise its power limit: nvidia-smi -pl WATTS", (NVIDIA,)),
        Step("let the device cool, or raise its power limit: amd-smi set --power-cap WATTS", (AMD,))),
    "device_clock_below_max_pct", mechanism="throttling"),)
