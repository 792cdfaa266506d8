"""Describe critical paths: the summary of the document, and the rows of their tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from aaco.analytics.critical_path.answer import CriticalPath, bound_by
from aaco.analytics.critical_path.dag import Edge
from aaco.analytics.critical_path.summary import KINDS, CriticalPaths, PathContribution, PathSummary
from aaco.analytics.kernels.priority import priority
from aaco.analytics.streaming.stream_ids import NONE, first_rows
from aaco.analytics.streaming.work import COPY
from aaco.core.arrays import Flags, Ints
from aaco.core.tables import CRITICAL_KERNELS, CRITICAL_PATH, KERNEL_SLACK

MOST_KERNELS = 20  # contributions in the document; the table has all
PIECE = 1 << 16
UNNAMED = "unnamed"
EDGES = tuple(edge.name.lower() for edge in Edge)
_KINDS, _EDGES, _BASES = pa.array(KINDS), pa.array(EDGES), pa.array(["observed", "inferred"])


def summarise(paths: Sequence[CriticalPath], headroom: Mapping[str, float] = MappingProxyType({})) -> CriticalPaths:
    """Return the summary of these paths. headroom: of kernels by name, if known."""
    return CriticalPaths(tuple(_summarise_path(path, headroom) for path in paths))


def _summarise_path(path: CriticalPath, headroom: Mapping[str, float]) -> PathSummary:
    graph, segments, kernels = path.graph.dag, path.segments, contributions(path, headroom)
    first = kernels[0] if kernels and kernels[0].path_ns else None
    counts = (np.bincount(graph.kind[graph.inferred == flag], minlength=len(EDGES)).tolist() for flag in (False, True))
    return PathSummary(
        captures=tuple(None if capture == NONE else capture for capture in path.captures),
        t_start_ns=graph.begin, t_end_ns=graph.end, window_ns=path.window_ns, critical_path_ns=path.critical_path_ns,
        bound_by_ns=bound_by(segments), segments=len(segments.start),
        inferred_ns=int((segments.end - segments.start)[segments.inferred].sum()),
        dispatches=int((path.events.work.kind != COPY).sum()),
        without_slack=int(((path.events.work.kind != COPY) & (path.slack == 0)).sum()),
        dominant_symbol=first.kernel_name if first else None, fraction=first.fraction if first else None,
        contributions=tuple(kernels[:MOST_KERNELS]), more_kernels=max(0, len(kernels) - MOST_KERNELS),
        edges=dict(zip(EDGES, zip(*counts, strict=True), strict=True)), launch_latency_ns=path.graph.latency_ns)


def contributions(path: CriticalPath, headroom: Mapping[str, float]) -> list[PathContribution]:
    """Return every kernel by name, the largest contribution to the path first."""
    work = path.events.work
    rows = np.flatnonzero(work.kind != COPY)
    rows = rows[np.lexsort((path.slack[rows], work.name[rows]))]
    if not len(rows):
        return []
    first = first_rows(work.name[rows])
    calls = np.diff(np.r_[first, len(rows)])
    slack, on_path = path.slack[rows], path.on_path[rows]
    columns = (work.name[rows[first]], calls, np.add.reduceat(work.end[rows] - work.start[rows], first),
               np.add.reduceat(on_path > 0, first), np.add.reduceat(on_path, first), slack[first],
               slack[first + (calls - 1) // 2])
    kernels = [_contribution(path, headroom, *row)
               for row in zip(*(column.tolist() for column in columns), strict=True)]
    return sorted(kernels, key=lambda kernel: (-kernel.path_ns, -kernel.total_ns, kernel.kernel_name))


def _contribution(path: CriticalPath, headroom: Mapping[str, float], name: int, calls: int, total: int, path_calls: int,
                  on_path: int, least: int, middle: int) -> PathContribution:
    window, called = path.window_ns, UNNAMED if name == NONE else path.events.names[name]
    ceiling = window / (window - on_path) if on_path < window else None
    fraction, gain = on_path / window if window else 0.0, headroom.get(called)
    score = None if gain is None else priority(gain, fraction).score
    return PathContribution(called, calls, total, path_calls, on_path, fraction, ceiling, least, middle, gain, score)


def segment_rows(paths: Sequence[CriticalPath]) -> Iterator[pa.Table]:
    """Yield pieces of the critical_path table, one path after the other."""
    for number, path in enumerate(paths):
        for begin in range(0, len(path.segments.start), PIECE):
            yield _segments(number, path, slice(begin, begin + PIECE), begin)


def _segments(number: int, path: CriticalPath, rows: slice, begin: int) -> pa.Table:
    start, end, kind, edge, inferred, row, call = (
        getattr(path.segments, name)[rows] for name in ("start", "end", "kind", "edge", "inferred", "work", "call"))
    work = path.events.work
    at = np.maximum(row, 0)
    copied = (row >= 0) & (work.kind[at] == COPY)
    key = work.key[at]
    of_call = path.events.calls.key[np.maximum(call, 0)] if len(path.events.calls) else np.full(len(call), NONE)
    return CRITICAL_PATH.build(
        path=np.full(len(start), number), segment=begin + np.arange(len(start)),
        kind=_named(_KINDS, kind, kind >= 0), edge=_named(_EDGES, edge, edge >= 0),
        basis=_named(_BASES, inferred.astype(np.int64), edge >= 0), t_start_ns=start, t_end_ns=end, dur_ns=end - start,
        kernel_id=_nullable(key, (row >= 0) & ~copied), copy_id=_nullable(key, copied),
        call_id=_nullable(of_call, call >= 0))


def _named(names: pa.Array, numbers: Ints, is_known: Flags) -> pa.Array:
    codes = pa.array(numbers.astype(np.int32), mask=~is_known)
    return pa.DictionaryArray.from_arrays(codes, names)


def _nullable(values: Ints, is_known: Flags) -> pa.Array:
    return pa.array(values, mask=~is_known | (values == NONE))


def slack_rows(paths: Sequence[CriticalPath]) -> Iterator[pa.Table]:
    """Yield pieces of the kernel_slack table."""
    for number, path in enumerate(paths):
        rows = np.flatnonzero(path.events.work.kind != COPY)
        for begin in range(0, len(rows), PIECE):
            piece = rows[begin:begin + PIECE]
            yield KERNEL_SLACK.build(kernel_id=path.events.work.key[piece], path=np.full(len(piece), number),
                                     slack_ns=path.slack[piece], path_ns=path.on_path[piece])


def kernel_rows(paths: Sequence[CriticalPath], headroom: Mapping[str, float] = MappingProxyType({})
                ) -> Iterator[pa.Table]:
    """Yield pieces of the critical_kernels table, a path each."""
    for number, path in enumerate(paths):
        kernels = contributions(path, headroom)
        columns = {name: [getattr(kernel, name) for kernel in kernels]
                   for name in CRITICAL_KERNELS.columns if name != "path"}
        yield CRITICAL_KERNELS.build(path=[number] * len(kernels), **columns)
