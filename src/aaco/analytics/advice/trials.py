"""What was tried on a session, as a document: how far each change came."""

from __future__ import annotations

from msgspec import Struct, field

from aaco.core import documents
from aaco.tracelake import layout


class Trial(Struct, frozen=True):
    """How far a change came. gain_pct: time saved per sample, with its interval; screened_pct: by the first look;
    guards: what else was watched, and how it changed.
    """

    change: str
    title: str
    outcome: str
    why: str
    advice: list[str] = field(default_factory=list)
    expected: str | None = None
    screened_pct: float | None = None
    gain_pct: float | None = None
    low_pct: float | None = None
    high_pct: float | None = None
    session: str | None = None
    guards: list[str] = field(default_factory=list)


class NotTried(Struct, frozen=True):
    """A change that does not apply, and why."""

    change: str
    title: str
    why: str


@documents.document(layout.finding("trials"), version=1)
class Trials(Struct, frozen=True):
    """trials.json: the last search of optimize/trials.jsonl. kept: the change that was proved; null: none.

    unreadable: lines of the log that a kill tore, or that a later version wrote.
    """

    search: str
    searches: int
    kept: str | None
    why: str
    announced_s: float
    took_s: float
    processes: int | None
    detectable_pct: float | None
    level: float | None
    trials: list[Trial]
    not_tried: list[NotTried]
    again: Trial | None = None
    model: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    unreadable: int = 0
