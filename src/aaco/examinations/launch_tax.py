"""How long the dispatches of a session take, and what its launches cost, in one pass over the kernels."""

from __future__ import annotations

from aaco.analytics.launch_tax import COLUMNS, Durations
from aaco.analytics.trace import Trace
from aaco.core.config import Analysis
from aaco.core.session import Session
from aaco.core.tables import KERNELS
from aaco.examinations import inferences
from aaco.tracelake import documents, layout, queries

DOCUMENT = layout.EXAMINED["launch_tax"]


def examine(session: Session, settings: Analysis) -> None:
    """Write launch_tax.json, where devices ran kernels. Raises BadBundle, StorageError."""
    parts = {name: documents.read(session, file) for name, file in layout.TRACE.items()}
    if not parts["timeline"] or not queries.has_values(session, KERNELS, "device_id"):
        documents.remove(session, DOCUMENT)
        return
    durations = Durations(round(1000 * settings.microkernel_us))
    for rows in queries.batches(session, KERNELS, COLUMNS):
        durations.feed(rows)
    trace = Trace.of({name: part for name, part in parts.items() if part})
    found = durations.result(trace, inferences.wall_ns(session))
    session.write_json(DOCUMENT, found.document())
