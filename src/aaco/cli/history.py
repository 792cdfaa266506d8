"""`aaco history`: the measurements, session by session, and the statements about them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aaco.cli import manual, options, say, series
from aaco.cli.baseline import baselines_dir, with_store
from aaco.core.errors import UsageError
from aaco.core.records import as_dict
from aaco.report.format import plural

if TYPE_CHECKING:
    from aaco.tracelake.history.history import History, Key

benchmark = click.argument("benchmark")
metric = click.option("--metric", default="latency_ms", show_default=True, help="Which of its values.")
machine = click.option("--machine", help="The machine's fingerprint, or its beginning, where there are several.")
config = click.option("--configuration", "configuration", help="The configuration's hash, or its beginning.")


@manual.group()
def history() -> None:
    """The history of measurements: raw values per process, never changed.

    A benchmark is a model's name, a command's, or that of an imported benchmark.
    """


@history.command()
@click.argument("sessions", nargs=-1, shell_complete=options.of_kind("session"))
@baselines_dir
@options.with_settings
@options.as_json
def add(sessions: tuple[str, ...], settings: options.Settings, as_json: bool) -> None:
    """Put SESSIONS (by default the latest) into the history, without a baseline's name."""
    from aaco.core.session import find
    from aaco.workflows import judge

    added_sessions = [find(reference, settings.config.storage.sessions_dir) for reference in sessions or ("latest",)]
    counts = judge.remember(added_sessions, settings)
    if as_json:
        rows = [{"session_id": session_added.id, "added": count}
                for session_added, count in zip(added_sessions, counts, strict=True)]
        say.document({"schema_version": 1, "sessions": rows})
        return
    for session, added in zip(added_sessions, counts, strict=True):
        say.line(f"{session.id}: " + (f"{plural(added, 'value')} added" if added else "already there"))


@history.command("import")
@click.argument("paths", nargs=-1, required=True, metavar="FILES...", type=click.Path(path_type=Path))
@with_store
@options.as_json
def import_(paths: tuple[Path, ...], store: Path, as_json: bool) -> None:
    """Take in histories that other tools wrote: CSV, JSON, Google Benchmark, pytest-benchmark, asv, hyperfine.

    postgresql:TABLE is a table with the columns of a CSV file; PGHOST, PGDATABASE, PGUSER and PGPASSWORD lead to it.
    The same file twice is once. All of the files are taken in, or nothing.
    """
    from aaco.workflows import history as histories

    added, read, timeless = histories.take_in(store, paths)
    series.left_out(read)
    for path in timeless:
        say.aside(f"warning: {path} does not say when it was measured: when it was last written stands in", "warning")
    already = len(read.samples) - added
    say.answer(as_json, {"schema_version": 1, "added": added, "known": already},
               lambda _: [f"{plural(added, 'value')} added, {already} already there"])


@history.command("list")
@with_store
@options.as_json
def list_(store: Path, as_json: bool) -> None:
    """List what has a history: benchmark, metric, machine, configuration."""
    with _open(store) as opened:
        rows = [_summary(opened, key) for key in opened.keys()]  # noqa: SIM118 - no mapping
    if as_json:
        say.document({"schema_version": 1, "keys": rows})
        return
    for row in rows:
        columns = ((row["benchmark"], 28), (row["metric"], 20), (row["machine"] or "-", 14),
                   (row["config"] or "-", 18))
        counts = f"{plural(row['sessions'], 'session')}, {plural(row['samples'], 'value')} in {row['unit']}"
        say.line(say.row(columns) + counts)


@history.command()
@benchmark
@metric
@machine
@config
@click.option("--branch", help="Only this branch, behind what leads to where it began.")
@with_store
@options.as_json
def sessions(benchmark: str, metric: str, machine: str | None, configuration: str | None, branch: str | None,
             store: Path, as_json: bool) -> None:
    """List the sessions of BENCHMARK in the order of time, with accepted shifts."""
    with _open(store) as opened:
        key = _key(opened, benchmark, metric, machine, configuration)
        rows, unit = opened.sessions(key, branch).to_pylist(), opened.unit(key)[0]
        accepted = {item.session_id: item for item in opened.accepted(key)}
    if as_json:
        say.document({"schema_version": 1, **as_dict(key), "unit": unit, "sessions": rows,
                      "accepted": [as_dict(item) for item in accepted.values()]})
        return
    for row in rows:
        spread = "one process" if row["log_sd"] is None else f"sd {100 * row['log_sd']:.2f} %"
        note = accepted.get(row["session_id"])
        columns = ((_time(row["time_ns"]), 21), (row["session_id"], 26), ((row["commit"] or "-")[:10], 12),
                   (row["branch"] or "-", 14))
        say.line(f"{say.row(columns)}{row['median']:.6g} {unit}, {plural(row['processes'], 'process')}, {spread}"
                 + (f"; accepted by {note.author}: {note.reason}" if note else ""))


@history.command()
@benchmark
@click.argument("session", shell_complete=options.of_kind("session"))
@click.option("--author", required=True, help="Who accepts it.")
@click.option("--reason", required=True, help="Why.")
@metric
@machine
@config
@with_store
@options.as_json
def accept(benchmark: str, session: str, author: str, reason: str, metric: str, machine: str | None,
           configuration: str | None, store: Path, as_json: bool) -> None:
    """Accept that from SESSION on the level of BENCHMARK is another one: the mean moves, the spread stays.

    SESSION is an id, its beginning, or latest: the last of this history.
    """
    with _open(store) as opened:
        key = _key(opened, benchmark, metric, machine, configuration)
        session = _session(opened, key, session)
        opened.accept(key, session, author, reason)
    say.answer(as_json, {"schema_version": 1, **as_dict(key), "session_id": session, "author": author,
                         "reason": reason},
               lambda _: [f"{key.benchmark} {key.metric}: the level from {session} on is accepted by {author}"])


@history.command()
@click.argument("name")
@click.argument("commit")
@click.option("--parent", help="The branch it began from.  [default: the one that has the commit]")
@with_store
@options.as_json
def branch(name: str, commit: str, parent: str | None, store: Path, as_json: bool) -> None:
    """Note that branch NAME began at COMMIT: what was measured up to there is its history, too."""
    with _open(store) as opened:
        opened.branch_start(name, commit, parent)
    say.answer(as_json, {"schema_version": 1, "branch": name, "commit": commit, "parent": parent},
               lambda _: [f"{name} begins at {commit}"])


def _open(store: Path) -> History:
    from aaco.tracelake.history.history import NAME, History

    opened = History.open(store / NAME, create=False)
    series.clock(opened.set_back_ns())
    return opened


def _key(opened: History, benchmark: str, metric: str, machine: str | None, configuration: str | None) -> Key:
    """The one key that is meant. Raises UsageError."""
    named = [key for key in opened.keys() if (key.benchmark, key.metric) == (benchmark, metric)]  # noqa: SIM118
    keys = [key for key in named
            if key.machine.startswith(machine or "") and key.config.startswith(configuration or "")]
    if not keys:
        raise UsageError(f"no history of {benchmark} {metric} there", "aaco history list")
    if len(keys) > 1:
        both = "; ".join(f"--machine {key.machine or '-'} --configuration {key.config or '-'}" for key in keys[:4])
        raise UsageError(f"{benchmark} {metric} was measured on several machines or configurations", both)
    return keys[0]


def _session(opened: History, key: Key, reference: str) -> str:
    """The session of this history that is meant; what names none is left to the history to refuse."""
    session_ids = opened.sessions(key)["session_id"].to_pylist()
    if reference == "latest":
        return str(session_ids[-1])
    matching = [name for name in session_ids if name.startswith(reference)]
    return matching[0] if len(matching) == 1 else reference


def _summary(opened: History, key: Key) -> dict[str, Any]:
    table, (unit, direction) = opened.sessions(key), opened.unit(key)
    return {**as_dict(key), "unit": unit, "direction": direction, "sessions": table.num_rows,
            "samples": sum(table["processes"].to_pylist())}


def _time(time_ns: int) -> str:
    return f"{datetime.fromtimestamp(time_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S}"
