"""Inputs that are on the device when the step begins: copies from the host are gone."""

from __future__ import annotations

from aaco.analytics.advice.floor import Mechanism
from aaco.analytics.advice.least import without
from aaco.analytics.advice.work import StepWork
from aaco.core.arrays import Reals


def _least_ns(work: StepWork) -> Reals:
    return without(work, work.copies("h2d"))


INPUTS_ON_DEVICE = Mechanism("inputs_on_device", "Have the inputs on the device", "D - copies from the host", _least_ns)
