"""What Prometheus asks for: the newest complete session, how many sessions there are, and what devices tell now."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from weakref import WeakKeyDictionary

from fastapi import APIRouter
from fastapi.responses import Response

from aaco import pipeline, telemetry
from aaco.core.errors import AacoError
from aaco.dashboard.lake import Lake, TheLake
from aaco.report import points, prometheus
from aaco.tracelake.index import stamp
from aaco.tracelake.layout import MANIFEST
from aaco.tracelake.queries import Session

router = APIRouter(tags=["monitoring"])
MEDIA = "text/plain"
_explained: WeakKeyDictionary[Lake, tuple[tuple[Path, object], list[points.Point]]] = WeakKeyDictionary()


class Text(Response):
    """As Prometheus reads it."""

    media_type = MEDIA


@router.get("/metrics", response_class=Text, summary="Prometheus's text",
            responses={200: {"content": {MEDIA: {"example": "aaco_sessions{aaco_session_status=\"complete\"} 3\n"}}}})
def metrics(lake: TheLake) -> Response:
    """Values of the newest complete session, sessions by status, and the devices of this machine at this moment.

    What was not measured is not there. Names and units: docs/guides/export.md.
    """
    told = telemetry.now()
    entries = lake.index.entries()
    found = [*points.of_sessions(Counter(entry.status for entry in entries)), *points.of_devices(told.devices)]
    newest, why = _newest(lake)
    return Response(prometheus.render([*found, *newest], [*told.absent, *why]),
                    media_type=prometheus.CONTENT_TYPE)


def _newest(lake: Lake) -> tuple[list[points.Point], list[str]]:
    entry = next((each for each in lake.index.entries() if each.status == "complete"), None)
    if entry is None:
        return [], ["no complete session"]
    try:
        return _of(lake, entry.folder), []
    except (AacoError, OSError) as error:  # it may have been removed just now
        return [], [f"session {entry.session_id}: {error}"]


def _of(lake: Lake, folder: Path) -> list[points.Point]:
    """The session's points: explained once, and again when its seal was replaced."""
    seal = (folder, stamp(folder, MANIFEST))
    kept = _explained.get(lake)
    if kept is None or kept[0] != seal:
        kept = _explained[lake] = seal, points.of_session(pipeline.explain(Session(folder), lake.settings))
    return kept[1]
