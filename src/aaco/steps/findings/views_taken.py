"""The views of tensors that a step takes, by PyTorch's calls of `select` and `slice` and their arguments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.advice.turn_flow import FLOATING
from aaco.analytics.advice.views import NO_VIEWS, Shape, ViewKind, Views
from aaco.analytics.costs.torch.arguments import holds_sizes
from aaco.analytics.streaming.stream_ids import integers
from aaco.core.arrays import Ints
from aaco.core.session import Session
from aaco.core.tables import API_CALLS, CALL_ARGUMENTS
from aaco.tracelake import queries, store

ONE, SEVERAL = "aten::select", "aten::slice"  # narrow, split, chunk, unbind and [] call one of them
NAMES = (ONE, SEVERAL)
MOST_VIEWS, MOST_KINDS = 50_000, 256  # that are kept, the first ones
# Of select(tensor, axis, place) and of slice(tensor, axis, start, end, step).
WHOLE = r'"Input Dims":\s*\[\s*\[(?P<whole>[\d,\s]{1,99})\]'
PLACES = (r'"Concrete Inputs":\s*\[\s*"[^"]*",\s*"(?P<axis>-?\d{1,2})",\s*"(?P<start>(?:-?\d{1,17})?)"'
          r'(?:,\s*"(?P<end>(?:-?\d{1,19})?)",\s*"(?P<step>\d{1,17})")?')
TYPE = r'"Input type":\s*\[\s*"(?P<type>[^"]{1,40})"'


def read(session: Session, capture: int | None, since: int, asked: Ints, rows: Ints) -> Views:
    """Return the views that are taken from a moment on until the host last asked for work.

    capture: of these calls, of all where it is None. asked: when the host asked for these rows of the
    work, in order. Raise BadBundle.
    """
    known = set(NAMES) & set(queries.names(session, API_CALLS, "name"))
    if not known or not len(asked) or not store.holds(session, CALL_ARGUMENTS):
        return NO_VIEWS
    calls, times, names = calls_named(session, NAMES, capture, since, int(asked[-1]))
    order, kinds = np.argsort(calls), dict[ViewKind, int]()
    found: list[tuple[int, int, int]] = []  # time, kind, start
    for batch in queries.batches(session, CALL_ARGUMENTS, ("call_id", "arguments")):
        ids = integers(batch["call_id"])
        at = np.minimum(np.searchsorted(calls, ids, sorter=order), max(0, len(calls) - 1))
        if not len(calls) or not (mine := calls[order[at]] == ids).any():
            continue
        which = order[at[mine]]
        views = _views(batch["arguments"].filter(pa.array(mine)), names[which])
        found += ((time, kinds.setdefault(view[0], len(kinds)), view[1])
                  for time, view in zip(times[which].tolist(), views, strict=True)
                  if view and (view[0] in kinds or len(kinds) < MOST_KINDS))
    if not found:
        return NO_VIEWS
    time, kind, start = np.array(sorted(found)[:MOST_VIEWS], np.int64).T
    return Views(rows[np.searchsorted(asked, time)], kind, start, tuple(kinds))


def calls_named(session: Session, meant: Sequence[str], capture: int | None, begin: int, until: int
                ) -> tuple[Ints, Ints, Ints]:
    """Return the ids of the calls of these names between two moments, when they were, and which of the names they have.

    capture: of these calls, of all where it is None. Raise BadBundle.
    """
    found = [np.zeros((3, 0), np.int64)]
    for batch in queries.batches(session, API_CALLS, ("call_id", "name", "t_start_ns", "capture")):
        start, where = integers(batch["t_start_ns"]), integers(batch["capture"])
        name = pc.fill_null(pc.index_in(batch["name"].cast(pa.string()), pa.array(meant)), -1).to_numpy(
            zero_copy_only=False)
        inside = (name >= 0) & (start >= begin) & (start < until) & ((where == capture) | (capture is None))
        found.append(np.array([integers(batch["call_id"])[inside], start[inside], name[inside]]))
    calls, times, names = np.concatenate(found, axis=1)
    return calls, times, names


def _views(arguments: pa.Array, names: Ints) -> Iterator[tuple[ViewKind, int] | None]:
    """Yield of each call the view and where it starts; None where its arguments say something else."""
    columns = [pc.extract_regex(arguments, pattern).to_pylist() for pattern in (WHOLE, PLACES, TYPE)]
    for name, whole, places, type_ in zip(names.tolist(), *columns, strict=True):
        yield _view(NAMES[name], {**whole, **places, **type_}) if whole and places and type_ else None


def _view(name: str, said: dict[str, str]) -> tuple[ViewKind, int] | None:
    whole: Shape = tuple(int(size) for size in said["whole"].split(",") if size.strip())
    axis = int(said["axis"])
    axis += len(whole) * (axis < 0)
    if not 0 <= axis < len(whole) or (name == SEVERAL) != bool(said["step"]) or not holds_sizes(whole):
        return None
    size, start = whole[axis], int(said["start"] or 0)
    start += size * (start < 0)
    part = whole[:axis] + whole[axis + 1:]
    if name == SEVERAL:
        end = int(said["end"] or size)
        end = min(size, end + size * (end < 0))
        part = (*whole[:axis], max(0, -(-(end - start) // max(1, int(said["step"])))), *whole[axis + 1:])
    return ViewKind(whole, axis, part, said["type"] in FLOATING), start
