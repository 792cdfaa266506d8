"""The tables of a recorded session from its raw evidence: of one that is not sealed yet, or made again to seal it."""

from __future__ import annotations

from aaco.core import tables
from aaco.core.session import Session
from aaco.steps import endpoint_tables
from aaco.steps.analyzed import Analyzed
from aaco.tracelake import documents, layout, store


def recompute(session: Session) -> Analyzed:
    """Return the tables of a run from its raw captures, those of an endpoint as far as they are written.

    Raise BadBundle, BadCapture.
    """
    if session.record.is_endpoint:
        return endpoint_tables.of_endpoint(session)
    from aaco.steps import analyze  # it needs ONNX, which whoever imports a trace does without

    return analyze.recompute(session)


def make(session: Session) -> Analyzed:
    """Return the tables, made from the raw evidence and written. Raise AacoError."""
    if session.record.is_endpoint:
        endpoint_tables.make(session)
    analyzed = recompute(session)
    if not session.record.is_endpoint:
        write(session, analyzed)
    return analyzed


def write(session: Session, analyzed: Analyzed) -> None:
    """Write the tables of a run, and the account of its device's passes, each file atomically. Raise StorageError."""
    for name, table in analyzed.tables.items():
        store.write(session, tables.ALL[name], table)
    documents.replace(session, layout.finding("device_passes"), analyzed.passes or None)
