"""What happened inside the kernels that were traced instruction by instruction, or sampled."""

from __future__ import annotations

import pyarrow as pa

from aaco.analytics.instructions.inside import COLUMNS, document, inside
from aaco.core import tables
from aaco.core.config import Analysis
from aaco.core.finding import Results, finding
from aaco.core.session import Session
from aaco.tracelake import queries


@finding(report="instructions")
def instructions(session: Session, settings: Analysis) -> Results:
    """What happened inside kernels that were traced instruction by instruction, or sampled."""
    read = {name: list(queries.batches(session, tables.ALL[name], columns)) for name, columns in COLUMNS.items()}
    if inner := inside({name: pa.Table.from_batches(batches) for name, batches in read.items() if batches}):
        yield "instructions", document(inner)