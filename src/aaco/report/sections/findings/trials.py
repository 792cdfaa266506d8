"""What was tried on a session, as rows of text for every report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aaco.report import format
from aaco.report.finding_view import finding_view
from aaco.report.rows import Row


@finding_view("trials", "what was tried, change by change: what was proved, what was refused and why", place=2,
              title="Tried")
def rows(document: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the decision, each change with its outcome, and what does not apply."""
    yield from heading(document)
    for trial in document["trials"]:
        yield Row(trial["change"], f"{trial['title']}: {trial['outcome']}; {trial['why']}{_expected(trial)}")
    for why, changes in by_reason(document["not_tried"]).items():
        yield Row("Does not apply", f"{', '.join(changes)}: {why}")


def heading(document: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the decision, and what it rests on."""
    yield Row("Kept" if document["kept"] else "No change", str(document["why"]))
    if again := document["again"]:
        yield Row("Against the untouched baseline", f"{again['outcome']}: {again['why']}")
        yield Row("Beside the gain", "; ".join(again.get("guards", ())) or "nothing was watched")
    if document["processes"]:
        yield Row("How it was confirmed", _plan(document))
    announced = f"; {format.duration(round(1e9 * document['announced_s']))} at most was announced"
    yield Row("Time", format.duration(round(1e9 * document["took_s"])) + announced * (document["announced_s"] > 0))
    if document["unreadable"]:
        yield Row("Log", f"{format.plural(document['unreadable'], 'line')} could not be read: torn by a kill, or of "
                            "a later version")


def by_reason(not_tried: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the changes that do not apply, by why."""
    changes: dict[str, list[str]] = {}
    for refused in not_tried:
        changes.setdefault(refused["why"], []).append(refused["change"])
    return changes


def _plan(document: Mapping[str, Any]) -> str:
    seen = document["detectable_pct"]
    shown = f"; they show a gain of {seen:.1f} % with a chance of 80 %" if seen is not None else ""
    return (f"{document['processes']} fresh processes and as many controls, at a level of "
            f"{100 * document['level']:.4g} % each so that all hold together{shown}")


def _expected(trial: Mapping[str, Any]) -> str:
    expected = trial["expected"]
    return f" (expected: {expected})" if expected and not expected.startswith("not known") else ""
