"""What a check finds, and the slice of a trace that it looks at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from numpy.typing import NDArray

from aaco.core.arrays import Ints
from aaco.core.records import as_dict
from aaco.tracelake.document_schemas.trace_check import CheckedFinding

Weight = Literal["lost", "wrong", "doubt", "note"]
NO_ROWS, IMPOSSIBLE_DURATION = "no_rows", "impossible_duration"  # checks that are asked for by name
RARE = 0.005  # of what was looked at; below this a contradiction is a doubt, not a defect of the whole trace


class Finding(Struct, frozen=True):
    """What one check found in one capture.

    lost: records are missing. wrong: records contradict each other, or what they must be. doubt: may be harmless.
    note: nothing is wrong, but the reader of the numbers must know it. count of `of` records; ns: their time, if any.
    """

    check: str
    weight: Weight
    count: int
    of: int
    text: str
    advice: str = ""
    ns: int | None = None

    @property
    def alarms(self) -> bool:
        """Whether the trace cannot be trusted as it is."""
        return self.weight in ("lost", "wrong")

    def entry(self) -> CheckedFinding:
        """Return the entry of trace_check.json."""
        return CheckedFinding(**as_dict(self), alarms=self.alarms)


class Records:
    """A piece of a table in start order, its columns as numpy arrays on demand."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self._columns: dict[str, Ints] = {}

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __getitem__(self, name: str) -> Ints:
        """Return an integer column; null is -1."""
        if name not in self._columns:
            column = self.table[name]
            self._columns[name] = np.asarray(pc.fill_null(column, -1) if column.null_count else column, np.int64)
        return self._columns[name]

    def known(self, name: str) -> NDArray[np.bool_]:
        """Where the column is not null."""
        return np.asarray(pc.is_valid(self.table[name]), bool)


class Slice(Struct, frozen=True):
    """Everything of one capture that starts in one stretch of time: kernels, copies and fills, and host calls.

    call_part: per call what it does to the device (analytics/streaming/calls.py). launch_part, launch_start: the same
    of the call that launched each kernel, 0 where none was seen yet, and when that began, -1 where unknown.
    """

    kernels: Records
    copies: Records
    calls: Records
    call_part: NDArray[np.int8]
    launch_part: NDArray[np.int8]
    launch_start: Ints


class Check(Protocol):
    """A family of checks over one capture: fed slice by slice in time order, asked at the end."""

    def add(self, piece: Slice) -> None:
        """Look at the next slice."""

    def findings(self) -> Iterator[Finding]:
        """Yield what was found in all slices."""


def weigh(count: int, of: int, serious: Weight = "wrong") -> Weight:
    """`serious` where it concerns more than a rare record, else a doubt."""
    return serious if count > RARE * of else "doubt"
