"""The whole run on one screen: `observe` records a plan, `explain` turns the record into answers, `run` does both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aaco import derive, record
from aaco.analytics.explanation import Explanation
from aaco.core.config import Settings, resolve
from aaco.core.errors import AacoError
from aaco.core.plan import Plan
from aaco.core.session import Session
from aaco.record import SILENT, Show
from aaco.report import bundle
from aaco.tracelake import manifest


def plan(settings: Settings, model: str, **given: Any) -> Plan:
    """A plan for a model: what is given, else the settings, else the model's registry entry. Raises UsageError."""
    return record.complete_plan(settings, model, given)


def observe(plan: Plan, settings: Settings | None = None, show: Show = SILENT) -> Session:
    """Run the plan and keep all its evidence and tables. Raises AacoError."""
    return run(plan, settings, show)[0]


def explain(session: Session, settings: Settings | None = None) -> Explanation:
    """Evidence -> tables -> readings -> diagnosis. Only reads, and works on incomplete sessions. Raises AacoError."""
    return derive.explanation(session, (settings or resolve()).config.analysis)


def run(plan: Plan, settings: Settings | None = None, show: Show = SILENT) -> tuple[Session, Explanation]:
    """Record the plan, explain it, and seal the bundle with answers and report inside. Raises AacoError.

    A run that fails leaves its bundle marked failed, with whatever evidence it had; a killed one is incomplete.
    """
    settings = settings or resolve()
    prepared = record.prepare(plan, settings, show)
    session = record.begin(prepared, settings)
    with _outcome(session):
        record.record(session, prepared, settings, show)
        show.step("explaining")
        return session, seal(session, settings)


def seal(session: Session, settings: Settings) -> Explanation:
    """Derive every table, answer and report of a recorded session anew, and write the manifest over all of it."""
    explanation = derive.explanation(session, settings.config.analysis, anew=True)
    derive.keep(session, explanation)
    bundle.write(session, explanation)
    manifest.write(session, derive.absent_files(explanation))
    return explanation


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
