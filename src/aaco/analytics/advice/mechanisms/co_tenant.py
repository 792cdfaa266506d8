"""No other process on the device: kernels that its time slices stopped take what the same launch takes in other steps.

Which kernels those are the work does not say, only how much longer they took in all; they are as long as a slice at
least. Processes that compute at the same time slow all kernels down, and nothing in one capture says by how much.
"""

from __future__ import annotations

from aaco.analytics.advice.action import AMD, NVIDIA, Action, of_metric
from aaco.analytics.advice.least import own_time
from aaco.analytics.advice.mechanism import Mechanism
from aaco.analytics.advice.work import COLLECTIVE, COPY, StepWork
from aaco.analytics.timeline.preempted import LONGER_NS
from aaco.core.advice import Step
from aaco.core.arrays import Flags, Reals
from aaco.core.readings import Absent


def _long(work: StepWork) -> Flags:
    return ~work.of_families(COLLECTIVE, COPY) & (work.ns >= LONGER_NS)


def _least_ns(work: StepWork) -> Reals:
    if not work.preempted_ns:
        raise Absent("no kernel takes far longer than the same launch in other steps")
    return own_time(work)


CO_TENANT = Mechanism("co_tenant", "Keep other processes off the device", "D with preempted kernels at their usual "
                      "time", _least_ns, _long, gone_ns=lambda work: work.preempted_ns)
ACTIONS = (Action(
    "have_the_device", "Have the device to yourself", of_metric("shared_device_limited_pct"),
    "the device does another process's work", "medium", (
        Step("nvidia-smi pmon -c 5 says who else computes on it; another device, MIG, or MPS", (NVIDIA,)),
        Step("amd-smi process says who else computes on it; another device, or a partition", (AMD,))),
    "shared_device_limited_pct", mechanism="co_tenant"),)
