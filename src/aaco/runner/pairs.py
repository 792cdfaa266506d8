"""The raw record of a duet: five int64 per turn, appended as they happen; and the known work timed with them.

If a tracer recorded the device, one more int64 per turn, in a second file: how long the device worked.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from msgspec import Struct

from aaco.core import files
from aaco.core.errors import BadCapture
from aaco.core.records import as_dict

if TYPE_CHECKING:
    import pyarrow as pa

    from aaco.core.tables import TableSpec

ROW = struct.Struct("<5q")  # pair, side, t_start_ns, t_end_ns, spin_ns
SIDES = ("baseline", "current")
Kind = Literal["change", "baseline control", "current control"]
_DAMAGED = "the file was damaged after the run; aaco info SESSION checks the hashes"
SKEW_NS = 2000  # of a device's time by two clocks, each of which may be a microsecond off at its end of the turn
SPINS = 4000  # turns of an empty loop, some 50 us: long against a clock reading, short against most inferences


class DuetPlan(Struct, frozen=True):
    """One process's part of the plan, drawn before it starts.

    kind: what its two sides are: baseline and current, or twice the same. created: in which order the sides are
    created, as numbers of SIDES. first: per pair, the side that goes first.
    """

    process: int
    kind: Kind
    created: tuple[int, int] | None
    first: tuple[int, ...]

    @property
    def sides(self) -> tuple[int, int]:
        """Return which of the two compared things its sides are."""
        return {"change": (0, 1), "baseline control": (0, 0), "current control": (1, 1)}[self.kind]

    def document(self) -> dict[str, Any]:
        """Return the plan as JSON."""
        return as_dict(self)

    @classmethod
    def of(cls, document: dict[str, Any]) -> DuetPlan:
        """Return the plan of a JSON document. Raise ValueError for an impossible plan."""
        created = document["created"]
        made = cls(document["process"], document["kind"], created and (created[0], created[1]),
                   tuple(document["first"]))
        if (created and sorted(created) != [0, 1]) or set(made.first) - {0, 1} or made.kind not in get_args(Kind):
            raise ValueError(f"process {made.process}: not a plan of a duet")
        return made


def path_of(folder: Path, process: int) -> Path:
    """Return the raw file of the process with this index inside a session folder."""
    return folder / "runtime" / f"pairs-{process:06d}.i64"


def device_path_of(folder: Path, process: int) -> Path:
    """Return the raw file of the device's time in each turn of that process, if it was recorded."""
    return folder / "runtime" / f"device-{process:06d}.i64"


def keep_device(folder: Path, process: int, busy_ns: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    """Write the device's time in each turn, in their order. Raise StorageError."""
    files.write_atomically(device_path_of(folder, process), lambda file: file.write(busy_ns.astype("<i8").tobytes()))


def spin() -> int:
    """Return the time of a fixed piece of work now, ns: longer than usual if other work uses the processor."""
    clock = time.monotonic_ns
    start = clock()
    for _ in range(SPINS):
        pass
    return clock() - start


def append(descriptor: int, pair: int, side: int, start_ns: int, end_ns: int, spin_ns: int) -> None:
    """Append one row by one write(2), so that a kill costs at most the row in flight. Raise OSError."""
    os.write(descriptor, ROW.pack(pair, side, start_ns, end_ns, spin_ns))


def count(path: Path) -> int:
    """Return the whole pairs in the file so far; 0 if it does not exist yet."""
    try:
        return path.stat().st_size // ROW.size // 2
    except FileNotFoundError:
        return 0


def parse(folder: Path, planned: Sequence[DuetPlan]) -> pa.Table:
    """Return the pairs of these processes as the pairs table, `disturbed` left null, without a torn last row or pair.

    Raise BadCapture on rows that differ from the plan, or impossible times.
    """
    import pyarrow as pa  # here, because the measured process imports this module and must stay light

    from aaco.core.tables import PAIRS

    return pa.concat_tables([_parse_process(folder, duet, PAIRS) for duet in planned] or [PAIRS.build()])


def _parse_process(folder: Path, duet: DuetPlan, table: TableSpec) -> pa.Table:
    path = path_of(folder, duet.process)
    rows = turns_of(path)
    pairs = len(rows) // 2
    if pairs > len(duet.first):
        raise BadCapture(f"{path}: more pairs than were planned", _DAMAGED)
    first = np.array(duet.first[:pairs], np.int64)
    planned = np.stack([np.arange(pairs).repeat(2), np.stack([first, 1 - first], 1).ravel()], 1)
    rows = rows[:2 * pairs]
    if (rows[:, :2] != planned).any():
        raise BadCapture(f"{path}: its rows are not in the order that was planned", _DAMAGED)
    if (rows[:, 3] <= rows[:, 2]).any() or (np.diff(rows[:, 2]) < 0).any() or (rows[:, 4] <= 0).any():
        raise BadCapture(f"{path}: times that cannot be", _DAMAGED)
    turns = rows.reshape(pairs, 2, 5)
    place = {name: (np.arange(pairs), np.where(first == number, 0, 1)) for number, name in enumerate(SIDES)}
    side = {name: turns[at] for name, at in place.items()}
    busy = _read_device(device_path_of(folder, duet.process), rows)
    device = {} if busy is None else {f"{name}_device_ms": busy[at] / 1e6 for name, at in place.items()}
    times = {f"{name}_{end}_ns": values[:, 2 + at] for name, values in side.items()
             for at, end in enumerate(("start", "end"))}
    created_first = SIDES[duet.created[0]] if duet.created else None
    return table.build(process=np.full(pairs, duet.process), kind=[duet.kind] * pairs, pair=np.arange(pairs),
                       created_first=[created_first] * pairs, ran_first=[SIDES[side_number] for side_number in first],
                       spin_ns=turns[:, :, 4].max(axis=1, initial=0), **times, **device,
                       **{f"{name}_ms": (values[:, 3] - values[:, 2]) / 1e6 for name, values in side.items()})


def turns_of(path: Path) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return the whole rows of a file, in order. Raise BadCapture if there is none."""
    raw = _read(path)
    return np.frombuffer(raw[: len(raw) // ROW.size * ROW.size], "<i8").reshape(-1, 5)


def _read_device(path: Path, rows: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]] | None:
    """Return the device's time per pair and turn; None if it was not recorded. Raise BadCapture."""
    if not path.exists():
        return None
    raw = _read(path)
    if len(raw) != 8 * len(rows):
        raise BadCapture(f"{path}: {len(raw)} bytes for {len(rows)} turns", _DAMAGED)
    busy = np.frombuffer(raw, "<i8")
    if (busy <= 0).any() or (busy > rows[:, 3] - rows[:, 2] + SKEW_NS).any():
        raise BadCapture(f"{path}: times that cannot be", _DAMAGED)
    return busy.reshape(-1, 2)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadCapture(f"{path}: {error.strerror}", _DAMAGED) from error
