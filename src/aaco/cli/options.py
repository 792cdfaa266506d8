"""Options that several commands share, and how they become settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from aaco.core.errors import UsageError
from aaco.core.presets import PRESETS

if TYPE_CHECKING:
    from aaco.core.config import Settings

F = TypeVar("F", bound=Callable[..., Any])

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
config_file = click.option("--config", "config_file", type=click.Path(path_type=Path), help="Configuration file.")
backend = click.option("--backend", "-b", default="cpu", show_default=True, help="A name from `aaco models`.")
quiet = click.option("--quiet", "-q", is_flag=True, help="Say nothing while working.")
sessions_dir = click.option("--sessions-dir", type=click.Path(path_type=Path), help="Where sessions are kept.")
preset = click.option("--preset", type=click.Choice(list(PRESETS)), help="A named set of settings.")
MEASURING = ("warmup", "iterations", "processes", "budget_s", "precision_pct")  # these are settings of `profiling`


def model(function: F) -> F:
    """A model given by position or as --model; `one_model` takes both."""
    function = click.option("--model", "named", metavar="MODEL",
                            help="A name from `aaco models`, or a path to an .onnx file.")(function)
    return click.argument("model", required=False)(function)


def one_model(model: str | None, named: str | None) -> str:
    """The model that was named, in whichever spelling. Raises UsageError unless there is exactly one."""
    if bool(model) == bool(named):
        raise UsageError("name one model, as MODEL or --model MODEL", "aaco models  # lists them")
    return model or named or ""


def measuring(function: F) -> F:
    """How long to measure, each option named as in MEASURING."""
    for option in reversed((
            click.option("--warmup", type=click.IntRange(0),
                         help="Warm-up iterations.  [default: the model's, else 10]"),
            click.option("--iterations", "-n", type=click.IntRange(1),
                         help="Iterations.  [default: the model's, else 100]"),
            click.option("--processes", type=click.IntRange(1),
                         help="Fresh processes: the unit of replication.  [default: 1]"),
            click.option("--budget", "budget_s", type=float,
                         help="Stop measuring after this many seconds, per process."),
            click.option("--precision", "precision_pct", type=float,
                         help="Stop once the median is known to this many per cent."))):
        function = option(function)
    return function


def session_reference(required: bool = False) -> Callable[[F], F]:
    """A session given by position or as --session; `latest` when neither is."""

    def add(function: F) -> F:
        function = click.option("--session", "named", metavar="SESSION", help="The same, as an option.")(function)
        return click.argument("session", required=required)(function)

    return add


def style() -> Literal["plain", "colour"]:
    """Colour for a person at a terminal (https://no-color.org), plain text for everything else."""
    return "colour" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else "plain"


def settings(config_file: Path | None = None, sessions_dir: Path | None = None, preset: str | None = None,
             **sections: dict[str, Any]) -> Settings:
    """Resolve the configuration with what the command line says on top; None on the command line means not given."""
    from aaco.core import config  # pydantic and YAML: not for commands that need no settings

    if sessions_dir is not None:
        sections.setdefault("storage", {})["sessions_dir"] = sessions_dir
    given = {name: {key: value for key, value in keys.items() if value is not None}
             for name, keys in sections.items()}
    return config.resolve(config_file, preset, {name: keys for name, keys in given.items() if keys})
