"""`aaco ls`, `aaco info` and `aaco gc`: sessions as things on a disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aaco.cli import manual, options, say
from aaco.cli.baseline import baselines_dir

if TYPE_CHECKING:
    from aaco.core.session import Session


@manual.command()
@click.option("--tag", help="Only sessions with this tag.")
@click.option("--model", help="Only sessions of this model.", shell_complete=options.of_kind("model"))
@click.option("--backend", help="Only sessions on this backend.", shell_complete=options.of_kind("backend"))
@click.option("--limit", type=options.COUNT, default=20, show_default=True, help="At most this many.")
@options.with_settings
@options.as_json
def ls(tag: str | None, model: str | None, backend: str | None, limit: int, as_json: bool,
       settings: options.Settings) -> None:
    """List sessions, newest first."""
    from itertools import islice

    from aaco.core.session import sessions
    from aaco.tracelake.index import Choice, entry

    root = settings.config.storage.sessions_dir
    choice = Choice(tag, model, backend)
    rows = [entry_shown.row() for entry_shown in islice(filter(choice.takes, map(entry, sessions(root))), limit)]
    if as_json:
        say.document({"schema_version": 1, "sessions": rows})
        return
    say.line(f"{'session':<24}{'status':<12}{'model':<20}{'backend':<12}tag")
    for row in rows:
        columns = ((row["session_id"], 24), (row["status"], 12), (row["model"], 20), (row["backend"], 12))
        say.line(say.row(columns) + row["tag"])
    if not rows:
        say.aside(f"no session under {root}")


@manual.command()
@click.argument("session", required=False, shell_complete=options.of_kind("session"))
@options.config_file
@options.sessions_dir
@options.as_json
def info(session: str | None, config_file: Path | None, sessions_dir: Path | None, as_json: bool) -> None:
    """Facts about this installation; with SESSION, its record, its files, and whether they are as they were written.

    What `aaco doctor` finds out by loading programs into the kernel is not among them.
    """
    if session:
        from aaco.core.session import find

        chosen_session = find(session, options.settings(config_file, sessions_dir).config.storage.sessions_dir)
        document = _session_facts(chosen_session)
    else:
        from aaco.collectors.capabilities import examine

        there = {feature.name: feature.detail for feature in examine(in_kernel=False) if feature.available}
        document = {"schema_version": 1, "capabilities": there}
    say.answer(as_json, document, _lines)


def _session_facts(session: Session) -> dict[str, Any]:
    from aaco.tracelake import manifest

    sealed = manifest.is_sealed(session)
    document = manifest.read(session) if sealed else {"files": {}, "absent": {}}
    return {
        "schema_version": 1, "session": session.record.model_dump() | {"status": session.status},
        "folder": str(session.folder), "sealed": sealed, "files": document["files"], "absent": document["absent"],
        "damaged": manifest.check(session) if sealed else {},
    }


def _lines(document: dict[str, Any], indent: str = "") -> list[str]:
    lines = []
    for key, value in document.items():
        if isinstance(value, dict):
            lines += [f"{indent}{key}:" + ("" if value else " none"), *_lines(value, indent + "  ")]
        else:
            lines.append(f"{indent}{key}: {value}")
    return lines


@manual.command()
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@baselines_dir
@options.with_settings
@options.as_json
def gc(dry_run: bool, as_json: bool, settings: options.Settings) -> None:
    """Remove sessions beyond storage.max_sessions or older than storage.max_age_days; a baseline's sessions stay.

    Baselines are looked for where the settings say, next to the sessions, and in every place where one was saved.
    """
    from aaco.report.format import plural
    from aaco.tracelake import retention
    from aaco.tracelake.history import baselines

    storage = settings.config.storage
    stores = retention.stores(storage.sessions_dir, storage.baselines_dir)
    kept = set().union(*map(baselines.referenced_sessions, stores))
    removals = retention.choose(storage.sessions_dir, storage.max_sessions, storage.max_age_days, kept)
    if not dry_run:
        retention.remove(storage.sessions_dir, removals)
    if as_json:
        rows = [{"session_id": item.session.id, "why": item.why, "bytes": item.size_bytes} for item in removals]
        say.document({"schema_version": 1, "dry_run": dry_run, "removed": rows})
        return
    for item in removals:
        say.line(f"{item.session.id}  {item.size_bytes / 1e6:8.1f} MB  {item.why}")
    total = sum(item.size_bytes for item in removals) / 1e6
    say.line(f"{'would remove' if dry_run else 'removed'} {plural(len(removals), 'session')}, {total:.1f} MB")
