"""Where in a program the host waits for the device: the operator and the function of Python around each such call."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from aaco.analytics.streaming.calls import is_runtime, waits_for_the_device
from aaco.analytics.streaming.stream_ids import NONE, NameIds, integers
from aaco.core import documents
from aaco.core.arrays import Ints, joined
from aaco.tracelake import layout

NAME = "wait_places"
COLUMNS = ("call_id", "parent_id", "name", "domain", "t_start_ns", "t_end_ns")
MOST = 20  # places that are kept, those with most waiting first
OPERATOR, FRAME = "cpu_op", "python"
# Functions of PyTorch and of Python itself, which a user does not edit.
_OF_A_LIBRARY = re.compile(r"(.*/)?(torch|site-packages|dist-packages|python3\.\d+|lib/python\S*)/|<|nn\.Module: ")


@dataclass(frozen=True)
class WaitPlace:
    """A place in a program: call: of the runtime, in which the host waits; operator: the outermost one around it, and
    frame: the innermost function of the program's own, None where none was recorded. count, ns: of the waits there.
    """

    call: str
    operator: str | None
    frame: str | None
    count: int
    ns: int

    @property
    def text(self) -> str:
        """The place in a few words."""
        return f"{self.operator or self.call}{f' in {self.frame}' if self.frame else ''}"


@documents.document(layout.finding(NAME), version=1)
@dataclass(frozen=True)
class WaitPlaces:
    """wait_places.json: the places with most waiting first, of all that there are. frames: whether functions of Python
    were recorded.
    """

    places: tuple[WaitPlace, ...]
    of: int
    frames: bool


class WaitPlaceCollector:
    """Takes in the calls of the host in order of their numbers, a piece at a time."""

    def __init__(self) -> None:
        """Begin without calls."""
        self._names, self._domains = NameIds(), NameIds()
        self._columns: list[tuple[Ints, ...]] = []
        self._waits: list[tuple[Ints, Ints]] = []

    def feed(self, calls: pa.RecordBatch) -> None:
        """Take in calls that have the COLUMNS; of those into a runtime only the waits are kept."""
        name, domain = self._names.numbers(calls["name"]), self._domains.numbers(calls["domain"])
        number, parent, start, end = (integers(calls[column]) for column in COLUMNS if column not in ("name", "domain"))
        is_wait = np.array([*map(waits_for_the_device, self._names.known), False])[name] & (start != NONE)
        kept = is_wait | ~np.array([*map(is_runtime, self._domains.known), False])[domain]
        self._columns.append(tuple(column[kept] for column in (number, parent, name, domain)))
        self._waits.append((number[is_wait], np.maximum(0, end - start)[is_wait]))

    def result(self) -> WaitPlaces:
        """Return the places. A wait inside of no range is left out where others have one: the profiler's own."""
        if not any(len(waits) for waits, _ in self._waits):
            return WaitPlaces((), 0, False)
        number, parent, name, domain = (joined(parts) for parts in zip(*self._columns, strict=True))
        row_of = np.full(int(number.max(initial=-1)) + 2, -1)
        row_of[number] = np.arange(len(number))
        above = row_of[np.where((parent >= 0) & (parent < len(row_of)), parent, -1)]
        waits, took = (joined(parts) for parts in zip(*self._waits, strict=True))
        sums: dict[tuple[str, str | None, str | None], list[int]] = defaultdict(lambda: [0, 0])
        kinds, domains = self._names.known, [*self._domains.known, ""]
        for row, ns in zip(row_of[waits].tolist(), took.tolist(), strict=True):
            place = (kinds[name[row]], *_around(row, above, name, domain, kinds, domains))
            sums[place][0] += 1
            sums[place][1] += ns
        ranged = any(operator or frame for _, operator, frame in sums)
        found = sorted((WaitPlace(*place, count, ns) for place, (count, ns) in sums.items()
                        if not ranged or place[1] or place[2]), key=lambda one: (-one.ns, one.text))
        return WaitPlaces(tuple(found[:MOST]), len(found), FRAME in domains)


def _around(row: int, above: Ints, name: Ints, domain: Ints, kinds: list[str], domains: list[str]
            ) -> tuple[str | None, str | None]:
    """Return the outermost operator around a call, and the innermost function of the program's own around that."""
    operator, frame = None, None
    row = int(above[row])
    while row >= 0:
        if domains[domain[row]] == OPERATOR and frame is None:
            operator = kinds[name[row]]
        elif domains[domain[row]] == FRAME:
            frame = frame or kinds[name[row]]
            if not _OF_A_LIBRARY.match(kinds[name[row]]):
                return operator, kinds[name[row]]
        row = int(above[row])
    return operator, frame
