"""`aaco models`: the names that --model and --backend take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from aaco.cli import manual, options, say
from aaco.core.errors import UsageError

if TYPE_CHECKING:
    from aaco.core.config import Settings
    from aaco.runner.registry import ModelEntry


@manual.command()
@click.option("--genai", nargs=2, type=(str, click.Path(file_okay=False, path_type=Path)), metavar="MODEL DIR",
              help="Write a decoder, by its name or .onnx file, as a new folder for `aaco llm --genai DIR`.")
@options.config_file
@options.as_json
def models(genai: tuple[str, Path] | None, config_file: Path | None, as_json: bool) -> None:
    """List the models and backends that can be named, built in and from your configs."""
    from aaco.report.format import hung
    from aaco.runner import registry

    settings = options.settings(config_file)
    if genai:
        _write_genai(*genai, settings, as_json)
        return
    storage = settings.config.storage
    entries = registry.models([storage.models_file])
    backends = registry.backends([storage.backends_file])
    if as_json:
        say.document({"schema_version": 1,
                      "models": {name: entry.model_dump(mode="json") for name, entry in entries.items()},
                      "backends": {name: entry.model_dump(mode="json") for name, entry in backends.items()}})
        return
    say.line(f"{'model':<16}{'from':<40}inputs")
    for name, entry in entries.items():
        shapes = ", ".join(f"{tensor.name} {'x'.join(map(str, tensor.shape))}" for tensor in entry.inputs)
        say.lines(hung(f"{name:<16}{_origin(name, entry):<40}", shapes, say.columns()))
    say.lines(("", f"{'backend':<16}{'provider':<40}install"))
    for name, backend in backends.items():
        say.lines(hung(f"{name:<16}{backend.provider:<40}", backend.install, say.columns()))


def _write_genai(model: str, folder: Path, settings: Settings, as_json: bool) -> None:
    """Write a decoder as a folder for onnxruntime-genai. Raise AacoError."""
    from aaco.workflows import decode_run

    if as_json:
        raise UsageError("--genai writes a folder, and has no JSON", "leave out --json")
    decode_run.write_genai(model, folder, settings)
    say.line(f"wrote {folder}; aaco llm --genai {folder}")


def _origin(name: str, entry: ModelEntry) -> str:
    """The file where it exists, else the recipe that builds the model with seeded weights."""
    if entry.path and Path(entry.path).is_file():
        return entry.path
    return f"built, synthetic weights ({entry.zoo or name})"
