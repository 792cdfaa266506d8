"""What may stand where a name is asked for: sessions, models, backends, metrics, baselines. Whatever goes wrong while
looking, nothing is offered: a shell that completes is no place for messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from aaco.cli import options
from aaco.core.errors import AacoError

NEWEST = 100  # sessions that are offered
Found = Iterator[tuple[str, str]]  # names, and what to say of each


def offered(what: str, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """The names of a kind that begin with what was typed."""
    try:
        return [CompletionItem(name, help=said or None) for name, said in LOOK[what](ctx.params)
                if name.startswith(incomplete) and name.isprintable()]
    except (AacoError, OSError):
        return []


def _storage(given: dict[str, Any]) -> Any:
    places = {"baselines_dir": given.get("baselines_dir")}
    return options.settings(given.get("config_file"), given.get("sessions_dir"), storage=places).config.storage


def _sessions(given: dict[str, Any]) -> Found:
    from aaco.core.session import LATEST, sessions

    tags = set[str]()
    for number, session in enumerate(islice(sessions(_storage(given).sessions_dir), NEWEST)):
        if not number:
            yield LATEST, "the newest"
        try:
            record = session.record
        except AacoError:
            continue
        what = f"{record.plan.get('model', '')} {record.tag}".strip()
        yield session.id, what
        if record.tag and record.tag not in tags and not any(letter.isspace() for letter in record.tag):
            tags.add(record.tag)
            yield record.tag, "tag"


def _models(given: dict[str, Any]) -> Found:
    from aaco.runner import registry

    for name, entry in registry.models([_storage(given).models_file]).items():
        yield name, ", ".join(entry.tags)


def _backends(given: dict[str, Any]) -> Found:
    from aaco.runner import registry

    for name in registry.backends([_storage(given).backends_file]):
        yield name, ""
    yield registry.AUTO, "the first that is here"


def _metrics(given: dict[str, Any]) -> Found:
    from aaco.analytics import metrics
    from aaco.core import registry

    registry.load(metrics, "aaco.metrics")
    for name, metric in registry.METRICS.items():
        yield name, metric.unit
        yield from ((alias, name) for alias in metric.aliases)


def _baselines(given: dict[str, Any]) -> Found:
    from aaco.tracelake import baselines

    for found in baselines.list_all(Path(_storage(given).baselines_dir)):
        if found.baseline:
            yield found.baseline.name, found.baseline.replicates[0].model or ""


def _references(given: dict[str, Any]) -> Found:
    yield from _baselines(given)
    yield from _sessions(given)


LOOK: dict[str, Callable[[dict[str, Any]], Found]] = {
    "session": _sessions, "model": _models, "backend": _backends, "metric": _metrics, "baseline": _baselines,
    "reference": _references,
}
