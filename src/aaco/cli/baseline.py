"""`aaco baseline`: named runs to compare with."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aaco.cli import manual, options, say
from aaco.report.format import plural

if TYPE_CHECKING:
    from aaco.tracelake.history.baselines import Saved

baselines_dir = click.option("--baselines-dir", type=click.Path(path_type=Path), help="Where baselines are kept.")


def with_store(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb --baselines-dir and --config, and hand it the folder that they lead to."""

    @wraps(verb)
    def call(*, baselines_dir: Path | None, config_file: Path | None, **arguments: Any) -> Any:
        resolved = options.settings(config_file, storage={"baselines_dir": baselines_dir})
        return verb(store=resolved.config.storage.baselines_dir, **arguments)

    return baselines_dir(options.config_file(call))


@manual.group()
def baseline() -> None:
    """Save, list and show baselines: names under which sessions are pinned in the history of measurements."""


@baseline.command()
@click.argument("name", shell_complete=options.of_kind("baseline"))
@click.argument("sessions", nargs=-1, shell_complete=options.of_kind("session"))
@click.option("--session", "named", multiple=True, metavar="SESSION", help="The same as SESSIONS, as an option.")
@click.option("--replace", is_flag=True, help="Replace the baseline instead of adding to it.")
@baselines_dir
@options.with_settings
@options.as_json
def save(name: str, sessions: tuple[str, ...], named: tuple[str, ...], replace: bool, settings: options.Settings,
         as_json: bool) -> None:
    """Keep the samples of SESSIONS (by default the latest) as baseline NAME; more sessions make it sharper."""
    from aaco.core.session import find
    from aaco.workflows import judge

    stored_sessions = [find(reference, settings.config.storage.sessions_dir) for reference in (*sessions, *named)
                       or ("latest",)]
    saved, sides, unmarked = judge.save_baseline(name, stored_sessions, settings, replace)
    for why in unmarked:
        say.aside(f"warning: {why}; aaco gc run elsewhere may not know that the baseline needs this session",
                  "warning")
    for item in (item for side in sides for item in side.contaminated):
        say.aside(f"warning: session {item.session_id}: interference slowed it; verdicts against {name} will be "
                  "inconclusive. Measure it again on a quieter machine and save with --replace.", "warning")
    if as_json:
        say.document(_saved(saved))
        return
    held = sum(len(replicate.processes) for replicate in saved.baseline.replicates)
    say.line(f"{saved.path}: {plural(len(saved.added), 'session')} added, {len(saved.known)} already there; "
             f"{plural(len(saved.baseline.replicates), 'session')}, {plural(held, 'process')} in all")


@baseline.command("list")
@with_store
@options.as_json
def list_(store: Path, as_json: bool) -> None:
    """List the baselines."""
    from aaco.tracelake.history import baselines

    listed = baselines.list_all(store)
    if as_json:
        rows = [{"file": str(item.path), "problem": item.problem or None,
                 "name": item.baseline.name if item.baseline else None, "version": item.version,
                 "session_ids": list(item.baseline.session_ids) if item.baseline else []} for item in listed]
        say.document({"schema_version": 1, "baselines": rows})
        return
    for item in listed:
        if item.baseline is None:
            say.line(f"{item.path.stem:<24}unreadable: {item.problem}")
            continue
        first = item.baseline.replicates[0]
        columns = ((item.baseline.name, 24), (first.model or "", 16), (first.backend or "", 28))
        say.line(f"{say.row(columns)}{plural(len(item.baseline.replicates), 'session')}  {item.baseline.updated_utc}")
    if not listed:
        say.aside(f"no baseline under {store}")


@baseline.command()
@click.argument("name", shell_complete=options.of_kind("baseline"))
@click.argument("sessions", nargs=-1, required=True, shell_complete=options.of_kind("session"))
@baselines_dir
@options.with_settings
@options.as_json
def promote(name: str, sessions: tuple[str, ...], settings: options.Settings, as_json: bool) -> None:
    """Make SESSIONS the baseline NAME from now on, as its next version. What it was stays in the history."""
    from aaco.core.session import find
    from aaco.workflows import judge

    promoted = [find(reference, settings.config.storage.sessions_dir) for reference in sessions]
    saved = judge.save_baseline(name, promoted, settings, replace=True).saved
    say.answer(as_json, _saved(saved),
               lambda _: [f"{saved.path}: {name} is {plural(len(saved.baseline.replicates), 'session')} now"])


@baseline.command()
@click.argument("name", shell_complete=options.of_kind("baseline"))
@click.argument("sessions", nargs=-1, shell_complete=options.of_kind("session"))
@with_store
@options.as_json
def expire(name: str, sessions: tuple[str, ...], store: Path, as_json: bool) -> None:
    """Take SESSIONS, or all, out of baseline NAME. Their values stay in the history."""
    from aaco.tracelake.history import baselines

    left = baselines.expire(store, name, sessions or None)
    remaining = f"{plural(left, 'session')} left" if left else "no session left, so it is no baseline any more"
    say.answer(as_json, {"schema_version": 1, "name": name, "sessions_left": left}, lambda _: [f"{name}: {remaining}"])


@baseline.command()
@click.argument("name", shell_complete=options.of_kind("baseline"))
@click.option("-o", "--output", type=options.NewFile(), help="Where to.  [default: NAME.json]")
@with_store
@options.as_json
def export(name: str, output: Path | None, store: Path, as_json: bool) -> None:
    """Write baseline NAME as a JSON file, which any command takes in its place, here and elsewhere."""
    from aaco.tracelake.history import baselines

    path = output or Path(f"{name}.json")
    found = baselines.export(store, name, path)
    say.answer(as_json, {"schema_version": 1, "file": str(path), "session_ids": list(found.session_ids)},
               lambda _: [f"{path}: {plural(len(found.replicates), 'session')}"])


@baseline.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("name", required=False, shell_complete=options.of_kind("baseline"))
@with_store
@options.as_json
def import_(file: Path, name: str | None, store: Path, as_json: bool) -> None:
    """Take the sessions of a baseline's JSON FILE into the history, as baseline NAME or that of the file."""
    from aaco.tracelake.history import baselines

    saved = baselines.take_in(store, file, name)
    say.answer(as_json, _saved(saved), lambda _: [
        f"{saved.path}: {plural(len(saved.added), 'session')} added to {saved.baseline.name}, "
        f"{len(saved.known)} already there"])


@baseline.command()
@click.argument("name", shell_complete=options.of_kind("baseline"))
@with_store
@options.json_anyway
def show(name: str, store: Path) -> None:
    """Print baseline NAME as JSON, without the single latencies."""
    from aaco.tracelake.history import baselines

    document = baselines.load(store, name).model_dump(mode="json")
    for replicate in document["replicates"]:
        for process in replicate["processes"]:
            process.pop("latencies_ms")
    say.document(document)


def _saved(saved: Saved) -> dict[str, Any]:
    return {"schema_version": 1, "file": str(saved.path), "name": saved.baseline.name, "added": list(saved.added),
            "known": list(saved.known), "session_ids": list(saved.baseline.session_ids)}
