"""`aaco summary` and `aaco chi`: a session in a few lines, and its health in one number."""

from __future__ import annotations

from pathlib import Path

from aaco.cli import manual, options, say


@manual.command()
@options.session_reference()
@options.config_file
@options.sessions_dir
@options.as_json
def summary(session: str | None, named: str | None, config_file: Path | None, sessions_dir: Path | None,
            as_json: bool) -> None:
    """Print the first look at SESSION (by default the latest): its numbers, its bottleneck and what to do next."""
    from aaco import pipeline
    from aaco.core.session import find
    from aaco.report import health

    settings = options.settings(config_file, sessions_dir)
    found = pipeline.explain(find(session or named or "latest", settings.config.storage.sessions_dir), settings)
    if as_json:
        say.document(health.summary_document(found))
    else:
        say.lines(health.summary_lines(found))


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
    from aaco.report import health

    settings = options.settings(config_file, sessions_dir)
    chosen = find(session or named or "latest", settings.config.storage.sessions_dir)
    found = health.Health(pipeline.explain(chosen, settings), pipeline.health_before(chosen, settings))
    if as_json:
        say.document(found.document())
    else:
        say.lines(found.lines())
