"""Sessions against others: baselines, verdicts and histories."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from aaco import pipeline
from aaco.analytics.explanation import Explanation
from aaco.analytics.quality import health
from aaco.core.config import Settings
from aaco.core.errors import AacoError, StorageError
from aaco.core.readings import or_why
from aaco.core.session import Session, sessions
from aaco.governance.compare import Side
from aaco.governance.verdict import in_history
from aaco.governance.verdict_document import RegressionVerdict
from aaco.report.renderers import bundle
from aaco.tracelake import documents, layout, manifest
from aaco.tracelake.history import baselines
from aaco.workflows import compare_runs, history
from aaco.workflows.compare_runs import DiffRequest


class SavedBaseline(NamedTuple):
    """A saved baseline, the sides in it, and why sessions of it could not be marked as needed."""

    saved: baselines.Saved
    sides: list[Side]
    unmarked: list[str]


def save_baseline(name: str, sessions: Sequence[Session], settings: Settings, replace: bool = False) -> SavedBaseline:
    """Keep the sessions' samples as a baseline. Raise UsageError if they failed and cannot be compared, or differ.

    Each session is marked first, so after a kill `aaco gc` still knows the sessions of every baseline.
    """
    store = settings.config.storage.baselines_dir
    sides = [compare_runs.side(pipeline.explain(session, settings)) for session in sessions]
    unmarked = []
    for session in sessions:
        try:
            session.keep_for(baselines.locate(store, name))
        except StorageError as error:
            unmarked.append(f"{session.id} cannot be marked: {error.what}")
    replicates = [replicate for side in sides for replicate in side.replicates]
    return SavedBaseline(baselines.save(store, name, replicates, replace), sides, unmarked)


def remember(sessions: Sequence[Session], settings: Settings) -> list[int]:
    """Put the sessions' values into the history of measurements; how many of each were new. Raises AacoError."""
    store = settings.config.storage.baselines_dir
    return [compare_runs.remember(store, compare_runs.side(pipeline.explain(session, settings)))
            for session in sessions]


def diff(baseline: str, session: Session, settings: Settings, request: DiffRequest) -> RegressionVerdict:
    """Judge a session against a baseline (a name, a file, or another session), and keep the verdict in the session.

    Only the verdict's files, the report and the manifest are written: evidence, tables and readings stay as sealed.
    """
    storage = settings.config.storage
    manifest.refuse_damage(session, rewritten=manifest.REWRITTEN)
    explained = pipeline.explain(session, settings)
    current, before = compare_runs.side(explained), list[Explanation]()

    def explain_before(reference_session: Session) -> Explanation:
        before.append(pipeline.explain(reference_session, settings))
        return before[-1]

    reference = compare_runs.reference_side(baseline, storage.baselines_dir, storage.sessions_dir, explain_before)
    verdict = with_trust(judge(reference, current, settings, request), [*before, explained])
    kept = compare_runs.keep(session, reference, verdict)
    kept += bundle.write(session, explained.judged(verdict.model_dump(mode="json"), kept))
    manifest.renew(session, kept)
    return verdict


def with_trust(verdict: RegressionVerdict, sides: Sequence[Explanation]) -> RegressionVerdict:
    """The verdict with what the trace check says against either side before its other warnings."""
    distrusted = [f"session {side.session_id} is {side.trust.line}" for side in sides if not side.trust.trusted]
    return verdict.model_copy(update={"warnings": [*distrusted, *verdict.warnings]})


def confirm(session: Session, verdict: RegressionVerdict, shown_by: Sequence[str], settings: Settings) -> None:
    """Note in the session's verdict, if it is still this one, which sessions of fresh processes show it, too."""
    if session.read_json(layout.VERDICT) != verdict.model_dump(mode="json"):
        return  # it was held against something else meanwhile
    manifest.refuse_damage(session, rewritten=manifest.REWRITTEN)
    document = verdict.model_copy(update={"confirmed_by": list(shown_by)}).model_dump(mode="json")
    session.write_json(layout.VERDICT, document)
    explained = pipeline.explain(session, settings).judged(document, [layout.VERDICT])
    manifest.renew(session, [layout.VERDICT, *bundle.write(session, explained)])


def judge(reference: Side, current: Side, settings: Settings, request: DiffRequest) -> RegressionVerdict:
    """The verdict on a side with all that the store knows of it; only reads. Raises AacoError."""
    store = settings.config.storage.baselines_dir
    verdict = compare_runs.judge(reference, current, request, compare_runs.histories(store, reference, current))
    key = baselines.key(current.replicates[-1], verdict.metric)
    return in_history(verdict, *or_why(lambda: history.last_change(store, key)))


def health_before(session: Session, settings: Settings) -> list[float]:
    """The compute health indices of the latest complete sessions before this one of its model and backend, as they
    were sealed, the oldest first; at most one less than a trend looks at."""
    mine, indices = session.record, list[float]()
    for earlier in sessions(settings.config.storage.sessions_dir):
        if len(indices) == health.MOST - 1:
            break
        with suppress(AacoError):  # a session that cannot be read has no part in a trend
            record = earlier.record
            alike = record.plan.get("model") == mine.plan.get("model") and record.backend_ran == mine.backend_ran
            if alike and earlier.id < session.id and record.status == "complete":
                value = documents.read(earlier, layout.DERIVED_METRICS).get("compute_health_index", {}).get("value")
                indices += [] if value is None else [float(value)]
    return indices[::-1]
