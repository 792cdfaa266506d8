"""What the devices did, in one pass over a session's trace, kept as documents of the bundle.

The tables are streamed a stretch of time at a time, so memory does not grow with the trace. The part that touches the
session; the analysis itself is analytics/timeline/trace.py and what that names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from aaco.analytics.quality import co_tenants
from aaco.analytics.timeline.idle import IdleConditions, conditions
from aaco.analytics.timeline.trace import COLUMNS, WHOLE, DeviceTrace, Examination
from aaco.collectors.gpu import device_accounts
from aaco.core import tables
from aaco.core.config import Analysis
from aaco.core.finding import Results, finding
from aaco.core.session import Session
from aaco.core.tables import COPIES, KERNELS
from aaco.tracelake import layout, queries
from aaco.tracelake.memory import give_back


@finding(writes=tuple(layout.TRACE))
def trace(session: Session, settings: Analysis) -> Results:
    """What the devices did: busy and idle time, launches, queues, collectives, steps."""
    if examined := find(session, settings):
        yield from examined.documents().items()


def find(session: Session, settings: Analysis) -> DeviceTrace | None:
    """What the devices did; None where the session holds no work of a device. Raises BadBundle."""
    if not any(queries.has_values(session, spec, "device_id") for spec in (KERNELS, COPIES)):
        return None
    examination = Examination(settings, _whole(session, "collectives"), conditions_of(session), ranks_of(session),
                              queries.has_launches(session))
    for piece in queries.slices(session, COLUMNS):
        rows = {name: piece.tables[name] for name in COLUMNS}
        examination.feed(rows["kernels"], rows["copies"], rows["api_calls"], piece.end_ns)
    give_back(0)  # what reading the slices took, before the whole is looked at
    return examination.result()


def conditions_of(session: Session) -> IdleConditions:
    """Return what was recorded of the host and the devices that explains idle time. Raise BadBundle."""
    return conditions(_whole(session, "system_events"), _numbered(session, _whole(session, "gpu_events")))


def _numbered(session: Session, gpu_events: pa.Table | None) -> pa.Table | None:
    """The devices' telemetry under the numbers that the kernels have; None where those are not known."""
    if gpu_events is None:
        return None
    devices = {number for rows in queries.batches(session, KERNELS, ("device_id",))
               for number in rows["device_id"].drop_null().unique().to_pylist()}
    samples = _read(session, "samples", ("device_id", "name", "value"))
    return co_tenants.as_numbered(gpu_events, devices, samples,
                                  device_accounts.visible(session.folder / layout.DEVICE_RAW))


def _whole(session: Session, name: str) -> pa.Table | None:
    return _read(session, name, WHOLE[name])


def _read(session: Session, name: str, columns: tuple[str, ...]) -> pa.Table | None:
    batches = list(queries.batches(session, tables.ALL[name], columns))
    return pa.Table.from_batches(batches) if batches else None


def ranks_of(session: Session) -> Mapping[int, int]:
    """Return the rank of each capture that has one, by the capture's index."""
    if not (session.folder / layout.CAPTURES).is_file():
        return {}
    captures: list[dict[str, Any]] = session.read_json(layout.CAPTURES)["captures"]
    return {capture["index"]: capture["rank"] for capture in captures if capture["rank"] is not None}
