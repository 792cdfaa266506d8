"""The difference of two traces as plain text, 130 columns at most."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from aaco.report import format
from aaco.report.names import shorten
from aaco.report.sections.idle_causes import CAUSES

COLUMNS = 130
FAMILIES, OPERATIONS, KERNELS, REPLACEMENTS = 12, 10, 10, 10
NAME = 50
GAPS = "gaps between kernels"
WAITS = {cause: title for cause, (title, _) in CAUSES.items()} | {
    "copies": "Only copies", "fills": "Only fills", "outside": "Before or after all kernels"}
SUMMED = ("delta_ns", "count_before", "count_after", "ns_before", "ns_after")


def render(document: Mapping[str, Any], before: str, after: str) -> str:
    """The text of the diff.json document of two traces, named by their sessions."""
    return "\n".join(_lines(document, before, after)) + "\n"


def _lines(document: Mapping[str, Any], before: str, after: str) -> Iterator[str]:
    yield f"TRACE DIFFERENCE  {format.cut(before, 38)} -> {format.cut(after, 38)}"
    for warning in document.get("warnings") or ():
        yield from format.wrap(format.clean(warning), COLUMNS)
    yield from format.wrap(headline(document), COLUMNS)
    yield ""
    yield from _account(document)
    yield ""
    yield from _families(document)
    yield from _groups(document)
    yield from _replacements(document)
    yield ""
    yield from format.wrap("One trace a side shows what changed, not whether it would change again: for a verdict with "
                           "its noise, measure both sides (aaco run --processes 5, aaco baseline save, aaco diff).",
                           COLUMNS)


def headline(document: Mapping[str, Any]) -> str:
    """Return what changed in a sentence: how much, on the device that changed most, and the part that took most of it.
    """
    if not document["delta_ns"]:
        return "Both sides take the same time."
    label, ns = max(account(document), key=lambda part: abs(part[1]))
    if label == GAPS and document["gaps"]:
        wait = max(document["gaps"], key=lambda gap: abs(gap["delta_ns"]))
        label += f", {WAITS[wait['cause']][0].lower()}{WAITS[wait['cause']][1:]}"
    elif families := [family for family in document["families"] if family["delta_ns"]]:
        label += f", {max(families, key=lambda family: abs(family['delta_ns']))['family'] or 'unknown'} first"
    spans = spans_of(document)
    most = max(spans, key=lambda span: abs(span["after_ns"] - span["before_ns"]))
    device = f"Device {most['device']}: " if len(spans) > 1 else ""
    way = "less" if most["after_ns"] < most["before_ns"] else "more"
    return (f"{device}{abs(relative_pct(most)):.1f} % {way} time: {format.duration(most['before_ns'])} -> "
            f"{format.duration(most['after_ns'])}. The largest part is {label} "
            f"({'+' if ns > 0 else ''}{format.duration(ns)}).")


def _account(document: Mapping[str, Any]) -> Iterator[str]:
    """The exact sum: span = kernels by count + kernels by duration + gaps - overlap.

    Kernels of one family for one operator count as the same under any name.
    """
    steps = document["steps"]
    if steps > 1:
        yield (f"  {document['steps_before']} and {document['steps_after']} steps; every figure below is for "
               f"{steps} steps on both sides")
    spans = spans_of(document)
    for span in spans:
        device = f"device {span['device']}: " if len(spans) > 1 else ""
        yield (f"  {device}first to last kernel {span['before_ns']:,} -> {span['after_ns']:,} ns, "
               f"{format.change(relative_pct(span))}")
    yield f"  {'' if len(spans) == 1 else f'differences of {len(spans)} devices':30s}{'ns':>20s}"
    for label, ns in account(document):
        yield f"  {label:30s}{ns:>+20,}"
        if label == GAPS:
            yield from (f"    {WAITS[wait['cause']]:28s}{'':22s}{wait['delta_ns']:>+20,}"
                        for wait in document["gaps"] if wait["delta_ns"])
    yield f"  {'sum':30s}{document['delta_ns']:>+20,}"


def account(document: Mapping[str, Any]) -> list[tuple[str, int]]:
    """The four parts that sum to the whole difference, in ns."""
    count = sum(part["delta_count_ns"] for part in document["families"])
    took = sum(part["delta_duration_ns"] for part in document["families"])
    return [("kernels: how many", count), ("kernels: how long", took), (GAPS, document["delta_gaps_ns"]),
            ("overlap of kernels", -document["delta_overlap_ns"])]


def spans_of(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """First to last kernel, device by device; a document of an older version has one span for all."""
    before, after = document.get("span_before_ns"), document.get("span_after_ns")
    return document.get("spans") or [{"device": 0, "before_ns": before, "after_ns": after}]


def relative_pct(span: Mapping[str, Any]) -> float:
    """The difference of a span, in per cent of the time before."""
    return 100 * (span["after_ns"] - span["before_ns"]) / span["before_ns"] if span["before_ns"] else 0.0


def _families(document: Mapping[str, Any]) -> Iterator[str]:
    """Kernel time by what the kernels compute, and for which operator: what traces of different vendors share."""
    changed = [part for part in document["families"] if part["delta_ns"]]
    for title, most, key in (("BY FAMILY", FAMILIES, lambda part: (part["family"], "")),
                             ("BY FAMILY AND OPERATOR", OPERATIONS, lambda part: (part["family"], part["operator"]))):
        rows = summed(changed, key)
        if not rows:
            continue
        yield f"{title:22s}{'ns':>13s}  {'count':>17s}  {'mean ns':>21s}"
        for (family, operator), row in rows[:most]:
            what = f"{family} in {operator or 'no known operator'}" if title != "BY FAMILY" else family
            yield _row(row, format.cut(what, NAME))
        if len(rows) > most:
            yield f"{'':37s}{len(rows) - most:,} more in regress/diff.json"
        yield ""


def _row(row: Mapping[str, int], what: str) -> str:
    return (f"  {row['delta_ns']:>+33,}  {_pair(row['count_before'], row['count_after'], 17)}  "
            f"{_pair(_mean(row, 'before'), _mean(row, 'after'), 21)}  {what}")


def _groups(document: Mapping[str, Any]) -> Iterator[str]:
    """The differences by operation, then by kernel within its operation; each list sums the groups of diff.json."""
    changed = [group for group in document["groups"] if group["delta_ns"]]
    if not changed:
        yield "No kernel takes more or less time in all."
        return
    for title, most, key in (("BY OPERATION", OPERATIONS, lambda group: (tail(group), "")),
                             ("BY KERNEL", KERNELS, lambda group: (tail(group), group["kernel"]))):
        rows = summed(changed, key)
        yield f"{title:21s}{'ns':>14s}  {'count':>17s}  {'mean ns':>21s}"
        names = shorten((kernel or operation for (operation, kernel), _ in rows[:most]), NAME, format.symbol)
        for (operation, kernel), row in rows[:most]:
            yield _row(row, names[kernel or operation])
        if len(rows) > most:
            yield f"{'':37s}{len(rows) - most:,} more in regress/diff.json"
        yield ""


def tail(group: Mapping[str, Any]) -> str:
    """The operation that launched: the end of the calls' path; what encloses it differs from layer to layer."""
    return " > ".join(group["context"][-2:]) or "not linked to a call"


def summed(groups: list[Mapping[str, Any]], key: Callable[[Mapping[str, Any]], tuple[str, str]],
            ) -> list[tuple[tuple[str, str], dict[str, int]]]:
    """The groups with equal keys added up, the largest difference first."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for group in groups:
        row = found.setdefault(key(group), dict.fromkeys(SUMMED, 0))
        for name in SUMMED:
            row[name] += group[name]
    changed = (item for item in found.items() if item[1]["delta_ns"])
    return sorted(changed, key=lambda item: (-abs(item[1]["delta_ns"]), item[0]))


def _replacements(document: Mapping[str, Any]) -> Iterator[str]:
    yield (f"WHAT BECAME WHAT  {format.plural(document['same_kernels'], 'kernel')} the same in the same order, by "
           f"{document['same_kernels_delta_ns']:+,} ns")
    for item in document["replacements"][:REPLACEMENTS]:
        yield f"{item['ns_after'] - item['ns_before']:>+21,}  {format.plural(item['times'], 'time')}"
        yield f"{'':23s}- {_run(item['before'])}"
        yield f"{'':23s}+ {_run(item['after'])}"
    if len(document["replacements"]) > REPLACEMENTS:
        yield f"{'':23s}{len(document['replacements']) - REPLACEMENTS:,} more in regress/diff.json"


def _run(names: list[str]) -> str:
    if not names:
        return "nothing"
    shown = ", ".join(format.symbol(name, 32) for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3:,} more"


def _mean(group: Mapping[str, Any], side: str) -> int | None:
    count: int = group[f"count_{side}"]
    return round(group[f"ns_{side}"] / count) if count else None


def _pair(before: int | None, after: int | None, width: int) -> str:
    texts = ["-" if value is None else f"{value:,}" for value in (before, after)]
    return " -> ".join(texts).rjust(width) if before != after else texts[0].rjust(width)
