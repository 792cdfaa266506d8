"""What the devices did, in one pass over a session's trace, kept as documents of the bundle.

The tables are streamed a stretch of time at a time, so memory does not grow with the trace. The part that touches the
session; the analysis itself is analytics/trace.py and what that names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from aaco.analytics import neighbours
from aaco.analytics.idle import conditions
from aaco.analytics.trace import COLUMNS, WHOLE, Examination, Trace
from aaco.collectors import device_watch
from aaco.core import tables
from aaco.core.config import Analysis
from aaco.core.session import Session
from aaco.core.tables import COPIES, KERNELS
from aaco.tracelake import documents, layout, queries


def examine(session: Session, settings: Analysis) -> None:
    """Write the documents of what the devices did. Raises BadBundle, StorageError."""
    _keep(session, find(session, settings))


def find(session: Session, settings: Analysis) -> Trace | None:
    """What the devices did; None where the session holds no work of a device. Raises BadBundle."""
    if not any(queries.has_values(session, spec, "device_id") for spec in (KERNELS, COPIES)):
        return None
    whole = {name: _whole(session, name, columns) for name, columns in WHOLE.items()}
    known = conditions(whole["system_events"], _numbered(session, whole["gpu_events"]))
    examination = Examination(settings, whole["collectives"], known, _ranks(session))
    for piece in queries.slices(session, COLUMNS):
        rows = {name: piece.tables[name] for name in COLUMNS}
        examination.feed(rows["kernels"], rows["copies"], rows["api_calls"], piece.end_ns)
    return examination.result()


def _numbered(session: Session, gpu_events: pa.Table | None) -> pa.Table | None:
    """The devices' telemetry under the numbers that the kernels have; None where those are not known."""
    if gpu_events is None:
        return None
    devices = {number for rows in queries.batches(session, KERNELS, ("device_id",))
               for number in rows["device_id"].drop_null().unique().to_pylist()}
    samples = _whole(session, "samples", ("device_id", "name", "value"))
    return neighbours.as_numbered(gpu_events, devices, samples,
                                  device_watch.visible(session.folder / layout.DEVICE_RAW))


def _keep(session: Session, found: Trace | None) -> None:
    """Write the documents into the bundle; those of an examination before it do not stay. Raises StorageError."""
    made = found.documents() if found else {}
    for name, file in layout.TRACE.items():
        documents.replace(session, file, made.get(name))


def _whole(session: Session, name: str, columns: tuple[str, ...]) -> pa.Table | None:
    found = list(queries.batches(session, tables.ALL[name], columns))
    return pa.Table.from_batches(found) if found else None


def _ranks(session: Session) -> Mapping[int, int]:
    """The rank of each capture that has one, by the capture's index."""
    if not (session.folder / layout.CAPTURES).is_file():
        return {}
    captures: list[dict[str, Any]] = session.read_json(layout.CAPTURES)["captures"]
    return {one["index"]: one["rank"] for one in captures if one["rank"] is not None}
