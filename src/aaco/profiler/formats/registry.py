"""Which parser reads a file: every module of this package with `recognises` and `parse`, and installed plug-ins."""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Iterable
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from aaco.core.errors import BadCapture
from aaco.core.registry import import_modules
from aaco.profiler import formats
from aaco.profiler.capture import Parser
from aaco.profiler.io import encodings, jsonstream, sqlite
from aaco.profiler.io.readable import readable
from aaco.tracelake.perfetto_export.mark import exported_session

HEAD_BYTES = 1 << 20
PACKAGE = "aaco.profiler.formats"
# Modules to try first, before the others are imported.
FREQUENT = ("pytorch.kineto", "rocprofv3.rocpd", "rocprofv3.rocprofv3_csv")
# Files of others and of ours that are no captures, by the end of their name: how to come to one.
ELSEWHERE = {".nsys-rep": "nsys export --type sqlite --output OTHER.sqlite {}, then aaco import OTHER.sqlite",
             ".ncu-rep": "ncu --import {} --csv --page raw --print-units base > OTHER.csv, then aaco import OTHER.csv",
             ".tar.zst": "aaco bundle import {}",
             ".onnx": "aaco run {}  # runs the model and explains it"}


@cache
def parsers() -> dict[str, Parser]:
    """Return every parser by the name of its format: this package's, then those of the entry-point group
    `aaco.parsers`.
    """
    plugins = [plugin.load() for plugin in entry_points(group="aaco.parsers")]
    parser_by_format: dict[str, Parser] = {}
    for module in (*import_modules(formats), *plugins):
        if hasattr(module, "FORMAT") and hasattr(module, "recognises"):
            if module.FORMAT in parser_by_format:
                raise TypeError(f"two parsers for {module.FORMAT!r}; the second is {module!r}")
            parser_by_format[module.FORMAT] = module
    return parser_by_format


def recognise(path: Path) -> Parser | None:
    """Return the parser of the file's format, or None. Raise BadCapture if the file cannot be read, or was cut short.
    """
    with readable(path), path.open("rb") as file:
        empty = not file.read(1)
    if empty:
        raise BadCapture(f"{path}: the file is empty", "record it again: the profiler ended before it wrote anything")
    frequent = (importlib.import_module(f"{PACKAGE}.{name}") for name in FREQUENT)
    recognised: Parser | None = next((parser for parser in frequent if parser.recognises(path)), None)
    recognised = recognised or next((parser for parser in parsers().values() if parser.recognises(path)), None)
    _refuse_export(path)
    if recognised is None:
        _refuse_broken(path)
    return recognised


def _refuse_export(path: Path) -> None:
    """Raise BadCapture if the file is a trace that AACO wrote for a viewer: it holds less than its session."""
    if session := exported_session(jsonstream.head(path, 1 << 10)):
        raise BadCapture(f"{path}: `aaco perfetto` wrote this for a viewer; it holds less than its session {session}",
                         f"aaco summary {session}; between machines: aaco bundle export, aaco bundle import")


def _refuse_broken(path: Path) -> None:
    """Raise BadCapture if no parser recognises a file because it is damaged gzip, or an incomplete database."""
    with jsonstream.opened(path) as file:
        beginning = file.read(HEAD_BYTES)
    if beginning.startswith(sqlite.MAGIC):
        with sqlite.opened(path):
            pass


def read(path: Path, form: str | None = None) -> Parser:
    """Return the parser to read the file with; `form` names a format instead of recognising it. Raise BadCapture."""
    if form is not None and form not in parsers():
        raise BadCapture(f"no format {form!r}", f"known: {', '.join(sorted(parsers()))}")
    parser = parsers()[form] if form else recognise(path)
    if parser is None and (encoding := encodings.sniff(path)):
        raise BadCapture(f"{path}: its text is {encoding}, and not of a format that is read so",
                         f"iconv -f {encoding} -t UTF-8 FILE > OTHER, and import that; in PowerShell: | Out-File "
                         "-Encoding utf8 FILE")
    if parser is None:
        raise BadCapture(f"{path}: not of a format this version reads", instead_of((path,)))
    return parser


def instead_of(paths: Iterable[Path]) -> str:
    """Return what to do with the first of files without a parser that has a way to one, else the formats."""
    ways = (way.format(shlex.quote(str(path))) for path in paths
            for ending, way in ELSEWHERE.items() if path.name.endswith(ending))
    return next(ways, f"known: {', '.join(sorted(parsers()))}")
