"""What the names of a session's kernels say, each distinct name once."""

from __future__ import annotations

from aaco.analytics.kernels import families
from aaco.core.config import Analysis
from aaco.core.finding import Results, finding
from aaco.core.session import Session
from aaco.core.tables import KERNEL_NAMES, KERNELS
from aaco.tracelake import queries


@finding(writes=(KERNEL_NAMES,), whole=True)
def kernel_names(session: Session, settings: Analysis) -> Results:
    """What the names of the kernels say of what they compute."""
    if names := queries.names(session, KERNELS, "kernel_name"):
        yield KERNEL_NAMES, families.of_names(names)