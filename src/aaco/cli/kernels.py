"""`aaco kernels`: where the kernel time went, at once. It reads one small table, and imports hardly more than that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aaco.cli import distrust, manual, options, say
from aaco.core.errors import UsageError
from aaco.report.format import cut, duration, kernel_limit, pad, percent, wrap
from aaco.report.names import shorten

if TYPE_CHECKING:
    import pyarrow as pa

    from aaco.core.session import Session

NAME = 46  # columns of the terminal that a kernel's name may take
FAMILY = 12
TIMES = {"total_ns": "total", "mean_ns": "mean", "p50_ns": "median", "p99_ns": "p99"}
WIDE = 138  # columns that the whole table takes
PLACES = ("layer", "part", "module", "operator")
LISTED = {"family": "families", "layer": "layers", "part": "parts", "module": "modules", "operator": "operators"}
NO_PLACE = {"layer": "in no layer", "part": "of no known part", "module": "in no known module", "operator": "of none"}
PLACE_COLUMNS = 41  # that the figures of a place take
NARROW = 60  # columns that all but the name take without family, median and p99
UNLIMITED = 51  # the same with p99, where no limit is known


@manual.command()
@options.session_reference
@click.option("--top", type=options.COUNT, default=10, show_default=True, help="How many.")
@click.option("--by", type=click.Choice(["name", "family", *PLACES]), default="name", show_default=True,
              help="What the times are summed by. Layers and their parts are those of a serving engine's steps.")
@click.option("--against", metavar="OTHER", help="An earlier session: what differs from its kernels.")
@options.with_session_and_settings
@options.as_json
def kernels(session: Session, top: int, by: str, against: str | None, settings: options.Settings,
            as_json: bool) -> None:
    """List the kernels of SESSION that took the most time, by name, family or place in the model, or what differs from
    those of another.

    The column limit says what holds a kernel, such as compute throughput or memory bandwidth. A tiny one is shorter
    than a launch; of an unclear one nothing that was recorded tells (docs/concepts/diagnosis.md).
    """
    if against is not None:
        from aaco.core.session import find

        _differences(find(against, settings.config.storage.sessions_dir), session, top, as_json)
        return
    rows, others = _top(session, top, by)
    distrust.warn(session)
    if as_json:
        listed = LISTED.get(by, "kernels")
        say.document({"schema_version": 1, "session_id": session.id, listed: rows, "others": others})
        return
    columns = say.columns()
    for line in (_place_lines(rows, by, columns) if by in PLACES else
                 (_family_lines if by == "family" else _lines)(rows, columns)):
        say.line(line)
    if others:
        say.aside(f"{others:,} more; --top shows more of them")


def _differences(before: Session, after: Session, top: int, as_json: bool) -> None:
    from aaco.analytics.kernels.drift import drift
    from aaco.report.sections import drift as shown
    from aaco.steps.findings import fingerprints

    changes = drift(fingerprints.kept(before), fingerprints.kept(after))
    say.answer(as_json, shown.document(changes, before.id, after.id), lambda _: shown.lines(changes, top))


def _top(session: Session, count: int, by: str) -> tuple[list[dict[str, Any]], int]:
    from aaco.core.tables import KERNEL_GROUPS
    from aaco.tracelake import store

    if by in PLACES:
        table = _by_place(session, by)
        placed: list[dict[str, Any]] = table.slice(0, count).to_pylist()
        return placed, table.num_rows - len(placed)
    if not store.holds(session, KERNEL_GROUPS):
        raise UsageError(f"session {session.id} has no kernels summed by name", "aaco info SESSION  # says why")
    table = store.read(session, KERNEL_GROUPS)
    if by == "family":
        from aaco.analytics.kernels.kernel_groups import by_family

        table = by_family(table)
    rows: list[dict[str, Any]] = table.slice(0, count).to_pylist()
    return rows, table.num_rows - len(rows)


def _by_place(session: Session, by: str) -> pa.Table:
    """Return the time by place in the model. Raise UsageError where the session does not have it."""
    from aaco.analytics.kernels import by_place
    from aaco.core.tables import KERNELS, OPERATORS, SERVING_KERNELS
    from aaco.tracelake import store

    needed = SERVING_KERNELS if by in ("layer", "part") else OPERATORS
    if not store.holds(session, needed):
        missing = "steps of a serving engine" if needed is SERVING_KERNELS else "operators of a framework"
        raise UsageError(f"session {session.id} has no {missing}, so none of its kernels has a {by}",
                         f"aaco kernels {session.id} --by name")
    table = store.read(session, needed)
    if needed is OPERATORS:
        return by_place.by_operator(table, by)
    return by_place.by_layer(store.read(session, KERNELS, ("kernel_id", "dur_ns")), table, by)


def _place_lines(rows: list[dict[str, Any]], by: str, columns: int) -> list[str]:
    """Return a table of places in the model."""
    width = max(20, min(columns, WIDE) - PLACE_COLUMNS)
    labels = [NO_PLACE[by] if row["place"] is None else f"layer {row['place']}" if by == "layer" else row["place"]
              for row in rows]
    names = shorten(labels, width - 1)
    lines = [f"{by:<{width}}{'share':>8}{'total':>11}{'calls':>10}{'mean':>11}"]
    for label, row in zip(labels, rows, strict=True):
        share = row["pct_of_kernel_time"]
        lines.append(pad(names[label], width) + _cell(None if share is None else percent(share / 100), 8)
                     + _cell(duration(row["total_ns"]), 11) + f"{row['calls']:>10,}"
                     + _cell(duration(row["mean_ns"]), 11))
    return lines


def _lines(rows: list[dict[str, Any]], columns: int) -> list[str]:
    """A table; without family, median and, for the limit, p99 where `columns` are too few for them."""
    wide, limited = columns >= WIDE, any(row["limit"] for row in rows)
    name = NAME if wide else max(20, columns - (NARROW if limited else UNLIMITED))
    times = [time for time in TIMES if wide or not (time == "p50_ns" or (limited and time == "p99_ns"))]
    family = f"{'family':<{FAMILY}}" if wide else ""
    lines = [f"{'kernel':<{name}}{family}{'share':>8}{'total':>11}{'calls':>10}"
             + "".join(f"{TIMES[time]:>11}" for time in times[1:]) + ("  limit" if limited else "")]
    names = shorten((row["kernel_name"] or "unnamed" for row in rows), name - 1)
    for row in rows:
        shown = [_cell(None if row[key] is None else duration(row[key]), 11) for key in times]
        share = row["pct_of_kernel_time"]
        lines.append(pad(names[row["kernel_name"] or "unnamed"], name)
                     + (pad(cut(row["family"] or "", FAMILY - 1), FAMILY) if wide else "")
                     + _cell(None if share is None else percent(share / 100), 8) + shown[0]
                     + f"{row['calls']:>10,}" + "".join(shown[1:]) + f"  {kernel_limit(row['limit'])}".rstrip())
        lines += _skew_lines(row, columns)
    return lines


def _family_lines(rows: list[dict[str, Any]], columns: int) -> list[str]:
    lines = [f"{'family':<{FAMILY}}{'share':>8}{'total':>11}{'calls':>10}{'kernels':>9}{'mean':>11}"]
    for row in rows:
        share, total, mean = row["pct_of_kernel_time"], row["total_ns"], row["mean_ns"]
        lines.append(pad(cut(row["family"] or "unknown", FAMILY - 1), FAMILY)
                     + _cell(None if share is None else percent(share / 100), 8)
                     + _cell(None if total is None else duration(total), 11)
                     + f"{row['calls']:>10,}{row['kernels']:>9,}"
                     + _cell(None if mean is None else duration(mean), 11))
        lines += _skew_lines(row, columns)
    return lines


def _skew_lines(row: dict[str, Any], columns: int) -> list[str]:
    """Return what of the row's time is a first collective that waited for another rank; hardly any has such."""
    if not row["skew_ns"]:
        return []
    from aaco.report.sections import start_skew

    return [f"  {line}" for line in wrap(start_skew.note(row["skew_ns"]), columns - 2)]


def _cell(value: Any, width: int) -> str:
    return format("" if value is None else value, f">{width}")
