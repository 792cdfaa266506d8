"""A session as a trace for a viewer: captures on several clocks are shifted to that of the first."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aaco.analytics.streaming import clockfit
from aaco.analytics.timeline.collectives import shifts_of
from aaco.core.files import write_atomically
from aaco.core.session import Session
from aaco.core.show import SILENT, Show
from aaco.core.tables import ALL
from aaco.tracelake import documents, layout
from aaco.tracelake.perfetto_export import perfetto
from aaco.tracelake.perfetto_export.timeline_tracks import device_titles
from aaco.workflows import traced_tables
from aaco.workflows.traced_tables import TIMES

FORMS = {"perfetto": perfetto.write_protobuf, "chrome": perfetto.write_chrome}
LEVEL = 6  # gzip's own default
PIECE = 1 << 20  # bytes that are compressed at a time: writers write small ones


def export(session: Session, path: Path, form: str, show: Show = SILENT) -> tuple[int, list[Mapping[str, Any]]]:
    """Write the session's events and values; returns how many there are, and how captures' times were moved for it.

    The moves are those of metrics/collectives.json: ranks that wait for each other end together, which gives their
    clocks. Captures without common operations stay on their own clocks. A name that ends in .gz is written
    compressed. Of a load with a trace of the server its kernels are written, too. Raises StorageError.
    """
    shifts = shifts_of(documents.read(session, layout.TRACE["collectives"]))
    stored, of_devices = traced_tables.of_session(session, show)
    titles = device_titles(documents.read(of_devices, layout.CAPTURES).get("captures", []))
    rows = sum(stored.rows(name) for name in perfetto.SHOWN)  # about as many slices and values
    counts: list[int] = []

    def fill(file: IO[bytes]) -> None:
        with zipped(file, path) as stream:
            counts.append(FORMS[form](stream, OnOneClock(stored, shifts),
                                      lambda count: show.progress(min(count, rows), rows), titles,
                                      session.id))

    write_atomically(path, fill)
    return counts[0], shifts


@contextmanager
def zipped(file: IO[bytes], path: Path) -> Iterator[IO[bytes]]:
    """The file as it is written to: compressed as it goes where the name ends in .gz. Equal content, equal bytes."""
    if path.suffix != ".gz":
        yield file
        return
    with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=LEVEL, mtime=0) as stream, \
            io.BufferedWriter(stream, PIECE) as buffered:
        yield buffered


class OnOneClock(Mapping[str, pa.Table]):
    """Tables with shifted times, by capture, from `shifts` (entries of metrics/collectives.json)."""

    def __init__(self, tables: Mapping[str, pa.Table], shifts: list[Mapping[str, Any]]) -> None:
        self._tables, self._shifts = tables, shifts

    def __getitem__(self, name: str) -> pa.Table:
        table = self._tables[name]
        if not self._shifts or "capture" not in ALL[name].columns:
            return table
        capture = pc.fill_null(table["capture"], -1).to_numpy()
        for column in (time_column for time_column in TIMES if time_column in ALL[name].columns):
            table = table.set_column(table.schema.get_field_index(column), ALL[name].schema.field(column),
                                     self._moved(table[column], capture))
        return table

    def __contains__(self, name: object) -> bool:
        return name in self._tables

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def _moved(self, column: pa.ChunkedArray, capture: NDArray[np.int64]) -> pa.Array:
        times, missing = pc.fill_null(column, 0).to_numpy(), column.is_null().to_numpy()
        for shift in self._shifts:
            new = clockfit.moved(times, shift["origin_ns"], shift["offset_ns"], shift["drift_ppm"])
            times = np.where(capture == shift["capture"], new, times)
        return pa.array(times, mask=missing)
