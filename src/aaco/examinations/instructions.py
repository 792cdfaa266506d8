"""What happened inside the kernels that were traced instruction by instruction, or sampled."""

from __future__ import annotations

import pyarrow as pa

from aaco.analytics.waves.inside import COLUMNS, document, inside
from aaco.core import tables
from aaco.core.config import Analysis
from aaco.core.session import Session
from aaco.tracelake import documents, layout, queries


def examine(session: Session, settings: Analysis) -> None:
    """Write what was found inside kernels. Raises BadBundle, StorageError."""
    read = {name: list(queries.batches(session, tables.ALL[name], columns)) for name, columns in COLUMNS.items()}
    found = inside({name: pa.Table.from_batches(batches) for name, batches in read.items() if batches})
    documents.replace(session, layout.EXAMINED["instructions"], document(found) if found else None)
