"""The device work of a session's judged steps, as the floors of advice take it (analytics/advice)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from aaco.analytics.advice.floor import StepTime
from aaco.analytics.advice.limits import DeviceLimits, limits_of
from aaco.analytics.advice.views import NO_VIEWS, Views
from aaco.analytics.advice.work import (
    COLLECTIVE,
    COPY,
    COPY_COLUMNS,
    KERNEL_COLUMNS,
    OPERATOR_COLUMNS,
    StepWork,
    WorkName,
    step_work,
)
from aaco.analytics.bottleneck.budget import STRETCH
from aaco.analytics.bottleneck.ranks import RankTime, Windows
from aaco.analytics.bottleneck.unprofiled import Unprofiled
from aaco.analytics.streaming.stream_ids import NONE, integers
from aaco.analytics.timeline.windows import MARKERS, REPETITION, CaptureWindow
from aaco.core.arrays import Reals
from aaco.core.readings import Absent
from aaco.core.session import Session
from aaco.core.tables import API_CALLS, COPIES, GPU_EVENTS, KERNELS, OPERATORS, TableSpec
from aaco.steps.findings import host_calls, single_rows, views_taken
from aaco.steps.findings.host_calls import HostCalls
from aaco.steps.findings.kernel_classes import device_of
from aaco.steps.findings.kernel_operators import operators as operator_of_kernel
from aaco.tracelake import documents, queries, store
from aaco.tracelake.memory import give_back

LINK = "correlation_id"  # of a kernel, to the call that launched it
CLOCK_COLUMNS = ("t_ns", "sclk_mhz", "sclk_max_mhz", "capture", "device_id")


def find(session: Session, unprofiled: Unprofiled | None = None) -> tuple[StepWork, StepTime]:
    """Return the work of the slowest rank in its judged steps, and how long a step takes.

    unprofiled: the step without a profiler, if it was timed. Raise Absent if no steps are judged; BadBundle.
    """
    windows = documents.decoded(session, Windows)
    if windows is None:
        raise Absent("no work of a device was recorded")
    rank = windows.ranks[windows.slowest]
    window = windows.window_of(rank)
    launched = _Launched()
    kernels = launched.noted(_batches(session, KERNELS, (*KERNEL_COLUMNS, LINK), rank), window)
    work = _work(session, rank, window, _steps(window, unprofiled), kernels)
    work = replace(work, preempted_ns=rank.preempted_ns, others_ns=_others_ns(session, windows, work.names),
                   clock=_clock(session, rank, window), paused=windows.paused)
    work = _with_host(work, session, rank, window, launched)
    return work, _step_time(work, window, unprofiled)


def _step_time(work: StepWork, window: CaptureWindow, unprofiled: Unprofiled | None) -> StepTime:
    """Return how long a step takes: without a profiler, where that is known and can be of these steps."""
    profiled = StepTime(window.window_ns / work.steps, False)
    if not unprofiled:
        return profiled
    try:
        own_ns = np.where(work.of_families(COLLECTIVE, COPY), 0.0, work.sure_ns)
        busy_ns = float(work.lane_ns(own_ns, work.lane).max(initial=0.0)) - work.preempted_ns
        unprofiled.refuse_others(work.steps, 1, window.window_ns, busy_ns)
    except Absent:  # the budget of the same latency says why it is not used
        return profiled
    fastest_ms = unprofiled.fastest_ms
    return StepTime(1e6 * unprofiled.median_ms, True, None if fastest_ms is None else 1e6 * fastest_ms)


def _work(session: Session, rank: RankTime, window: CaptureWindow, steps: int, kernels: Iterable[pa.RecordBatch]
          ) -> StepWork:
    """Return the work of a rank in its window. kernels: of the rank."""
    listed = (store.read(session, OPERATORS, OPERATOR_COLUMNS) if store.holds(session, OPERATORS)
              else OPERATORS.build().select(OPERATOR_COLUMNS))
    device = device_of(session)
    return step_work(kernels, _rows(session, COPIES, COPY_COLUMNS, rank), listed, operator_of_kernel(session),
                     (window.t_start_ns, window.t_end_ns), steps, limits_of(device) if device else DeviceLimits(),
                     rank.straggler_ns)


def _others_ns(session: Session, windows: Windows, names: Sequence[WorkName]) -> Reals | None:
    """Return by name the time per step in the rank where kernels of that name take least, the slowest left out; None
    unless the slowest is the rank that the others wait for, or if the steps of another are not counted.
    """
    slowest, waits = windows.ranks[windows.slowest], windows.stragglers
    if waits is None or waits.late is None:
        return None
    late = waits.ranks[waits.late]
    others = [(rank, windows.window_of(rank)) for rank in windows.ranks if rank is not slowest]
    if (late.capture, late.device_id) != (slowest.capture, slowest.device_id) or not all(
            window.steps for _, window in others):
        return None
    times = [_ns_by_name(_work(session, rank, window, window.steps or 1,
                               _batches(session, KERNELS, KERNEL_COLUMNS, rank))) for rank, window in others]
    return np.array([min(ns_by_name.get(name.name, 0.0) for ns_by_name in times) for name in names])


def _ns_by_name(work: StepWork) -> dict[str, float]:
    summed = np.bincount(work.label, weights=work.ns, minlength=len(work.names)) / work.steps
    return {name.name: float(ns) for name, ns in zip(work.names, summed, strict=True)}


def _clock(session: Session, rank: RankTime, window: CaptureWindow) -> float | None:
    """Return the lowest clock of the rank's device in its window, in the highest; None if none was sampled there."""
    sampled = _rows(session, GPU_EVENTS, CLOCK_COLUMNS, rank)
    time, now, highest = (sampled[name].to_numpy(zero_copy_only=False).astype(float)
                          for name in ("t_ns", "sclk_mhz", "sclk_max_mhz"))
    inside = (time >= window.t_start_ns) & (time <= window.t_end_ns) & (now > 0) & (highest > 0)
    return min(1.0, float((now[inside] / highest[inside]).min())) if inside.any() else None


class _Launched(Struct):
    """Kernels of a rank. links: of each piece the first and the last one to a call, of those that start in a window;
    inside: how many do, of count.
    """

    links: list[int] = field(default_factory=list)
    inside: int = 0
    count: int = 0

    def noted(self, kernels: Iterable[pa.RecordBatch], window: CaptureWindow) -> Iterator[pa.RecordBatch]:
        """Yield the kernels as they are noted."""
        for piece in kernels:
            start, link = integers(piece["t_start_ns"]), integers(piece[LINK])
            inside = (start >= window.t_start_ns) & (start < window.t_end_ns)
            launched = link[inside & (link != NONE)]
            self.links += launched[[0, -1]].tolist() if len(launched) else []
            self.inside, self.count = self.inside + int(inside.sum()), self.count + len(piece)
            yield piece
        give_back(0)  # what reading them took, before the work is made of them


def _with_host(work: StepWork, session: Session, rank: RankTime, window: CaptureWindow, launched: _Launched
               ) -> StepWork:
    """Return the work with the host's part in it; as it is where the host's calls were not recorded."""
    if not store.holds(session, API_CALLS):
        return work
    give_back(0)  # what making it took, before the calls are read
    first, last = (launched.links[0], launched.links[-1]) if launched.links else (None, None)
    calls = host_calls.read(session, rank.capture, first, last)
    rows = single_rows.read(session, rank.capture, window.t_start_ns, window.t_end_ns)
    views = _views(work, session, rank, calls)
    return replace(work, single_rows=rows, views=views, syncs=calls.waits_between(window.t_start_ns, window.t_end_ns),
                   launching_ns=calls.launching_ns(work.steps),
                   fetching=calls.fetching_between(window.t_start_ns, window.t_end_ns) / max(1, window.window_ns),
                   computing=computing(calls, (window.t_start_ns, window.t_end_ns),
                                       launched.inside / max(1, launched.count)))


def computing(calls: HostCalls, window: tuple[int, int], share: float) -> float:
    """Return the part of a window's time in which the host works on tensors of its own. share: of the capture's
    kernels, those in the window.

    What it does for the first step may lie before the window, which begins with work of the device.
    """
    own_ns = calls.own_ns() * share
    before_ns = max(0.0, own_ns - calls.own_between(*window))
    return own_ns / max(1.0, window[1] - window[0] + before_ns)


def _views(work: StepWork, session: Session, rank: RankTime, calls: HostCalls) -> Views:
    """Return the views that the steps take; none where the host asked for more or fewer kernels than there are: then
    nothing says before which work a view lies.
    """
    kernels = np.flatnonzero(~work.of_families(COPY))
    from_first = np.arange(*kernels[[0, -1]]) if len(kernels) else kernels
    for rows, kernels_only in ((np.append(from_first, kernels[-1:]), False), (kernels, True)):
        asked = calls.of_work(kernels_only)
        if len(rows) == len(asked) > 0:
            return views_taken.read(session, rank.capture, calls.since, asked, rows)
    return NO_VIEWS


def _steps(window: CaptureWindow, unprofiled: Unprofiled | None) -> int:
    """Return how many steps the window has. Raise Absent where none are counted, or a block that repeats is no step.

    A repeated block may be a layer: it is a step where so many of the unprofiled latency fit the window (budget.py). A
    number of steps that the user states is of the whole trace, which the window is a part of: the floor is lower then.
    """
    of_trace = unprofiled.steps if unprofiled and window.told_by != MARKERS else None
    steps = of_trace or window.steps
    if not steps:
        raise Absent(window.why_whole or "no steps are counted in the trace")
    if of_trace is None and window.told_by == REPETITION:
        stretch = window.window_ns / (steps * unprofiled.median_ms * 1e6) if unprofiled else 0.0
        if not STRETCH[0] <= stretch <= STRETCH[1]:
            raise Absent("no markers of steps, and the block of kernels that repeats may be a layer")
    return steps


def _rows(session: Session, spec: TableSpec, columns: Sequence[str], rank: RankTime) -> pa.Table:
    """Return the rows of a rank's device."""
    batches = list(_batches(session, spec, columns, rank))
    return pa.Table.from_batches(batches) if batches else spec.build().select(columns)


def _batches(session: Session, spec: TableSpec, columns: Sequence[str], rank: RankTime) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a rank's device."""
    for batch in queries.batches(session, spec, columns):
        mine = integers(batch["device_id"]) == rank.device_id
        if rank.capture is not None:
            mine &= integers(batch["capture"]) == rank.capture
        yield batch if mine.all() else batch.filter(pa.array(mine))
