"""The log of a search: one JSON line for each step that was made, appended and never changed.

A line is written by one write(2) and synchronised before the next step begins, so a kill at any moment costs the step
in flight and no line. A search that is resumed reads them; a torn last one is passed over and counted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from aaco.core import files
from aaco.core.candidate import Candidate
from aaco.tracelake.document_schemas.ledger import LINE, LedgerLine, SearchBegun, SearchDecided, SearchOrigin


class Read(NamedTuple):
    """The lines of a log, and how many could not be read: torn by a kill, or of a later version."""

    lines: tuple[Any, ...]
    unreadable: int


def append(path: Path, line: LedgerLine) -> None:
    """Append a line and wait until it is on the disk. Raise StorageError."""
    text = json.dumps(line.model_dump(mode="json"), ensure_ascii=True, allow_nan=False) + "\n"
    with files.storage(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            files.write_all(descriptor, (_end_torn(descriptor) + text).encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _end_torn(descriptor: int) -> str:
    """Return the newline that a kill kept from the last line; empty where there is one."""
    size = os.fstat(descriptor).st_size
    return "" if not size or os.pread(descriptor, 1, size - 1) == b"\n" else "\n"


def read(path: Path, form: TypeAdapter[Any] = LINE) -> Read:
    """Return the lines of the log in order; none where there is no file. form: of a line. Raise StorageError."""
    if not path.exists():
        return Read((), 0)
    with files.storage(path):
        texts = path.read_bytes().splitlines()
    lines = [_parse(text, form) for text in texts]
    return Read(tuple(line for line in lines if line is not None), lines.count(None))


def _parse(text: bytes, form: TypeAdapter[Any]) -> Any:
    try:
        return form.validate_json(text)
    except ValidationError:
        return None


def searches(lines: Sequence[LedgerLine]) -> Iterator[tuple[LedgerLine, ...]]:
    """Yield the lines of each search, in the order in which they began."""
    for name in dict.fromkeys(line.search for line in lines):
        of_search = tuple(line for line in lines if line.search == name)
        if isinstance(of_search[0], SearchBegun):
            yield of_search


def unfinished(lines: Sequence[LedgerLine], origin: SearchOrigin,
               tried: Sequence[Candidate]) -> tuple[LedgerLine, ...]:
    """Return the lines of the last search if it is of this origin and these changes and was not decided; else nothing.
    """
    last = tuple(searches(lines))[-1:]
    resumable = [search for search in last if isinstance(search[0], SearchBegun) and search[0].origin == origin
                 and search[0].candidates == list(tried) and not isinstance(search[-1], SearchDecided)]
    return resumable[0] if resumable else ()
