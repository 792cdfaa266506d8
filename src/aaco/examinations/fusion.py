"""Which kernels of a framework's trace could have been one, by the operators that launched them."""

from __future__ import annotations

import numpy as np

from aaco.analytics import fusion_trace
from aaco.analytics.lanes import Ints, Keys, integers
from aaco.core.config import Analysis
from aaco.core.session import Session
from aaco.core.tables import KERNELS, OP_TO_KERNEL_MAP, OPERATORS
from aaco.examinations import mapped
from aaco.tracelake import documents, layout, queries, store

_READ = ("kernel_id", "capture", "device_id", "stream_id", "dur_ns")


def examine(session: Session, settings: Analysis) -> None:
    """Write fusion.json. Raises BadBundle, StorageError."""
    known = fusion_trace.made(store.read(session, OPERATORS)) if all(
        store.holds(session, spec) for spec in (OPERATORS, OP_TO_KERNEL_MAP)) else {}
    found = fusion_trace.document(*_kernels(session), known) if known else None
    documents.replace(session, layout.EXAMINED["fusion"], found)


def _kernels(session: Session) -> tuple[Ints, Ints, Ints]:
    """Of each kernel in start order its operator's row, its stream's number and its time; NONE for no operator."""
    operator = mapped.operators(session)
    streams, stream, spent = Keys(), np.zeros(len(operator), np.int64), np.zeros(len(operator), np.int64)
    for batch in queries.batches(session, KERNELS, _READ):
        kernel, *where, lasted = (integers(batch.column(at)) for at in range(len(_READ)))
        there = (kernel >= 0) & (kernel < len(operator))
        stream[kernel[there]] = streams.numbers(*where)[there]
        spent[kernel[there]] = np.maximum(0, lasted)[there]
    return operator, stream, spent
