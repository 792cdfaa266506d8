"""`aaco explain`: the definition of a number."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from aaco.cli import manual, options, say
from aaco.core.errors import AacoError, UsageError
from aaco.core.near import meant

if TYPE_CHECKING:
    from aaco.core.readings import Reading


@manual.command()
@click.argument("metric", shell_complete=options.of_kind("metric"))
@options.session_reference
@options.config_file
@options.sessions_dir
@options.as_json
def explain(metric: str, session: str | None, named: str | None, config_file: Path | None, sessions_dir: Path | None,
            as_json: bool) -> None:
    """Say what METRIC means (name or alias, such as KAR), and its value in SESSION, by default the latest."""
    from aaco.analytics import metrics
    from aaco.core import registry
    from aaco.report.sections import definition

    registry.load(metrics, "aaco.metrics")
    declared = registry.find_metric(metric)
    if declared is None:
        names = [*registry.METRICS, *(alias for item in registry.METRICS.values() for alias in item.aliases)]
        raise UsageError(f"no metric {metric!r}{meant(metric, names)}", "aaco features --json  # names them")
    reference = options.one_session(session, named) if session or named else None
    reading = _reading(declared.name, reference, config_file, sessions_dir)
    say.answer(as_json, definition.document(declared, reading), lambda _: definition.render(declared, reading))


def _reading(name: str, reference: str | None, config_file: Path | None, sessions_dir: Path | None) -> Reading | None:
    """The value in the session; a definition needs none, so without any session there is simply no value."""
    from aaco.core.session import find
    from aaco.steps import explain as step

    settings = options.settings(config_file, sessions_dir)
    try:
        session_read = find(reference or "latest", settings.config.storage.sessions_dir)
    except AacoError:
        if reference:
            raise
        return None
    return step.explain(session_read, settings.config.analysis).readings[name]
