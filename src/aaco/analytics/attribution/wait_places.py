"""Where in a program the host waits for the device: the operator and the function of Python around each such call."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
from msgspec import Struct

from aaco.analytics.attribution.call_context import FRAME
from aaco.analytics.streaming.calls import is_runtime, waits_for_the_device
from aaco.analytics.streaming.stream_ids import NONE, NameIds, integers
from aaco.core import documents
from aaco.core.arrays import Ints, find_sorted, joined
from aaco.core.distinct import coded
from aaco.tracelake import layout

NAME = "wait_places"
COLUMNS = ("call_id", "parent_id", "name", "domain", "t_start_ns", "t_end_ns")
MOST = 20  # places that are kept, those with most waiting first
OPERATOR, PYTHON = "cpu_op", "python"
# Frames that synchronise in order to profile: PyTorch's profiler, which waits as it ends, and harnesses around it.
PROFILING = re.compile(r"(?:.*/)?torch/(?:autograd/)?profiler\b"
                       r"|(?=.*\.py\()(?:(?!\.py\().)*?profil(?:er|ing|e)\b", re.IGNORECASE)


class WaitPlace(Struct, frozen=True):
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
class WaitPlaces(Struct, frozen=True):
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
        name, domain = (np.maximum(-1, ids.numbers(calls[column])) for ids, column in (
            (self._names, "name"), (self._domains, "domain")))  # -1: of none
        number, parent, start, end = (integers(calls[column]) for column in COLUMNS if column not in ("name", "domain"))
        is_wait = np.array([*map(waits_for_the_device, self._names.known), False])[name] & (start != NONE)
        kept = is_wait | ~np.array([*map(is_runtime, self._domains.known), False])[domain]
        self._columns.append(tuple(column[kept] for column in (number, parent, name, domain)))
        self._waits.append((number[is_wait], np.maximum(0, end - start)[is_wait]))

    def result(self) -> WaitPlaces:
        """Return the places without the profiler's own waits: those of its code outside of every operator, and those in
        no range where others are in one.
        """
        if not any(len(waits) for waits, _ in self._waits):
            return WaitPlaces((), 0, False)
        number, parent, name, domain = (joined(parts) for parts in zip(*self._columns, strict=True))
        waits, took = (joined(parts) for parts in zip(*self._waits, strict=True))
        above, rows = find_sorted(number, parent), find_sorted(number, waits)
        above[above >= np.arange(len(above))] = -1  # what is around a call begins before it
        around = (name[rows], *self._around(rows, above, name, domain))
        place, first = coded(*around)
        texts = [*self._names.known, ""]
        found = [WaitPlace(texts[called], texts[operator] or None, texts[frame] or None, count, ns)
                 for called, operator, frame, count, ns in zip(
                     *(column[first].tolist() for column in around), np.bincount(place).tolist(),
                     np.bincount(place, took).astype(int).tolist(), strict=True)]
        profilers = [one for one in found if not one.operator and one.frame and PROFILING.match(one.frame)]
        ranged = [one for one in found if (one.operator or one.frame) and one not in profilers] or (
            [] if profilers else found)
        ranged.sort(key=lambda one: (-one.ns, one.text))
        return WaitPlaces(tuple(ranged[:MOST]), len(ranged), PYTHON in self._domains.known)

    def _around(self, rows: Ints, above: Ints, name: Ints, domain: Ints) -> tuple[Ints, Ints]:
        """Return by name the outermost operator around each of these calls, and the innermost function of the program's
        own or of a profiler around that, else of a library; -1 where there is none. above: the row of what is right
        around each row.
        """
        is_own = np.array([bool(FRAME.match(text) or PROFILING.match(text)) for text in self._names.known] + [False])
        of_domain = {text: number for number, text in enumerate(self._domains.known)}
        operator, frame, at = np.full(len(rows), -1), np.full(len(rows), -1), above[rows]
        while (left := np.flatnonzero(at >= 0)).size:
            called, kind = name[at[left]], domain[at[left]]
            in_operator = (kind == of_domain.get(OPERATOR, -2)) & (frame[left] < 0)
            in_frame = (kind == of_domain.get(PYTHON, -2)) & (called >= 0)
            operator[left[in_operator]] = called[in_operator]
            own = in_frame & is_own[called]
            named = own | (in_frame & (frame[left] < 0))
            frame[left[named]] = called[named]
            at[left] = np.where(own, -1, above[at[left]])
        return operator, frame
