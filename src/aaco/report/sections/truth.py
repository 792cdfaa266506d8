"""Whether a trace can be trusted, as rows of text for every report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aaco.analytics.truth import trust
from aaco.analytics.truth.trust import NOTHING
from aaco.report import format
from aaco.report.rows import Row

WEIGHTS = {"lost": "LOST", "wrong": "WRONG", "doubt": "warning", "note": "note"}


def rows(document: Mapping[str, Any]) -> list[Row]:
    """The answer and every remark, for the reports; empty where nothing was checked."""
    if not document:
        return []
    several = len(document["captures"]) > 1
    found = [Row("Trace", headline(document))]
    for capture in document["captures"]:
        before = f"capture {capture['capture']}: " if several else ""
        loose = capture["account"]["unlinked"]
        if loose["count"]:
            found.append(Row("Not linked", f"{before}{format.plural(loose['count'], 'kernel')}, "
                                           f"{format.exact_ns(loose['ns'])}, linked to no launch call; "
                                           "in every total"))
        found += [Row(weight.capitalize(), before + text) for weight, text in remarks(capture)]
    return found


def render(document: Mapping[str, Any]) -> str:
    """The text of one trace_check.json document, 80 columns at most but for paths."""
    return "\n".join(_lines(document)) + "\n"


def headline(document: Mapping[str, Any]) -> str:
    """The answer in a line."""
    return trust.of(document).line


def account(capture: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    """Where the kernels of a capture went: what, how many, and ns; parts that are not known are left out."""
    found = capture["account"]
    for label, key in (("in the file", "in_file"), ("used", "used"), ("linked to their launch", "linked"),
                       ("not linked to a launch", "unlinked"), ("dropped on the way", "dropped")):
        if found[key] is not None:
            yield label, found[key]["count"], found[key]["ns"]
    for reason, part in found["left_out"].items():
        yield f"left out: {reason}", part["count"], part["ns"]


def remarks(capture: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The weight and the words of each finding, the gravest first, with what to do about it."""
    for finding in capture["findings"]:
        advice = f"; {finding['advice']}" if finding["advice"] else ""
        yield WEIGHTS[finding["weight"]], finding["text"] + advice


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    yield from format.hung("TRACE CHECK: ", headline(document))
    for capture in document["captures"]:
        rank = "" if capture["rank"] is None else f", rank {capture['rank']}"
        yield ""
        yield f"capture {capture['capture']}: {format.clean(capture['file'])}{rank}"
        yield f"  {'':32s}{'kernels':>12s}{'ns':>22s}"
        for label, count, ns in account(capture):
            yield f"  {format.pad(format.cut(label, 32), 32)}{count:>12,}{ns:>22,}"
        for weight, text in remarks(capture):
            yield from format.hung(f"  {weight:8s}", text)
        if not capture["findings"]:
            yield f"  {NOTHING}"
