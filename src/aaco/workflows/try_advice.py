"""Advice put to the test: changes of a session of ONNX Runtime, tried until one is proved, or none is.

`trial_steps.py` makes each step and writes it down before the next begins, so a search that was killed goes on where it
was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from aaco import pipeline
from aaco.analytics.advice.trials import Trials
from aaco.core.candidate import Candidate, Inapplicable
from aaco.core.config import Settings
from aaco.core.errors import UsageError
from aaco.core.session import Session
from aaco.core.show import SILENT, Show
from aaco.optimize import ledger
from aaco.optimize.changes import candidates
from aaco.optimize.search import Search
from aaco.optimize.situation import Situation, situation_of
from aaco.steps.findings.trials import of_ledger
from aaco.tracelake import documents, layout, manifest
from aaco.tracelake.document_schemas.ledger import SearchDecided
from aaco.workflows.trial_steps import TrialSteps, TryRequest

Catalogue = Callable[[Situation], tuple[list[Candidate], list[Inapplicable]]]

__all__ = ["Tried", "TryRequest", "advised", "kept", "offered", "read", "try_advice"]


class Tried(NamedTuple):
    """A search that ended: the session it is of, and its lines."""

    session: Session
    lines: tuple[Any, ...]

    @property
    def trials(self) -> Trials:
        """Return what was tried and how it ended, as the session keeps it."""
        document = of_ledger(ledger.Read(self.lines, 0))
        assert document is not None
        return document


def try_advice(session: Session, request: TryRequest, settings: Settings, show: Show = SILENT,
               catalogue: Catalogue = candidates) -> Tried:
    """Search for a change that makes the session's workload faster, and prove it; or go on with a search that was cut
    off. catalogue: what is tried, and what cannot be.

    Raise UsageError for a session that is no run of ONNX Runtime, or advice that cannot be tried, AacoError if the
    session's own model does not run any more.
    """
    manifest.refuse_damage(session, rewritten=manifest.REWRITTEN)
    facts = _situation(session, settings, request)
    applicable, inapplicable = catalogue(facts)
    tried = _chosen(applicable, inapplicable, request, session)
    trial = TrialSteps(session, facts, settings, show)
    lines = ledger.unfinished(ledger.read(trial.path).lines, trial.origin, tried)
    if lines:
        show.step(f"going on with search {lines[0].search}")
    else:
        lines = (trial.begin(request, tried, inapplicable),)
    begun = Search(lines).begun
    if begun.announced_s:
        show.step(f"this takes {begun.announced_s:.0f} s at most on an idle machine")
    while not isinstance(lines[-1], SearchDecided):
        lines = (*lines, trial.make(Search(lines)))
    pipeline.analyze(session, settings)  # its advice says how it fared
    return Tried(session, lines)


def read(session: Session) -> ledger.Read:
    """Return the lines of the session's log."""
    return ledger.read(session.folder / layout.LEDGER)


def kept(session: Session) -> Search:
    """Return the last search of the session that kept a change. Raise UsageError where none did."""
    for lines in reversed(list(ledger.searches(read(session).lines))):
        search = Search(lines)
        if search.decided and search.decided.kept is not None:
            return search
    raise UsageError(f"session {session.id} has no kept change", f"aaco try --all {session.id}")


def offered(session: Session, request: TryRequest, settings: Settings) -> tuple[list[Candidate], list[Inapplicable]]:
    """Return what can be tried on the session, and what cannot with its reason. Raise UsageError."""
    return candidates(_situation(session, settings, request))


def _situation(session: Session, settings: Settings, request: TryRequest) -> Situation:
    return situation_of(pipeline.explain(session, settings), settings, request.slo_ms)


def _chosen(applicable: Sequence[Candidate], inapplicable: Sequence[Inapplicable], request: TryRequest,
            session: Session) -> list[Candidate]:
    """Return the changes to try. Raise UsageError where none is left."""
    if request.everything:
        return _require(applicable, session, inapplicable)
    names = [request.advice] if request.advice else advised(session)
    for name in names:
        tried = [change for change in applicable if name in (change.name, *change.advice)]
        if tried:
            return tried
    if request.advice:
        why = next((refused.why for refused in inapplicable if request.advice in (refused.name, *refused.advice)), "")
        raise UsageError(f"{request.advice} cannot be tried on session {session.id}"
                         + (f": {why}" if why else ": no change of ONNX Runtime's options does that"),
                         f"aaco try --list {session.id}  # what can be tried, and why the rest cannot")
    raise UsageError(f"nothing that session {session.id} advises can be tried by options of ONNX Runtime",
                     f"aaco try --all {session.id}")


def _require(applicable: Sequence[Candidate], session: Session,
             inapplicable: Sequence[Inapplicable]) -> list[Candidate]:
    if not applicable:
        raise UsageError(f"nothing can be tried on session {session.id}: {len(inapplicable)} changes do not apply",
                         f"aaco try --list {session.id}")
    return list(applicable)


def advised(session: Session) -> list[str]:
    """Return the names of the actions that the session advises, best first."""
    document = documents.read(session, layout.BOTTLENECK)
    return [str(action["action"]) for action in document.get("optimization_priority", ())]
