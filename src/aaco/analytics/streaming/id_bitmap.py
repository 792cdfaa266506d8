"""Flags of integers that a trace gives out, such as correlation ids. Dense ids take a byte each, others nine bytes
each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from aaco.core.arrays import Ints, UInts8

SPREAD = 64  # ids spread wider than this many times their number are not close together
FEW = 1 << 14
PIECE = 1 << 20


class IdBitmap:
    """Every integer has flags, none at first."""

    def __init__(self) -> None:
        self._first = 0
        self._flags: UInts8 | None = np.zeros(0, np.uint8)  # of the ids from _first on; None if they are sparse
        self._runs: list[tuple[Ints, UInts8]] = []  # sparse ids: each run ascending, without duplicates
        self._marked = 0

    def mark(self, ids: Ints, flags: UInts8 | int) -> None:
        """Add flags to ids, which may repeat."""
        if not len(ids):
            return
        ids, flags = _once(ids, np.broadcast_to(np.asarray(flags, np.uint8), len(ids)))
        self._marked += len(ids)
        if self._flags is not None and not self._make_room(int(ids[0]), int(ids[-1])):
            self._runs, self._flags = [piece for piece in self.pieces() if len(piece[0])], None
        if self._flags is not None:
            self._flags[ids - self._first] |= flags
        else:
            self._runs.append((ids, flags))
            self._merge()

    def of(self, ids: Ints) -> UInts8:
        """Return the flags of each id."""
        found_flags = np.zeros(len(ids), np.uint8)
        if self._flags is not None:
            inside = (ids >= self._first) & (ids < self._first + len(self._flags))
            found_flags[inside] = self._flags[ids[inside] - self._first]
        for run_ids, flags in self._runs:
            at = np.minimum(np.searchsorted(run_ids, ids), len(run_ids) - 1)
            found_flags |= np.where(run_ids[at] == ids, flags[at], np.uint8(0))
        return found_flags

    def pieces(self) -> Iterator[tuple[Ints, UInts8]]:
        """Yield every marked id, ascending, and its flags."""
        if self._flags is not None:
            for at in range(0, len(self._flags), PIECE):
                flags = self._flags[at:at + PIECE]
                places = np.flatnonzero(flags)
                yield places + (self._first + at), flags[places]
            return
        while len(self._runs) > 1:
            self._merge(all_of_them=True)
        for ids, flags in self._runs:
            yield ids, flags

    def _make_room(self, least: int, most: int) -> bool:
        """Extend the bitmap to these ids; return False if they are too sparse for it."""
        assert self._flags is not None
        end = self._first + len(self._flags) if len(self._flags) else least
        first = min(self._first, least) if len(self._flags) else least
        last = max(end, most + 1)
        if last - first > SPREAD * max(self._marked, FEW):
            return False
        if first < self._first or last > end or not len(self._flags):
            room = np.zeros(max(last - first, len(self._flags) * 5 // 4), np.uint8)
            room[self._first - first if len(self._flags) else 0:][:len(self._flags)] = self._flags
            self._first, self._flags = first, room
        return True

    def _merge(self, all_of_them: bool = False) -> None:
        """Keep the runs few: merge the last two runs unless the older is at least twice as long."""
        while len(self._runs) > 1 and (all_of_them or len(self._runs[-2][0]) < 2 * len(self._runs[-1][0])):
            (ids, flags), (more, new) = self._runs[-2:]
            self._runs[-2:] = [_once(np.concatenate((ids, more)), np.concatenate((flags, new)))]


def holes(marks: IdBitmap, flag: int, longest: int) -> tuple[int, int]:
    """Return, of the ids with a flag, how many are missing in holes of at most `longest`, and how many there are."""
    missing, count, last = 0, 0, None
    for ids, flags in marks.pieces():
        marked_ids = ids[flags & flag > 0]
        if not len(marked_ids):
            continue
        steps = np.diff(marked_ids, prepend=marked_ids[0] if last is None else last)
        missing += int((steps[(steps > 1) & (steps <= longest + 1)] - 1).sum())
        count, last = count + len(marked_ids), int(marked_ids[-1])
    return missing, count


def _once(ids: Ints, flags: UInts8) -> tuple[Ints, UInts8]:
    """Return the ids ascending, each once, with all the flags it has."""
    if (ids[1:] > ids[:-1]).all():
        return ids, flags
    order = np.argsort(ids, kind="stable")
    ids, flags = ids[order], flags[order]
    first = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
    return ids[first], np.bitwise_or.reduceat(flags, first)
