"""The column launch_id of kernels and copies, filled as the tables are written: calls first, then the work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from aaco.core.tables import API_CALLS, COPIES, KERNELS, replaced
from aaco.tracelake.ingest.external_sort import Order, Spool
from aaco.tracelake.memory import give_back


class Finder(Protocol):
    """Finds launches; as analytics/streaming/launch_ids.py does."""

    def launching(self, calls: pa.Table) -> pa.Table:
        """Return integer columns of the calls that launch."""

    def ids(self, launches: Iterator[pa.Table], work: Iterator[pa.Table]) -> Iterator[pa.Array]:
        """Yield the launch_id of each piece of a table of work."""


class LaunchColumns:
    """Remembers launches on disk, for the tables that need them."""

    def __init__(self, folder: Path, finder: Finder) -> None:
        self._finder = finder
        self._launches = Spool(Order(), folder)

    def filled(self, name: str, rows: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Yield a table's pieces: kernels and copies with their launches, and calls, which are remembered."""
        if name == API_CALLS.name:
            return self._noted(rows)
        return self._linked(rows) if name in (KERNELS.name, COPIES.name) else rows

    def close(self) -> None:
        """Give the disk back."""
        self._launches.close()

    def _noted(self, calls: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for piece in calls:
            self._launches.add(self._finder.launching(piece))
            yield piece

    def _linked(self, work: Iterator[pa.Table]) -> Iterator[pa.Table]:
        give_back(0)  # what other tables took: few copies need all launches at once
        pieces: list[pa.Table] = []

        def passing() -> Iterator[pa.Table]:
            for piece in work:
                pieces.append(piece)
                yield piece

        for launch_id in self._finder.ids(self._launches.buckets(), passing()):
            yield replaced(pieces.pop(), "launch_id", launch_id)
