"""What bounded the wall time of a session's trace, kept as a document and three tables of the bundle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from aaco.analytics.critical_path import answer, describe
from aaco.analytics.critical_path.answer import CriticalPath
from aaco.analytics.critical_path.events import COLUMNS, PathRecording
from aaco.analytics.critical_path.summary import CriticalPaths
from aaco.analytics.kernels import priority
from aaco.analytics.timeline import collectives
from aaco.core.config import Analysis
from aaco.core.documents import encode
from aaco.core.finding import Results, finding
from aaco.core.readings import Absent
from aaco.core.session import Session
from aaco.core.tables import (
    COLLECTIVES,
    COPIES,
    CRITICAL_KERNELS,
    CRITICAL_PATH,
    KERNEL_ROOFLINE,
    KERNEL_SLACK,
    KERNELS,
)
from aaco.steps import measured_part
from aaco.tracelake import documents, layout, queries, store

TABLES = (CRITICAL_PATH, CRITICAL_KERNELS, KERNEL_SLACK)
NO_WORK = "no work of a device that has a start was recorded"


@finding(after=("trace", "roofline"), writes=("critical_path", *TABLES), report="critical_path")
def critical_path(session: Session, settings: Analysis) -> Results:
    """What bounded the wall time; where the trace has too much work for an import, that."""
    work = sum(queries.rows_within(session, spec) for spec in (KERNELS, COPIES))
    try:
        if work > settings.critical_path_work:
            raise Absent(f"{work:,} pieces of device work are more than analysis.critical_path_work "
                         f"({settings.critical_path_work:,}): aaco critical-path SESSION looks for it")
        paths = find(session)
    except Absent as reason:
        yield "critical_path", encode(CriticalPaths((), str(reason)))
        return
    if paths:
        headroom = _headroom(session)
        yield "critical_path", encode(describe.summarise(paths, headroom))
        yield CRITICAL_PATH, _in_order(describe.segment_rows(paths), len(paths))
        yield CRITICAL_KERNELS, describe.kernel_rows(paths, headroom)
        yield KERNEL_SLACK, describe.slack_rows(paths)


def find(session: Session) -> list[CriticalPath]:
    """The paths of the session's captures, one for each set that collective operations connect; none without device
    work. Raises Absent, BadBundle."""
    if not any(queries.has_values(session, spec, "device_id") for spec in (KERNELS, COPIES)):
        return []
    recording = PathRecording(queries.has_launches(session))
    for piece in queries.slices(session, COLUMNS):
        recording.feed(*(piece.tables[name] for name in COLUMNS))
    rows = list(queries.batches(session, COLLECTIVES, collectives.COLUMNS))
    joined = pa.Table.from_batches(rows) if rows else COLLECTIVES.build().select(collectives.COLUMNS)
    shifts = collectives.shifts_of(documents.read(session, layout.TRACE["collectives"]))
    return list(answer.every(recording.result(shifts, joined["kernel_id"].to_numpy()), joined))


def kernels_on_paths(session: Session) -> list[dict[str, Any]]:
    """Return the rows of critical_kernels: those that the session keeps, else looked for now. Raise Absent, BadBundle.
    """
    if store.holds(session, CRITICAL_KERNELS):
        kept: list[dict[str, Any]] = store.read(session, CRITICAL_KERNELS).to_pylist()
        return kept
    part = measured_part.of(session)
    paths = find(part)
    if not paths:
        raise Absent(NO_WORK)
    return [row for piece in describe.kernel_rows(paths, _headroom(part)) for row in piece.to_pylist()]


def _headroom(session: Session) -> dict[str, float]:
    """What the roofline says could be gained in each kernel; nothing without counters."""
    rows = list(queries.batches(session, KERNEL_ROOFLINE, priority.COLUMNS))
    return priority.headrooms(pa.Table.from_batches(rows)) if rows else {}


def _in_order(pieces: Iterable[pa.Table], paths: int) -> Iterator[pa.Table]:
    """Rows in order of time, as every table with times has them; each path's are."""
    if paths <= 1:
        yield from pieces
    else:
        yield pa.concat_tables(pieces).sort_by([("t_start_ns", "ascending"), ("path", "ascending")])
