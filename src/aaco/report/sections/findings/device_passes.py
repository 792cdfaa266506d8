"""How kernels of a device were timed and named, as rows of text for every report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aaco.report import format
from aaco.report.finding_view import finding_view
from aaco.report.rows import Row

TRACERS = {"cupti": "CUPTI", "rocprofv3": "rocprofv3"}


@finding_view("device_passes", "how kernels were timed in passes of their own and named by another: what was joined, "
              "what has no node", place=11, title="Kernels of the device")
def _rows(document: Mapping[str, Any]) -> Iterator[Row]:
    if "why_absent" in document:
        yield Row("Not traced", str(document["why_absent"]))
        return
    timed, profiled = document["timed"], document["profiled"]
    of, same = timed["inferences"], document["identical"]
    checked = document.get("checked")
    by = "with the calls that launched them" if document.get("with_calls", checked) else "in a pass of their own"
    tracer = TRACERS[document.get("tracer", "cupti")]
    yield Row("Timed", f"{format.plural(timed['kernels'], 'kernel')} in {format.plural(of, 'inference')}, by "
                       f"{tracer} {by}: {format.duration(timed['ns'] // of)} per inference, the device at work "
                       f"{format.share(timed['busy_ns'], document['wall_ns'])} of the time")
    yield Row("Its cost", _cost(document["latency_ms"], document.get("plain_latency_ms")))
    if checked:
        yield Row("Checked", f"by a pass of kernels alone: {_difference(timed, checked)}, the device at work "
                             f"{format.share(checked['busy_ns'], checked['wall_ns'])} of the time; "
                             f"{_cost(checked['latency_ms'], document.get('plain_latency_ms'))}")
    yield Row("Named", f"by the profiled pass ({format.plural(profiled['inferences'], 'inference')}): the same "
                       f"sequence of kernels in {same:,} of {of:,} inferences{_parted(document)}; "
                       f"{format.share(document['named_ns'], timed['ns'])} of the kernel time has a node")
    for why, count in document["unnamed"].items():
        yield Row("Without a node", f"{format.plural(count, 'kernel')} of the profiled pass: {why}")
    if document["host_nodes"]:
        yield Row("On the host", f"{format.plural(document['host_nodes'], 'node')} of the CPU provider: their time is "
                                 "in the profile, and not among these kernels")
    for one in document.get("counters", ()):
        yield Row("Counted", _counted(one))
    for problem in document["problems"]:
        yield Row("Lost", problem)


def _counted(one: Mapping[str, Any]) -> str:
    """What one execution counted, of how many kernels; or why nothing."""
    what = format.counters(one["counters"])
    by = " ".join(filter(None, (one["tool"], one["version"])))
    if one["why_not"]:
        return f"{what} by {by}: left out, as {one['why_not']}"
    of = f" of {format.plural(one['inferences'], 'inference')}; others have no counters" if one["inferences"] else ""
    return f"{what} by {by}, in an execution of its own: {one['joined']:,} of {one['dispatches']:,} kernels{of}"


def _cost(pace: float, plain: float | None) -> str:
    """What a pass's tracer costs: its latency, next to that without one."""
    slower = f", {_slower(pace, plain)} than without a tracer" if plain else ""
    return f"{format.number(pace)} ms per inference in that pass{slower}"


def _difference(one: Mapping[str, int], other: Mapping[str, int]) -> str:
    """How the kernel times per inference of two passes differ."""
    mine, theirs = (each["ns"] / each["inferences"] for each in (one, other))
    more = "more" if theirs >= mine else "less"
    return f"{format.duration(round(theirs))} of kernels per inference there, {abs(theirs / mine - 1):.1%} {more}"


def _parted(document: Mapping[str, Any]) -> str:
    if not document["aligned"]:
        return ""
    return (f", {document['aligned']:,} aligned (they part at kernel {document['first_difference']:,} first)"
            if document["first_difference"] is not None else f", {document['aligned']:,} aligned")


def _slower(pace: float, plain: float) -> str:
    return f"{abs(pace / plain - 1):.0%} {'slower' if pace >= plain else 'faster'}"
