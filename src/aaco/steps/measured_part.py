"""The part of a run that findings are about: its measured inferences, without set-up and warm-up."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from aaco.core.errors import BadBundle
from aaco.core.inputs import RUN
from aaco.core.session import Session
from aaco.core.tables import API_CALLS
from aaco.tracelake import documents, layout, queries


def of(session: Session) -> Session:
    """The session from its first measured inference's begin to the last one's end, where its device was traced in
    passes of their own; else the whole session. Raises BadBundle."""
    if "timed" not in documents.read(session, layout.finding("device_passes")):
        return session
    runs = _runs(session)
    return queries.SessionPart(session.folder, pc.min(runs["t_start_ns"]).as_py(), pc.max(runs["t_end_ns"]).as_py())


def wall_ns(session: Session) -> int | None:
    """How long the inferences of a part took, all together; None of a whole session. Raises BadBundle."""
    return pc.sum(_runs(session)["dur_ns"]).as_py() if isinstance(session, queries.SessionPart) else None


def _runs(session: Session) -> pa.Table:
    """The ranges of the inferences, at least one. Raises BadBundle."""
    calls = queries.batches(session, API_CALLS, ("name", "t_start_ns", "t_end_ns", "dur_ns"))
    rows = [some.filter(pc.equal(some["name"].cast(pa.string()), RUN)) for some in calls]
    if not any(some.num_rows for some in rows):
        raise BadBundle(f"{session.folder / API_CALLS.file} has no inferences, in which its device was traced",
                        f"aaco analyze {session.id}  # recomputes the tables from the raw evidence")
    return pa.Table.from_batches(rows)
