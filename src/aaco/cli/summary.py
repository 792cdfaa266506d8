"""`aaco summary` and `aaco chi`: a session in a few lines, and its health in one number."""

from __future__ import annotations

from pathlib import Path

from aaco.cli import manual, options, say
from aaco.cli.report import print_report


@manual.command()
@options.session_reference()
@options.config_file
@options.sessions_dir
@options.as_json
def summary(session: str | None, named: str | None, config_file: Path | None, sessions_dir: Path | None,
            as_json: bool) -> None:
    """Print the first screen of SESSION (by default the latest): what limits it, where the time went, what to try."""
    from aaco import pipeline
    from aaco.core.session import find
    from aaco.report.sections import health

    settings = options.settings(config_file, sessions_dir)
    asked_session = find(options.one_session(session, named), settings.config.storage.sessions_dir)
    explanation = pipeline.explain(asked_session, settings)
    if as_json:
        say.document(health.summary_document(explanation))
    else:
        print_report(explanation)


@manual.command()
@options.session_reference()
@options.config_file
@options.sessions_dir
@options.as_json
def chi(session: str | None, named: str | None, config_file: Path | None, sessions_dir: Path | None,
        as_json: bool) -> None:
    """Print the compute health index of SESSION (by default the latest): 0-100 over the parts that were measured.

    Under 60 % of the weight there is no index. The trend is over up to ten sessions of its model and backend.
    """
    from aaco import pipeline
    from aaco.core.session import find
    from aaco.report.sections import health
    from aaco.workflows import judge

    settings = options.settings(config_file, sessions_dir)
    chosen_session = find(options.one_session(session, named), settings.config.storage.sessions_dir)
    index = health.Health(pipeline.explain(chosen_session, settings), judge.health_before(chosen_session, settings))
    if as_json:
        say.document(index.document())
    else:
        say.lines(index.lines())
