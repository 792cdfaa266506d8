"""What became of histories as plain text, 130 columns at most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aaco.core.words import in_percent
from aaco.report.format import change, clean, cut, number, plural, quantity

COLUMNS = 130
QUIET = 10  # histories without news that are listed
DETECTORS = {"cusum": "CUSUM", "ewma": "EWMA", "page_hinkley": "Page-Hinkley"}


def render(status: Mapping[str, Any], points: Mapping[str, Any], every: bool = False) -> str:
    """The text of drift_status.json and change_points.json; `every` also lists all the changes of the past."""
    past = {_identity(one): one for one in points["series"]}
    return "".join(cut(clean(line), COLUMNS) + "\n" for line in _lines(status, past, every))


def _lines(status: Mapping[str, Any], past: Mapping[tuple[str, ...], Mapping[str, Any]], every: bool) -> Iterator[str]:
    counts = ", ".join(f"{count} {name}" for name, count in status["counts"].items())
    yield f"{len(status['series']):,} {'history' if len(status['series']) == 1 else 'histories'}: {counts}"
    quiet = 0
    for one in status["series"]:
        quiet += one["status"] in ("stable", "insufficient")
        if quiet <= QUIET or every:
            yield ""
            yield from _one(one, past[_identity(one)], every)
    if quiet > QUIET and not every:
        yield ""
        yield f"{quiet - QUIET:,} more without news: --all"


def _one(one: Mapping[str, Any], past: Mapping[str, Any], every: bool) -> Iterator[str]:
    yield f"{one['status']:<13}{one['benchmark']} {one['metric']}{_where(one)}, {plural(one['sessions'], 'session')}"
    yield f"    {one['why']}"
    if one["level"] is not None:
        yield (f"    level {quantity(one['level'], one['unit'])}; noise {in_percent(one['noise_pct'])} from one to the "
               f"next, memory {one['memory']:.2f}")
    last = one["change_point"]
    for item in past["change_points"] if every else [last] if last else []:
        yield f"    {_change(item, one['unit'])}"
    for item in past["went_away"] if every else past["went_away"][-1:]:
        yield f"    went away: {_change(item, one['unit'])}, back at {_place(item['returned_at'])}"
    for item in past["cost_shifts"]:
        yield (f"    cost shift at {_place(item['at'])}: {quantity(item['moved'], one['unit'])} moved between "
               "histories of the same sessions, their sum is the same")
    for item in past["slopes"]:
        yield f"    slope from {_place(item['begin'])} to {_place(item['end'])}: {item['change_pct']:+.1f} % in all"
    for item in past["accepted"]:
        yield f"    accepted from {item['session_id']} on, by {item['author']}: {item['reason']}"
    yield from _future(one)
    yield from _hints(one["hints"])


def _future(one: Mapping[str, Any]) -> Iterator[str]:
    trend, reach = one["trend"], one["time_to_limit"]
    if trend:
        yield (f"    trend {trend['slope_pct']:+.3f} % a session [{trend['ci'][0]:+.3f}, {trend['ci'][1]:+.3f}] over "
               f"{trend['sessions']} (p = {trend['p_value']:.2g})")
    if reach:
        latest = "no upper bound" if reach["latest"] is None else number(reach["latest"], 0)
        yield (f"    reaches {quantity(reach['limit'], one['unit'])} in {number(reach['sessions'], 0)} sessions "
               f"[{number(reach['earliest'], 0)}, {latest}]")
    elif one["level"] and (why := one["why_absent"].get("time_to_limit")) and why != "no limit was asked about":
        yield f"    limit: {why}"


def _hints(hints: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not hints:
        return
    last = {item["detector"]: item for item in hints}
    words = [f"{DETECTORS[name]} {'up' if item['upward'] else 'down'} at {_place(item['at'])}"
             for name, item in last.items()]
    yield f"    hints, no verdict: {'; '.join(words)}"


def _change(item: Mapping[str, Any], unit: str) -> str:
    return (f"{change(item['change_pct'], *item['ci'])} at {_place(item['at'])}: {quantity(item['before'], unit)} -> "
            f"{quantity(item['after'], unit)} ({item['sessions_before']} + {item['sessions_after']} sessions, "
            f"p = {item['p_value']:.1g})")


def _place(place: Mapping[str, Any]) -> str:
    return f"{place['index']} ({cut(place['commit'] or place['session_id'], 24)})"


def _where(one: Mapping[str, Any]) -> str:
    words = [*([f"on {cut(one['machine'], 16)}"] if one["machine"] else []),
             *([f"configuration {one['config'][:12]}"] if one["config"] else [])]
    return " " + ", ".join(words) if words else ""


def _identity(one: Mapping[str, Any]) -> tuple[str, ...]:
    return one["benchmark"], one["metric"], one["machine"], one["config"]
