"""The four questions of a first look, each with its answer in a line and where the page says more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from aaco.analytics.explanation import Explanation
from aaco.report import format
from aaco.report.rows import Row
from aaco.report.sections import breakdown, content, quality
from aaco.tracelake import layout

LARGEST = 3  # parts of the time that are named
TRUSTED = ("Quality score", "Clean")


@dataclass(frozen=True)
class FirstAnswer:
    """A question's answer; section is the id of the part of the page it stands in, metric its definition."""

    question: str
    text: str
    section: str
    metric: str = ""


def answers(explanation: Explanation) -> list[FirstAnswer]:
    """Where did the time go, can the measurement be trusted, did it get slower, what to do next."""
    return [_time(explanation), _trust(explanation), _change(explanation), *_next(explanation)]


def rows(explanation: Explanation) -> list[Row]:
    """Return the questions with their answers as rows."""
    return [Row(answer.question, answer.text) for answer in answers(explanation)]


def _time(explanation: Explanation) -> FirstAnswer:
    breakdowns = breakdown.every(explanation)
    if not breakdowns:
        return FirstAnswer("Where the time went", "absent: no kernel has a time", "time")
    first = breakdowns[0]
    parts = [f"{part.name} {format.percent(first.share(part))}" for part in
             sorted(first.parts, key=lambda part: -part.ns)[:LARGEST]]
    return FirstAnswer("Where the time went", f"{', '.join(parts)} of {first.whole}", "time", first.metric)


def _trust(explanation: Explanation) -> FirstAnswer:
    if explanation.captures:
        rows = content.trace_truth(explanation)
        text = rows[0].text if rows else "absent: the trace was not checked"
        return FirstAnswer("Can it be trusted", text, "quality")
    rows = [row for row in quality.rows(explanation) if row.label in TRUSTED]
    text = "; ".join(f"{row.label.lower()} {row.text}" for row in rows) or "absent: nothing was measured"
    return FirstAnswer("Can it be trusted", text, "quality", "measurement_quality")


def _change(explanation: Explanation) -> FirstAnswer:
    verdict = explanation.verdict
    if not verdict:
        why = explanation.absent.get(layout.VERDICT, "it was not compared with a baseline")
        return FirstAnswer("Did it get slower", f"absent: {why}", "change")
    effect = "" if verdict["effect_pct"] is None else f" {format.change(verdict['effect_pct'], *(verdict['ci'] or ()))}"
    return FirstAnswer("Did it get slower", f"{verdict['status']}{effect}: {verdict['why']}", "change")


def _next(explanation: Explanation) -> Iterator[FirstAnswer]:
    for _, step in content.next_steps(explanation)[:1]:
        yield FirstAnswer("What to do next", step, "next")
