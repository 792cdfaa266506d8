"""Which captures the files and folders that were named hold, and which files are left."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aaco.core import files
from aaco.core.errors import BadCapture
from aaco.profiler import formats
from aaco.profiler.capture import Parser, members
from aaco.profiler.rocprofv3_layout import run_of

NOT_TEXT = "a part of its path is not UTF-8: no document could name it"
# The formats in which rocprofv3 saves one run, the one that says most first.
FULLEST_FIRST = ("rocpd", "rocprofv3_json", "rocprofv3_csv", "pftrace")


@dataclass(frozen=True)
class Found:
    """A capture: the file to parse, every file of it, and what parses it."""

    path: Path
    files: tuple[Path, ...]
    parser: Parser


@dataclass(frozen=True)
class Left:
    """A file that is not imported, and why."""

    path: Path
    why: str


@dataclass(frozen=True)
class Chosen:
    """What an import reads, in the order of the captures' indices, and what it leaves.

    counted: per further execution of the same program its captures, of which only the counters are taken (counted.py).
    notes: what a reader must know of how they were recorded.
    """

    captures: tuple[Found, ...]
    left: tuple[Left, ...]
    asked: tuple[Path, ...] = ()
    counted: tuple[tuple[Found, ...], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What to call it all where nobody says it: the only capture's stem, or the name of its folder."""
        first = self.captures[0].path
        own = first.name.partition(".")[0] or first.name
        if len(self.captures) == 1:
            return own
        folder = next((path for path in self.asked if path.is_dir()), first.parent)
        return folder.resolve().name or own


def discover(paths: Sequence[Path], form: str | None = None) -> Chosen:
    """The captures that the paths name or hold. Raises BadCapture where one is no capture, or none is found.

    form: the format of every file, instead of recognising each.
    """
    found: list[Found] = []
    left: list[Left] = []
    taken: set[Path] = set()
    for path in paths:
        for file in _walk(path) if path.is_dir() else (path,):
            if file.resolve() in taken:
                continue
            one = _recognise(file, form) if path.is_dir() else required(file, form)
            if isinstance(one, Left):
                left.append(one)
            else:
                found.append(one)
                taken |= {member.resolve() for member in one.files}
    left = [one for one in left if one.path.resolve() not in taken]
    if not found:
        raise _nothing(paths, left)
    named = {path.resolve() for path in paths}
    again = {} if form else _saved_again([one for one in found if one.path.resolve() not in named])
    left += [Left(one.path, f"{said.path.name} holds the same run") for one, said in again.items()]
    return Chosen(tuple(one for one in found if one not in again), tuple(left), tuple(paths))


def _saved_again(found: Sequence[Found]) -> dict[Found, Found]:
    """Captures whose run lies beside them in a format that says more: rocprofv3 writes as many as it is asked for."""
    fullest: dict[tuple[Path, str | None], Found] = {}
    runs = [(run, one) for one in found if one.parser.FORMAT in FULLEST_FIRST and (run := run_of(one.path))]
    for run, one in sorted(runs, key=lambda pair: FULLEST_FIRST.index(pair[1].parser.FORMAT)):
        fullest.setdefault(run, one)
    return {one: fullest[run] for run, one in runs if one.parser.FORMAT != fullest[run].parser.FORMAT}


def _walk(folder: Path) -> Iterator[Path]:
    """Every file below, in the order of their names; hidden ones are left out."""
    for name, folders, names in os.walk(folder, onerror=_unreadable):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        yield from (Path(name, each) for each in sorted(names) if not each.startswith("."))


def _unreadable(error: OSError) -> None:
    raise BadCapture(f"{error.filename}: {error.strerror}", "check the folder's permissions") from error


def _recognise(file: Path, form: str | None) -> Found | Left:
    """A file of a folder, which may be anything."""
    if not file.is_file():
        return Left(file, "not a regular file")
    if not files.is_text(str(file.resolve())):
        return Left(file, NOT_TEXT)
    try:
        parser = formats.read(file, form) if form else formats.recognise(file)
    except BadCapture as error:
        return Left(file, error.what.removeprefix(f"{file}: "))
    return Left(file, "not of a format this version reads") if parser is None else _found(file, parser)


def required(file: Path, form: str | None) -> Found:
    """The capture that a file is which was named. Raises BadCapture."""
    if file.exists() and not file.is_file():
        raise BadCapture(f"{file}: not a regular file", "save the capture in a file first")
    if not file.exists():
        raise BadCapture(f"{file}: no such file", "check the path")
    if not files.is_text(str(file.resolve())):
        raise BadCapture(f"{file}: {NOT_TEXT}", "give it another name")
    return _found(file, formats.read(file, form))


def _found(file: Path, parser: Parser) -> Found:
    every = tuple(members(parser, file))
    return Found(every[0], every, parser)


def _nothing(paths: Sequence[Path], left: Sequence[Left]) -> BadCapture:
    where = ", ".join(map(str, paths[:3]))
    seen = "; ".join(f"{one.path.name}: {one.why}" for one in left[:3])
    return BadCapture(f"{where}: no capture of a known format among {len(left)} files" + (f" ({seen})" if seen else ""),
                      f"known: {', '.join(sorted(formats.parsers()))}")
