"""The whole run on one screen: `observe` records a plan, `explain` turns the record into answers, `run` does both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from aaco import compare, derive, record
from aaco.analytics.explanation import Explanation
from aaco.compare import Request
from aaco.core.config import Settings, resolve
from aaco.core.errors import AacoError
from aaco.core.plan import Plan
from aaco.core.readings import Reading
from aaco.core.session import Session, Status
from aaco.governance.verdict import RegressionVerdict
from aaco.record import SILENT, Show
from aaco.report import bundle
from aaco.tracelake import manifest


class Run(NamedTuple):
    """A finished run: its session, and everything explained."""

    session: Session
    explanation: Explanation

    @property
    def metrics(self) -> Mapping[str, Reading]:
        """Every metric's reading, measured or absent with its reason."""
        return self.explanation.readings


def plan(settings: Settings, model: str, **given: Any) -> Plan:
    """A plan for a model: what is given, else the settings, else the model's registry entry. Raises UsageError."""
    return record.complete_plan(settings, model, given)


def observe(plan: Plan, settings: Settings | None = None, show: Show = SILENT) -> Session:
    """Run the plan and keep all its evidence and tables. Raises AacoError."""
    return run(plan, settings, show).session


def explain(session: Session, settings: Settings | None = None) -> Explanation:
    """Evidence -> tables -> readings -> diagnosis. Only reads, and works on incomplete sessions. Raises AacoError."""
    return derive.explanation(session, (settings or resolve()).config.analysis)


def run(plan: Plan, settings: Settings | None = None, show: Show = SILENT, session: Session | None = None) -> Run:
    """Record the plan, explain it, and seal the bundle with answers and report inside. Raises AacoError.

    session: an empty session to record into; by default a new one. A run that fails leaves its bundle marked failed,
    with whatever evidence it had; a killed one is incomplete.
    """
    settings = settings or resolve()
    prepared = record.prepare(plan, settings, show)
    session = record.begin(prepared, settings, session)
    with _outcome(session):
        record.record(session, prepared, settings, show)
        show.step("explaining")
        return Run(session, seal(session, settings, "complete"))


def seal(session: Session, settings: Settings, status: Status | None = None) -> Explanation:
    """Derive every table, answer and report of a recorded session anew, and write the manifest over all of it.

    status: what the answers call the session; a run seals before it is marked, so that a kill in here leaves the mark.
    """
    explanation = replace(derive.explanation(session, settings.config.analysis, anew=True),
                          status=status or session.status)
    derive.keep(session, explanation)
    bundle.write(session, explanation)
    manifest.write(session, explanation.absent)
    return explanation


def diff(baseline: str, session: Session, settings: Settings, request: Request) -> RegressionVerdict:
    """Judge a session against a baseline (a name, a file, or another session), and keep the verdict in the session."""
    storage = settings.config.storage
    current = compare.side(explain(session, settings))
    reference = compare.reference_side(baseline, storage.baselines_dir, storage.sessions_dir,
                                       lambda other: explain(other, settings))
    verdict = compare.judge(reference, current, request)
    compare.keep(session, reference, verdict)
    seal(session, settings)
    return verdict


@contextmanager
def _outcome(session: Session) -> Iterator[None]:
    """Marks how the run ended; a process that dies in here leaves the mark `running`, read later as incomplete."""
    try:
        yield
    except AacoError as error:
        session.finish("failed", error.what)
        raise
    except KeyboardInterrupt:
        session.finish("incomplete", "interrupted")
        raise
    session.finish("complete")
