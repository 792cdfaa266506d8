"""The device work of a session's judged steps, as the floors of advice take it (analytics/advice)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.advice.floor import StepTime
from aaco.analytics.advice.limits import DeviceLimits, limits_of
from aaco.analytics.advice.work import COPY_COLUMNS, KERNEL_COLUMNS, OPERATOR_COLUMNS, StepWork, step_work
from aaco.analytics.bottleneck.budget import STRETCH, Unprofiled
from aaco.analytics.bottleneck.ranks import RankTime, Windows
from aaco.analytics.roofline.devices.ceilings import Identity
from aaco.analytics.timeline.windows import MARKERS, REPETITION, CaptureWindow
from aaco.core.readings import Absent
from aaco.core.session import Session
from aaco.core.tables import COPIES, KERNELS, OPERATORS, TableSpec
from aaco.steps.findings.kernel_operators import operators as operator_of_kernel
from aaco.tracelake import documents, layout, queries, store


def find(session: Session, unprofiled: Unprofiled | None = None) -> tuple[StepWork, StepTime]:
    """Return the work of the slowest rank in its judged steps, and how long a step takes.

    unprofiled: the step without a profiler, if it was timed. Raise Absent if no steps are judged; BadBundle.
    """
    document = documents.read(session, layout.finding("windows"))
    if not document:
        raise Absent("no work of a device was recorded")
    windows = Windows.of(document)
    rank = windows.ranks[windows.slowest]
    window = windows.window_of(rank)
    steps = _steps(window, unprofiled)
    listed = store.read(session, OPERATORS) if store.holds(session, OPERATORS) else OPERATORS.build()
    work = step_work(_rows(session, KERNELS, KERNEL_COLUMNS, rank), _rows(session, COPIES, COPY_COLUMNS, rank),
                     listed.select(OPERATOR_COLUMNS), operator_of_kernel(session), (window.t_start_ns, window.t_end_ns),
                     steps, _limits(session, rank), rank.straggler_ns)
    timed = StepTime(1e6 * unprofiled.median_ms, True) if unprofiled else StepTime(window.window_ns / steps, False)
    return work, timed


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
    batches = []
    for batch in queries.batches(session, spec, columns):
        mine = pc.equal(batch["device_id"], rank.device_id)
        if rank.capture is not None:
            mine = pc.and_(mine, pc.equal(batch["capture"], rank.capture))
        batches.append(batch.filter(pc.fill_null(mine, False)))
    return pa.Table.from_batches(batches) if batches else spec.build().select(columns)


def _limits(session: Session, rank: RankTime) -> DeviceLimits:
    """Return what the rank's device can do; nothing is known where the capture lists no such device."""
    captures = documents.read(session, layout.CAPTURES).get("captures", [])
    kinds = {(device["arch"], device["compute_units"], device["name"], device["vram_bytes"])
             for capture in captures for device in capture["devices"]}
    return limits_of(Identity(*next(iter(kinds)))) if len(kinds) == 1 else DeviceLimits()
