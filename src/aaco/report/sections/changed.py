"""A comparison with a baseline as pictures: every metric's change with its interval, and where the change sits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aaco.analytics.explanation import Explanation
from aaco.report import format
from aaco.report.names import shorten
from aaco.report.svg import Drawing, Scale

WIDTH, LEFT, RIGHT, TOP, ROW, BOTTOM = 960, 210, 190, 44, 30, 48
MOST_CAUSES = 10
EDGE = 16
Verdict = Mapping[str, Any]


def comparison(explanation: Explanation) -> Drawing | None:
    """The change of each metric in per cent, worse to the right, with its interval; None without a comparison."""
    verdict = explanation.verdict
    found = [one for one in (verdict or {}).get("metrics", ()) if one["effect_pct"] is not None]
    if not verdict or not found:
        return None
    ends = [0.0, *(value for one in found for value in (one["effect_pct"], *(one["ci"] or ())))]
    if tolerance := verdict["tolerance_pct"] or 0.0:
        ends += [-tolerance, tolerance]
    room = 0.06 * (max(ends) - min(ends)) or 1.0
    drawing = Drawing(WIDTH, TOP + ROW * len(found) + BOTTOM, _told(verdict, found))
    across = Scale(min(ends) - room, max(ends) + room, LEFT, WIDTH - RIGHT)
    bottom = TOP + ROW * len(found)
    if tolerance:
        drawing.rect(across(-tolerance), TOP, across(tolerance) - across(-tolerance), bottom - TOP, "shade",
                     f"tolerance: {tolerance:g} %")
    _axis(drawing, across, bottom, "change, per cent; to the right is worse")
    drawing.line(across(0), TOP, across(0), bottom, "rule")
    for row, one in enumerate(found):
        _effect(drawing, across, TOP + ROW * row + ROW / 2, one)
    drawing.text(EDGE, 22, f"Change against {_against(verdict)}", "ink strong")
    shaded = f"shaded: the tolerance of {tolerance:g} %; " if tolerance else ""
    level = verdict["level"]
    drawing.text(WIDTH - 16, 22, f"{shaded}bars: {100 * level:g} % intervals" if level else shaded, "dim small", "end")
    return drawing


def attribution(explanation: Explanation) -> Drawing | None:
    """The parts of the change of the profiled window, ns per inference; they sum to the last bar. None without."""
    verdict = explanation.verdict
    causes = list((verdict or {}).get("causes", ()))
    if not causes:
        return None
    parts = [(name, ns) for name, ns in _parts(causes)]
    total = sum(ns for _, ns in parts)
    rows = [*parts, ("all of it", total)]
    names = shorten((name for name, _ in rows), 32, format.cut)
    scale, unit = format.scaling(max(abs(ns) for _, ns in rows) or 1.0, "ns")
    reach = [0.0]
    for _, ns in parts:
        reach.append(reach[-1] + ns / scale)
    low, high = min(*reach, 0.0), max(*reach, 0.0)
    room = 0.06 * (high - low) or 1.0
    across = Scale(low - room, high + room, LEFT, WIDTH - RIGHT)
    told = "; ".join(f"{name} {_signed(ns)}" for name, ns in rows)
    drawing = Drawing(WIDTH, TOP + ROW * len(rows) + BOTTOM, f"Where the change of the profiled window sits: {told}.")
    bottom = TOP + ROW * len(rows)
    _axis(drawing, across, bottom, f"time per inference against the baseline,{unit}")
    for row, (name, ns) in enumerate(rows):
        whole = row == len(parts)
        start = 0.0 if whole else reach[row]
        end = start + ns / scale
        top = TOP + ROW * row
        look = "c7" if whole else "c1" if ns > 0 else "c2"
        drawing.rect(min(across(start), across(end)), top + 5, abs(across(end) - across(start)), ROW - 10,
                     f"bar {look}", f"{format.cut(name, 80)}: {_signed(ns)} per inference")
        drawing.text(LEFT - 10, top + 19, names[name], "ink strong" if whole else "ink", "end")
        drawing.text(WIDTH - RIGHT + 12, top + 19, _signed(ns), "ink strong" if whole else "dim")
    drawing.line(across(0), TOP, across(0), bottom, "rule")
    drawing.text(EDGE, 22, "Where the change sits: parts that sum to the whole", "ink strong")
    drawing.legend(LEFT + 300, 22, [("c1", "slower"), ("c2", "faster")])
    return drawing


def _parts(causes: list[Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    """Each cause by name with its ns per inference; those beyond MOST_CAUSES together."""
    for cause in causes[:MOST_CAUSES]:
        name = f"{cause['family']}: {cause['kind']}" if cause["family"] else cause["kind"]
        yield name, cause["delta_ns"] / cause["inferences"]
    if rest := causes[MOST_CAUSES:]:
        yield f"{len(rest)} smaller", sum(cause["delta_ns"] / cause["inferences"] for cause in rest)


def _effect(drawing: Drawing, across: Scale, y: float, one: Mapping[str, Any]) -> None:
    look = {"regressed": "c1", "improved": "c2"}.get(one["status"], "c0")
    interval = format.change(one["effect_pct"], *(one["ci"] or ()))
    tip = f"{one['metric']}: {interval}, {one['status']}"
    if one["ci"]:
        low, high = (across(end) for end in one["ci"])
        drawing.rect(low, y - 3, high - low, 6, look, tip)
    drawing.dot(across(one["effect_pct"]), y, 5, f"solid {look}", tip)
    drawing.text(LEFT - 10, y + 4, one["metric"], "ink", "end")
    drawing.text(WIDTH - RIGHT + 12, y + 4, interval, "ink small")


def _axis(drawing: Drawing, across: Scale, bottom: float, title: str) -> None:
    for value in across.ticks(8):
        drawing.line(across(value), TOP, across(value), bottom, "grid")
        drawing.text(across(value), bottom + 18, f"{value:,.6g}", "dim small", "middle")
    drawing.line(LEFT, bottom, WIDTH - RIGHT, bottom, "axis")
    drawing.text((LEFT + WIDTH - RIGHT) / 2, bottom + 38, title, "dim", "middle")


def _against(verdict: Verdict) -> str:
    return format.name(verdict["baseline_name"], 40) if verdict["baseline_name"] else "the baseline"


def _signed(ns: float) -> str:
    return ("+" if ns > 0 else "-" if ns < 0 else "") + format.duration(abs(ns))


def _told(verdict: Verdict, found: list[Mapping[str, Any]]) -> str:
    parts = [f"{one['metric']} {format.change(one['effect_pct'], *(one['ci'] or ()))}" for one in found]
    return f"Change against {_against(verdict)}, {verdict['status']}: {'; '.join(parts)}."
