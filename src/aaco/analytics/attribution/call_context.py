"""Find the operator, modules and annotation around each host-side call while the call trees stream by.

The trees come ready made (api_calls.parent_id). Only calls that are still open at the end of a slice are kept for the
next one, because only those can have children there.
"""

from __future__ import annotations

import re
from enum import IntEnum

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from aaco.analytics.serving.annotations import read_step
from aaco.analytics.streaming.stream_ids import NONE, NameIds, TupleIds, ValueByName, integers
from aaco.core.arrays import Flags, Ints, find_sorted

CALL_COLUMNS = ("call_id", "name", "domain", "parent_id", "t_start_ns", "t_end_ns", "capture")
MODULE_PREFIX = "nn.Module: "
STEP_PREFIX = "ProfilerStep#"
# As PyTorch's profiler writes Python functions; those of PyTorch and Triton launch for whoever calls them.
FRAME = re.compile(r"(?!(?:.*(?:site|dist)-packages/)?(?:torch|triton)/)(?!contextlib\.py|functools\.py"
                   r"|threading\.py|runpy\.py|<).+\.py\(\d+\): .")
DEEPEST = 64  # modules in a path; deeper ones count as the last
MOST_PATHS = 1 << 17


class Is(IntEnum):
    """What a call is, as far as attribution goes."""

    OTHER = 0
    OPERATOR = 1
    MODULE = 2
    ANNOTATION = 3
    FRAME = 4  # a Python function of the program, not of PyTorch, Triton or the interpreter


class CallLine(Struct, frozen=True):
    """Calls by ascending id. The first `carried` of them are still open from an earlier slice.

    name: number of the name. kind: of Is. inner: time so far of the operators directly inside. row: a number that the
    user keeps with the call, -1 until then. -1: none.
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

    def take(self, rows: Ints | Flags) -> CallLine:
        """Return the calls of these rows, marked as carried."""
        columns = {name: getattr(self, name)[rows] for name in _COLUMNS}
        return replace(self, **columns, carried=len(columns["id"]))

    def followed_by(self, later: CallLine) -> CallLine:
        """Return these calls, marked as carried, and the later ones after them."""
        columns = {name: np.concatenate([getattr(self, name), getattr(later, name)]) for name in _COLUMNS}
        return replace(self, **columns, carried=len(self))


_COLUMNS = tuple(name for name in CallLine.__struct_fields__ if name != "carried")


class CallContext(Struct, frozen=True):
    """The context of each call of a line. -1: none.

    operator, above, outermost: positions in the line of the innermost operator (of an operator: itself), of the
    operator around it, and of the outermost one. path: number of the module path. annotation, frame: numbers of names.
    phase: of phases.Phase, 0 until it is computed.
    """

    operator: Ints
    above: Ints
    outermost: Ints
    path: Ints
    annotation: Ints
    frame: Ints
    phase: Ints


class CallContexts:
    """Makes lines of slices of the api_calls table and finds the context of each call."""

    def __init__(self) -> None:
        self.names, self._domains = NameIds(), NameIds()
        self._kind_of_domain = ValueByName(self._domains, lambda domain: _DOMAINS.get(domain, Is.OTHER), Is.OTHER)
        self._kind_of_name = ValueByName(self.names, _like, Is.OTHER)
        self._paths = TupleIds()  # (path around it or -1, name)
        self._depths: list[int] = []
        none = np.zeros(0, np.int64)
        self._open = CallLine(none, none, none, none, none, none, none, none, none)

    def line(self, rows: pa.Table | pa.RecordBatch) -> CallLine:
        """Return the calls of a slice after those still open. rows: in start order, with CALL_COLUMNS."""
        name, domain = self.names.numbers(rows["name"]), self._domains.numbers(rows["domain"])
        columns = {column: integers(rows[column]) for column in CALL_COLUMNS if column not in ("name", "domain")}
        start, end, count = columns["t_start_ns"], columns["t_end_ns"], rows.num_rows
        kind = np.where(end >= start, self._kinds(name, domain), Is.OTHER)
        fresh = CallLine(columns["call_id"], columns["parent_id"], start, end, columns["capture"], name, kind,
                         np.zeros(count, np.int64), np.full(count, -1))
        return self._open.followed_by(fresh)

    def around(self, line: CallLine) -> CallContext:
        """Return the context of each call of the line."""
        parent = find_sorted(line.id, line.parent_id)
        operator = nearest(parent, line.kind == Is.OPERATOR)
        above = at(operator, at(parent, operator))
        modules = nearest(parent, line.kind == Is.MODULE)
        path = self._numbered(line, modules, at(modules, parent))
        annotation = nearest(parent, line.kind == Is.ANNOTATION)
        frames = line.kind == Is.FRAME
        frame = nearest(parent, frames) if frames.any() else np.full(len(line), -1)
        return CallContext(operator, above, farthest(parent, operator), at(path, modules), at(line.name, annotation),
                           at(line.name, frame), np.zeros(len(line), np.int64))

    def ranges_around(self, line: CallLine, places: Ints) -> list[list[str]]:
        """Return of each of these calls of the line the names of the calls and ranges around it, innermost first."""
        names, rows = [list[str]() for _ in places], np.arange(len(places))
        while len(rows):
            places = find_sorted(line.id, line.parent_id[places])
            rows, places = rows[places >= 0], places[places >= 0]
            for row, name in zip(rows.tolist(), line.name[places].tolist(), strict=True):
                names[row].append(self.names.text(name))
        return names

    @property
    def open_ids(self) -> Ints:
        """The calls that are kept."""
        return self._open.id

    def keep(self, line: CallLine, until: int | None) -> Flags:
        """Return which calls of the line are closed, and keep the others.

        A call that ends by `until` is closed: no later call can be inside it. With None all are closed.
        """
        closed = np.ones(len(line), bool) if until is None else (line.end <= until)
        self._open = line.take(~closed)
        return closed

    def path(self, number: int) -> str | None:
        """Return the modules of a path, outermost first; None if there are none (-1)."""
        parts: list[str] = []
        while number >= 0:
            number, name = self._paths.known[number]
            parts.append(self.names.known[name].removeprefix(MODULE_PREFIX))
        return "/".join(reversed(parts)) or None

    def path_numbers(self, name: Ints) -> Ints:
        """Return the numbers of whole paths by the numbers of their names; NONE: no path (-1)."""
        is_path = name != NONE
        numbers = np.full(len(name), -1)
        numbers[is_path] = self._number(numbers[is_path], name[is_path])
        return numbers

    def _kinds(self, name: Ints, domain: Ints) -> Ints:
        """Return the kind of each call by its domain and, for Python ranges and annotations, by its name."""
        by_domain, by_name = self._kind_of_domain.of(domain), self._kind_of_name.of(name)
        python = (by_domain == Is.MODULE) & (by_name != Is.MODULE)
        step = (by_domain == Is.ANNOTATION) & (by_name == Is.ANNOTATION)
        return np.where(python & (by_name == Is.FRAME), Is.FRAME, np.where(python | step, Is.OTHER, by_domain))

    def _numbered(self, line: CallLine, modules: Ints, around: Ints) -> Ints:
        """Return the path number of each module of the line, -1 for other calls. Outer modules are numbered first."""
        path = np.full(len(line), -1)
        left = np.flatnonzero(line.kind == Is.MODULE)
        while len(left):
            ready = (around[left] < 0) | (at(path, around[left]) >= 0)
            now = left[ready]
            path[now] = self._number(at(path, around[now]), line.name[now])
            left = left[~ready]
        return path

    def _number(self, outer: Ints, name: Ints) -> Ints:
        """Return the number of each path `outer` extended by a name. A path beyond the limits is not extended."""
        deep = np.array([*self._depths, 0], np.int64)[outer]
        stays = (outer >= 0) & (deep >= DEEPEST) | (len(self._paths) >= MOST_PATHS)
        numbers = outer.copy()
        numbers[~stays] = self._paths.numbers(outer[~stays], name[~stays])
        for upper, _ in self._paths.known[len(self._depths):]:
            self._depths.append(1 + (self._depths[upper] if upper >= 0 else 0))
        return numbers


_DOMAINS = {"cpu_op": Is.OPERATOR, "python": Is.MODULE, "marker": Is.ANNOTATION}


def _like(name: str) -> Is:
    """Return the kind that a name implies: of Python's calls a module or a frame, among annotations a step."""
    is_step = name.startswith(STEP_PREFIX) or read_step(name) is not None
    if name.startswith(MODULE_PREFIX):
        return Is.MODULE
    return Is.ANNOTATION if is_step else Is.FRAME if FRAME.match(name) else Is.OTHER


def nearest(parent: Ints, marked: Flags) -> Ints:
    """Return for each call the position of the nearest marked call among itself and its ancestors, or -1."""
    return _last(np.where(marked, -1, parent), marked)


def farthest(parent: Ints, near: Ints) -> Ints:
    """Return for each call the position of the outermost marked call among itself and its ancestors, or -1. near: the
    nearest of each.
    """
    return at(_last(at(near, at(parent, near))), near)


def _last(step: Ints, marked: Flags | None = None) -> Ints:
    """Return where each walk along the steps ends (a step of -1 ends it), -1 if the end is not marked.

    Each round doubles the length of every step, so a walk of n steps takes log n rounds.
    """
    here = np.arange(len(step))
    ends = np.where(step < 0, here, step)
    while True:
        further = ends[ends]
        if (further == ends).all():
            break
        ends = further
    return ends if marked is None else np.where(marked[ends], ends, -1)


def at(values: Ints, positions: Ints) -> Ints:
    """Return the values at the positions, -1 for a position of -1."""
    return np.append(values, -1)[positions]
