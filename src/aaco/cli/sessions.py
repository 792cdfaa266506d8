"""`aaco ls`, `aaco info` and `aaco gc`: sessions as things on a disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aaco.cli import options

if TYPE_CHECKING:
    from aaco.core.session import Session


@click.command()
@click.option("--tag", help="Only sessions with this tag.")
@click.option("--model", help="Only sessions of this model.")
@click.option("--backend", help="Only sessions on this backend.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="At most this many.")
@options.config_file
@options.sessions_dir
@options.as_json
def ls(tag: str | None, model: str | None, backend: str | None, limit: int, as_json: bool, config_file: Path | None,
       sessions_dir: Path | None) -> None:
    """List sessions, newest first."""
    from itertools import islice

    from aaco.core.session import sessions

    root = options.settings(config_file, sessions_dir).config.storage.sessions_dir
    wanted = {"tag": tag, "model": model, "backend": backend}
    rows = (_row(session) for session in sessions(root))
    chosen = list(islice((row for row in rows if _matches(row, wanted)), limit))
    if as_json:
        click.echo(json.dumps({"schema_version": 1, "sessions": chosen}, indent=2))
        return
    click.echo(f"{'session':<24}{'status':<12}{'model':<20}{'backend':<12}tag")
    for row in chosen:
        click.echo(f"{row['session_id']:<24}{row['status']:<12}{row['model'][-18:]:<20}{row['backend']:<12}{row['tag']}")
    if not chosen:
        click.echo(f"no session under {root}", err=True)


def _row(session: Session) -> dict[str, Any]:
    from aaco.core.errors import BadBundle

    try:
        record = session.record
    except BadBundle as error:
        return {"session_id": session.id, "status": "unreadable", "model": "", "backend": "", "tag": "",
                "created_utc": None, "folder": str(session.folder), "failure": error.what}
    return {"session_id": session.id, "status": session.status, "model": str(record.plan.get("model", "")),
            "backend": str(record.plan.get("backend", "")), "tag": record.tag, "created_utc": record.created_utc,
            "folder": str(session.folder), "failure": record.failure}


def _matches(row: dict[str, Any], wanted: dict[str, str | None]) -> bool:
    return all(value is None or row[key] == value for key, value in wanted.items())


@click.command()
@click.argument("session", required=False)
@options.config_file
@options.sessions_dir
@options.as_json
def info(session: str | None, config_file: Path | None, sessions_dir: Path | None, as_json: bool) -> None:
    """Facts about this installation; with SESSION, its record, its files, and whether they are as they were written."""
    if session:
        from aaco.core.session import find

        found = find(session, options.settings(config_file, sessions_dir).config.storage.sessions_dir)
        document = _session_facts(found)
    else:
        from aaco.collectors.capabilities import examine

        there = {item.name: item.detail for item in examine() if item.available}
        document = {"schema_version": 1, "capabilities": there}
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    for line in _lines(document):
        click.echo(line)


def _session_facts(session: Session) -> dict[str, Any]:
    from aaco.tracelake import manifest

    sealed = (session.folder / manifest.NAME).is_file()
    document = session.read_json(manifest.NAME) if sealed else {"files": {}, "absent": {}}
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


@click.command()
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@options.config_file
@options.sessions_dir
@options.as_json
def gc(dry_run: bool, as_json: bool, config_file: Path | None, sessions_dir: Path | None) -> None:
    """Remove sessions beyond storage.max_sessions or older than storage.max_age_days; a baseline's sessions stay."""
    from aaco.tracelake import baselines, retention

    storage = options.settings(config_file, sessions_dir).config.storage
    kept = baselines.referenced_sessions(storage.baselines_dir)
    removals = retention.choose(storage.sessions_dir, storage.max_sessions, storage.max_age_days, kept)
    if not dry_run:
        retention.remove(storage.sessions_dir, removals)
    if as_json:
        rows = [{"session_id": item.session.id, "why": item.why, "bytes": item.size_bytes} for item in removals]
        click.echo(json.dumps({"schema_version": 1, "dry_run": dry_run, "removed": rows}, indent=2))
        return
    for item in removals:
        click.echo(f"{item.session.id}  {item.size_bytes / 1e6:8.1f} MB  {item.why}")
    total = sum(item.size_bytes for item in removals) / 1e6
    click.echo(f"{'would remove' if dry_run else 'removed'} {len(removals)} sessions, {total:.1f} MB")
