"""What lies around a host-side call: its operator, its modules, its annotation, found while the call trees stream by.

The trees come ready made (api_calls.parent_id). Only calls that are still open when a slice of the trace ends are kept
for the next one: those alone can have children there.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import IntEnum

import numpy as np
import pyarrow as pa

from aaco.analytics.lanes import NONE, Flags, Ints, Keys, Names, integers

CALL_COLUMNS = ("call_id", "name", "domain", "parent_id", "t_start_ns", "t_end_ns", "capture")
MODULE_PREFIX = "nn.Module: "
STEP_PREFIX = "ProfilerStep#"
DEEPEST = 64  # modules in a path; deeper ones count as the last
MOST_PATHS = 1 << 17


class Is(IntEnum):
    """What a call is, as far as attribution goes."""

    OTHER = 0
    OPERATOR = 1
    MODULE = 2
    ANNOTATION = 3


@dataclass(frozen=True)
class Line:
    """Calls by ascending id, those still open from before first: `carried` of them.

    name: number of the name. inner: time of the operators directly inside, so far. row: a number that the asker keeps
    with the call, -1 until then. The other columns are filled in by Enclosing: position in this line of the parent, of
    the innermost operator (of an operator: itself), of the operator around that, of the outermost one; number of the
    module path and of the annotation's name. -1 stands for none.
    """

    id: Ints
    parent_id: Ints
    start: Ints
    end: Ints
    capture: Ints
    name: Ints
    kind: Ints
    inner: Ints
    row: Ints
    carried: int = 0

    def __len__(self) -> int:
        return len(self.id)

    def take(self, rows: Ints | Flags) -> Line:
        """These calls, as carried ones."""
        some = {each: getattr(self, each)[rows] for each in _COLUMNS}
        return replace(self, **some, carried=len(some["id"]))

    def followed_by(self, other: Line) -> Line:
        """These calls, carried, and after them the other ones."""
        both = {each: np.concatenate([getattr(self, each), getattr(other, each)]) for each in _COLUMNS}
        return replace(self, **both, carried=len(self))


_COLUMNS = tuple(each.name for each in fields(Line) if each.name != "carried")


@dataclass(frozen=True)
class Around:
    """What lies around each call of a line. -1 stands for none.

    operator, above, outermost: positions in the line of the innermost operator (of an operator: itself), of the
    operator around that one, and of the outermost one. path: number of the module path. annotation: number of a name.
    phase: of phases.Phase, 0 until that is asked.
    """

    operator: Ints
    above: Ints
    outermost: Ints
    path: Ints
    annotation: Ints
    phase: Ints


class Enclosing:
    """Makes lines of slices of the api_calls table, and says what lies around each call."""

    def __init__(self) -> None:
        self.names, self._domains = Names(), Names()
        self._of_domain: Ints = np.zeros(0, np.int64)
        self._looks_like: Ints = np.zeros(0, np.int64)
        self._paths = Keys()  # (path around it or -1, name)
        self._depths: list[int] = []
        none = np.zeros(0, np.int64)
        self._open = Line(none, none, none, none, none, none, none, none, none)

    def line(self, rows: pa.Table | pa.RecordBatch) -> Line:
        """The calls of a slice behind those still open. Rows in start order; needs CALL_COLUMNS."""
        name, domain = self.names.numbers(rows["name"]), self._domains.numbers(rows["domain"])
        columns = {each: integers(rows[each]) for each in CALL_COLUMNS if each not in ("name", "domain")}
        start, end, count = columns["t_start_ns"], columns["t_end_ns"], rows.num_rows
        kind = np.where(end >= start, self._kinds(name, domain), Is.OTHER)
        fresh = Line(columns["call_id"], columns["parent_id"], start, end, columns["capture"], name, kind,
                     np.zeros(count, np.int64), np.full(count, -1))
        return self._open.followed_by(fresh)

    def around(self, line: Line) -> Around:
        """What lies around each call of the line."""
        parent = _positions(line.id, line.parent_id)
        operator = nearest(parent, line.kind == Is.OPERATOR)
        above = at(operator, at(parent, operator))
        modules = nearest(parent, line.kind == Is.MODULE)
        path = self._numbered(line, modules, at(modules, parent))
        annotation = nearest(parent, line.kind == Is.ANNOTATION)
        return Around(operator, above, at(_last(above), operator), at(path, modules), at(line.name, annotation),
                      np.zeros(len(line), np.int64))

    @property
    def open_ids(self) -> Ints:
        """The calls that are kept."""
        return self._open.id

    def keep(self, line: Line, until: int | None) -> Flags:
        """Which calls of the line are closed: none that starts at `until` or later can be inside. The others are kept.

        None: everything is.
        """
        closed = np.ones(len(line), bool) if until is None else (line.end <= until)
        self._open = line.take(~closed)
        return closed

    def path(self, number: int) -> str | None:
        """The modules of a path, outermost first; None where there are none (-1)."""
        parts: list[str] = []
        while number >= 0:
            number, name = self._paths.known[number]
            parts.append(self.names.known[name].removeprefix(MODULE_PREFIX))
        return "/".join(reversed(parts)) or None

    def _kinds(self, name: Ints, domain: Ints) -> Ints:
        """What each call is, by its domain and, of Python's ranges and annotations, its name."""
        for known in self._domains.known[len(self._of_domain):]:
            self._of_domain = np.append(self._of_domain, _DOMAINS.get(known, Is.OTHER))
        new = [_like(known) for known in self.names.known[len(self._looks_like):]]
        self._looks_like = np.concatenate([self._looks_like, np.array(new, np.int64)])
        by_domain = np.append(self._of_domain, Is.OTHER)[np.where(domain == NONE, -1, domain)]
        by_name = np.append(self._looks_like, Is.OTHER)[np.where(name == NONE, -1, name)]
        module = (by_domain == Is.MODULE) & (by_name != Is.MODULE)
        step = (by_domain == Is.ANNOTATION) & (by_name == Is.ANNOTATION)
        return np.where(module | step, Is.OTHER, by_domain)

    def _numbered(self, line: Line, modules: Ints, around: Ints) -> Ints:
        """Of each module of the line the number of its path, the modules nearest the root first; -1 of other calls."""
        path = np.full(len(line), -1)
        left = np.flatnonzero(line.kind == Is.MODULE)
        while len(left):
            ready = (around[left] < 0) | (at(path, around[left]) >= 0)
            now = left[ready]
            path[now] = self._number(at(path, around[now]), line.name[now])
            left = left[~ready]
        return path

    def _number(self, outer: Ints, name: Ints) -> Ints:
        """Numbers of the paths that go on from others by a name; beyond the limits a path goes no further."""
        deep = np.array([*self._depths, 0], np.int64)[outer]
        stays = (outer >= 0) & (deep >= DEEPEST) | (len(self._paths) >= MOST_PATHS)
        found = outer.copy()
        found[~stays] = self._paths.numbers(outer[~stays], name[~stays])
        for upper, _ in self._paths.known[len(self._depths):]:
            self._depths.append(1 + (self._depths[upper] if upper >= 0 else 0))
        return found


_DOMAINS = {"cpu_op": Is.OPERATOR, "python": Is.MODULE, "marker": Is.ANNOTATION}


def _like(name: str) -> Is:
    """What a name gives away: a module's range of Python, a profiler's own step among annotations."""
    return (Is.MODULE if name.startswith(MODULE_PREFIX) else Is.ANNOTATION if name.startswith(STEP_PREFIX) else
            Is.OTHER)


def _positions(known: Ints, asked: Ints) -> Ints:
    """Where each asked id lies among the known ones, which ascend; -1 where it does not."""
    if not len(known):
        return np.full(len(asked), -1)
    at = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    return np.where(known[at] == asked, at, -1)


def nearest(parent: Ints, marked: Flags) -> Ints:
    """Of each call the position of the nearest marked one among itself and those around it, or -1."""
    return _last(np.where(marked, -1, parent), marked)


def _last(step: Ints, wanted: Flags | None = None) -> Ints:
    """Where each walk along the steps ends (a step of -1 ends it); -1 where it ends at none that is wanted.

    Each round doubles the length of every step, so a walk of n steps takes log n rounds.
    """
    here = np.arange(len(step))
    found = np.where(step < 0, here, step)
    while True:
        further = found[found]
        if (further == found).all():
            break
        found = further
    return found if wanted is None else np.where(wanted[found], found, -1)


def at(values: Ints, positions: Ints) -> Ints:
    """The values at the positions; -1 where a position is."""
    return np.append(values, -1)[positions]
