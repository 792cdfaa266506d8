"""Completions for names: sessions, models, backends, metrics, baselines. Any error while
looking, nothing is offered: a shell that completes is no place for messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from aaco.cli.settings import settings
from aaco.core.errors import AacoError

NEWEST = 100  # sessions that are offered
Found = Iterator[tuple[str, str]]  # names, and what to say of each


def offered(what: str, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """The names of a kind that begin with what was typed."""
    try:
        return [CompletionItem(name, help=help_text or None) for name, help_text in LOOK[what](ctx.params)
                if name.startswith(incomplete) and name.isprintable()]
    except (AacoError, OSError):
        return []


def _storage(params: dict[str, Any]) -> Any:
    places = {"baselines_dir": params.get("baselines_dir")}
    return settings(params.get("config_file"), params.get("sessions_dir"), storage=places).config.storage


def _sessions(params: dict[str, Any]) -> Found:
    from aaco.core.session import LATEST, sessions

    tags = set[str]()
    for number, session in enumerate(islice(sessions(_storage(params).sessions_dir), NEWEST)):
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


def _models(params: dict[str, Any]) -> Found:
    from aaco.runner import registry

    for name, entry in registry.models([_storage(params).models_file]).items():
        yield name, ", ".join(entry.tags)


def _backends(params: dict[str, Any]) -> Found:
    from aaco.runner import registry

    for name in registry.backends([_storage(params).backends_file]):
        yield name, ""
    yield registry.AUTO, "the first that is here"


def _metrics(params: dict[str, Any]) -> Found:
    from aaco.analytics import metrics
    from aaco.core import registry

    registry.load(metrics, "aaco.metrics")
    for name, metric in registry.METRICS.items():
        yield name, metric.unit
        yield from ((alias, name) for alias in metric.aliases)


def _baselines(params: dict[str, Any]) -> Found:
    from aaco.tracelake.history import baselines

    for baseline in baselines.list_all(Path(_storage(params).baselines_dir)):
        if baseline.baseline:
            yield baseline.baseline.name, baseline.baseline.replicates[0].model or ""


def _references(params: dict[str, Any]) -> Found:
    yield from _baselines(params)
    yield from _sessions(params)


LOOK: dict[str, Callable[[dict[str, Any]], Found]] = {
    "session": _sessions, "model": _models, "backend": _backends, "metric": _metrics, "baseline": _baselines,
    "reference": _references,
}
