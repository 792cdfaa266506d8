"""The raw record of a timing run: four int64 per inference, appended as they happen, readable at any moment."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from aaco.core import files
from aaco.core.errors import BadCapture

if TYPE_CHECKING:
    import pyarrow as pa

ROW = struct.Struct("<4q")  # iteration, phase, t_start_ns, t_end_ns
PHASES = ("warmup", "measurement")
TRACED = "iterations.i64"  # of a pass under a tracer, in its folder: no row of it is a latency


def path_of(folder: Path, process: int) -> Path:
    """Return the raw file of the process with this index inside a session folder."""
    return folder / "runtime" / f"iterations-{process:06d}.i64"


def append(descriptor: int, iteration: int, phase: int, start_ns: int, end_ns: int) -> None:
    """Append one row by one write(2), so that a kill costs at most the row in flight. Raise OSError."""
    os.write(descriptor, ROW.pack(iteration, phase, start_ns, end_ns))


def count(path: Path) -> int:
    """Return the whole rows in the file so far; 0 if it does not exist yet."""
    try:
        return path.stat().st_size // ROW.size
    except FileNotFoundError:
        return 0


def last(path: Path, most: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return the newest whole rows of a file that may still grow, at most `most`; none if it does not exist yet."""
    end = count(path)
    if not end:
        return np.empty((0, 4), np.int64)
    with path.open("rb") as file:
        file.seek(max(end - most, 0) * ROW.size)
        return _check_rows(path, file.read(min(end, most) * ROW.size))


def measured(path: Path) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return the whole rows of one process that were no warm-up. Raise BadCapture, StorageError."""
    with files.storage(path):
        rows = _read_rows(path)
    return rows[rows[:, 1] == PHASES.index("measurement")]


def parse(folder: Path, batch: int | None) -> pa.Table:
    """Return every process's rows of a session folder as the inference_iters table, without a torn last row.

    Raise BadCapture on a row with an impossible phase or time.
    """
    import pyarrow as pa  # here, because the measured process imports this module and must stay light

    from aaco.core.tables import INFERENCE_ITERS

    files = sorted(folder.glob("runtime/iterations-*.i64"))
    blocks = [_read_rows(path) for path in files]
    process = np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])
    rows = np.concatenate(blocks) if blocks else np.empty((0, 4), np.int64)
    phases = pa.DictionaryArray.from_arrays(pa.array(rows[:, 1], pa.int32()), pa.array(PHASES))
    return INFERENCE_ITERS.build(
        iteration=rows[:, 0], phase=phases, t_start_ns=rows[:, 2], t_end_ns=rows[:, 3],
        latency_ms=(rows[:, 3] - rows[:, 2]) / 1e6, batch=[batch] * len(rows), process=process)


def _read_rows(path: Path) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return _check_rows(path, path.read_bytes())


def _check_rows(path: Path, raw: bytes) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    rows = np.frombuffer(raw[: len(raw) // ROW.size * ROW.size], "<i8").reshape(-1, 4)
    wrong = (rows[:, 1] < 0) | (rows[:, 1] >= len(PHASES)) | (rows[:, 3] < rows[:, 2])
    if wrong.any():
        raise BadCapture(f"{path}: row {int(wrong.argmax())} is impossible: {rows[wrong.argmax()].tolist()}",
                         "the file was damaged after the run; aaco info SESSION checks the hashes")
    return rows
