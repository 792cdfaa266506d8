"""`aaco analyze`: the second half of a run, on evidence recorded before."""

from __future__ import annotations

from aaco.cli import manual, options
from aaco.cli.report import print_report
from aaco.cli.talk import talk
from aaco.core.errors import UsageError


@manual.command()
@options.session_reference
@options.with_session_and_settings
@options.as_json
@options.full
def analyze(session: options.Session, settings: options.Settings, as_json: bool, full: bool) -> None:
    """Recompute SESSION's tables, answers and report from its raw evidence, and seal it.

    Use it on a session of a run that was killed, or of an older version. Its status stays what it was.
    """
    from aaco import pipeline
    from aaco.tracelake import manifest
    from aaco.tracelake.memory import frugal

    if session.status == "running":
        raise UsageError(f"session {session.id} is still running", "aaco report  # reads it without writing")
    manifest.refuse_damaged_evidence(session)
    frugal()
    with talk() as show:
        explained = pipeline.analyze(session, settings, show)
    print_report(explained, as_json, full)
