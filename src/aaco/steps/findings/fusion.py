"""Which kernels of a framework's trace could have been one, by the operators that launched them."""

from __future__ import annotations

import numpy as np

from aaco.analytics.fusion import fusion_trace
from aaco.analytics.streaming.stream_ids import TupleIds, integers
from aaco.core.arrays import Ints
from aaco.core.config import Analysis
from aaco.core.finding import Results, finding
from aaco.core.session import Session
from aaco.core.tables import KERNELS, OP_TO_KERNEL_MAP, OPERATORS
from aaco.steps.findings import kernel_operators
from aaco.tracelake import layout, queries, store

_READ = ("kernel_id", "capture", "device_id", "stream_id", "dur_ns")


@finding(reads=(OPERATORS, OP_TO_KERNEL_MAP, layout.CAPTURES), report="fusion")
def fusion(session: Session, settings: Analysis) -> Results:
    """Which kernels of a framework's trace could have been one."""
    made = fusion_trace.made(store.read(session, OPERATORS))
    if made and (document := fusion_trace.document(*_kernels(session), made)):
        yield "fusion", document


def _kernels(session: Session) -> tuple[Ints, Ints, Ints]:
    """Of each kernel in start order its operator's row, its stream's number and its time; NONE for no operator."""
    operator = kernel_operators.operators(session)
    streams, stream, spent = TupleIds(), np.zeros(len(operator), np.int64), np.zeros(len(operator), np.int64)
    for batch in queries.batches(session, KERNELS, _READ):
        kernel, *where, lasted = (integers(batch.column(at)) for at in range(len(_READ)))
        there = (kernel >= 0) & (kernel < len(operator))
        stream[kernel[there]] = streams.numbers(*where)[there]
        spent[kernel[there]] = np.maximum(0, lasted)[there]
    return operator, stream, spent
