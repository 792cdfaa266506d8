"""`aaco analyze`: the second half of a run, on evidence recorded before."""

from __future__ import annotations

from pathlib import Path

from aaco.cli import manual, options
from aaco.cli.report import print_report
from aaco.cli.talk import talk
from aaco.core.errors import UsageError


@manual.command()
@options.session_reference()
@options.config_file
@options.sessions_dir
@options.as_json
@options.full
def analyze(session: str | None, named: str | None, config_file: Path | None, sessions_dir: Path | None,
            as_json: bool, full: bool) -> None:
    """Recompute SESSION's tables, answers and report from its raw evidence, and seal it.

    Use it on a session of a run that was killed, or of an older version. Its status stays what it was.
    """
    from aaco import pipeline
    from aaco.core.session import find
    from aaco.tracelake import manifest
    from aaco.tracelake.memory import frugal

    settings = options.settings(config_file, sessions_dir)
    chosen_session = find(options.one_session(session, named), settings.config.storage.sessions_dir)
    if chosen_session.status == "running":
        raise UsageError(f"session {chosen_session.id} is still running", "aaco report  # reads it without writing")
    manifest.refuse_damaged_evidence(chosen_session)
    frugal()
    with talk() as show:
        explained = pipeline.analyze(chosen_session, settings, show)
    print_report(explained, as_json, full)
