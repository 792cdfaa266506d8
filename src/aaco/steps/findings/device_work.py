"""What the devices' time went to by what limits it, in one pass over a session's tables."""

from __future__ import annotations

from aaco.analytics.bottleneck.kernel_limits import budget_parts
from aaco.analytics.bottleneck.work import COLUMNS, DeviceWork, Working
from aaco.core.config import Analysis
from aaco.core.documents import encode
from aaco.core.finding import Results, finding
from aaco.core.session import Session
from aaco.core.tables import COPIES, KERNEL_GROUPS, KERNELS
from aaco.tracelake import layout, queries

_LIMITS = ("kernel_name", "budget_part", "limit_by")


@finding(reads=(layout.CAPTURES,), after=("attribution", "kernel_groups", "kernel_classes"), report="device_work")
def device_work(session: Session, settings: Analysis) -> Results:
    """What the time of the devices went to, by what limits it."""
    if work := find(session):
        yield "device_work", encode(work)


def find(session: Session) -> DeviceWork | None:
    """What the devices' time went to; None where the session holds no work of a device. Raises BadBundle."""
    if not any(queries.has_values(session, spec, "device_id") for spec in (KERNELS, COPIES)):
        return None
    working = Working(limits_of(session))
    for piece in queries.slices(session, COLUMNS):
        working.feed(*(piece.tables[name] for name in COLUMNS))
    return working.result()


def limits_of(session: Session) -> dict[str, tuple[str, str]]:
    """Return by kernel name its part of the budget and what says so, as Working takes them. Raise BadBundle."""
    return budget_parts(row for batch in queries.batches(session, KERNEL_GROUPS, _LIMITS) for row in batch.to_pylist())
