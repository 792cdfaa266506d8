"""Slices on tracks of a viewer: what overlaps without nesting goes side by side, and ends come in the right order.

A viewer closes the slice that was opened last, so on one track slices must nest. Those that only overlap are moved to
further lanes of the track. Where an end and a begin share their time, their order decides what nests in what.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aaco.core.arrays import Ints
from aaco.tracelake.ingest.calltree import Calls, Forest


class Laid(NamedTuple):
    """Per slice: its lane (0 is the track itself), and the positions of its begin and end among all of them."""

    lane: Ints
    begin: Ints
    end: Ints


def lay(track: Ints, start: Ints, end: Ints) -> Laid:
    """Lanes and order of slices [start, end) on tracks (small numbers)."""
    laid = Laid(*(np.zeros(len(track), np.int64) for _ in range(3)))
    rows, lane, taken = np.arange(len(track)), 0, 0
    while len(rows):
        rows = rows[np.lexsort((-end[rows], start[rows], track[rows]))]
        parent, size = _tree(track[rows], start[rows], end[rows])
        clash = _clashes(track[rows], parent, start[rows], end[rows])
        moved = _cover(np.flatnonzero(clash), size[clash], len(rows)) > 0  # with all that is inside
        stay = rows[~moved]
        if moved.any():  # what stays has a tree of its own
            parent, size = _tree(track[stay], start[stay], end[stay])
        place = np.arange(len(stay))
        laid.lane[stay] = lane
        laid.begin[stay] = taken + 2 * place - (_cover(place, size, len(stay)) - 1)
        laid.end[stay] = laid.begin[stay] + 2 * size - 1
        taken += 2 * len(stay)
        rows, lane = rows[moved], lane + 1
    return laid


def _tree(track: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Of sorted slices: the row of the parent (-1 for none), and how many slices are inside, with itself."""
    by_time = np.argsort(start, kind="stable")
    forest = Forest()
    grown = forest.grow(Calls(track[by_time], by_time, start[by_time], end[by_time], np.zeros(len(by_time), np.int64)))
    parent, size = np.empty(len(track), np.int64), np.empty(len(track), np.int64)
    parent[by_time] = grown.parent
    size[grown.closed] = grown.subtree
    still, subtree = forest.close()
    size[still] = subtree
    return parent, size


def _clashes(track: Ints, parent: Ints, start: Ints, end: Ints) -> NDArray[np.bool_]:
    """Slices that begin before an earlier one inside the same parent has ended."""
    order = np.lexsort((np.arange(len(track)), parent, track))
    group = np.cumsum((np.diff(track[order], prepend=-1) != 0) | (np.diff(parent[order], prepend=-2) != 0))
    times, code = np.unique(np.concatenate((start, end)), return_inverse=True)
    began, ended = code[:len(start)][order], code[len(start):][order]
    reach = np.maximum.accumulate(group * len(times) + ended) - group * len(times)
    clash = np.zeros(len(track), bool)
    clash[order[1:]] = (group[1:] == group[:-1]) & (reach[:-1] > began[1:])
    return clash


def _cover(first: Ints, size: Ints, count: int) -> Ints:
    """Return for each of `count` places how many of the runs [first, first + size) contain it."""
    change = np.zeros(count + 1, np.int64)
    np.add.at(change, first, 1)
    np.add.at(change, first + size, -1)
    return np.cumsum(change)[:count]
