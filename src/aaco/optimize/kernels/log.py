"""The lines of a search for a faster kernel: `.optimization/KERNEL.jsonl` beside the source.

One line for each step, appended and synchronised before the next begins. A search that was cut off goes on where it
was if the source, its captures, the compiler, the device and the driver are the same.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aaco.core import files
from aaco.optimize import ledger
from aaco.optimize.kernels.variants import Proposal
from aaco.tracelake.document_schemas.kernel_search import (
    KERNEL_LINE,
    KernelOrigin,
    KernelSearchBegun,
    KernelSearchDecided,
)
from aaco.tracelake.document_schemas.ledger import LedgerLine

FOLDER = ".optimization"


def key_of(proposal: Proposal) -> str:
    """Return what tells a proposal from all others."""
    launch = f"{proposal.options!r} {proposal.block} {proposal.grid}".encode()
    return hashlib.sha256(hashlib.sha256(proposal.text).digest() + launch).hexdigest()


class SearchFiles:
    """A search's log and the texts of its proposals, in a folder beside the source."""

    def __init__(self, source: Path, kernel: str) -> None:
        self.folder = source.parent / FOLDER
        self.log = self.folder / f"{re.sub(r'[^A-Za-z0-9_]', '_', kernel)[:80]}.jsonl"
        self._suffix = source.suffix

    def append(self, line: LedgerLine) -> None:
        """Append a line. Raise StorageError."""
        ledger.append(self.log, line)

    def text_path(self, key: str) -> Path:
        """Return where a proposal's text is kept."""
        return self.folder / f"{key[:16]}{self._suffix}"

    def keep_text(self, proposal: Proposal) -> None:
        """Keep a proposal's text. Raise StorageError."""
        path = self.text_path(key_of(proposal))
        with files.storage(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomically(path, lambda file: file.write(proposal.text))

    def read_text(self, key: str) -> bytes:
        """Return a proposal's text. Raise StorageError."""
        path = self.text_path(key)
        with files.storage(path):
            return path.read_bytes()

    def unfinished(self, origin: KernelOrigin) -> tuple[Any, ...]:
        """Return the lines of the last search if it is of this origin and was not decided; else nothing."""
        last = self._last()
        return last if last and last[0].origin == origin else ()

    def last_origin(self) -> KernelOrigin | None:
        """Return the origin of the last search if it was not decided."""
        last = self._last()
        return last[0].origin if last else None

    def _last(self) -> tuple[Any, ...]:
        lines = ledger.read(self.log, KERNEL_LINE).lines
        begun = [number for number, line in enumerate(lines) if isinstance(line, KernelSearchBegun)]
        last: Sequence[Any] = lines[begun[-1]:] if begun else ()
        return () if not last or isinstance(last[-1], KernelSearchDecided) else tuple(last)
