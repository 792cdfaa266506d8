"""Whose work it is: which processes belong to what this process has recorded.

Ours are its descendants, and whatever was started with the mark that `marked` puts into the environment: it is
inherited, also by a process whose parents ended before it was first seen (a daemon forks twice for just that). Marks
are looked for in proc_pid_environ(5), once per process. What is missed, and counts as another's: a process that left
its parents and was started with an environment of its own (env -i, sudo, ssh, a service manager, a container engine),
that wrote over the memory of it, or whose environment this user may not read (another user's).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from aaco.collectors.procfs import process_stat

MARK = "AACO_RECORDED_BY"  # marks of all recordings that a process is within, the innermost last
BETWEEN = ":"


class _Process(NamedTuple):
    """started: in ticks since boot."""

    pid: int
    parent: int
    started: int

    @property
    def identity(self) -> tuple[int, int]:
        """One process's alone: numbers are used again, and a parent that ends before it leaves it to another."""
        return self.pid, self.started


@contextmanager
def marked() -> Iterator[str]:
    """What is started in the block is known by the mark that this gives."""
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
    """That of the recording that this process was started for; empty where there is none."""
    return os.environ.get(MARK, "").rpartition(BETWEEN)[2]


class Ours:
    """Tells our processes from others, each by how it was first seen. root: whose descendants are ours."""

    def __init__(self, root: int, mark: str = "", proc: Path = Path("/proc")) -> None:
        self._root, self._mark, self._proc = root, mark.encode(), proc
        self._known: dict[tuple[int, int], bool] = {}

    def has(self, pid: int) -> bool | None:
        """Whether the process is ours; None where it, or one above it, is not to be seen."""
        process = _process(self._proc, pid)
        if process is None:
            return None
        if process.identity not in self._known:
            found = self._is_marked(pid) or self._descends(process)
            if found is None:
                return None
            self._known[process.identity] = found
        return self._known[process.identity]

    def _is_marked(self, pid: int) -> bool:
        """By the environment that it was started with."""
        try:
            words = (self._proc / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            return False
        marks = next((word for word in words if word.startswith(f"{MARK}=".encode())), b"")
        return bool(self._mark) and self._mark in marks.partition(b"=")[2].split(BETWEEN.encode())

    def _descends(self, process: _Process) -> bool | None:
        above: _Process | None = process
        while above and self._root not in (above.pid, above.parent) and above.parent:
            above = _process(self._proc, above.parent)
        return above and self._root in (above.pid, above.parent)


def _process(proc: Path, pid: int) -> _Process | None:
    """The process of this number; None where it is not to be seen."""
    fields = process_stat(f"{proc}/{pid}")
    return _Process(pid, int(fields[1]), int(fields[19])) if fields else None
