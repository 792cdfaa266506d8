"""The kernels of a session as fingerprints, a stretch of its trace at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from aaco.analytics.kernels.fingerprints import COLUMNS, FingerprintCollector
from aaco.core.config import Analysis
from aaco.core.errors import UsageError
from aaco.core.finding import Results, finding
from aaco.core.session import Session
from aaco.core.tables import COUNTERS, FINGERPRINTS, KERNELS
from aaco.steps import measured_part
from aaco.tracelake import queries, store


@finding(reads=(KERNELS,), writes=(FINGERPRINTS,))
def fingerprints(session: Session, settings: Analysis) -> Results:
    """The kernels as fingerprints, by which the same kernel is known again in another session."""
    yield FINGERPRINTS, of(session)


def kept(session: Session) -> pa.Table:
    """The fingerprints as they were written, or made now where none were. Raises UsageError without kernels, BadBundle.
    """
    if store.holds(session, FINGERPRINTS):
        return store.read(session, FINGERPRINTS)
    if not store.holds(session, KERNELS):
        raise UsageError(f"session {session.id} has no kernels", "aaco info SESSION  # says why")
    return of(measured_part.of(session))


def of(session: Session) -> pa.Table:
    """The fingerprints of a session's kernels. Raises BadBundle."""
    gathering, has_counters = FingerprintCollector(), store.holds(session, COUNTERS)
    number_of = np.full(queries.rows(session, KERNELS) if has_counters else 0, -1)
    columns = ["kernel_id", *COLUMNS] if has_counters else list(COLUMNS)
    pieces = [(piece.tables[KERNELS.name] for piece in queries.slices(session, {KERNELS.name: columns})),
              (pa.Table.from_batches([batch]) for batch in queries.untimed(session, KERNELS, columns))]
    for kernels in (table for tables in pieces for table in tables):
        number = gathering.add(kernels)
        if has_counters:
            number_of[np.asarray(kernels["kernel_id"])] = number
    for batch in queries.batches(session, COUNTERS, ["kernel_id", "counter", "value"]):
        rows = np.asarray(batch.column(0).fill_null(-1))
        is_known = (rows >= 0) & (rows < len(number_of))
        number = np.where(is_known, number_of[np.where(is_known, rows, 0)] if len(number_of) else -1, -1)
        gathering.add_counters(number, batch.column(1), np.asarray(batch.column(2).fill_null(np.nan), np.float64))
    return gathering.table()
