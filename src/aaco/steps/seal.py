"""The end of a session: its answers and report are written, its manifest closes it, its status says how it ended."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from msgspec.structs import replace

from aaco.analytics.advice.machine_gain import MachineGain, MachineGains
from aaco.analytics.explanation import Explanation
from aaco.core import documents as forms
from aaco.core import files
from aaco.core.config import Settings
from aaco.core.errors import AacoError
from aaco.core.session import Session, Status
from aaco.core.show import SILENT, Show
from aaco.optimize import outcomes
from aaco.report.renderers import bundle
from aaco.steps import explain, make_findings, recorded_tables, session_tables
from aaco.steps.analyzed import Analyzed
from aaco.tracelake import documents, layout, manifest


def seal(session: Session, settings: Settings, status: Status | None = None, show: Show = SILENT) -> Explanation:
    """Recompute every table, finding, answer and report of a recorded session, and write the manifest over all of it.

    status: what the answers call the session; a run seals before it is marked, so that a kill in here leaves the mark.
    """
    analyzed = session_tables.of_import(session) if session.record.is_import else recorded_tables.make(session)
    written = make_findings.make(session, settings.config.analysis, _evidence(session, analyzed), show)
    analyzed = session_tables.with_tables(session, analyzed, written)
    _note_machine_gains(session, settings, show)
    explanation = explain.explain(session, settings.config.analysis, analyzed)
    explanation = _marked(explanation, status or session.status)
    explain.keep(session, explanation)
    bundle.write(session, explanation)
    manifest.write(session, {**explanation.absent, **bundle.absent()})
    return explanation


def _note_machine_gains(session: Session, settings: Settings, show: Show) -> None:
    """Keep what advice gained where it was tried on the session's machine, once it was tried on enough models."""
    gains: dict[str, MachineGain] = {}
    try:
        if session.record.machine_id:
            gains = outcomes.of_advice(settings, session.record.machine_id)
    except AacoError as error:  # of a history that cannot be read: the session is whole without it
        show.step(f"what advice gained on this machine is not known: {error.what}")
    noted = forms.encode(MachineGains(gains)) if gains else None
    documents.replace(session, layout.MACHINE_GAINS, noted)


def _evidence(session: Session, analyzed: Analyzed) -> Collection[str]:
    """The tables that were recorded or captured, by name; findings write the others."""
    if session.record.is_import:
        rows: dict[str, int] = documents.read(session, layout.CAPTURES).get("rows", {})
        return rows
    return analyzed.tables


def _marked(explanation: Explanation, status: Status) -> Explanation:
    """The explanation of a session that is about to have this status."""
    return replace(explanation, status=status, record={**explanation.record, "status": status})


@contextmanager
def outcome(session: Session) -> Iterator[None]:
    """Marks how the run ended; a process that dies in here leaves the mark `running`, read later as incomplete.

    So does one that may not write any more: what stopped the run is raised then, not that it could not be noted.
    """
    try:
        with files.storage(session.folder):
            yield
    except AacoError as error:
        with suppress(AacoError):
            session.finish("failed", error.what)
        raise
    except KeyboardInterrupt:
        with suppress(AacoError):
            session.finish("incomplete", "interrupted")
        raise
    session.finish("complete")
