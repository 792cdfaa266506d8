"""The kernels of an imported session, summed by name, a piece of the table at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pyarrow as pa

from aaco.analytics.kernels.kernel_groups import COLUMNS, Grouping
from aaco.analytics.streaming.stream_ids import TupleIds, integers
from aaco.core.arrays import Ints
from aaco.core.config import Analysis
from aaco.core.finding import Results, finding
from aaco.core.session import Session
from aaco.core.tables import KERNEL_GROUPS, KERNELS
from aaco.tracelake import documents, layout, queries
from aaco.tracelake.ingest.external_sort import Order, Spool

RUN_BYTES = 4 << 20  # of durations that are sorted in memory: rows here are narrow, and their sort keys are not


@finding(reads=(KERNELS, layout.CAPTURES), writes=(KERNEL_GROUPS,))
def kernel_groups(session: Session, settings: Analysis) -> Results:
    """The kernels summed by name."""
    captures = documents.require(session, layout.CAPTURES)["captures"]
    spans = [(tally["start_ns"], tally["end_ns"])
             for tally in (capture["tables"].get("kernels") for capture in captures)
             if tally and tally["start_ns"] is not None and tally["end_ns"] is not None]
    window = sum(end - start for start, end in spans) or None
    grouping = Grouping()
    with closing(Spool(Order("group", "dur_ns"), session.folder, RUN_BYTES)) as spool:
        for batch in queries.batches(session, KERNELS, COLUMNS):
            spool.add(pa.table(dict(zip(("group", "dur_ns"), grouping.add(batch), strict=True))))
        yield KERNEL_GROUPS, grouping.table(_durations(spool), window, _iterations(session))


def _iterations(session: Session) -> int | None:
    """How many inferences the kernels are of; None where a kernel is not known to be of one."""
    if not queries.has_values(session, KERNELS, "iteration"):
        return None
    iterations = TupleIds()
    for batch in queries.batches(session, KERNELS, ["capture", "iteration"]):
        if batch.column("iteration").null_count:
            return None
        iterations.numbers(*(integers(batch.column(name)) for name in ("capture", "iteration")))
    return len(iterations)


def _durations(spool: Spool) -> Iterator[Ints]:
    for rows in spool.buckets():
        yield np.asarray(rows["dur_ns"].cast(pa.int64()))
