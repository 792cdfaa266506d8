"""The rank that the others wait for does what they do: each kernel takes what it takes there, collectives do not wait.

The other ranks stay as they are, and a step is as long as the longest of them. So of each kernel name the shorter time
counts, its own or that of the rank where it takes least; kernels that only the late rank runs are gone.
"""

from __future__ import annotations

import numpy as np

from aaco.analytics.advice.action import Action, of_metric
from aaco.analytics.advice.least import collective_least
from aaco.analytics.advice.mechanism import Mechanism
from aaco.analytics.advice.work import COLLECTIVE, StepWork
from aaco.core.advice import Step
from aaco.core.arrays import Reals
from aaco.core.readings import Absent


def _least_ns(work: StepWork) -> Reals:
    if work.others_ns is None:
        raise Absent("the slowest rank is not one that the others wait for all the time")
    own_ns = np.bincount(work.label, weights=work.ns, minlength=len(work.names))
    of_others = work.others_ns * work.steps / np.maximum(own_ns, 1.0)
    alike = work.sure_ns * np.minimum(1.0, of_others)[work.label]
    return np.where(work.of_families(COLLECTIVE), collective_least(work), alike)


STRAGGLER = Mechanism("straggler", "Make the late rank as fast as the others", "least collective times + each kernel "
                      "of the late rank at what it takes in the others", _least_ns, first=True)
ACTIONS = (Action(
    "help_the_late_rank", "Make the late rank as fast as the others", of_metric("straggler_wait_pct"),
    "ranks only wait for the late one", "medium", (
        Step("compare the late rank's kernels and host work with another's: aaco report lists both"),
        Step("shards of equal size, the same data loading, no logging or saving on one rank alone")),
    "straggler_wait_pct", mechanism="straggler"),)
