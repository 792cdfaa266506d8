"""How far a run has come, from what it leaves on disk as it goes: every inference is a row the moment it has ended."""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from aaco.core.errors import BadBundle
from aaco.core.session import Session
from aaco.runner import iterations
from aaco.tracelake import documents, layout

RECENT = 200  # inferences that the median is of
SHOWN = 50  # of them, whose latencies are listed
ENDED = ("complete", "failed", "incomplete")


class Progress(Struct, frozen=True):
    """A run at a moment. What it has not come to is None; latencies are of measured inferences, the newest last."""

    session_id: str
    status: str
    failure: str | None
    processes_begun: int
    processes: int
    phase: str | None
    done: int
    planned: int | None
    median_ms: float | None
    recent_ms: tuple[float, ...]

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.status in ENDED


def of(session: Session) -> Progress:
    """How far the session has come; of a command, `done` counts its runs. Raises BadBundle, StorageError."""
    record, status = session.record, session.status
    plan = record.planned
    if plan.command:
        runs = _runs(session)
        total = plan.warmup + plan.processes
        phase = iterations.PHASES[len(runs) > plan.warmup] if runs else None
        taken = [run["end_ns"] - run["start_ns"] for run in runs[plan.warmup:]]
        return Progress(session.id, status, record.failure, len(runs), total, phase, len(runs), total, *_times(taken))
    begun = _begun(session)
    rows = iterations.path_of(session.folder, begun - 1)
    last = iterations.last(rows, RECENT)
    measured = last[last[:, 1] == 1]
    phase = iterations.PHASES[int(last[-1, 1])] if len(last) else None
    return Progress(session.id, status, record.failure, begun, plan.processes, phase, iterations.count(rows),
                    plan.warmup + plan.iterations if plan.model else None,
                    *_times((measured[:, 3] - measured[:, 2]).tolist()))


def _times(taken_ns: list[int]) -> tuple[float | None, tuple[float, ...]]:
    """The median of the newest, ms, and those that are listed."""
    newest = np.array(taken_ns[-RECENT:]) / 1e6
    return (float(np.median(newest)) if len(newest) else None), tuple(newest[-SHOWN:].tolist())


def _begun(session: Session) -> int:
    """Processes that have begun to leave rows."""
    name = re.compile(r"iterations-\d{6}\.i64")
    folder = session.folder / "runtime"
    return sum(1 for path in folder.iterdir() if name.fullmatch(path.name)) if folder.is_dir() else 0


def _runs(session: Session) -> list[dict[str, int]]:
    """The runs of a command that have ended."""
    try:
        runs: list[dict[str, int]] = documents.read(session, layout.COMMAND).get("runs", [])
    except BadBundle:  # of a run that has only begun
        return []
    return runs
