"""What bounded the wall time of a session's trace, kept as a document and three tables of the bundle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from aaco.analytics import collectives, priority
from aaco.analytics.critical_path import answer, summary
from aaco.analytics.critical_path.answer import Path
from aaco.analytics.critical_path.events import COLUMNS, Recording
from aaco.analytics.critical_path.summary import CriticalPaths
from aaco.core.config import Analysis
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
from aaco.tracelake import documents, layout, queries, store

DOCUMENT = layout.EXAMINED["critical_path"]
TABLES = (CRITICAL_PATH, CRITICAL_KERNELS, KERNEL_SLACK)


def examine(session: Session, settings: Analysis) -> None:
    """Write what bounded the wall time; where the trace has too much work for an import, that. Raises BadBundle,
    StorageError."""
    documents.remove(session, DOCUMENT, *(spec.file for spec in TABLES))
    work = sum(queries.rows_within(session, spec) for spec in (KERNELS, COPIES))
    try:
        if work > settings.critical_path_work:
            raise Absent(f"{work:,} pieces of device work are more than analysis.critical_path_work "
                         f"({settings.critical_path_work:,}): aaco critical-path SESSION looks for it")
        paths = find(session)
    except Absent as reason:
        session.write_json(DOCUMENT, CriticalPaths((), str(reason)).document())
        return
    if paths:
        headroom = _headroom(session)
        session.write_json(DOCUMENT, summary.summarise(paths, headroom).document())
        store.stream(session, CRITICAL_PATH, _in_order(summary.segment_rows(paths), len(paths)))
        store.stream(session, CRITICAL_KERNELS, summary.kernel_rows(paths, headroom))
        store.stream(session, KERNEL_SLACK, summary.slack_rows(paths))


def find(session: Session) -> list[Path]:
    """The paths of the session's captures, one for each set that collective operations connect; none without device
    work. Raises Absent, BadBundle."""
    if not any(queries.has_values(session, spec, "device_id") for spec in (KERNELS, COPIES)):
        return []
    recording = Recording()
    for piece in queries.slices(session, COLUMNS):
        recording.feed(*(piece.tables[name] for name in COLUMNS))
    rows = list(queries.batches(session, COLLECTIVES, collectives.COLUMNS))
    joined = pa.Table.from_batches(rows) if rows else COLLECTIVES.build().select(collectives.COLUMNS)
    shifts = documents.read(session, layout.TRACE["collectives"]).get("shifts", [])
    return list(answer.every(recording.result(shifts, joined["kernel_id"].to_numpy()), joined))


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
