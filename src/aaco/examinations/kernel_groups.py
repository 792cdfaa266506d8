"""The kernels of an imported session, summed by name, a piece of the table at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pyarrow as pa

from aaco.analytics.kernel_groups import COLUMNS, Grouping
from aaco.analytics.lanes import Keys, integers
from aaco.core.config import Analysis
from aaco.core.session import Session
from aaco.core.tables import KERNEL_GROUPS, KERNELS
from aaco.tracelake import documents, layout, queries, store
from aaco.tracelake.scratch import Ints
from aaco.tracelake.spool import Order, Spool

RUN_BYTES = 4 << 20  # of durations that are sorted in memory: rows here are narrow, and their sort keys are not


def examine(session: Session, settings: Analysis) -> None:
    """Write the kernels summed by name. Raises BadBundle, StorageError."""
    if not store.holds(session, KERNELS):
        return
    captures = documents.require(session, layout.CAPTURES)["captures"]
    spans = [(found["start_ns"], found["end_ns"]) for found in (one["tables"].get("kernels") for one in captures)
             if found and found["start_ns"] is not None and found["end_ns"] is not None]
    window = sum(end - start for start, end in spans) or None
    grouping = Grouping()
    with closing(Spool(Order("group", "dur_ns"), session.folder, RUN_BYTES)) as spool:
        for batch in queries.batches(session, KERNELS, COLUMNS):
            spool.add(pa.table(dict(zip(("group", "dur_ns"), grouping.add(batch), strict=True))))
        table = grouping.table(_durations(spool), window, _iterations(session))
        store.write(session, KERNEL_GROUPS, table)


def _iterations(session: Session) -> int | None:
    """How many inferences the kernels are of; None where a kernel is not known to be of one."""
    if not queries.has_values(session, KERNELS, "iteration"):
        return None
    known = Keys()
    for batch in queries.batches(session, KERNELS, ["capture", "iteration"]):
        if batch.column("iteration").null_count:
            return None
        known.numbers(*(integers(batch.column(name)) for name in ("capture", "iteration")))
    return len(known)


def _durations(spool: Spool) -> Iterator[Ints]:
    for rows in spool.buckets():
        yield np.asarray(rows["dur_ns"].cast(pa.int64()))
