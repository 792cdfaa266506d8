"""What all pages read: the sessions of the lake, their explanations, and the store of baselines."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar

from aaco import pipeline
from aaco.analytics.explanation import Explanation
from aaco.core.errors import AacoError
from aaco.core.session import RECORD, Session
from aaco.dashboard.lake import Lake
from aaco.governance.verdict_document import RegressionVerdict
from aaco.tracelake import documents, layout
from aaco.tracelake.index import Entry, stamp

MOST_KEPT = 6  # explanations; one of a million kernels holds some 100 MB
MOST_ROWS = 4096  # answers of sessions that lists showed
ANSWERS = (layout.DERIVED_METRICS, layout.BOTTLENECK)
LATENCIES = {"p50": "latency_p50_ms", "p99": "latency_p99_ms"}


T = TypeVar("T")


class Kept(Generic[T]):
    """A cache of one value for each of the latest `most` sessions, computed again when the session's stamp changes.

    gone: called with each value that is dropped.
    """

    def __init__(self, most: int, gone: Callable[[T], None] = lambda made: None) -> None:
        self._most, self._gone, self._lock = most, gone, Lock()
        self._made: OrderedDict[str, tuple[object, T]] = OrderedDict()

    def of(self, session: Session, stamp: object, make: Callable[[Session], T]) -> T:
        """Return the value of a session. Concurrent callers compute it once."""
        with self._lock:
            kept = self._made.get(session.id)
            if kept is None or kept[0] != stamp:
                kept = self._made[session.id] = stamp, make(session)
            self._made.move_to_end(session.id)
            while len(self._made) > self._most:
                self._gone(self._made.popitem(last=False)[1][1])
            return kept[1]


class Site:
    """Sessions by id: no page takes a path, so none leads out of the served folder.

    root: the folder of the sessions. store: that of baselines and the history. fleet: the lake of a fleet.
    """

    def __init__(self, lake: Lake) -> None:
        self.settings, self.index, self.fleet, self._lake = lake.settings, lake.index, lake.fleet, lake
        self.root, self.store = lake.server.root, lake.server.baselines
        self._explained = Kept[Explanation](MOST_KEPT)

    def entry(self, session_id: str) -> Entry:
        """Return the index entry of a session. Raise Refusal."""
        return self._lake.entry(session_id)

    def session(self, session_id: str) -> Session:
        """Return the session of this id. Raise Refusal or BadBundle."""
        return Session.open(self.entry(session_id).folder)

    def explained(self, session: Session) -> Explanation:
        """Return the explanation of a session, cached until one of its files changes. Raise AacoError."""
        return self._explained.of(session, _stamps(session.folder, RECORD, layout.MANIFEST, layout.VERDICT),
                                  lambda session: pipeline.explain(session, self.settings))


def glance(entry: Entry) -> dict[str, Any]:
    """Return a session's row in a list: the index entry, and the answers in its small documents."""
    row = entry.row() | {"p50": None, "p99": None, "label": "", "verdict": None, "effect_pct": None}
    if entry.status not in ("complete", "running"):
        return row
    try:
        return row | _answers(entry.folder, *_stamps(entry.folder, *ANSWERS)) | judged(entry)
    except AacoError as error:
        return row | {"failure": error.what}


def judged(entry: Entry) -> dict[str, Any]:
    """Return the verdict of a session; empty without one. Raise BadBundle."""
    return _verdict(entry.folder, *_stamps(entry.folder, layout.VERDICT))


@lru_cache(MOST_ROWS)
def _answers(folder: Path, *stamps: object) -> dict[str, Any]:
    """Return latencies and the class. They are read again when a file, and so one of the stamps, changes."""
    session = Session(folder)
    readings = documents.read(session, layout.DERIVED_METRICS)
    latencies = {name: readings.get(metric, {}).get("value") for name, metric in LATENCIES.items()}
    return latencies | {"label": documents.read(session, layout.BOTTLENECK).get("bottleneck_class", "")
                        .replace("_", "-")}


@lru_cache(MOST_ROWS)
def _verdict(folder: Path, *stamps: object) -> dict[str, Any]:
    verdict = documents.as_form(Session(folder), layout.VERDICT, RegressionVerdict)
    return {"verdict": verdict["status"], "effect_pct": verdict["effect_pct"]} if verdict else {}


def _stamps(folder: Path, *names: str) -> list[object]:
    return [stamp(folder, name) for name in names]
