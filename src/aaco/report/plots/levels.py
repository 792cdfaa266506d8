"""The picture of a history: a dot per session, the levels, their changes, and accepted shifts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from aaco.governance.changepoints.drift import Drift
from aaco.report import format
from aaco.report.svg import Drawing, Scale

WIDTH, HEIGHT = 1100, 340
LEFT, RIGHT, TOP, BOTTOM = 76, 20, 44, 48
MOST_DOTS = 2000  # the newest ones
FEWEST = 9  # sessions on the axis, so that its ticks are integers


def draw(drift: Drift) -> Drawing:
    """Return the picture of a series with values; sessions from left to right in the order of measurement."""
    series = drift.series
    first = max(0, len(series.values) - MOST_DOTS)
    values = series.values[first:]
    scale, suffix = format.scaling(float(np.median(values)), series.unit)
    drawing = Drawing(WIDTH, HEIGHT, _text(drift))
    across = Scale(first - 0.5, max(len(series.values), FEWEST) - 0.5, LEFT, WIDTH - RIGHT)
    low, high = float(values.min()) / scale, float(values.max()) / scale
    room = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
    up = Scale(low - room, high + room, HEIGHT - BOTTOM, TOP)
    drawing.axes(across, up, "session", f"{series.key.metric},{suffix or ' ' + series.unit}")
    for number, value in enumerate(values, first):
        tip = f"{number}: {series.session_ids[number]}, {format.quantity(float(value), series.unit)}"
        if commit := series.commits[number]:
            tip += f", commit {format.cut(commit, 24)}"
        drawing.dot(across(number), up(value / scale), 3, "dot c0", tip)
    _levels(drawing, drift, across, up, scale, first)
    for shift in series.accepted:
        if (place := _place(series.session_ids, shift.session_id)) >= first:
            drawing.line(across(place - 0.5), TOP, across(place - 0.5), HEIGHT - BOTTOM, "rule")
            drawing.text(across(place - 0.5) + 4, HEIGHT - BOTTOM - 6, "accepted", "dim small")
    return drawing


def _levels(drawing: Drawing, drift: Drift, across: Scale, up: Scale, scale: float, first: int) -> None:
    """Draw the median of each stretch between changes and accepted shifts, and the size of each change."""
    if drift.course is None:
        return
    changes, values = drift.course.changes, drift.series.values
    moved = {change.index for change in changes} | {_place(drift.series.session_ids, shift.session_id)
                                                    for shift in drift.series.accepted}
    cuts = [first, *sorted(place for place in moved if place > first), len(values)]
    for begin, end in pairwise(cuts):
        level = up(float(np.median(values[begin:end])) / scale)
        drawing.path([(across(begin - 0.5), level), (across(end - 0.5), level)], "roof")
    for number, change in enumerate(change for change in changes if change.index > first):
        at = across(change.index - 0.5)
        drawing.line(at, TOP, at, HEIGHT - BOTTOM, "rule")
        drawing.text(at + 4, TOP + 12 + 14 * (number % 3), format.change(change.change_pct), "ink small strong halo")


def _place(session_ids: tuple[str, ...], session_id: str) -> int:
    return session_ids.index(session_id) if session_id in session_ids else -1


def _text(drift: Drift) -> str:
    """Return the picture in words."""
    series = drift.series
    count = len(drift.course.changes) if drift.course else 0
    return (f"{series.key.metric} of {series.key.benchmark} over {format.plural(len(series.values), 'session')}: "
            f"{drift.status}, {format.plural(count, 'change')} of level.")
