"""One kind of change to a workload: what must stay of a step after it, and what such changes usually leave."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from aaco.analytics.advice.work import StepWork
from aaco.core.arrays import Flags, Reals
from aaco.core.readings import Absent


class NothingToChange(Absent):
    """Raised of a kind of change of which the work shows that it has nothing to act on; then it is not advised."""


class Response(Struct, frozen=True):
    """What a change usually does to the rows of a step's work. device_ns: the time of each row after it. left: the part
    of each row's launch that is left, 0 to 1. waits_ns: how long the host waited for the device in a step, and no
    longer does. replayed: whether the host launches once for all. added_ns: of kernels that a step did not have.
    whole_calls: whether all that the host did for a call goes with it, as where turns of a loop go. hands_over: whether
    the host's own work between its launches leaves the step. more_calls: of the host in a step, that it did not have;
    below 0 where calls go that launched nothing. only_less: whether work goes and none comes, so that no step gets
    longer by it. loaders: other processes that do the host's own work instead, each that of whole steps; 0 where it
    goes to none.
    """

    device_ns: Reals
    left: Reals
    waits_ns: float = 0.0
    replayed: bool = False
    added_ns: float = 0.0
    whole_calls: bool = False
    hands_over: bool = False
    more_calls: float = 0.0
    only_less: bool = False
    loaders: int = 0


class Mechanism(Struct, frozen=True):
    """One kind of change. formula: its floor in words. least_ns: the least time of each row of the work after it, never
    more than it took, of shape (rows,); it raises Absent where that cannot be known, or the change has nothing to do,
    and NothingToChange where the work shows that.
    respond: what such changes usually leave, by the work and its least times; None where the device's work does not
    show that. most_samples: times as many in a step as before at most; then least times are per sample of before.
    shown: whether the work shows that there is something to change; without it the change is not advised. host_stays:
    whether the host calls and waits as before, so that a step loses no more than the time of the rows that the change
    acts on. fewer_bytes: whether the host's tensors shrink, too, and with them its work on what it copies from pageable
    memory. other_kernels: whether products run in other kernels, of which a call may need fewer. waits_ns: what the
    host takes in all steps to wake up and to ask where it then waits no longer, if its other calls and waits stay; None
    if that is not known. parts: the kinds of changes that this one is, done together; the first two make it, others go
    with them where the step has such work. silent_calls: how many calls of the host that launched nothing go in all
    steps.
    """

    name: str
    title: str
    formula: str
    least_ns: Callable[[StepWork], Reals]
    acts_on: Callable[[StepWork], Flags] | None = None  # by default the rows that are left with less time
    named: Callable[[StepWork], Flags] | None = None  # of what it acts on what is named; by default all
    beside: Callable[[StepWork], Flags] | None = None  # the rows that can run beside all others after the change
    gone_ns: Callable[[StepWork], float] | None = None  # time of all steps that goes, in no known row
    first: bool = False  # whether other changes act on what it leaves: half of that, where they halve
    respond: Callable[[StepWork, Reals], Response] | None = None
    most_samples: float = 1.0
    shown: Callable[[StepWork], bool] | None = None
    host_stays: bool = False
    fewer_bytes: bool = False
    other_kernels: bool = False
    waits_ns: Callable[[StepWork], float | None] | None = None
    parts: tuple[str, ...] = ()
    silent_calls: Callable[[StepWork], float] | None = None
