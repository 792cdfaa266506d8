"""What kernels say by themselves, in captures of counters or of instruction traces."""

from __future__ import annotations

import pyarrow.compute as pc

from aaco.analytics.bottleneck.limited_time import kernel_evidence as evidence_of
from aaco.analytics.instructions.inside import InstructionTraces
from aaco.core.config import Analysis
from aaco.core.documents import encode
from aaco.core.finding import Results, finding
from aaco.core.session import Session
from aaco.core.tables import COUNTERS, KERNELS
from aaco.tracelake import documents, layout, queries
from aaco.tracelake.document_schemas.answers import KernelClasses


@finding(reads=(layout.CAPTURES,), after=("kernel_classes", "instructions"), report="kernel_evidence")
def kernel_evidence(session: Session, settings: Analysis) -> Results:
    """What limits the kernels of a capture of counters or instruction traces, weighted by their time."""
    has_counters = queries.rows(session, COUNTERS) > 0
    traced = documents.decoded(session, InstructionTraces)
    if not has_counters and not traced:
        return
    classes = documents.read(session, layout.finding("kernel_classes"))
    classified = KernelClasses.model_validate(classes) if classes else KernelClasses(kernels=[])
    evidence = evidence_of(classified.kernels, classified.kernel_ns or 0, traced.kernels if traced else (),
                           _without_time(session) if has_counters else 0)
    if evidence:
        yield "kernel_evidence", encode(evidence)


def _without_time(session: Session) -> int:
    """Kernels of a device without a duration."""
    return sum(pc.sum(pc.and_(pc.is_valid(batch.column(0)), pc.is_null(batch.column(1)))).as_py() or 0
               for batch in queries.batches(session, KERNELS, ["device_id", "dur_ns"]))
