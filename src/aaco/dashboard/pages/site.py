"""What all pages read from: the sessions of the lake, their explanations, and the store of baselines."""

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
from aaco.governance.verdict import RegressionVerdict
from aaco.tracelake import documents, layout
from aaco.tracelake.index import Entry, stamp

MOST_KEPT = 6  # explanations; one of a million kernels holds some 100 MB
MOST_ROWS = 4096  # answers of sessions that lists showed
ANSWERS = (layout.DERIVED_METRICS, layout.BOTTLENECK)
LATENCIES = {"p50": "latency_p50_ms", "p99": "latency_p99_ms"}


T = TypeVar("T")


class Kept(Generic[T]):
    """What is made of sessions, for the latest `most` of them; made anew when the session's stamp is another.

    gone: told what is let go of.
    """

    def __init__(self, most: int, gone: Callable[[T], None] = lambda made: None) -> None:
        self._most, self._gone, self._lock = most, gone, Lock()
        self._made: OrderedDict[str, tuple[object, T]] = OrderedDict()

    def of(self, session: Session, stamp: object, make: Callable[[Session], T]) -> T:
        """What was made, or is made now; two who ask for one at once cost one making."""
        with self._lock:
            held = self._made.get(session.id)
            if held is None or held[0] != stamp:
                held = self._made[session.id] = stamp, make(session)
            self._made.move_to_end(session.id)
            while len(self._made) > self._most:
                self._gone(self._made.popitem(last=False)[1][1])
            return held[1]


class Site:
    """Sessions by their id alone: no page takes a path, so none leads out of the folder that is served."""

    def __init__(self, lake: Lake) -> None:
        self.settings, self.index, self._lake = lake.settings, lake.index, lake
        self._explained = Kept[Explanation](MOST_KEPT)

    @property
    def root(self) -> Path:
        """Where the sessions are."""
        return self.settings.config.storage.sessions_dir

    @property
    def store(self) -> Path:
        """Where baselines and the history are."""
        return self.settings.config.storage.baselines_dir

    def entry(self, session_id: str) -> Entry:
        """What the index knows of a session. Raises Refusal."""
        return self._lake.entry(session_id)

    def session(self, session_id: str) -> Session:
        """The session of this id. Raises Refusal or BadBundle."""
        return Session.open(self.entry(session_id).folder)

    def explained(self, session: Session) -> Explanation:
        """Everything known of a session; kept until one of its files is written anew. Raises AacoError."""
        return self._explained.of(session, _stamps(session.folder, RECORD, layout.MANIFEST, layout.VERDICT),
                                  lambda one: pipeline.explain(one, self.settings))


def glance(found: Entry) -> dict[str, Any]:
    """A session's row in a list: what the index knows, and the answers that lie in its small documents."""
    row = found.row() | {"p50": None, "p99": None, "label": "", "verdict": None, "effect_pct": None}
    if found.status not in ("complete", "running"):
        return row
    try:
        return row | _answers(found.folder, *_stamps(found.folder, *ANSWERS)) | judged(found)
    except AacoError as error:
        return row | {"failure": error.what}


def judged(found: Entry) -> dict[str, Any]:
    """What a comparison said of a session; empty where none was made. Raises BadBundle."""
    return _verdict(found.folder, *_stamps(found.folder, layout.VERDICT))


@lru_cache(MOST_ROWS)
def _answers(folder: Path, *stamps: object) -> dict[str, Any]:
    """Latencies and the class; read again when one of the files was written anew, as `stamps` tell."""
    session = Session(folder)
    readings = documents.read(session, layout.DERIVED_METRICS)
    latencies = {name: readings.get(metric, {}).get("value") for name, metric in LATENCIES.items()}
    return latencies | {"label": documents.read(session, layout.BOTTLENECK).get("bottleneck_class", "")
                        .replace("_", " ")}


@lru_cache(MOST_ROWS)
def _verdict(folder: Path, *stamps: object) -> dict[str, Any]:
    found = documents.as_form(Session(folder), layout.VERDICT, RegressionVerdict)
    return {"verdict": found["status"], "effect_pct": found["effect_pct"]} if found else {}


def _stamps(folder: Path, *names: str) -> list[object]:
    return [stamp(folder, name) for name in names]
