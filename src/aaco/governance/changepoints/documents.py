"""drift_status.json and change_points.json: what became of every history, and every change of level in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from aaco.core.documents import FrozenModel
from aaco.governance.changepoints import hints as online
from aaco.governance.changepoints.changes import Change
from aaco.governance.changepoints.drift import Drift, Question, Series, Status
from aaco.governance.changepoints.steps import ALPHA

WORST_FIRST: tuple[Status, ...] = ("regressed", "drifting", "improved", "stable", "insufficient")


class Place(FrozenModel):
    """A session of a history; index counts from 0, null = not recorded."""

    index: int
    session_id: str
    commit: str | None
    time_ns: int | None


class ChangePoint(FrozenModel):
    """A change of level. `at` is the first session of the new level."""

    at: Place
    before: float = Field(description="median of the level before, in the unit of the series")
    after: float
    change_pct: float = Field(description="from before to after; positive is larger")
    ci: tuple[float, float] = Field(description="95 % interval of change_pct")
    p_value: float = Field(description=f"two-sided, of this place; counted from {ALPHA:g} down")
    worse: bool
    sessions_before: int
    sessions_after: int
    returned_at: Place | None = Field(description="where the level came back; null for one that stayed")


class CostShift(FrozenModel):
    """Cost that moved from some series to others, their sum unchanged; amounts in the series' unit."""

    at: Place
    moved: float
    sum_changed: float


class Slope(FrozenModel):
    """A stretch in which the level moved steadily rather than in steps."""

    begin: Place
    end: Place
    change_pct: float


class Accepted(FrozenModel):
    """A shift that a user accepted: the history before it is read at the level after it."""

    session_id: str
    author: str
    reason: str


class Trend(FrozenModel):
    """The trend since the present level began, in per cent a session."""

    sessions: int
    slope_pct: float
    ci: tuple[float, float]
    level: float
    p_value: float
    memory: float = Field(description="first autocorrelation of what the line leaves")


class TimeToLimit(FrozenModel):
    """In how many sessions the level reaches the limit; the ends of its 95 % interval."""

    limit: float
    sessions: float
    earliest: float
    latest: float | None = Field(description="null: beyond what the trend may be extrapolated by")


class Hint(FrozenModel):
    """An alarm of an online detector: a hint, never a verdict."""

    detector: online.Detector
    at: Place
    upward: bool
    since: Place


class _History(FrozenModel):
    """Which history it is."""

    benchmark: str
    metric: str
    machine: str
    config: str
    unit: str
    direction: Literal["lower_is_better", "higher_is_better"]
    sessions: int


class SeriesStatus(_History):
    """What became of one history."""

    status: Status
    why: str
    level: float | None = Field(description="the present one, in the unit of the series")
    noise_pct: float | None = Field(description="from one session to the next")
    memory: float | None = Field(description="first autocorrelation of the noise")
    change_point: ChangePoint | None = Field(description="the last one that stayed")
    trend: Trend | None
    time_to_limit: TimeToLimit | None
    hints: list[Hint]
    why_absent: dict[str, str] = Field(description="the reason of every null")


class SeriesChanges(_History):
    """Every change of level of one history."""

    change_points: list[ChangePoint]
    went_away: list[ChangePoint]
    cost_shifts: list[CostShift]
    slopes: list[Slope]
    accepted: list[Accepted]
    why_absent: dict[str, str]


class DriftStatus(FrozenModel):
    """drift_status.json. Fields are added, never renamed; `schema_version` rises when meaning changes."""

    schema_version: Literal[1] = 1
    status: Status = Field(description="the worst of all series")
    counts: dict[str, int] = Field(description="series by status")
    least_change_pct: float
    recent: int = Field(description="a change within this many sessions is news")
    series: list[SeriesStatus] = Field(description="worst first")
    tool_version: str


class ChangePoints(FrozenModel):
    """change_points.json. Fields are added, never renamed; `schema_version` rises when meaning changes."""

    schema_version: Literal[1] = 1
    least_change_pct: float
    series: list[SeriesChanges]
    tool_version: str


def drift_status(found: Sequence[Drift], question: Question, tool_version: str) -> DriftStatus:
    """Return the document of what became of the series, at least one of them."""
    ordered = sorted(found, key=lambda one: WORST_FIRST.index(one.status))
    return DriftStatus(status=ordered[0].status, counts=dict(Counter(one.status for one in ordered)),
                       least_change_pct=question.least_pct, recent=question.recent,
                       series=[_status(one) for one in ordered], tool_version=tool_version)


def change_points(found: Sequence[Drift], question: Question, tool_version: str) -> ChangePoints:
    """Return the document of every change of level."""
    return ChangePoints(least_change_pct=question.least_pct, series=[_changes(one) for one in found],
                        tool_version=tool_version)


def change_point(series: Series, change: Change) -> ChangePoint:
    """One change of a series, as documents have it; `verdict.json` has it under the same name."""
    return ChangePoint(at=_place(series, change.index), before=change.before, after=change.after,
                       change_pct=change.change_pct, ci=(change.low_pct, change.high_pct), p_value=change.p_value,
                       worse=series.worse(change.change_pct), sessions_before=change.count_before,
                       sessions_after=change.count_after,
                       returned_at=None if change.until is None else _place(series, change.until))


def _status(one: Drift) -> SeriesStatus:
    series, course = one.series, one.course
    return SeriesStatus(
        **_named(series), status=one.status, why=one.why, level=one.level,
        noise_pct=course.sigma_pct if course else None, memory=course.rho if course else None,
        change_point=change_point(series, one.news) if one.news else None,
        trend=None if one.trend is None else Trend(
            sessions=one.trend.count, slope_pct=one.trend.slope_pct, ci=(one.trend.low_pct, one.trend.high_pct),
            level=one.trend.level, p_value=one.trend.p_value, memory=one.trend.rho),
        time_to_limit=None if one.reached is None or one.limit is None else TimeToLimit(
            limit=one.limit, sessions=one.reached.value, earliest=one.reached.low or 0.0, latest=one.reached.high),
        hints=[Hint(detector=item.detector, at=_place(series, item.index), upward=item.upward,
                    since=_place(series, min(item.since, item.index))) for item in one.hints],
        why_absent=one.why_absent)


def _changes(one: Drift) -> SeriesChanges:
    series, course = one.series, one.course
    return SeriesChanges(
        **_named(series), change_points=[change_point(series, item) for item in course.changes] if course else [],
        went_away=[change_point(series, item) for item in course.excursions] if course else [],
        cost_shifts=[CostShift(at=_place(series, item.index), moved=item.moved, sum_changed=item.sum_changed)
                     for item in one.shifts],
        slopes=[Slope(begin=_place(series, item.begin), end=_place(series, item.end - 1), change_pct=item.change_pct)
                for item in course.slopes] if course else [],
        accepted=[Accepted(session_id=item.session_id, author=item.author, reason=item.reason)
                  for item in series.accepted],
        why_absent={name: why for name, why in one.why_absent.items() if name == "change_points"})


def _named(series: Series) -> dict[str, Any]:
    key = series.key
    return {"benchmark": key.benchmark, "metric": key.metric, "machine": key.machine, "config": key.config,
            "unit": series.unit, "direction": series.direction, "sessions": len(series.values)}


def _place(series: Series, index: int) -> Place:
    return Place(index=index, session_id=series.session_ids[index], commit=series.commits[index],
                 time_ns=series.times_ns[index])
