"""What bounded the wall time of a trace, as rows of text for every report."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.analytics.critical_path.summary import CriticalPaths, PathContribution, PathSummary
from aaco.analytics.kernels.priority import priority
from aaco.analytics.timeline.activity import NO_HOST
from aaco.report import format
from aaco.report.finding_view import finding_view
from aaco.report.names import shorten
from aaco.report.rows import Row

MOST_PATHS = 4
MOST_KERNELS = 5
# Of a path, not of idle time: the budget's words (sections/budget.py) mean other quantities.
WORDS = {"compute": "kernels", "communication": "communication", "copy": "copies", "launch": "from launch to start",
         "host": "the host", "sync": "return from waits", "kernel_wait": "kernel to kernel", "unknown": "not known"}


@finding_view("critical_path", "what bounded the wall time: the path's parts, kernels' shares of it, slack", place=7,
              title="Critical path", form=CriticalPaths)
def rows(found: CriticalPaths) -> Iterator[Row]:
    """Of each path what it consists of, and the kernels that add most to it."""
    if found.why_absent:
        yield Row("Absent", found.why_absent)
    for course in found.paths[:MOST_PATHS]:
        yield from _course(course, len(found.paths) > 1)
    if len(found.paths) > MOST_PATHS:
        yield Row("", f"{len(found.paths) - MOST_PATHS} more paths in metrics/critical_path.json")


def _course(course: PathSummary, several: bool) -> Iterator[Row]:
    parts = dict(sorted(((name, ns) for name, ns in course.bound_by_ns.items() if ns), key=lambda part: -part[1]))
    window = course.window_ns or 1
    shares = ", ".join(f"{WORDS[name]} {format.percent(ns / window)}" for name, ns in parts.items())
    captures = ", ".join(str(capture) for capture in course.captures if capture is not None)
    label = f"{'Capture' if captures.isdigit() else 'Captures'} {captures}" if several else "On the path"
    yield Row(label, f"{format.duration(course.window_ns)}: {shares}")
    if parts:
        yield Row("", f"{' + '.join(f'{ns:,}' for ns in parts.values())} = {format.exact_ns(course.window_ns)}")
    yield Row("Kernels alone", f"{format.duration(course.critical_path_ns)}: the longest chain of kernels; "
                               f"{course.without_slack:,} of {format.plural(course.dispatches, 'dispatch')} without"
                               " slack")
    if not any(course.edges["launch"]):
        yield Row("Launches", format.unavailable(f"{NO_HOST}; what passed between kernels is not known"))
    on_path = [kernel for kernel in course.contributions[:MOST_KERNELS] if kernel.path_ns]
    names = shorten((kernel.kernel_name for kernel in on_path), 40, format.symbol)
    yield from (Row(names[kernel.kernel_name], _contribution(kernel)) for kernel in on_path)
    if course.inferred_ns:
        yield Row("Inferred", f"{format.duration(course.inferred_ns)} of the path passed in waits that its times imply "
                              "and the capture does not record")


def _contribution(found: PathContribution) -> str:
    ceiling = f"at most {found.ceiling:.2f}x faster without it" if found.ceiling else "it is all of it"
    return (f"{format.duration(found.path_ns)} on the path, {format.percent(found.fraction)} of the wall time "
            f"({found.path_calls:,} of {format.plural(found.calls, 'execution')}); {ceiling}{_priority(found)}")


def _priority(found: PathContribution) -> str:
    """Whether it is worth the effort to optimise, where its counters say what could be gained."""
    if found.headroom is None:
        return ""
    judged = priority(found.headroom, found.fraction)
    gain = f"; {format.percent(found.headroom)} of it could be gained by its roofline: priority {judged.score:.2f}"
    if refusals := judged.refusals():
        return f"{gain}, not worth the effort ({next(iter(refusals.values()))})"
    return f"{gain}, {judged.ceiling:.2f}x at most" if judged.ceiling else gain
