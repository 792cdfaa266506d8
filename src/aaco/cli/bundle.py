"""`aaco bundle`: a session as one file that others can check."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from aaco.cli import manual, options, say
from aaco.cli.talk import talk
from aaco.core.errors import Exit
from aaco.core.words import plural

FILE = click.Path(path_type=Path, dir_okay=False)
max_bytes = click.option("--max-bytes", type=click.IntRange(min=1), default=16 << 30, show_default="16 GiB",
                         help="Refuse a bundle that unpacks to more.")


@manual.group()
def bundle() -> None:
    """Hand a session to another person, or take one."""


@bundle.command()
@options.session_reference
@click.option("--output", "-o", type=FILE, help="Where to; its ending says the form: .tar.zst, .aaco (the same), "
              ".tar.gz, .json, .json.gz, or .html for the report alone.  [default: SESSION.tar.zst]")
@options.with_session_and_settings
@options.as_json
def export(session: options.Session, output: Path | None, settings: options.Settings, as_json: bool) -> None:
    """Write SESSION (by default the latest) into one file, with the SHA-256 of everything and without credentials.

    Prints the file and its own SHA-256: send that to the receiver by another way.
    """
    from aaco.core import files
    from aaco.workflows import share_bundle

    path = output or Path(f"{session.id}.tar.zst")
    with talk() as show:
        show.step(f"writing {path}")
        contents = share_bundle.export(session, path, settings, show)
    for file in contents.files if contents else []:
        if file.redacted:
            say.aside(f"{file.name}: credentials were taken out", "warning")
    for name, why in contents.withheld.items() if contents else []:
        say.aside(f"{name}: left out: {why}", "warning")
    digest = files.sha256(path)
    say.answer(as_json, {"schema_version": 1, "file": str(path), "sha256": digest,
                         "contents": contents.model_dump(mode="json") if contents else None},
               lambda _: [f"{digest}  {path}"])


@bundle.command()
@click.argument("file", type=FILE)
@click.option("--sha256", "expected", metavar="HEX", help="The digest that the sender gave.")
@max_bytes
@options.as_json
def verify(file: Path, expected: str | None, max_bytes: int, as_json: bool) -> None:
    """Check every byte of a bundle; names what was changed, and exits with 2 if anything was."""
    from aaco.tracelake.share import archive

    with talk() as show:
        show.step(f"checking {file}")
        contents = archive.check(file, max_bytes, show.progress)
    if expected and expected.strip().lower() != contents.sha256:
        contents.problems["the whole file"] = f"its SHA-256 is {contents.sha256}, not the one given"
    if as_json:
        say.document({"schema_version": 1, "file": str(file), "sha256": contents.sha256, "whole": not contents.problems,
                      "problems": contents.problems,
                      "contents": contents.contents.model_dump(mode="json") if contents.contents else None})
    else:
        for name, problem in contents.problems.items():
            say.line(f"{name}: {problem}")
        if contents.contents and not contents.problems:
            say.line(f"whole: session {contents.contents.session_id}, {plural(len(contents.contents.files), 'file')}, "
                     f"{contents.contents.unpacked:,} bytes; sha256 {contents.sha256}")
    sys.exit(Exit.USAGE if contents.problems else Exit.FINE)


@bundle.command("import")
@click.argument("file", type=FILE)
@max_bytes
@options.with_settings
@options.as_json
def import_(file: Path, max_bytes: int, settings: options.Settings, as_json: bool) -> None:
    """Make the session of a bundle one of yours: report, diff and all other commands work on it.

    A bundle that is damaged, or that names anything outside its session, leaves nothing behind.
    """
    from aaco.workflows import share_bundle

    with talk() as show:
        session = share_bundle.import_(file, settings, max_bytes, show)
    if as_json:
        say.document({"schema_version": 1, "session_id": session.id, "folder": str(session.folder)})
        return
    say.line(f"{session.folder}")
    say.aside(f"aaco report {session.id}")
