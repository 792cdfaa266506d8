"""What was written through the server, and what it refused: JSON lines, only ever appended."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, Self

from aaco.core import files

MOST_A_SECOND = 20  # refusals that are noted: more of them are counted, so that nobody fills the disk with them


class Audit:
    """The log. One write(2) per line on a descriptor that only appends, so lines of several servers do not mix."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path, self._descriptor = path, descriptor
        self._lock = Lock()
        self._second, self._noted, self._left_out = 0, 0, 0

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the log at this path, readable only by its owner; create it if there is none. Raises StorageError."""
        with files.storage(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            return cls(path, os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def note(self, facts: Mapping[str, Any], written: bool) -> None:
        """Add a line with the time. written: whether something was, which is never left out. Raises StorageError.

        What was left out is counted in the next line, under `left_out`.
        """
        with self._lock:
            second = int(time.monotonic())
            if second != self._second:
                self._second, self._noted = second, 0
            self._noted += 1
            if not written and self._noted > MOST_A_SECOND:
                self._left_out += 1
                return
            more, self._left_out = ({"left_out": self._left_out} if self._left_out else {}), 0
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            line = json.dumps({"time_utc": now, **facts, **more}) + "\n"
            with files.storage(self._path):
                os.write(self._descriptor, line.encode())

    def close(self) -> None:
        """Give the file back."""
        os.close(self._descriptor)
