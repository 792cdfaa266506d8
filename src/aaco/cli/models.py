"""`aaco models`: the names that --model and --backend take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aaco.cli import manual, options, say

if TYPE_CHECKING:
    from aaco.runner.registry import ModelEntry


@manual.command()
@options.config_file
@options.as_json
def models(config_file: Path | None, as_json: bool) -> None:
    """List the models and backends that can be named, built in and from your configs."""
    from aaco.report.format import hung
    from aaco.runner import registry

    storage = options.settings(config_file).config.storage
    entries = registry.models([storage.models_file])
    backends = registry.backends([storage.backends_file])
    if as_json:
        say.document({"schema_version": 1,
                      "models": {name: entry.model_dump(mode="json") for name, entry in entries.items()},
                      "backends": {name: entry.model_dump(mode="json") for name, entry in backends.items()}})
        return
    say.line(f"{'model':<16}{'from':<40}inputs")
    for name, entry in entries.items():
        shapes = ", ".join(f"{item.name} {'x'.join(map(str, item.shape))}" for item in entry.inputs)
        say.lines(hung(f"{name:<16}{_origin(name, entry):<40}", shapes, say.columns()))
    say.lines(("", f"{'backend':<16}{'provider':<40}install"))
    for name, backend in backends.items():
        say.lines(hung(f"{name:<16}{backend.provider:<40}", backend.install, say.columns()))


def _origin(name: str, entry: ModelEntry) -> str:
    """The file where it exists, else the recipe that builds the model with seeded weights."""
    if entry.path and Path(entry.path).is_file():
        return entry.path
    return f"built, synthetic weights ({entry.zoo or name})"
