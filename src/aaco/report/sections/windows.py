"""The judged window, the budgets of ranks, and the straggler in words."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.analytics.bottleneck.ranks import RUNS, Windows
from aaco.analytics.explanation import Explanation
from aaco.analytics.timeline.stragglers import Lateness, Stragglers
from aaco.analytics.timeline.windows import REPETITION, WHOLE, CaptureWindow
from aaco.core.documents import decode
from aaco.report import format
from aaco.report.rows import Row
from aaco.report.sections.budget import LEAST, WORDS

OPERATIONS = {"allreduce": "all-reduces", "allgather": "all-gathers", "reduce_scatter": "reduce-scatters",
              "alltoall": "all-to-alls", "broadcast": "broadcasts", "reduce": "reduces"}


def first_rows(explanation: Explanation) -> Iterator[Row]:
    """Yield the straggler, if one is named, and the window of the rank that the class is of: what precedes it."""
    document = explanation.examined.get("windows")
    if not document:
        return
    windows = decode(document, Windows)
    if windows.stragglers is not None and windows.stragglers.late is not None:
        yield next(straggler(windows))
    slowest = windows.ranks[windows.slowest]
    who = f"{_who(windows, windows.slowest)}, the slowest: " if len(windows.ranks) > 1 else ""
    yield Row("Judged", who + window(windows.window_of(slowest)))


def unstarted(explanation: Explanation) -> str:
    """Return, where that is most of the idle time, how long the judged device did not begin what had been launched."""
    document = explanation.examined.get("windows")
    if not document:
        return ""
    windows = decode(document, Windows)
    idle = windows.ranks[windows.slowest].idle
    if 2 * idle.unstarted_ns <= idle.idle_ns:
        return ""
    return (f": for {format.duration(idle.unstarted_ns)}, in {format.plural(idle.unstarted, 'gap')}, it did not begin "
            "work that had been launched; a host that waits meanwhile waits for that. Look for another process on the "
            "device, or a stream that waits for another")


def window(judged: CaptureWindow) -> str:
    """Return "steady state: steps 3-12, 41.2 ms of 1.20 s; not judged: start-up 1.16 s"."""
    if judged.told_by == WHOLE:
        return f"the whole trace, {format.duration(judged.window_ns)}: {judged.why_whole}"
    which = f"step {judged.first}" if judged.steps == 1 else f"steps {judged.first}-{judged.last}"
    which += " (by repetition)" * (judged.told_by == REPETITION)
    outside = ", ".join(f"{span.name} {format.duration(span.ns)}" for span in judged.outside)
    left = f"; not judged: {outside}" if outside else ""
    return (f"steady state: {which}, {format.duration(judged.window_ns)} of "
            f"{format.duration(judged.trace_ns)}{left}")


def capture(windows: Windows, judged: CaptureWindow) -> str:
    """Return the label of a capture's window."""
    return "Judged" if len(windows.captures) == 1 else f"Judged, capture {judged.capture or 0}"


def rank(windows: Windows, index: int) -> str:
    """Return the label of a rank's budget."""
    return f"{_who(windows, index).capitalize()}{', slowest' if index == windows.slowest else ''}"


def budget(windows: Windows, index: int) -> str:
    """Return the parts of a rank's budget that are half a per cent or more, the largest first, as times of its window.

    Not as shares: those of the judged rank are in the row "Wall time", where they may be of an unprofiled step.
    """
    parts = windows.budgets_ns[index]
    wall = sum(parts.values()) or 1
    shown = sorted(((ns, name) for name, ns in parts.items() if ns >= LEAST * wall), reverse=True)
    return f"{format.duration(wall)}: " + ", ".join(f"{WORDS.get(name, name)} {format.duration(ns)}"
                                                    for ns, name in shown)


def straggler(windows: Windows) -> Iterator[Row]:
    """Yield who the others wait for, and why; or that none is late throughout. Nothing without shared collectives."""
    waits = windows.stragglers
    if waits is None:
        return
    if waits.late is None:
        yield Row("Straggler", f"none: {waits.why_none}")
    else:
        yield Row("Straggler", ". ".join(filter(None, (
            _late(windows, waits, waits.late), _cause(windows, waits, waits.late), _apart(waits.ranks[waits.late])))))
    yield Row("Waits", "; ".join(_waits(windows, waits)))


def _late(windows: Windows, waits: Stragglers, late: int) -> str:
    """Return "rank 1 is last in 36 of 36 all-reduces; the other waited 293 ms"."""
    row, operations = waits.ranks[late], OPERATIONS.get(waits.operation, "collectives")
    waited = row.others_waited_ns + row.apart_others_waited_ns
    return (f"{_named(windows, waits, late)} is last in {row.last + row.apart_last} of "
            f"{waits.operations + waits.apart} {operations}; {'the other' if len(waits.ranks) == 2 else 'the others'} "
            f"waited {format.duration(waited)}")


def _apart(row: Lateness) -> str:
    """Return what of the waiting is excluded, in words: after the cause, which a first screen must have room for."""
    if not row.apart_others_waited_ns:
        return ""
    return (f"{format.duration(row.apart_others_waited_ns)} of that wait, in the first, is not judged: profilers do "
            "not start together")


def _cause(windows: Windows, waits: Stragglers, late: int) -> str:
    cause = windows.cause
    if cause is None:
        return f"Cause not found: {windows.why_no_cause}"
    who, others = _named(windows, waits, late), format.duration(cause.others_ns)
    if cause.part not in RUNS or cause.kernel is None:
        return f"Cause: {who}'s {WORDS[cause.part]}, {format.duration(cause.own_ns)} ({others} on the others)"
    return (f"Cause: {who}'s own kernel {cause.kernel.name}, {format.duration(cause.kernel.ns)} in "
            f"{cause.kernel.count:,} executions ({format.duration(cause.others_kernel_ns)} on the others)")


def _waits(windows: Windows, waits: Stragglers) -> Iterator[str]:
    for index, row in enumerate(waits.ranks):
        yield (f"{_named(windows, waits, index)} waited {format.duration(row.waited_ns)}, last in {row.last} of "
               f"{waits.operations}; {format.duration(row.apart_waited_ns)} in the first")
    clocks = format.duration(waits.clock_ns)
    yield (f"clocks brought together by the operations' ends, to {clocks}" if waits.shifted else
           f"one clock: ends agree to {clocks}")


def _named(windows: Windows, waits: Stragglers, index: int) -> str:
    row = waits.ranks[index]
    places = {(rank.capture, rank.device_id): place for place, rank in enumerate(windows.ranks)}
    return _who(windows, places[row.capture, row.device_id])


def _who(windows: Windows, index: int) -> str:
    rank = windows.ranks[index]
    return f"rank {rank.rank}" if rank.rank is not None else f"device {rank.device_id} of capture {rank.capture or 0}"
