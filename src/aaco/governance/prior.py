"""What the variances of several groups say together of one that is like them: the prior of a moderated t."""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from aaco.core import statistics
from aaco.core.arrays import Reals

LEAST_RUNS = 3  # of a history: fewer do not show how much the spread itself differs from run to run


class Prior(Struct, frozen=True):
    """What earlier runs of the same thing on this machine say of the scatter of one process: its variance, on the log
    scale, worth `degrees` of freedom beside this run's own."""

    variance: float
    degrees: float
    runs: int


def prior_of_variances(variances: Reals, degrees: Reals) -> Prior:
    """Return what variances with these degrees of freedom say together of one that is like them (Smyth 2004)."""
    logs = np.log(variances) - statistics.digamma(degrees / 2) + np.log(degrees / 2)
    excess = float(logs.var(ddof=1) - statistics.trigamma(degrees / 2).mean())
    most = float(degrees.sum())
    if excess <= 0:  # no more than chance makes: one variance, and all that the runs hold says what it is
        return Prior(float(np.average(variances, weights=degrees)), most, len(variances))
    worth = min(most, 2 * statistics.inverse_trigamma(excess))
    centre = float(np.average(logs, weights=degrees)) + float(statistics.digamma([worth / 2])[0]) - math.log(worth / 2)
    return Prior(math.exp(centre), worth, len(variances))
