"""Decides which processes belong to a recording of this process.

Own processes are its descendants, and those started with the mark that `marked` puts into the environment. The mark is
inherited, also by a process if its parents ended before it was first seen (a daemon forks twice for that purpose).
Marks are read from proc_pid_environ(5), once per process. Missed, and counted as another's: a process that left its
parents and was started with a new environment (env -i, sudo, ssh, a service manager, a container engine), that
overwrote the memory of it, or that has an environment this user may not read (another user's).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from aaco.collectors.host.procfs import process_stat

MARK = "AACO_RECORDED_BY"  # marks of all recordings that a process is within, the innermost last
BETWEEN = ":"


class _Process(NamedTuple):
    """started: in ticks since boot."""

    pid: int
    parent: int
    started: int

    @property
    def identity(self) -> tuple[int, int]:
        """Return what identifies one process: numbers are used again, and a parent that ends before it leaves it to
        another.
        """
        return self.pid, self.started


@contextmanager
def marked() -> Iterator[str]:
    """Yield a mark; processes started in the block carry it."""
    before, mark = os.environ.get(MARK), secrets.token_hex(8)
    os.environ[MARK] = BETWEEN.join(filter(None, (before, mark)))
    try:
        yield mark
    finally:
        if before is None:
            del os.environ[MARK]
        else:
            os.environ[MARK] = before


def own_mark() -> str:
    """Return the mark of the recording that this process was started for; empty if there is none."""
    return os.environ.get(MARK, "").rpartition(BETWEEN)[2]


class OwnProcesses:
    """Separates own processes from others, each by how it was first seen. root: its descendants are own processes."""

    def __init__(self, root: int, mark: str = "", proc: Path = Path("/proc")) -> None:
        self._root, self._mark, self._proc = root, mark.encode(), proc
        self._verdicts: dict[tuple[int, int], bool] = {}

    def has(self, pid: int) -> bool | None:
        """Return whether the process is an own one; None if it, or one above it, is not visible."""
        process = _read_process(self._proc, pid)
        if process is None:
            return None
        if process.identity not in self._verdicts:
            is_ours = self._is_marked(pid) or self._descends(process)
            if is_ours is None:
                return None
            self._verdicts[process.identity] = is_ours
        return self._verdicts[process.identity]

    def _is_marked(self, pid: int) -> bool:
        """Return whether the process was started with the mark in its environment."""
        try:
            words = (self._proc / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            return False
        marks = next((word for word in words if word.startswith(f"{MARK}=".encode())), b"")
        return bool(self._mark) and self._mark in marks.partition(b"=")[2].split(BETWEEN.encode())

    def _descends(self, process: _Process) -> bool | None:
        above: _Process | None = process
        while above and self._root not in (above.pid, above.parent) and above.parent:
            above = _read_process(self._proc, above.parent)
        return above and self._root in (above.pid, above.parent)


def _read_process(proc: Path, pid: int) -> _Process | None:
    """Return the process of this number; None if it is not visible."""
    fields = process_stat(f"{proc}/{pid}")
    return _Process(pid, int(fields[1]), int(fields[19])) if fields else None
