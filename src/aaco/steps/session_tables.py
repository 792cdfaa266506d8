"""The tables of a session: as they are stored, else from the raw evidence; and why each of the others is absent."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress

from aaco.core import tables
from aaco.core.errors import BadBundle
from aaco.core.session import Session
from aaco.core.tables import KERNELS
from aaco.steps.analyzed import NOT_REACHED, Analyzed, is_on_device, why_not_of_endpoint
from aaco.tracelake import documents, layout, manifest, queries, store
from aaco.tracelake.queries import Tables

NOT_TIMED = "imported capture: no iterations were timed"
NOT_IN_IT = "imported capture: it does not hold this"
NOT_WATCHED = "the program was traced without --telemetry"
NO_CLOCK = "no telemetry was recorded, or the trace is on no clock of this host"
OF_TELEMETRY = ("gpu_events", "samples", "system_events")


def tables_of(session: Session) -> Analyzed:
    """Return the tables as stored where the session is an import or sealed, else those of its raw captures.

    Tables of an import are read on first access: they may be larger than memory. Raise BadBundle, BadCapture.
    """
    if session.record.is_import:
        return of_import(session)
    if manifest.is_sealed(session):
        return _stored_of_endpoint(session) if session.record.is_endpoint else _stored(session)
    from aaco.steps import recorded_tables  # what records and parses, which whoever reads a sealed session does without

    return recorded_tables.recompute(session)


def with_tables(session: Session, analyzed: Analyzed, written: Collection[str]) -> Analyzed:
    """Return the same with tables that were written since, by name. Raise BadBundle."""
    if session.record.is_import:
        return of_import(session)
    if session.record.is_endpoint:
        stored = Tables(session)
        return analyzed._replace(tables=stored, missing=_without(analyzed.missing, stored))
    new = {name: store.read(session, tables.ALL[name]) for name in written}
    return analyzed._replace(tables={**analyzed.tables, **new})


def _stored(session: Session) -> Analyzed:
    stored = store.read_all(session)
    reasons = manifest.read(session)["absent"]
    missing = {name: reasons.get(spec.file, NOT_REACHED) for name, spec in tables.ALL.items() if name not in stored}
    return Analyzed(stored, missing, documents.read(session, layout.MODEL_META),
                    documents.read(session, layout.finding("device_passes")), {}, is_on_device(stored.get("kernels")))


def _stored_of_endpoint(session: Session) -> Analyzed:
    """Return the tables of a sealed session with an endpoint, each read on first access."""
    stored, reasons = Tables(session), dict[str, str]()
    with suppress(BadBundle):  # what the record says of the load tells reasons, too
        reasons = manifest.read(session)["absent"]
    why = {name: reasons.get(spec.file, why_not_of_endpoint(session, name)) for name, spec in tables.ALL.items()}
    return Analyzed(stored, _without(why, stored), {}, {}, {}, False)


def _without(missing: Mapping[str, str], stored: Collection[str]) -> dict[str, str]:
    """Return the reasons of the tables that are not stored."""
    return {name: why for name, why in missing.items() if name not in stored}


def of_import(session: Session) -> Analyzed:
    """Return the tables of an import, each read on first access, and why others are missing. Raise BadBundle."""
    stored = Tables(session)
    missing = {name: _why_not_imported(session, name) for name in tables.ALL if name not in stored}
    return Analyzed(stored, missing, {}, {}, {}, queries.has_values(session, KERNELS, "device_id"))


def _why_not_imported(session: Session, table: str) -> str:
    if table in OF_TELEMETRY and "traced" in session.record.plan:
        return NO_CLOCK if session.record.planned.watched_by else NOT_WATCHED
    return NOT_TIMED if table == "inference_iters" else NOT_IN_IT
