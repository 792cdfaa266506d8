"""What a fleet's overview (aaco.fleet.overview) says, as tables: on the dashboard's page and in a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from aaco.report import format
from aaco.report.rows import Row

MOST_ROWS = 100  # of a table on the page
LABEL = 64  # letters of a label that the page shows
Document = Mapping[str, Any]
WHERE = ("Model", "Device", "Backend", "Node")


class Cell(NamedTuple):
    """A text of a table. look: its class in the style sheet."""

    text: str
    look: str = ""


class FleetTable(Struct, frozen=True):
    """A part of the page: its heading, what it says in a sentence or two, and a table. numbers: columns of numbers."""

    id: str
    title: str
    lead: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numbers: frozenset[str] = frozenset()


def tables(document: Document) -> Iterator[FleetTable]:
    """Yield the parts of the page, what to look at first at the top."""
    if "listed" in document:
        yield _listed(document["listed"])
    yield _regressions(document)
    yield _nodes(document["top"])
    yield _stragglers(document["top"])
    yield _device_skews(document["top"])
    yield _unhealthy(document["health"])
    yield _heat_map(document["heatmap"])
    yield _trends(document["trend"])
    yield _changes(document["trend"])
    yield _scaling(document["scaling"])
    yield _kernels(document["top"])
    yield _label_counts(document["labels"])


def facts(status: Document) -> list[Row]:
    """Return what is in the lake, or what was read for a card, a line each."""
    nodes_ahead = [f"{row['node'] or 'not recorded'} ({format.plural(row['sessions'], 'session')})"
                   for row in status["clocks_ahead"]]
    days = [format.day(status[name]) for name in ("first_ns", "last_ns") if status[name]]
    return [
        Row("Sessions", f"{status['sessions']:,}" + (f"; {status['retired']:,} retired" if status["retired"] else "")),
        *(Row(name.capitalize(), ", ".join(status[name]) or format.NA) for name in ("models", "devices")),
        Row("Nodes", f"{status['nodes']:,}"), Row("From, to", " to ".join(days) or format.NA),
        *([Row("Clock is ahead", ", ".join(nodes_ahead) + "; their place in trends is wrong")] if nodes_ahead else [])]


def _listed(rows: Sequence[Document]) -> FleetTable:
    cells = [(Cell(row["session_id"]), Cell(_level(row)),
              Cell(row["verdict"] or format.NA, row["verdict"] or "absent"),
              Cell(_change(row["change_pct"])) if row["verdict"] else Cell(row["why_absent"], "absent"),
              Cell(_change(row["slowest_process_pct"])), _slowest_device(row), *_where(row), _health(row), _labels(row))
             for row in rows[:MOST_ROWS]]
    return FleetTable("listed", "Sessions", format.plural(len(rows), "session") + _first(rows) + ".",
                      ("Session", "Level", "Verdict", "Against its base", "Slowest process", "Slowest device",
                       *WHERE, "Health", "Labels"), cells, frozenset({"Level", "Slowest process"}))


def _health(row: Document) -> Cell:
    if row["health"] is None:
        return Cell(f"{format.NA}: {row['why_no_health']}", "absent")
    return Cell(f"{row['health']}: {row['health_evidence']}", "" if row["health"] == "healthy" else "worse")


def _labels(row: Document) -> Cell:
    if not row["labels"]:
        return Cell(f"{format.NA}: {row['why_no_labels']}", "absent")
    return Cell(", ".join(f"{name} {format.cut(text, 40)}" for name, text in row["labels"].items()))


def _slowest_device(row: Document) -> Cell:
    if row["device_skew_pct"] is None:
        return Cell(f"{format.NA}: {row['why_no_device_skew']}", "absent")
    return Cell(f"{_change(row['device_skew_pct'])}, {device(row['slowest_device'])}")


def _regressions(document: Document) -> FleetTable:
    asked = document["regressions"]
    shifted = [*(("worse", row) for row in asked["worse"]), *(("better", row) for row in asked["better"])]
    cells = [(Cell(row["session_id"]), Cell(kind, kind), Cell(_change(row["change_pct"])), Cell(_level(row)),
              Cell(format.quantity(row["base"], row["unit"])), Cell(_q(row)), *_where(row))
             for kind, row in shifted[:MOST_ROWS]]
    lead = (f"{len(asked['worse']):,} worse, {len(asked['better']):,} better of "
            f"{format.plural(asked['judged'], 'judged session')} by {asked['metric']} (false discovery rate "
            f"{asked['fdr']:g}){_first(shifted)}.")
    lead += _not_judged(asked["not_judged"])
    lead += "".join(f" No level: {format.plural(row['sessions'], 'session')}; {row['why_absent']}."
                    for row in document["unmeasured"])
    numbers = ("Change", "Level", "Base", "q")
    return FleetTable("regressions", "Regressions", lead, ("Session", "Verdict", *numbers, *WHERE), cells,
                      frozenset(numbers))


def _nodes(top: Document) -> FleetTable:
    shifted = [*(("slow", row) for row in top["slow_nodes"]), *(("fast", row) for row in top["fast_nodes"])]
    lead = (f"{len(top['slow_nodes']):,} slow, {len(top['fast_nodes']):,} fast of "
            f"{format.plural(top['nodes_judged'], 'judged node')}{_first(shifted)}.")
    if absent := top["nodes_not_judged"]:
        lead += f" Not judged: {format.plural(len(absent), 'node')}; {absent[0]['why_absent']}."
    return FleetTable("nodes", "Slow nodes", lead, ("Node", "Verdict", "Shift", "Sessions", "q"), [
        (Cell(row["node"]), Cell(kind, {"slow": "worse", "fast": "better"}[kind]), Cell(_change(row["shift_pct"])),
         Cell(f"{row['sessions']:,}"), Cell(_q(row))) for kind, row in shifted[:MOST_ROWS]],
        frozenset({"Shift", "Sessions", "q"}))


def _stragglers(top: Document) -> FleetTable:
    shown, count = top["stragglers"][:MOST_ROWS], top["stragglers_found"]
    lead = f"{count:,} {'process lags' if count == 1 else 'processes lag'} behind the others of the same session"
    lead += f"; those that lag most: {len(shown):,}." if count > len(shown) else "."
    return FleetTable("stragglers", "Stragglers", lead, ("Session", "Process", "Behind", "q", *WHERE), [
        (Cell(row["session_id"]), Cell(str(row["process"])), Cell(_change(row["behind_pct"])), Cell(_q(row)),
         *_where(row)) for row in shown], frozenset({"Process", "Behind", "q"}))


def _device_skews(top: Document) -> FleetTable:
    shown, count = top["device_skews"][:MOST_ROWS], top["device_skews_found"]
    lead = (f"{format.plural(count, 'session')} recorded several devices. Slowest: the longest own time in a step "
            "against the median of the session's devices; straggler: the device that the others wait for throughout")
    lead += f"; the {len(shown):,} with the largest skew are shown." if count > len(shown) else "."
    lead += "".join(f" No times of devices: {format.plural(row['sessions'], 'session')}; {row['why_absent']}."
                    for row in top["no_device_times"])
    return FleetTable("devices", "Device skew", lead, ("Session", "Slowest", "Skew", "Straggler", "Devices", *WHERE), [
        (Cell(row["session_id"]), Cell(device(row["slowest"])), Cell(_change(row["skew_pct"])),
         Cell(f"{device(row['straggler'])}, {format.percent(row['straggler_pct'] / 100)} of the time", "worse")
         if row["straggler"] else Cell(f"{format.NA}: {row['why_no_straggler']}", "absent"),
         Cell(str(row["devices"])), *_where(row)) for row in shown], frozenset({"Skew", "Devices"}))


def _unhealthy(asked: Document) -> FleetTable:
    rows = asked["unhealthy"]
    lead = (f"{format.plural(asked['devices'], 'device')} watched by telemetry, {len(rows):,} of them not always "
            f"healthy{_first(rows)}. Of each the worst state, in the latest session with it.")
    columns = ("Session", "State", "Evidence", "Number", "Not healthy in", "Device", "Node")
    return FleetTable("health", "Health of devices", lead + _unknown(asked["absent"]), columns, [
        (Cell(row["session_id"]), Cell(row["state"], "worse"), Cell(format.cut(row["evidence"], 100)),
         Cell(str(row["device_id"])), Cell(f"{row['unhealthy']:,} of {format.plural(row['sessions'], 'session')}"),
         *_where(row, ("device", "node"))) for row in rows[:MOST_ROWS]], frozenset({"Number"}))


def _label_counts(asked: Document) -> FleetTable:
    rows = asked["labels"]
    lead = f"{format.plural(asked['found'], 'label')} of schedulers"
    lead += f"; the {len(rows):,} of most sessions are shown." if asked["found"] > len(rows) else "."
    return FleetTable("labels", "Labels", lead + _unknown(asked["absent"]), ("Label", "Sessions"), [
        (Cell(format.cut(label(row), LABEL)), Cell(f"{row['sessions']:,}")) for row in rows], frozenset({"Sessions"}))


def label(row: Document) -> str:
    """Return a label as --label takes it."""
    return f"{row['name']}={row['value']}"


def _unknown(absent: Sequence[Document]) -> str:
    return "".join(f" Not known: {format.plural(row['sessions'], 'session')}; {row['why_absent']}." for row in absent)


def device(row: Document) -> str:
    """Return how a device of a session is called: by its rank where that is known."""
    return f"rank {row['rank']}" if row["rank"] is not None else f"device {row['device_id']}"


def _scaling(asked: Document) -> FleetTable:
    """Return the throughput on each number of devices. What has no efficiency says why."""
    rows = asked["groups"]
    lead = ("Efficiency: throughput per device over that on the fewest devices that comparable sessions used"
            f"{_first(rows)}." if rows else "No comparable sessions ran on different numbers of devices.")
    reasons: dict[str, int] = {}
    for row in asked["absent"]:
        reasons[row["why_absent"]] = reasons.get(row["why_absent"], 0) + row["sessions"]
    lead += "".join(f" No efficiency: {format.plural(count, 'session')}; {why}." for why, count in reasons.items())
    columns = ("Model", "Devices", "Throughput", "Efficiency", "Sessions", "Device", "Backend", "Fingerprint")
    return FleetTable("scaling", "Scaling", lead, columns, [
        (Cell(row["model"] or format.NA), Cell(str(row["devices_used"])),
         Cell(format.quantity(row["throughput"], row["unit"])),
         Cell("the base") if row["efficiency"] is None else Cell(format.percent(row["efficiency"])),
         Cell(f"{row['sessions']:,}"), *_where(row, ("device", "backend", "fingerprint")))
        for row in rows[:MOST_ROWS]], frozenset({"Devices", "Throughput", "Efficiency", "Sessions"}))


def _heat_map(asked: Document) -> FleetTable:
    """Return a row for each model and a column for each device; a cell without a judged session says why."""
    cells = {(cell["model"], cell["device"]): cell for cell in (*asked["cells"], *asked["absent"])}
    models, devices = (sorted({key[place] for key in cells}, key=lambda name: name or "") for place in (0, 1))
    lead = ("Share of judged sessions that are worse than comparable ones: below 5 % excellent, below 15 % good, below "
            "30 % degraded, else critical. Where machines were calibrated: samples per second for each TFLOP/s of the "
            "measured peak, across fingerprints, which compares devices roughly.")
    return FleetTable("heatmap", "Heat map", lead, ("Model", *(device or format.NA for device in devices)), [
        (Cell(model or format.NA), *(_heat(cells.get((model, device))) for device in devices)) for model in models])


def _heat(cell: Document | None) -> Cell:
    if cell is None:
        return Cell("no session", "absent")
    if cell["band"] is None:
        return Cell(f"{format.NA}: {cell['why_absent']}", "absent")
    several = f", {cell['fingerprints']} fingerprints" if cell["fingerprints"] > 1 else ""
    per = "" if cell["per_tflops"] is None else f"; {cell['per_tflops']:.3g} per TFLOP/s"
    share = f"{cell['worse']:,} of {cell['judged']:,} ({format.percent(cell['share'])})"
    return Cell(f"{cell['band']}: {share}{several}{per}", f"band {cell['band']}")


def _trends(asked: Document) -> FleetTable:
    judged = [row for row in asked["groups"] if row["trend"] is not None]
    heading = [row for name in ("degrading", "improving") for row in judged if row["trend"] == name]
    degrading = sum(row["trend"] == "degrading" for row in heading)
    lead = (f"{degrading:,} degrading, {len(heading) - degrading:,} improving of "
            f"{format.plural(len(judged), 'judged group')} of comparable sessions{_first(heading)}.")
    lead += _not_judged([row for row in asked["groups"] if row["trend"] is None])
    looks = {"degrading": "worse", "improving": "better"}
    columns = ("Model", "Trend", "Change", "Sessions", "q", "Device", "Backend", "Fingerprint")
    return FleetTable("trends", "Trends", lead, columns, [
        (Cell(row["model"] or format.NA), Cell(row["trend"], looks[row["trend"]]), Cell(_change(row["moved_pct"])),
         Cell(f"{row['sessions']:,}"), Cell(_q(row)), *_where(row, ("device", "backend", "fingerprint")))
        for row in heading[:MOST_ROWS]], frozenset({"Change", "Sessions", "q"}))


def _changes(asked: Document) -> FleetTable:
    changed = [(change, group) for group in asked["groups"] for change in group["changes"]]
    changed.sort(key=lambda pair: -pair[0]["time_ns"])
    judged = sum(not group["why_no_changes"] for group in asked["groups"])
    lead = (f"{format.plural(len(changed), 'change')} of level in {format.plural(judged, 'judged group')} of "
            f"comparable sessions, the newest first{_first(changed)}.")
    columns = ("First session", "Verdict", "Change", "Before", "After", "q", "Commit", "Model", "Device", "Backend")
    return FleetTable("changes", "Changes of level", lead, columns, [
        (Cell(change["session_id"]), Cell(change["verdict"], change["verdict"]), Cell(_change(change["change_pct"])),
         Cell(format.quantity(change["before"], group["unit"])), Cell(format.quantity(change["after"], group["unit"])),
         Cell(_q(change)), Cell(format.cut(change["commit"] or format.NA, 16)),
         *_where(group, ("model", "device", "backend"))) for change, group in changed[:MOST_ROWS]],
        frozenset({"Change", "Before", "After", "q"}))


def _kernels(top: Document) -> FleetTable:
    rows = top["kernels"]
    return FleetTable("kernels", "Kernels", "The kernels that took the most time, by name and device." if rows else
                      "No session recorded kernels.", ("Kernel", "Device", "Share", "Time", "Calls", "Sessions"), [
        (Cell(format.kernel(row["kernel_name"], 64)), *_where(row, ("device",)), Cell(format.percent(row["share"])),
         Cell(format.duration(row["total_ns"])), Cell(f"{row['calls']:,}"), Cell(f"{row['sessions']:,}"))
        for row in rows[:MOST_ROWS]], frozenset({"Share", "Time", "Calls", "Sessions"}))


def _first(rows: Sequence[Any]) -> str:
    return f"; the first {MOST_ROWS} are shown" if len(rows) > MOST_ROWS else ""


def _not_judged(groups: Sequence[Document]) -> str:
    if not groups:
        return ""
    sessions = format.plural(sum(group["sessions"] for group in groups), "session")
    return f" Not judged: {sessions} in {format.plural(len(groups), 'group')}; {groups[0]['why_absent']}."


def _where(row: Document, names: Sequence[str] = ("model", "device", "backend", "node")) -> tuple[Cell, ...]:
    several = f"{row['several_devices']} x " if row.get("several_devices") else ""
    return tuple(Cell((several if name == "device" else "") + format.cut(row[name] or format.NA, 40)) for name in names)


def _level(row: Document) -> str:
    return format.NA if row["level"] is None else format.quantity(row["level"], row["unit"])


def _change(pct: float | None) -> str:
    return format.NA if pct is None else format.change(pct)


def _q(row: Document) -> str:
    return f"{row['q_value']:.1g}"
