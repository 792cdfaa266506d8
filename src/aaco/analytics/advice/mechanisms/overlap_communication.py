"""Collectives that run during other work: a step takes at least as long as the longer of both.

A collective during other work may hide its wait for a late rank, so each counts as the least that one of its name took.
"""

from __future__ import annotations

from aaco.analytics.advice.action import AMD, NO_FRAMEWORK, NVIDIA, OWN_CODE, PYTORCH, TRAINING, Action, of_metric
from aaco.analytics.advice.least import collective_least
from aaco.analytics.advice.mechanism import Mechanism
from aaco.analytics.advice.work import COLLECTIVE, StepWork
from aaco.core.advice import Step
from aaco.core.arrays import Flags, Reals
from aaco.core.readings import Absent


def _collectives(work: StepWork) -> Flags:
    return work.of_families(COLLECTIVE)


def _least_ns(work: StepWork) -> Reals:
    if not _collectives(work).any():
        raise Absent("no collective runs in the steps")
    return collective_least(work)


OVERLAP_COMMUNICATION = Mechanism("overlap_communication", "Communicate while other work runs",
                                  "the longer of D without collectives and their least times", _least_ns,
                                  beside=_collectives, host_stays=True)
ACTIONS = (Action(
    "overlap_communication", "Communicate while computing", of_metric("exposed_communication_pct"),
    "the step waits for communication", "medium", (
        Step("DDP bucket_cap_mb, FSDP backward_prefetch", (PYTORCH, TRAINING)),
        Step("async_op=True in calls of torch.distributed, wait() where the result is needed", (PYTORCH, OWN_CODE)),
        Step("NCCL on a stream of its own", (NVIDIA, NO_FRAMEWORK)),
        Step("RCCL on a stream of its own", (AMD, NO_FRAMEWORK))),
    "exposed_communication_pct", mechanism="overlap_communication"),)
