"""Working space on disk while a session's tables are made: files without a name, gone with the process that has them.

They are in the session's folder, on the disk that must hold the tables in any case. A file is unlinked as soon as it
is open, so even a killed process leaves none.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
from msgspec import Struct

from aaco.core import files
from aaco.core.arrays import Ints

IN_MEMORY = 1 << 17  # cells; a smaller array needs no file


class Stored(Struct, frozen=True):
    """The place of a batch in its temporary file."""

    offset: int
    size: int
    schema: pa.Schema
    rows: int


class Scratch:
    """Record batches in a file: written at its end, read from anywhere. It is made when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._end = 0

    def write(self, batch: pa.RecordBatch) -> Stored:
        """Keep a batch. Raises StorageError."""
        message = batch.serialize()
        with files.storage(self._folder):
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 - until close()
            files.write_all(self._file.fileno(), memoryview(message))
        stored = Stored(self._end, message.size, batch.schema, batch.num_rows)
        self._end += message.size
        return stored

    def read(self, stored: Stored) -> pa.RecordBatch:
        """A batch that was kept. Raises StorageError."""
        if self._file is None:
            raise ValueError("nothing was written")
        with files.storage(self._folder):
            message = os.pread(self._file.fileno(), stored.size, stored.offset)
        return pa.ipc.read_record_batch(pa.py_buffer(message), stored.schema)

    def close(self) -> None:
        """Give the disk back."""
        if self._file is not None:
            self._file.close()
            self._file = None


class DiskArray:
    """int64 cells, all 0 at first. They take disk, and memory only while they are touched."""

    def __init__(self, cells: int, folder: Path) -> None:
        self._map: mmap.mmap | None = None
        if cells <= IN_MEMORY:
            self._cells: Ints = np.zeros(cells, np.int64)
            return
        with files.storage(folder), tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, 8 * cells)  # a full disk must be an error here, not a signal later
            self._map = mmap.mmap(file.fileno(), 8 * cells)
        self._cells = np.frombuffer(self._map, np.int64)

    def __getitem__(self, where: Ints | slice) -> Ints:
        values: Ints = self._cells[where].copy()
        self._forget()
        return values

    def __setitem__(self, where: Ints | slice, values: Ints | int) -> None:
        self._cells[where] = values
        self._forget()

    def _forget(self) -> None:
        """Let go of the touched pages: they stay in the file, and count no more as this process's memory."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)
