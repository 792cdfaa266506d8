"""Call trees from time alone: which call encloses which, per thread, streamed in order of their start.

A call is inside another of its thread when it starts not before it and before its end, and ends not after it. Of all
calls that enclose it, its parent is the one latest in order: by start, of equal starts the longer first, then as
recorded. Calls that merely overlap (asynchronous ones) are not inside each other. So defined, the order is a walk of
the tree, depth first, and a call's descendants follow it without a gap; both are used below.

A Python function has returned when the operator or the Python function that called it ends. PyTorch's profiler ends
some functions of C extensions only with the recording (2.11, with stacks): such an end counts as that of what is around
the call, which would otherwise be hidden from all that runs inside.
"""

from __future__ import annotations

from enum import IntFlag
from typing import NamedTuple

import numpy as np

from aaco.core.arrays import Ints

NONE = -1
END = np.iinfo(np.int64).max  # of the sentinel before each thread's calls: it encloses everything


class Role(IntFlag):
    """What is known of a call's end."""

    ANY = 0
    HOLDS = 1  # all Python functions called inside have returned by then
    RETURNS = 2  # a Python function: what called it ends later


class Calls(NamedTuple):
    """Calls as parallel arrays, in order: thread (a small number), id, start and end in ns, and Role."""

    thread: Ints
    id: Ints
    start: Ints
    end: Ints
    role: Ints


class Grown(NamedTuple):
    """What is known after more calls: of the new ones their parent's id (or NONE) and their place in the thread's
    walk; of those that ended in between the id and the number of calls inside, themselves included."""

    parent: Ints
    preorder: Ints
    closed: Ints
    subtree: Ints


class Forest:
    """Call trees of many threads. Memory: one entry per open call, and one per thread."""

    def __init__(self) -> None:
        self._open = Calls(*(np.array([], np.int64) for _ in Calls._fields))
        self._open_preorder = np.array([], np.int64)
        self._count = np.array([], np.int64)  # calls seen, by thread

    def grow(self, calls: Calls) -> Grown:
        """Take the next calls, none of which starts before an earlier one."""
        threads = 1 + int(max(calls.thread.max(initial=-1), len(self._count) - 1))
        self._count = np.concatenate([self._count, np.zeros(threads - len(self._count), np.int64)])
        open_ids, known_preorder = self._open, self._open_preorder
        everything = Calls(*(np.concatenate(pair) for pair in zip(open_ids, calls, strict=True)))
        order = np.argsort(everything.thread.astype(np.uint16 if threads < 1 << 16 else np.int64), kind="stable")
        line = _Line(_returned(Calls(*(column[order] for column in everything))))
        new = order >= len(open_ids.id)
        preorder = np.empty(len(order), np.int64)
        preorder[~new] = known_preorder[order[~new]]
        preorder[new] = _ranks(line.calls.thread[new]) + self._count[line.calls.thread[new]]
        self._count += np.bincount(calls.thread, minlength=threads)
        parents = line.parents()
        follower = line.followers()
        open_ = follower == NONE
        after = np.where(open_, self._count[line.calls.thread], preorder[follower])
        now = int(calls.start[-1]) if len(calls.start) else 0
        ended = ~open_ | (line.calls.end <= now)
        self._open = Calls(*(column[~ended] for column in line.calls))
        self._open_preorder = preorder[~ended]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        back = back[len(open_ids.id):]
        return Grown(parents[back], preorder[back], line.calls.id[ended], (after - preorder)[ended])

    def close(self) -> tuple[Ints, Ints]:
        """The calls still open at the end: their ids and subtree sizes."""
        return self._open.id, self._count[self._open.thread] - self._open_preorder


def _returned(calls: Calls) -> Calls:
    """Return calls of all threads, one thread after the other, with no Python function that outlasts its caller."""
    if not (calls.role & Role.RETURNS).any():
        return calls
    end, around, last = calls.end.copy(), list[int](), NONE
    rows = np.flatnonzero(calls.role)
    holds, returns = (calls.role[rows] & role > 0 for role in (Role.HOLDS, Role.RETURNS))
    columns = (column.tolist() for column in (rows, calls.thread[rows], calls.start[rows], end[rows], holds, returns))
    for row, thread, began, ended, is_around, is_inside in zip(*columns, strict=True):
        if thread != last:
            around, last = [], thread
        while around and around[-1] <= began:
            around.pop()
        if is_inside and around and around[-1] < ended:
            end[row] = ended = around[-1]
        if is_around:
            around.append(ended)
    return calls._replace(end=end)


class _Line:
    """Calls of all threads one thread after the other, with a sentinel before each thread and one at the end."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        first = np.flatnonzero(np.diff(calls.thread, prepend=-1, append=-1) if len(calls.thread) else [0])
        # What a call needs of an enclosing one's end: an empty call needs an instant more.
        needs = calls.end + (calls.end == calls.start)
        places = np.arange(len(calls.id))
        self.at = places + np.searchsorted(first, places, "right")
        self._needs = np.insert(needs, first, END)
        self._ends = np.insert(calls.end, first, END)

    def parents(self) -> Ints:
        """Of each call the id of its parent, or NONE: the last one before it that ends late enough."""
        positions = _last_at_least(self._ends, self.at, self._needs[self.at])
        ids = np.full(len(self._ends), NONE)
        ids[self.at] = self.calls.id
        return ids[positions]

    def followers(self) -> Ints:
        """Of each call the position of the first later one of its thread that is not inside it, or NONE."""
        # Mirrored, it is the same search: the last one that needs more than this call's end.
        size = len(self._needs)
        found = size - 1 - _last_at_least(self._needs[::-1], size - 1 - self.at, self._ends[self.at] + 1)
        positions = np.full(size, NONE)
        positions[self.at] = np.arange(len(self.at))
        return positions[found]


def _last_at_least(values: Ints, at: Ints, least: Ints) -> Ints:
    """Return for each position the last one before it with at least the required value; the first value always is.

    It goes back over windows of 1, 2, 4, ... values while their maximum is too low, then halves the window that is not:
    a search of 2 log(distance) steps for each, all at once.
    """
    here, windows, resting = at - 1, [values], list[Ints]()
    moving = np.arange(len(at))
    while len(moving):
        level = len(resting)
        if level == len(windows):
            windows.append(_wider(windows[-1], 1 << (level - 1)))
        low = windows[level][here[moving]] < least[moving]
        resting.append(moving[~low])
        moving = moving[low]
        here[moving] -= 1 << level
    for level in reversed(range(len(resting) - 1)):
        moving = np.concatenate([moving, resting[level + 1]])
        back = moving[windows[level][here[moving]] < least[moving]]
        here[back] -= 1 << level
    return here


def _wider(window: Ints, half: int) -> Ints:
    """The maxima of windows twice as long, cut off at the first value."""
    wider = window.copy()
    np.maximum(window[half:], window[:-half], out=wider[half:])
    return wider


def _ranks(groups: Ints) -> Ints:
    """Of each element its position among the equal ones, which are next to each other."""
    first = np.flatnonzero(np.diff(groups, prepend=-1))
    return np.arange(len(groups)) - np.repeat(first, np.diff(first, append=len(groups)))
