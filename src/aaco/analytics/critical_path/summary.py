"""What is said of critical paths: the document of the bundle, and the rows of its tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from aaco.analytics.critical_path.answer import KINDS, Path, bound_by
from aaco.analytics.critical_path.dag import Edge
from aaco.analytics.lanes import NONE, Flags, Ints, heads
from aaco.analytics.priority import priority
from aaco.analytics.trace import Trace
from aaco.analytics.work import COPY
from aaco.core.errors import BadBundle
from aaco.core.readings import Absent
from aaco.core.tables import CRITICAL_KERNELS, CRITICAL_PATH, KERNEL_SLACK

SCHEMA_VERSION = 1
MOST_KERNELS = 20  # contributions in the document; the table has all
PIECE = 1 << 16
UNNAMED = "unnamed"
NOT_LOOKED_FOR = "the critical path was not looked for when the session was made: aaco analyze SESSION"
EDGES = tuple(edge.name.lower() for edge in Edge)
_KINDS, _EDGES, _BASES = pa.array(KINDS), pa.array(EDGES), pa.array(["observed", "inferred"])


@dataclass(frozen=True)
class Contribution:
    """What the dispatches of one kernel add to the path. fraction: path_ns of the window. ceiling: how many times
    faster the window would at most be without them (Amdahl). slack: of its dispatches, the least and the median.
    headroom: share of its time that its roofline says could be gained; priority: headroom x fraction; None where no
    counters place it."""

    kernel_name: str
    calls: int
    total_ns: int
    path_calls: int
    path_ns: int
    fraction: float
    ceiling: float | None
    slack_min_ns: int
    slack_p50_ns: int
    headroom: float | None = None
    priority: float | None = None


@dataclass(frozen=True)
class Course:
    """The path of captures on one clock. bound_by_ns sums to window_ns. edges: of each kind how many were observed and
    how many inferred. inferred_ns: delays on the path that rest on an inferred edge."""

    captures: tuple[int | None, ...]
    t_start_ns: int
    t_end_ns: int
    window_ns: int
    critical_path_ns: int
    bound_by_ns: Mapping[str, int]
    segments: int
    inferred_ns: int
    dispatches: int
    without_slack: int
    dominant_symbol: str | None
    fraction: float | None
    contributions: tuple[Contribution, ...]
    more_kernels: int
    edges: Mapping[str, tuple[int, int]]
    launch_latency_ns: int | None


@dataclass(frozen=True)
class CriticalPaths:
    """The paths of a session, one for each set of captures on one clock; or why they were not looked for."""

    paths: tuple[Course, ...]
    why_absent: str | None = None

    def document(self) -> dict[str, Any]:
        """The content of critical_path.json."""
        return {"schema_version": SCHEMA_VERSION, **msgspec.to_builtins(self)}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> CriticalPaths:
        """The paths that this document was made of. Raises BadBundle."""
        try:
            found: CriticalPaths = msgspec.convert({name: part for name, part in document.items()
                                                    if name != "schema_version"}, cls)
        except msgspec.ValidationError as error:
            raise BadBundle(f"metrics/critical_path.json: not as this version writes it: {error}",
                            "aaco analyze SESSION") from error
        if any(course.bound_by_ns.keys() != set(KINDS) for course in found.paths):
            raise BadBundle("metrics/critical_path.json: not as this version writes it: bound_by_ns",
                            "aaco analyze SESSION")
        return found


def critical_paths(trace: Trace) -> CriticalPaths:
    """For readings where no examination gave the paths. Raises Absent: no device did anything, or nobody looked."""
    raise Absent(NOT_LOOKED_FOR)


def summarise(paths: Sequence[Path], headroom: Mapping[str, float] = MappingProxyType({})) -> CriticalPaths:
    """What is said of these paths. headroom: of kernels by name, where it is known."""
    return CriticalPaths(tuple(_course(path, headroom) for path in paths))


def _course(path: Path, headroom: Mapping[str, float]) -> Course:
    graph, segments, kernels = path.graph.dag, path.segments, contributions(path, headroom)
    first = kernels[0] if kernels and kernels[0].path_ns else None
    counts = (np.bincount(graph.kind[graph.inferred == flag], minlength=len(EDGES)).tolist() for flag in (False, True))
    return Course(
        captures=tuple(None if capture == NONE else capture for capture in path.captures),
        t_start_ns=graph.begin, t_end_ns=graph.end, window_ns=path.window_ns, critical_path_ns=path.critical_path_ns,
        bound_by_ns=bound_by(segments), segments=len(segments.start),
        inferred_ns=int((segments.end - segments.start)[segments.inferred].sum()),
        dispatches=int((path.events.work.kind != COPY).sum()),
        without_slack=int(((path.events.work.kind != COPY) & (path.slack == 0)).sum()),
        dominant_symbol=first.kernel_name if first else None, fraction=first.fraction if first else None,
        contributions=tuple(kernels[:MOST_KERNELS]), more_kernels=max(0, len(kernels) - MOST_KERNELS),
        edges=dict(zip(EDGES, zip(*counts, strict=True), strict=True)), launch_latency_ns=path.graph.latency_ns)


def contributions(path: Path, headroom: Mapping[str, float]) -> list[Contribution]:
    """Every kernel by name, what adds most to the path first."""
    work = path.events.work
    rows = np.flatnonzero(work.kind != COPY)
    rows = rows[np.lexsort((path.slack[rows], work.name[rows]))]
    if not len(rows):
        return []
    first = heads(work.name[rows])
    calls = np.diff(np.r_[first, len(rows)])
    slack, on_path = path.slack[rows], path.on_path[rows]
    columns = (work.name[rows[first]], calls, np.add.reduceat(work.end[rows] - work.start[rows], first),
               np.add.reduceat(on_path > 0, first), np.add.reduceat(on_path, first), slack[first],
               slack[first + (calls - 1) // 2])
    found = [_contribution(path, headroom, *row) for row in zip(*(column.tolist() for column in columns), strict=True)]
    return sorted(found, key=lambda one: (-one.path_ns, -one.total_ns, one.kernel_name))


def _contribution(path: Path, headroom: Mapping[str, float], name: int, calls: int, total: int, path_calls: int,
                  on_path: int, least: int, middle: int) -> Contribution:
    window, called = path.window_ns, UNNAMED if name == NONE else path.events.names[name]
    ceiling = window / (window - on_path) if on_path < window else None
    fraction, gain = on_path / window if window else 0.0, headroom.get(called)
    score = None if gain is None else priority(gain, fraction).score
    return Contribution(called, calls, total, path_calls, on_path, fraction, ceiling, least, middle, gain, score)


def segment_rows(paths: Sequence[Path]) -> Iterator[pa.Table]:
    """Pieces of the critical_path table, one path after the other."""
    for number, path in enumerate(paths):
        for begin in range(0, len(path.segments.start), PIECE):
            yield _segments(number, path, slice(begin, begin + PIECE), begin)


def _segments(number: int, path: Path, some: slice, begin: int) -> pa.Table:
    start, end, kind, edge, inferred, row, call = (
        getattr(path.segments, name)[some] for name in ("start", "end", "kind", "edge", "inferred", "work", "call"))
    work = path.events.work
    at = np.maximum(row, 0)
    copied = (row >= 0) & (work.kind[at] == COPY)
    key = work.key[at]
    of_call = path.events.calls.key[np.maximum(call, 0)] if len(path.events.calls) else np.full(len(call), NONE)
    return CRITICAL_PATH.build(
        path=np.full(len(start), number), segment=begin + np.arange(len(start)),
        kind=_named(_KINDS, kind, kind >= 0), edge=_named(_EDGES, edge, edge >= 0),
        basis=_named(_BASES, inferred.astype(np.int64), edge >= 0), t_start_ns=start, t_end_ns=end, dur_ns=end - start,
        kernel_id=_some(key, (row >= 0) & ~copied), copy_id=_some(key, copied), call_id=_some(of_call, call >= 0))


def _named(names: pa.Array, numbers: Ints, known: Flags) -> pa.Array:
    codes = pa.array(numbers.astype(np.int32), mask=~known)
    return pa.DictionaryArray.from_arrays(codes, names)


def _some(values: Ints, known: Flags) -> pa.Array:
    return pa.array(values, mask=~known | (values == NONE))


def slack_rows(paths: Sequence[Path]) -> Iterator[pa.Table]:
    """Pieces of the kernel_slack table."""
    for number, path in enumerate(paths):
        rows = np.flatnonzero(path.events.work.kind != COPY)
        for begin in range(0, len(rows), PIECE):
            some = rows[begin:begin + PIECE]
            yield KERNEL_SLACK.build(kernel_id=path.events.work.key[some], path=np.full(len(some), number),
                                     slack_ns=path.slack[some], path_ns=path.on_path[some])


def kernel_rows(paths: Sequence[Path], headroom: Mapping[str, float] = MappingProxyType({})) -> Iterator[pa.Table]:
    """Pieces of the critical_kernels table, a path each."""
    for number, path in enumerate(paths):
        found = contributions(path, headroom)
        columns = {each: [getattr(one, each) for one in found] for each in CRITICAL_KERNELS.columns if each != "path"}
        yield CRITICAL_KERNELS.build(path=[number] * len(found), **columns)
