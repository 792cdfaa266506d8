"""What a lake says: its state, what is off, trends, and the heat map, as documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from aaco.analytics.quality import stability
from aaco.core.errors import UsageError
from aaco.core.files import finite
from aaco.core.readings import Absent
from aaco.fleet.catalog import Catalog
from aaco.fleet.compaction import read_manifest
from aaco.fleet.lakes import open_store
from aaco.fleet.scan import LOCAL, Engine, FleetFilter, Scan, ask, one_table
from aaco.fleet.store import Place
from aaco.governance import fleet
from aaco.governance.changepoints import changes
from aaco.governance.changepoints.changes import Change
from aaco.tracelake.history.measures import LATENCY, MEASURES

SCHEMA_VERSION = 1
FDR = 0.05
AHEAD_NS = 300 * 10**9  # a session that is newer than its ingest by more than this comes from a clock that is ahead
# several_devices: on how many a session ran, where that is known and more than one.
SAME = ("model", "device", "backend", "fingerprint")
COMPARABLE = (*SAME, "several_devices")
GROUP = (*COMPARABLE, "metric")
NO_CHANGE = Change(0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0, 0)
TOP = ("residuals", "processes", "device_skews", "kernels")
BANDS = ((0.05, "excellent"), (0.15, "good"), (0.30, "degraded"))  # shares of sessions below these are called so
WORST_BAND = "critical"


def status(place: Place) -> dict[str, Any]:
    """Return what the lake holds: sessions, files, models, devices, nodes, and clocks that are ahead."""
    lake = open_store(place)
    with Catalog.open(lake) as catalog:
        state, rows = catalog.state(), catalog.sessions()
        manifest = read_manifest(lake, state.manifest)
    ahead = Counter(row["node"] for row in rows if row["time_ns"] > row["ingested_ns"] + AHEAD_NS)
    times = [row["time_ns"] for row in rows]
    return document({
        "lake": lake.name, "sessions": len(rows), "landing": len(state.pending), "retired": len(state.retired),
        "files": len(manifest.files), "manifest": state.number, "models": _distinct(rows, "model"),
        "devices": _distinct(rows, "device"), "nodes": len({row["node"] for row in rows} - {None}),
        "first_ns": min(times, default=None), "last_ns": max(times, default=None),
        "clocks_ahead": [{"node": node, "sessions": count} for node, count in sorted(ahead.items(), key=str)]})


def regressions(lake: Place, metric: str = LATENCY, choice: FleetFilter | None = None, fdr: float = FDR,
                engine: Engine = LOCAL) -> dict[str, Any]:
    """Return the sessions with a level off that of comparable ones, for the worse and for the better.

    Of those that are listed at most a share `fdr` is expected to be no change (Benjamini and Hochberg over the fleet).
    """
    return regressions_of(judged(_residuals(lake, metric, choice, engine)), metric, fdr)


def regressions_of(table: pa.Table, metric: str, fdr: float) -> dict[str, Any]:
    """Return the same of `judged` residuals."""
    q = table["q"].to_numpy()
    listed = np.flatnonzero(q <= fdr)
    rows = [_session(row, value) for row, value in zip(_rows(table, listed), q[listed], strict=True)]
    rows.sort(key=lambda row: (-row["change_pct"], row["session_id"]))
    return document({
        "metric": metric, "fdr": fdr, "sessions": table.num_rows, "judged": int((~np.isnan(q)).sum()),
        "worse": [row for row in rows if row["change_pct"] > 0],
        "better": [row for row in reversed(rows) if row["change_pct"] < 0], "not_judged": _not_judged(table)})


def top(lake: Place, choice: FleetFilter | None = None, fdr: float = FDR, most: int = 20,
        engine: Engine = LOCAL) -> dict[str, Any]:
    """Return what to look at first: slow nodes, processes that lag in their session, devices that are slower than the
    others of their session, the longest kernels."""
    def question(scan: Scan) -> dict[str, pa.Table]:
        scan.read_once()
        return {name: scan.run(name) for name in TOP}

    return top_of(ask(lake, question, choice or FleetFilter(), engine=engine), fdr, most)


def top_of(tables: Mapping[str, pa.Table], fdr: float, most: int) -> dict[str, Any]:
    """Return the same of the tables of the queries in TOP."""
    stragglers = _stragglers(tables["processes"], fdr)
    return document({
        "fdr": fdr, **_nodes(tables["residuals"], fdr), "stragglers": stragglers[:most],
        "stragglers_found": len(stragglers), **_device_skews(tables["device_skews"], most),
        "kernels": tables["kernels"].slice(0, most).to_pylist()})


def scaling(lake: Place, choice: FleetFilter | None = None, engine: Engine = LOCAL) -> dict[str, Any]:
    """Return the scaling efficiency of comparable sessions: throughput per device over that on the smallest number of
    devices that they recorded. It is absent where only one number was recorded, or none is known."""
    return scaling_of(one_table(lake, "scaling", choice, engine))


def scaling_of(table: pa.Table) -> dict[str, Any]:
    """Return the same of the table of queries/reduce/scaling.sql."""
    rows = table.to_pylist()
    return document({
        "groups": [{name: row[name] for name in (*SAME, "devices_used", "sessions", "throughput", "base_devices",
                                                 "base_sessions", "base", "unit", "efficiency")}
                   for row in rows if row["numbers"] > 1 and row["devices_used"] is not None],
        "absent": [{name: row[name] for name in (*SAME, "devices_used", "sessions")} | {
            "why_absent": row["why_absent"] or f"recorded on {row['devices_used']} device"
            f"{'s' if row['devices_used'] > 1 else ''} only"}
            for row in rows if row["numbers"] < 2 or row["devices_used"] is None]})


def health(lake: Place, choice: FleetFilter | None = None, engine: Engine = LOCAL) -> dict[str, Any]:
    """Return the devices of each node that were too hot, or had their clock lowered, in a session, the worst first."""
    return health_of(one_table(lake, "device_health", choice, engine))


def health_of(table: pa.Table) -> dict[str, Any]:
    """Return the same of the table of queries/reduce/device_health.sql."""
    rows = table.to_pylist()
    watched = [row for row in rows if row["why_absent"] is None]
    return document({
        "devices": len(watched),
        "unhealthy": [{name: row[name] for name in ("node", "device", "device_id", "sessions", "unhealthy")}
                      | row["worst"] for row in watched if row["unhealthy"]],
        "absent": _reasons(rows)})


def labels(lake: Place, choice: FleetFilter | None = None, most: int = 20, engine: Engine = LOCAL) -> dict[str, Any]:
    """Return in how many sessions each label of a scheduler is, the most first."""
    return labels_of(one_table(lake, "label_counts", choice, engine), most)


def labels_of(table: pa.Table, most: int) -> dict[str, Any]:
    """Return the same of the table of queries/reduce/label_counts.sql."""
    rows = table.to_pylist()
    named = [{name: row[name] for name in ("name", "value", "sessions")} for row in rows if row["why_absent"] is None]
    return document({"labels": named[:most], "found": len(named), "absent": _reasons(rows)})


def _reasons(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return of how many sessions something is absent, by the reason."""
    absent = Counter[str]()
    for row in rows:
        if row["why_absent"] is not None:
            absent[row["why_absent"]] += row["sessions"]
    return [{"why_absent": why, "sessions": count} for why, count in sorted(absent.items())]


def trend(lake: Place, metric: str = LATENCY, choice: FleetFilter | None = None, fdr: float = FDR,
          engine: Engine = LOCAL) -> dict[str, Any]:
    """Return where each group of comparable sessions is heading: Theil and Sen's slope, Mann and Kendall's test, and
    where its level changed; of either the false discoveries are kept to a share `fdr` over the fleet."""
    return trend_of(_residuals(lake, metric, choice, engine), metric, fdr)


def trend_of(table: pa.Table, metric: str, fdr: float) -> dict[str, Any]:
    """Return the same of the residuals of queries/reduce/residuals.sql."""
    parts = list(_groups(table))
    groups = [_group_trend(rows) for rows in parts]
    q = fleet.q_values(np.array([np.nan if row["p_value"] is None else row["p_value"] for row in groups], np.float64))
    for row, value in zip(groups, q, strict=True):
        row["q_value"] = value
        row["trend"] = None if np.isnan(value) else _direction(row, value <= fdr)
    for row, changed in zip(groups, _changes(parts, fdr), strict=True):
        row |= changed
    return document({"metric": metric, "fdr": fdr, "groups": groups})


def heatmap(lake: Place, metric: str = LATENCY, choice: FleetFilter | None = None, fdr: float = FDR,
            engine: Engine = LOCAL) -> dict[str, Any]:
    """Return for each model and device the share of judged sessions that are worse than comparable ones.

    A session is compared within its fingerprint only; a cell says how many fingerprints it puts together. A cell
    without a judged session is absent. Throughput for the device's measured ceilings compares across fingerprints.
    """
    tables = _with_residuals(lake, metric, choice, engine, "per_ceiling")
    return heatmap_of(judged(tables["residuals"]), tables["per_ceiling"], metric, fdr)


def heatmap_of(table: pa.Table, per_ceiling: pa.Table, metric: str, fdr: float) -> dict[str, Any]:
    """Return the same of `judged` residuals and the table of queries/reduce/per_ceiling.sql."""
    normalised = {(row["model"], row["device"]): row for row in per_ceiling.to_pylist()}
    cells = [_cell(model, device, rows, fdr) | _normalised(normalised.get((model, device)))
             for (model, device), rows in _by(table, ("model", "device"))]
    return document({"metric": metric, "fdr": fdr, "cells": [cell for cell in cells if cell["judged"]],
                      "absent": [cell for cell in cells if not cell["judged"]]})


def document(content: dict[str, Any]) -> dict[str, Any]:
    """Return an answer with its version; what is not finite becomes None."""
    versioned: dict[str, Any] = finite({"schema_version": SCHEMA_VERSION, **content})
    return versioned


def _distinct(rows: list[Any], name: str) -> list[str]:
    return sorted({row[name] for row in rows} - {None})


def _residuals(lake: Place, metric: str, choice: FleetFilter | None, engine: Engine) -> pa.Table:
    """Return each session's distance from its base. Raise UsageError for a metric that none of the sessions has."""
    return _with_residuals(lake, metric, choice, engine)["residuals"]


def _with_residuals(lake: Place, metric: str, choice: FleetFilter | None, engine: Engine,
                    *names: str) -> dict[str, pa.Table]:
    """Return the same, and the tables of other queries, all of one state of the lake."""
    def question(scan: Scan) -> tuple[dict[str, pa.Table], list[str]]:
        if names:
            scan.read_once()
        tables = {name: scan.run(name) for name in ("residuals", *names)}
        return tables, [] if tables["residuals"].num_rows else scan.run("metrics")["metric"].to_pylist()

    tables, present = ask(lake, question, choice or FleetFilter(), metric, engine)
    if present or (not tables["residuals"].num_rows and metric not in MEASURES):
        raise UsageError(f"no session of the lake has values of {metric!r}, so there is no base",
                         f"one of {', '.join(present or MEASURES)}")
    return tables


def q_values_of(table: pa.Table, count: str) -> Any:
    """Return the q-value of each row; NaN where it is not judged."""
    return fleet.q_values(fleet.p_values(table["residual"].to_numpy(), table["sigma"].to_numpy(),
                                         table[count].to_numpy()))


def judged(residuals: pa.Table) -> pa.Table:
    """Return the residuals of queries/reduce/residuals.sql with the q-value of each session."""
    return residuals.append_column("q", pa.array(q_values_of(residuals, "sessions"), from_pandas=False))


def _rows(table: pa.Table, places: Iterable[int]) -> list[dict[str, Any]]:
    """Return a few rows. A slice for each: what takes rows would import all of pyarrow.compute."""
    return [row for place in places for row in table.slice(int(place), 1).to_pylist()]


def _session(row: dict[str, Any], q: float) -> dict[str, Any]:
    return {name: row[name] for name in ("session_id", "time_ns", *COMPARABLE, "node", "unit", "level", "base",
                                         "sessions")} | {"change_pct": 100 * float(np.expm1(row["residual"])),
                                                         "q_value": float(q)}


def _not_judged(table: pa.Table) -> list[dict[str, Any]]:
    """Return the groups of sessions that nothing is said of, each with the reason."""
    parts = [(key, np.flatnonzero(np.isnan(part["q"].to_numpy())), part)
             for key, part in _by(table, COMPARABLE)]
    return [dict(zip(COMPARABLE, key, strict=True)) | {
        "sessions": len(absent), "why_absent": why_not(part["sessions"][int(absent[0])].as_py())}
        for key, absent, part in parts if len(absent)]


def why_not(sessions: int) -> str:
    """Return why a session with so many comparable ones (itself included) is not judged."""
    if sessions < fleet.FEWEST:
        return f"{sessions} comparable session{'s' if sessions > 1 else ''}; a base takes {fleet.FEWEST}"
    return "more than half of the levels are equal: they have no scatter"


def _nodes(table: pa.Table, fdr: float) -> dict[str, Any]:
    nodes = table["node"].to_numpy(zero_copy_only=False)
    known = np.array([node is not None for node in nodes], bool)
    shifts = fleet.node_shifts(nodes[known], *(table[name].to_numpy()[known]
                                               for name in ("residual", "sigma", "nodes")))
    q = fleet.q_values(np.array([shift.p_value for shift in shifts], np.float64))
    rows: list[dict[str, Any]] = [
        {"node": shift.node, "sessions": shift.sessions, "shift_pct": shift.shift_pct, "q_value": float(value)}
        for shift, value in zip(shifts, q, strict=True) if value <= fdr]
    rows.sort(key=lambda row: (-row["shift_pct"], row["node"]))
    return {"slow_nodes": [row for row in rows if row["shift_pct"] > 0],
            "fast_nodes": [row for row in reversed(rows) if row["shift_pct"] < 0],
            "nodes_judged": int((~np.isnan(q)).sum()),
            "nodes_not_judged": [{"node": shift.node, "why_absent": shift.why_absent} for shift in shifts
                                 if shift.why_absent]}


def _stragglers(table: pa.Table, fdr: float) -> list[dict[str, Any]]:
    q = q_values_of(table, "peers")
    listed = np.flatnonzero((q <= fdr) & (table["residual"].to_numpy() > 0))
    rows = [{name: row[name] for name in ("session_id", "process", *COMPARABLE, "node")}
            | {"behind_pct": 100 * float(np.expm1(row["residual"])), "q_value": float(value)}
            for row, value in zip(_rows(table, listed), q[listed], strict=True)]
    return sorted(rows, key=lambda row: (-row["behind_pct"], row["session_id"], row["process"]))


def _device_skews(table: pa.Table, most: int) -> dict[str, Any]:
    """Return the sessions with the slowest devices, and of how many there are no times, by the reason."""
    measured = [row for row in table.slice(0, most).to_pylist() if row["skew"] is not None]
    absent = Counter(why for why in table["why_absent"].to_pylist() if why is not None)
    return {"device_skews": [skewed(row) for row in measured], "device_skews_found": table.num_rows - absent.total(),
            "no_device_times": [{"why_absent": why, "sessions": count} for why, count in sorted(absent.items())]}


def skewed(row: dict[str, Any]) -> dict[str, Any]:
    """Return how much longer than the median of its devices the slowest one of a session takes, in per cent, and the
    device that the others wait for throughout, or why none is named."""
    return {name: row[name] for name in ("session_id", *COMPARABLE, "node", "devices", "slowest", "straggler",
                                         "straggler_pct", "why_no_straggler")} | {"skew_pct": 100 * (row["skew"] - 1)}


def _groups(table: pa.Table) -> Iterator[pa.Table]:
    for _, rows in _by(table, GROUP):
        yield rows


def _by(table: pa.Table, names: tuple[str, ...]) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """Yield the rows of each combination of these columns, in their order, nulls first."""
    keys = list(zip(*(table[name].to_pylist() for name in names), strict=True))
    places: dict[tuple[Any, ...], list[int]] = {}
    for key, run in groupby(range(len(keys)), keys.__getitem__):
        places.setdefault(key, []).extend(run)
    for key in sorted(places, key=lambda key: [(part is not None, part or "") for part in key]):
        first, count = places[key][0], len(places[key])
        yield key, table.slice(first, count) if places[key][-1] == first + count - 1 else table.take(places[key])


def _group_trend(rows: pa.Table) -> dict[str, Any]:
    """Return a group's trend over its sessions in the order of time; what cannot be said is None, with the reason."""
    first, levels = rows.slice(0, 1).to_pylist()[0], rows["level"].to_numpy()
    described = {name: first[name] for name in (*GROUP, "unit", "direction")} | {"sessions": rows.num_rows}
    try:
        moved, p_value = stability.drift(np.log(levels))
    except Absent:
        return described | {"moved_pct": None, "p_value": None,
                            "why_absent": f"{rows.num_rows} sessions; a trend takes {stability.LEAST}"}
    return described | {"moved_pct": 100 * float(np.expm1(moved)), "p_value": p_value, "why_absent": ""}


def _changes(parts: Sequence[pa.Table], fdr: float) -> list[dict[str, Any]]:
    """Return where the level of each group changed, with the false discoveries kept to a share `fdr` over all groups;
    a group without a change counts as one test that found nothing."""
    courses = _courses([rows["level"].to_numpy() for rows in parts])
    tests = [max(len(changed), 1) for changed, _ in courses]
    p = [change.p_value for changed, _ in courses for change in changed or (NO_CHANGE,)]
    q = np.split(fleet.q_values(np.array(p, np.float64)), np.cumsum(tests, dtype=np.int64))[:-1]
    return [{"changes": [_changed(change, rows, value) for change, value in zip(changed, own, strict=False)
                         if value <= fdr], "why_no_changes": why}
            for (changed, why), rows, own in zip(courses, parts, q, strict=True)]


def _courses(levels: Sequence[Any]) -> list[tuple[tuple[Change, ...], str]]:
    """Return the changes of each series of levels, or why there can be none."""
    reasons: dict[int, str] = {}
    for number, values in enumerate(levels):
        try:
            changes.checked(values)
        except Absent as reason:
            reasons[number] = str(reason)
    courses = iter(changes.courses([values for number, values in enumerate(levels) if number not in reasons]))
    return [((), reasons[number]) if number in reasons else (next(courses).changes, "")
            for number in range(len(levels))]


def _changed(change: Change, rows: pa.Table, q: float) -> dict[str, Any]:
    last, first = rows.slice(change.index - 1, 2).to_pylist()
    rises_are_worse = first["direction"] == "lower_is_better"
    return {"session_id": first["session_id"], "time_ns": first["time_ns"], "commit": first["git_commit"],
            "last_before": last["session_id"], "commit_before": last["git_commit"], "before": change.before,
            "after": change.after, "change_pct": change.change_pct, "low_pct": change.low_pct,
            "high_pct": change.high_pct, "q_value": float(q),
            "verdict": "worse" if (change.change_pct > 0) == rises_are_worse else "better"}


def _direction(row: dict[str, Any], significant: bool) -> str:
    if not significant or not row["moved_pct"]:
        return "none"
    return "degrading" if (row["moved_pct"] > 0) == (row["direction"] == "lower_is_better") else "improving"


def _cell(model: str | None, device: str | None, rows: pa.Table, fdr: float) -> dict[str, Any]:
    q, residuals = rows["q"].to_numpy(), rows["residual"].to_numpy()
    judged = int((~np.isnan(q)).sum())
    worse = int(((q <= fdr) & (residuals > 0)).sum())
    share = worse / judged if judged else None
    return {"model": model, "device": device, "sessions": rows.num_rows, "judged": judged, "worse": worse,
            "share": share, "band": None if share is None else _band(share),
            "fingerprints": len(set(rows["fingerprint"].to_pylist())),
            "why_absent": "" if judged else why_not(max(rows["sessions"].to_pylist()))}


def _normalised(row: dict[str, Any] | None) -> dict[str, Any]:
    """Return the throughput of a cell for each TFLOP/s and TB/s of its device's measured ceilings."""
    if row is None or not row["calibrated"]:
        return {"per_tflops": None, "per_tb_per_s": None, "calibrated": 0,
                "why_not_normalised": "no session has the measured ceilings of its device (aaco calibrate)"}
    return {name: row[name] for name in ("per_tflops", "per_tb_per_s", "calibrated")} | {"why_not_normalised": ""}


def _band(share: float) -> str:
    return next((name for limit, name in BANDS if share < limit), WORST_BAND)
