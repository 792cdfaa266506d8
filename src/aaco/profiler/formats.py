"""Which parser reads a file: every module of this package with `recognises` and `parse`, and installed plug-ins."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

import aaco.profiler
from aaco.core.errors import BadCapture
from aaco.profiler import jsonstream, sqlite
from aaco.profiler.capture import Parser

HEAD_BYTES = 1 << 20
FREQUENT = ("kineto", "rocpd", "rocprofv3_csv")  # modules that are asked first, before the others are even imported


@cache
def parsers() -> dict[str, Parser]:
    """Every parser by the name of its format: this package's, then those of the entry-point group `aaco.parsers`."""
    names = [info.name for info in pkgutil.iter_modules(aaco.profiler.__path__, "aaco.profiler.")]
    modules = [importlib.import_module(name) for name in names]
    plugins = [plugin.load() for plugin in entry_points(group="aaco.parsers")]
    found: dict[str, Parser] = {}
    for module in (*modules, *plugins):
        if hasattr(module, "FORMAT") and hasattr(module, "recognises"):
            if module.FORMAT in found:
                raise TypeError(f"two parsers for {module.FORMAT!r}; the second is {module!r}")
            found[module.FORMAT] = module
    return found


def recognise(path: Path) -> Parser | None:
    """The parser of the file's format, or None. Raises BadCapture where the file cannot be read, or was cut short."""
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except FileNotFoundError as error:
        raise BadCapture(f"{path}: no such file", "check the path") from error
    except OSError as error:
        raise BadCapture(f"{path}: {error.strerror or error}", "check the file and its permissions") from error
    if empty:
        raise BadCapture(f"{path}: the file is empty", "record it again: the profiler ended before it wrote anything")
    frequent = (importlib.import_module(f"aaco.profiler.{name}") for name in FREQUENT)
    found: Parser | None = next((parser for parser in frequent if parser.recognises(path)), None)
    found = found or next((parser for parser in parsers().values() if parser.recognises(path)), None)
    if found is None:
        _refuse_broken(path)
    return found


def _refuse_broken(path: Path) -> None:
    """Raise BadCapture where no parser knows a file because it is damaged gzip, or a database that is not whole."""
    with jsonstream.opened(path) as file:
        beginning = file.read(HEAD_BYTES)
    if beginning.startswith(sqlite.MAGIC):
        with sqlite.opened(path):
            pass


def read(path: Path, form: str | None = None) -> Parser:
    """The parser to read the file with; `form` names a format instead of recognising it. Raises BadCapture."""
    if form is not None and form not in parsers():
        raise BadCapture(f"no format {form!r}", f"known: {', '.join(sorted(parsers()))}")
    parser = parsers()[form] if form else recognise(path)
    if parser is None:
        raise BadCapture(f"{path}: not of a format this version reads", f"known: {', '.join(sorted(parsers()))}")
    return parser
