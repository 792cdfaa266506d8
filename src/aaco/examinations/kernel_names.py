"""What the names of a session's kernels say, each distinct name once."""

from __future__ import annotations

from aaco.analytics import families
from aaco.core.config import Analysis
from aaco.core.session import Session
from aaco.core.tables import KERNEL_NAMES, KERNELS
from aaco.tracelake import queries, store


def examine(session: Session, settings: Analysis) -> None:
    """Write the names taken apart. Raises BadBundle, StorageError."""
    names = queries.names(session, KERNELS, "kernel_name")
    if names:
        store.write(session, KERNEL_NAMES, families.of_names(names))
