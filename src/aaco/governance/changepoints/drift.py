"""What became of a series: regressed, improved, drifting, stable, or too little to say; with what shows it.

A hint of the online watch is never a verdict, a change that came back is no change, and a shift that a user accepted
moves the mean that everything is compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from aaco.core.arrays import Reals
from aaco.core.readings import Absent, Estimate, or_why
from aaco.core.words import in_percent, plural
from aaco.governance.changepoints import changes, filters, forecast, hints, noise
from aaco.governance.changepoints.changes import Change, Course
from aaco.governance.changepoints.filters import CostShift
from aaco.governance.changepoints.forecast import Trend
from aaco.governance.changepoints.hints import Hint
from aaco.tracelake.history.history import Accepted, Direction, Key

Status = Literal["regressed", "improved", "drifting", "stable", "insufficient"]
RECENT = 20  # values that a change must lie within to be news


class Series(Struct, frozen=True):
    """A history of one key in the order of time: one value a session, with its names; None = not recorded."""

    key: Key
    unit: str
    direction: Direction
    values: Reals
    session_ids: tuple[str, ...]
    times_ns: tuple[int | None, ...]
    commits: tuple[str | None, ...]
    accepted: tuple[Accepted, ...] = ()

    def worse(self, change_pct: float) -> bool:
        """Return whether a change in this direction is for the worse."""
        return (change_pct > 0) == (self.direction == "lower_is_better")


class Question(Struct, frozen=True):
    """The question to every series: the smallest change that counts, what is recent, and a limit to watch for.

    limit: in the series' unit; or, with `relative`, in per cent from the present level.
    """

    least_pct: float = changes.LEAST_PCT
    recent: int = RECENT
    limit: float | None = None
    relative: bool = False


class Drift(Struct, frozen=True):
    """The answer for one series. What is unknown is None, and `why_absent` has the reason."""

    series: Series
    status: Status
    why: str
    course: Course | None
    shifts: tuple[CostShift, ...]
    hints: tuple[Hint, ...]
    level: float | None
    trend: Trend | None
    limit: float | None
    reached: Estimate | None
    why_absent: dict[str, str]

    @property
    def news(self) -> Change | None:
        """The last change that stayed."""
        return self.course.changes[-1] if self.course and self.course.changes else None


def examine(series: Sequence[Series], question: Question) -> list[Drift]:
    """Return every series by itself, and cost that moved between the series of one benchmark, machine and
    configuration.
    """
    courses = [or_why(lambda one=one: _course(one, question)) for one in series]  # type: ignore[misc]
    moved = _moved(series, [course for course, _ in courses])
    return [_drift(one, course, why, moved.get(number, ()), question)
            for number, (one, (course, why)) in enumerate(zip(series, courses, strict=True))]


def last_change(series: Series, question: Question | None = None) -> Change:
    """Return the last change of level that stayed and was not accepted. Raise Absent, saying why there is none."""
    found = _course(series, question or Question()).changes
    if not found:
        raise Absent(f"no change of level in {plural(len(series.values), 'session')}")
    return found[-1]


def _course(series: Series, question: Question) -> Course:
    return changes.course(_meant(series), question.least_pct)


def _meant(series: Series) -> Reals:
    """Return the values at the level that is accepted."""
    places = {session: place for place, session in reversed(list(enumerate(series.session_ids)))}
    cuts = [places[item.session_id] for item in series.accepted if places.get(item.session_id)]
    return filters.levelled(series.values, cuts)


def _moved(series: Sequence[Series], courses: Sequence[Course | None]) -> dict[int, tuple[CostShift, ...]]:
    """By series, the changes that are cost moved between it and its siblings: parts measured in the same sessions."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for number, one in enumerate(series):
        if courses[number] is not None and one.direction == "lower_is_better":
            groups.setdefault((one.key.metric, one.key.machine, one.unit, one.session_ids), []).append(number)
    found: dict[int, tuple[CostShift, ...]] = {}
    for numbers in (group for group in groups.values() if len(group) > 1):
        names = {str(number): number for number in numbers}
        shifts = filters.cost_shifts({name: series[number].values for name, number in names.items()},
                                     {name: course for name, number in names.items() if (course := courses[number])})
        for name, number in names.items():
            found[number] = tuple(shift for shift in shifts if name in (*shift.out, *shift.into))
    return found


def _drift(series: Series, course: Course | None, why: str, shifts: tuple[CostShift, ...],
           question: Question) -> Drift:
    if course is None:
        absent = dict.fromkeys(("change_points", "trend", "level", "hints", "time_to_limit"), why)
        return Drift(series, "insufficient", why, None, (), (), None, None, None, None, absent)
    course = filters.without(course, shifts)
    values = _meant(series)
    trend, why_no_trend = or_why(lambda: forecast.trend(values, course.current))
    level = trend.now if trend and trend.significant else float(np.median(values[course.current:]))
    watched, why_no_hints = or_why(lambda: _watch(values, course, question))
    limit = _limit(question, level)
    reached, why_not = or_why(lambda: _reached(trend, limit, why_no_trend))
    status, reason = _judged(series, course, trend, question)
    absent = {"trend": why_no_trend, "hints": why_no_hints, "time_to_limit": why_not,
              "change_points": "" if course.changes else f"no change of level in {plural(course.count, 'session')}"}
    return Drift(series, status, reason, course, shifts, watched or (), level, trend, limit, reached,
                 {name: text for name, text in absent.items() if text})


def _judged(series: Series, course: Course, trend: Trend | None, question: Question) -> tuple[Status, str]:
    last = course.changes[-1] if course.changes else None
    if last and course.count - last.index <= question.recent:
        status: Status = "regressed" if series.worse(last.change_pct) else "improved"
        return status, f"the level changed by {last.change_pct:+.1f} % at value {last.index} of {course.count}"
    moved = trend.slope_pct * trend.count if trend else 0.0
    if trend and trend.significant and abs(moved) >= question.least_pct:
        words = f"{in_percent(trend.slope_pct, 3, '+')} a value over the last {trend.count} (p = {trend.p_value:.1g})"
        return ("drifting", f"a trend for the worse: {words}") if series.worse(moved) else (
            "stable", f"a trend for the better: {words}")
    return "stable", f"no change of level in the last {min(question.recent, course.count)} values, no trend"


def _watch(values: Reals, course: Course, question: Question) -> tuple[Hint, ...]:
    """Return what the online detectors hint at in the recent values, compared with the level before them."""
    begin = max(0, course.count - question.recent)
    before = max((item.index for item in course.changes if item.index <= begin - noise.FEWEST), default=0)
    logs = np.log(values)
    try:
        held = noise.baseline(logs[before:begin])
    except Absent as reason:
        raise Absent(f"before the last {course.count - begin} values: {reason}") from reason
    rest = held.residuals(logs[begin:])
    found = [*hints.cusum(rest), *hints.ewma(rest), *hints.page_hinkley(rest)]
    return tuple(Hint(item.detector, item.index + begin, item.upward, item.since + begin) for item in found)


def _limit(question: Question, level: float) -> float | None:
    if question.limit is None or not question.relative:
        return question.limit
    return level * (1 + question.limit / 100)


def _reached(trend: Trend | None, limit: float | None, why_no_trend: str) -> Estimate:
    if limit is None:
        raise Absent("no limit was asked about")
    if trend is None:
        raise Absent(why_no_trend)
    return trend.reaches(limit)
