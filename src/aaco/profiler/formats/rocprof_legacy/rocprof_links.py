"""The arrows of rocprof's results.json: from a call to the work it launched, by place and microsecond only.

An arrow has two ends with an id in common. One names the process row, thread and a microsecond inside the call; the
other the row, lane and the microsecond at which the work starts (rocm-systems, projects/rocprofiler/bin/tblextr.py and
sqlitedb.py, flow_json).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct

from aaco.core.arrays import Ints, find_sorted, joined

NONE = -1


class Spots(Struct, frozen=True):
    """Places in the picture: row, lane and microsecond of each."""

    row: Ints
    lane: Ints
    us: Ints

    @classmethod
    def of(cls, spots: Sequence[tuple[int, int, int]]) -> Spots:
        """Return the spots of tuples."""
        return cls(*np.array(spots, np.int64).reshape(-1, 3).T)

    @classmethod
    def all(cls, parts: Iterable[Spots]) -> Spots:
        """Return the spots of all parts, in order."""
        columns = list(zip(*((part.row, part.lane, part.us) for part in parts), strict=True)) or [()] * 3
        return cls(*(joined(column) for column in columns))


class Arrows(Struct, frozen=True):
    """Both ends of the arrows, and their ids."""

    ids: Ints
    start: Spots
    end: Spots


def paired(ids: Ints, spots: Spots, start_ids: Ints, starts: Spots) -> Arrows:
    """Return arrows of the ends (ids, spots) whose start exists; of several starts with one id the first is taken."""
    distinct_ids, first = np.unique(start_ids, return_index=True)
    at = find_sorted(distinct_ids, ids)
    has_start = at >= 0
    return Arrows(ids[has_start], _take(starts, first[at[has_start]]), _take(spots, np.flatnonzero(has_start)))


def linked(arrows: Arrows, calls: Spots, works: Spots) -> tuple[Ints, Ints]:
    """Return the id of each call and of each piece of work; NONE if no arrow links it.

    An arrow starts at the last call of its thread that began by then, and ends at the work of its lane that starts
    then. All arrows of a call get the least of its ids, so that work finds its call by one number.
    """
    call, work = _last_begun(arrows.start, calls), _begun_at(arrows.end, works)
    good = (call >= 0) & (work >= 0)
    call, work, ids = call[good], work[good], arrows.ids[good]
    of_call = np.full(len(calls.us), np.iinfo(np.int64).max, np.int64)
    np.minimum.at(of_call, call, ids)
    of_work = np.full(len(works.us), NONE, np.int64)
    of_work[work] = of_call[call]
    of_call[of_call == np.iinfo(np.int64).max] = NONE
    return of_call, of_work


def _last_begun(spots: Spots, things: Spots) -> Ints:
    """Return for each spot the last thing on its row and lane that begins at or before it."""
    places = np.full(len(spots.us), NONE, np.int64)
    for spot_rows, rows in _lanes(spots, things):
        order = rows[np.argsort(things.us[rows], kind="stable")]
        at = np.searchsorted(things.us[order], spots.us[spot_rows], side="right") - 1
        places[spot_rows] = np.where(at >= 0, order[np.maximum(at, 0)], NONE)
    return places


def _begun_at(spots: Spots, things: Spots) -> Ints:
    """Return for each spot the thing on its row and lane that begins there; the n-th spot of a place has its n-th
    thing.
    """
    places = np.full(len(spots.us), NONE, np.int64)
    for spot_rows, rows in _lanes(spots, things):
        order = rows[np.argsort(things.us[rows], kind="stable")]
        by_time = spot_rows[np.argsort(spots.us[spot_rows], kind="stable")]
        us = spots.us[by_time]
        nth = np.arange(len(us)) - np.searchsorted(us, us)
        at = np.searchsorted(things.us[order], us) + nth
        candidates = order[np.minimum(at, len(order) - 1)]
        places[by_time] = np.where((at < len(order)) & (things.us[candidates] == us), candidates, NONE)
    return places


def _lanes(spots: Spots, things: Spots) -> Iterable[tuple[Ints, Ints]]:
    """Yield for each row and lane that both have, the spots and the things there."""
    for row in np.intersect1d(spots.row, things.row).tolist():
        spot_rows, thing_rows = np.flatnonzero(spots.row == row), np.flatnonzero(things.row == row)
        for lane in np.intersect1d(spots.lane[spot_rows], things.lane[thing_rows]).tolist():
            yield spot_rows[spots.lane[spot_rows] == lane], thing_rows[things.lane[thing_rows] == lane]


def _take(spots: Spots, rows: Ints) -> Spots:
    return Spots(spots.row[rows], spots.lane[rows], spots.us[rows])
