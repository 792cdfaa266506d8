"""`aaco kernels`: where the kernel time went, at once. It reads one small table, and imports hardly more than that."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aaco.cli import distrust, manual, options, say

if TYPE_CHECKING:
    from aaco.core.session import Session

NAME = 46  # columns of the terminal that a kernel's name may take
FAMILY = 12
TIMES = {"total_ns": "total", "mean_ns": "mean", "p50_ns": "median", "p99_ns": "p99"}
WIDE = 138  # columns that the whole table takes
NARROW = 60  # columns that all but the name take without family, median and p99
UNLIMITED = 51  # the same with p99, where no limit is known


@manual.command()
@options.session_reference()
@click.option("--top", type=options.COUNT, default=10, show_default=True, help="How many.")
@click.option("--by", type=click.Choice(["name", "family"]), default="name", show_default=True,
              help="What the times are summed by.")
@click.option("--against", metavar="OTHER", help="An earlier session: what differs from its kernels.")
@options.config_file
@options.sessions_dir
@options.as_json
def kernels(session: str | None, named: str | None, top: int, by: str, against: str | None, config_file: Path | None,
            sessions_dir: Path | None, as_json: bool) -> None:
    """List the kernels of SESSION that took the most time, by name or family, or what differs from those of another."""
    from aaco.core.session import find

    root = options.settings(config_file, sessions_dir).config.storage.sessions_dir
    chosen_session = find(options.one_session(session, named), root)
    if against is not None:
        _differences(find(against, root), chosen_session, top, as_json)
        return
    rows, others = _top(chosen_session, top, by)
    distrust.warn(chosen_session)
    if as_json:
        listed = "families" if by == "family" else "kernels"
        say.document({"schema_version": 1, "session_id": chosen_session.id, listed: rows, "others": others})
        return
    for line in (_family_lines if by == "family" else _lines)(rows, say.columns()):
        say.line(line)
    if others:
        say.aside(f"{others:,} more; --top shows more of them")


def _differences(before: Session, after: Session, top: int, as_json: bool) -> None:
    from aaco.analytics.kernels.drift import drift
    from aaco.report.sections import drift as shown
    from aaco.steps.findings import fingerprints

    changes = drift(fingerprints.kept(before), fingerprints.kept(after))
    if as_json:
        say.document(shown.document(changes, before.id, after.id))
        return
    for line in shown.lines(changes, top):
        say.line(line)


def _top(session: Session, count: int, by: str) -> tuple[list[dict[str, Any]], int]:
    from aaco.core.errors import UsageError
    from aaco.core.tables import KERNEL_GROUPS
    from aaco.tracelake import store

    if not store.holds(session, KERNEL_GROUPS):
        raise UsageError(f"session {session.id} has no kernels summed by name", "aaco info SESSION  # says why")
    table = store.read(session, KERNEL_GROUPS)
    if by == "family":
        from aaco.analytics.kernels.kernel_groups import by_family

        table = by_family(table)
    rows: list[dict[str, Any]] = table.slice(0, count).to_pylist()
    return rows, table.num_rows - len(rows)


def _lines(rows: list[dict[str, Any]], columns: int) -> list[str]:
    """A table; without family, median and, for the limit, p99 where `columns` are too few for them."""
    from aaco.report.format import cut, duration, pad, percent
    from aaco.report.names import shorten
    from aaco.report.sections.findings.kernel_classes import words

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
                     + f"{row['calls']:>10,}" + "".join(shown[1:]) + f"  {words(row['limit'])}".rstrip())
        lines += _skew_lines(row, columns)
    return lines


def _family_lines(rows: list[dict[str, Any]], columns: int) -> list[str]:
    from aaco.report.format import cut, duration, pad, percent

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
    from aaco.report.format import wrap
    from aaco.report.sections import start_skew

    return [f"  {line}" for line in wrap(start_skew.note(row["skew_ns"]), columns - 2)]


def _cell(value: Any, width: int) -> str:
    return format("" if value is None else value, f">{width}")
