"""A time budget for each rank, over its steady state: a device of a capture has its own, and the slowest makes the
headline.

The parts of one rank are not added to those of others: a rank that pauses while seven wait for it would show an eighth
of its pause. Time in which a rank only waits in a collective operation for the last one to arrive is `straggler`, not
communication: it is what the late rank took. The slowest rank is the one with most time of its own, its wall without
that part; per step where all ranks count steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from aaco.analytics.bottleneck.budget import IDLE, Budget, Preempted, budget
from aaco.analytics.bottleneck.own_times import STRAGGLER, own_times_ns
from aaco.analytics.bottleneck.unprofiled import Unprofiled
from aaco.analytics.bottleneck.work import Copied, DeviceWork
from aaco.analytics.timeline.idle import IdleTime
from aaco.analytics.timeline.steady_state import Block, SteadyState, Steps
from aaco.analytics.timeline.stragglers import Stragglers
from aaco.analytics.timeline.timeline import DeviceTime
from aaco.analytics.timeline.trace import DeviceTrace
from aaco.analytics.timeline.windows import MARKERS, REPETITION, WHOLE, CaptureWindow
from aaco.core import documents
from aaco.tracelake import layout

OF_ALL = (STRAGGLER, "communication")  # what no rank is late by: the ranks do it together
RUNS = ("compute", "memory", "memory_latency", "kernel", "local_copy")  # of a rank's own parts, what its kernels are
EXPLAINS = 0.5  # of what the others wait; a part that is larger by less is no cause


class KernelTime(Struct, frozen=True):
    """All executions of one kernel, communication left out, in a rank's window."""

    name: str
    count: int
    ns: int


class RankTime(Struct, frozen=True):
    """What one device of a capture did in its window.

    parts_ns: of the device's work by limiter, without straggler_ns and preempted_ns. preempted_kernels: executions
    that took far longer than usual because another process had the device; preempted_ns: how much longer. copies,
    call_ns and the rest: as in device_work.json. kernels: the names that took most time.
    """

    capture: int | None
    device_id: int
    rank: int | None
    time: DeviceTime
    idle: IdleTime
    parts_ns: Mapping[str, int]
    straggler_ns: int
    copies: tuple[Copied, ...]
    call_ns: Mapping[str, int]
    host_ns: int
    told_by_ns: Mapping[str, int]
    kernels: tuple[KernelTime, ...]
    preempted_kernels: int = 0
    preempted_ns: int = 0

    def work(self) -> DeviceWork:
        """Return the work as that of a session with only this device."""
        return DeviceWork(self.parts_ns, self.time.kernels, self.time.kernel_ns, {}, self.copies, self.call_ns,
                          self.host_ns, told_by_ns=self.told_by_ns)


class LateCause(Struct, frozen=True):
    """Why the straggler is late: the part of its budget that is larger than that of the others, in the mean, by most.

    own_ns, others_ns: that part of the straggler and, in the mean, of the other ranks, in their windows. kernel: the
    kernel whose time is larger by most, where the part is one of kernels, with its time and the others' in the mean.
    """

    part: str
    own_ns: int
    others_ns: int
    kernel: KernelTime | None = None
    others_kernel_ns: int = 0


@documents.document(layout.finding("windows"), version=1)
class Windows(Struct, frozen=True):
    """windows.json: what is judged of each capture, the time of each rank in it, and which rank is late.

    slowest: index of the rank that makes the headline. budgets_ns: of each rank, parts that sum to its window exactly.
    """

    captures: tuple[CaptureWindow, ...]
    ranks: tuple[RankTime, ...]
    budgets_ns: tuple[Mapping[str, int], ...]
    slowest: int
    stragglers: Stragglers | None = None
    cause: LateCause | None = None
    why_no_cause: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.slowest < len(self.ranks) or len(self.budgets_ns) != len(self.ranks):
            raise ValueError("slowest")

    @property
    def paused(self) -> float:
        """The part of the slowest rank's idle time in which its host did something else than launch; 0 of none."""
        parts = self.budgets_ns[self.slowest]
        idle = sum(parts.get(part, 0) for part in IDLE)
        return parts.get("pause", 0) / idle if idle else 0.0

    def window_of(self, rank: RankTime) -> CaptureWindow:
        """Return the window that a rank is judged over."""
        return next(window for window in self.captures if window.capture == rank.capture)


def windows(trace: DeviceTrace, captures: Sequence[CaptureWindow], ranks: Sequence[RankTime],
            who_waits: Stragglers | None) -> Windows:
    """Return the document of a session's ranks, with the slowest one and the cause of a straggler's lateness."""
    plain = Windows(tuple(captures), tuple(ranks), ({},) * len(ranks), 0, who_waits)
    budgets = [_budget(trace, plain, rank) for rank in ranks]
    cause, why = _cause(ranks, budgets, who_waits)
    return replace(plain, budgets_ns=tuple(dict(spent.parts_ns) for spent in budgets),
                   slowest=_slowest(plain, budgets), cause=cause, why_no_cause=why)


def headline(trace: DeviceTrace, device_work: DeviceWork, unprofiled: Unprofiled | None = None,
             windows: Windows | None = None, device_others_sm_pct: float | None = None) -> Budget:
    """Return the budget that the diagnosis judges: of the slowest rank's window; of all devices where no windows were
    looked for (a run's measured inferences, or a session of an earlier version). Raise Absent if there is none."""
    rank = judged_rank(windows, unprofiled) if windows else None
    if windows is None or rank is None:
        return budget(trace, device_work, unprofiled, device_others_sm_pct)
    return _budget(trace, windows, rank, unprofiled, device_others_sm_pct)


def judged_rank(windows: Windows, unprofiled: Unprofiled | None = None) -> RankTime | None:
    """Return the rank whose window the budget is of; None where the budget is of the whole trace."""
    return None if _steps_are_of_all(windows, unprofiled) else windows.ranks[windows.slowest]


def _steps_are_of_all(windows: Windows, unprofiled: Unprofiled | None) -> bool:
    """Return whether the given number of steps is of the whole trace, where only a repeated block chose the window."""
    window = windows.window_of(windows.ranks[windows.slowest])
    return unprofiled is not None and unprofiled.steps is not None and window.told_by == REPETITION


def _budget(trace: DeviceTrace, windows: Windows, rank: RankTime, unprofiled: Unprofiled | None = None,
            device_others_sm_pct: float | None = None) -> Budget:
    if unprofiled is not None and windows.window_of(rank).told_by == MARKERS:
        unprofiled = replace(unprofiled, steps=None)  # the steps given are those of the trace, the window has its own
    judged = budget(_trace_of(trace, windows, rank), rank.work(), unprofiled, device_others_sm_pct, rank.straggler_ns,
                    Preempted(rank.preempted_kernels, rank.preempted_ns))
    return replace(judged, judged=judged_text(windows, rank))


def judged_text(windows: Windows, rank: RankTime) -> str:
    """Return what a rank's budget is of, in words; empty for the whole of the only one."""
    window = windows.window_of(rank)
    who = "" if len(windows.ranks) == 1 else (f"rank {rank.rank}" if rank.rank is not None else
                                              f"device {rank.device_id} of capture {rank.capture or 0}")
    if window.told_by == WHOLE or not window.outside:
        return who
    steps = f"step {window.first}" if window.steps == 1 else f"steps {window.first}-{window.last}"
    return ", ".join(filter(None, (who, steps)))


def _trace_of(trace: DeviceTrace, windows: Windows, rank: RankTime) -> DeviceTrace:
    """Return the trace as if it held only this rank in its window."""
    window = windows.window_of(rank)
    state = SteadyState(tuple(_steps(steps, window) for steps in trace.blocks.steps if steps.capture == rank.capture),
                        tuple(_block(block, window) for block in trace.blocks.blocks
                              if (block.capture, block.device_id) == (rank.capture, rank.device_id)), {})
    return replace(trace, devices=(rank.time,), idle=replace(trace.idle, devices=(rank.idle,)), blocks=state)


def _steps(steps: Steps, window: CaptureWindow) -> Steps:
    return replace(steps, count=window.steps, outside=0) if window.family == steps.family else steps


def _block(block: Block, window: CaptureWindow) -> Block:
    if window.told_by != REPETITION:
        return block
    return replace(block, repeats=window.steps, of=window.steps * block.kernels)


def _slowest(windows: Windows, budgets: Sequence[Budget]) -> int:
    own = own_times_ns([windows.window_of(rank).steps for rank in windows.ranks],
                       [spent.parts_ns for spent in budgets])
    return max(range(len(own)), key=lambda index: own[index])


def _cause(ranks: Sequence[RankTime], budgets: Sequence[Budget], who_waits: Stragglers | None
           ) -> tuple[LateCause | None, str]:
    """Return why the named straggler is late, or why nothing says it."""
    if who_waits is None or who_waits.late is None:
        return None, "no rank is late throughout"
    named = who_waits.ranks[who_waits.late]
    places = {(rank.capture, rank.device_id): place for place, rank in enumerate(ranks)}
    late = places[named.capture, named.device_id]
    others = [places[row.capture, row.device_id] for row in who_waits.ranks if row is not named]
    means = {part: sum(budgets[place].parts_ns[part] for place in others) // len(others)
             for part in budgets[late].parts_ns if part not in OF_ALL}
    part = max(means, key=lambda name: budgets[late].parts_ns[name] - means[name])
    own, waited = budgets[late].parts_ns[part], sum(ranks[place].straggler_ns for place in others) // len(others)
    if own - means[part] < EXPLAINS * waited:
        return None, "no part of its own time is larger than the others' by half of what they wait"
    if part not in RUNS:
        return LateCause(part, own, means[part]), ""
    kernel, others_ns = _kernel(ranks[late], [ranks[place] for place in others])
    return LateCause(part, own, means[part], kernel, others_ns), ""


def _kernel(late: RankTime, others: Sequence[RankTime]) -> tuple[KernelTime | None, int]:
    """Return the kernel that takes more time on the late rank than on the others, by most, and their mean."""
    means = {kernel.name: sum(row.ns for rank in others for row in rank.kernels if row.name == kernel.name)
             // len(others) for kernel in late.kernels}
    most = max(late.kernels, key=lambda kernel: kernel.ns - means[kernel.name], default=None)
    return most, means[most.name] if most else 0
