"""`aaco explain`: the definition behind a number."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aaco.cli import options, say
from aaco.core.errors import AacoError, UsageError

if TYPE_CHECKING:
    from aaco.core.readings import Reading


@click.command()
@click.argument("metric")
@options.session_reference()
@options.config_file
@options.sessions_dir
def explain(metric: str, session: str | None, named: str | None, config_file: Path | None,
            sessions_dir: Path | None) -> None:
    """Say what METRIC means (name or alias, such as KAR), and its value in SESSION, by default the latest."""
    from aaco.analytics import metrics
    from aaco.core import registry
    from aaco.report import definition

    registry.load(metrics, "aaco.metrics")
    found = registry.find_metric(metric)
    if found is None:
        names = [*registry.METRICS, *(alias for item in registry.METRICS.values() for alias in item.aliases)]
        close = difflib.get_close_matches(metric, names, n=3, cutoff=0.4)
        raise UsageError(f"no metric {metric!r}", f"near it: {', '.join(close) or 'nothing; see docs/reference'}")
    say.text(definition.render(found, _reading(found.name, session or named, config_file, sessions_dir)))


def _reading(name: str, reference: str | None, config_file: Path | None, sessions_dir: Path | None) -> Reading | None:
    """The value in the session; a definition needs none, so without any session there is simply no value."""
    from aaco import pipeline
    from aaco.core.session import find

    settings = options.settings(config_file, sessions_dir)
    try:
        chosen = find(reference or "latest", settings.config.storage.sessions_dir)
    except AacoError:
        if reference:
            raise
        return None
    return pipeline.explain(chosen, settings).readings[name]
