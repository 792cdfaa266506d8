"""The route for Prometheus: the newest complete session, the number of sessions, and readings of the devices now."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from weakref import WeakKeyDictionary

from fastapi import APIRouter
from fastapi.responses import Response

from aaco import pipeline
from aaco.core.errors import AacoError
from aaco.core.session import Session
from aaco.dashboard.lake import Lake, TheLake
from aaco.dashboard.paths import without_folders
from aaco.report.exporters import histograms, points, prometheus
from aaco.report.exporters.histograms import Histogram
from aaco.steps.device import telemetry_now
from aaco.tracelake.index import stamp
from aaco.tracelake.layout import MANIFEST

router = APIRouter(tags=["monitoring"])
MEDIA = "text/plain"
Exported = tuple[list[points.Point], list[Histogram]]
_explained: WeakKeyDictionary[Lake, tuple[tuple[Path, object], Exported]] = WeakKeyDictionary()


class Text(Response):
    """An answer in Prometheus's text format."""

    media_type = MEDIA


@router.get("/metrics", response_class=Text, summary="Prometheus's text",
            responses={200: {"content": {MEDIA: {"example": "aaco_sessions{aaco_session_status=\"complete\"} 3\n"}}}})
def metrics(lake: TheLake) -> Response:
    """Values of the newest complete session, sessions by status, and the devices of this machine at this moment.

    What was not measured is not there. Names and units: docs/guides/export.md.
    """
    reported = telemetry_now.now()
    entries = lake.index.entries()
    measured = [*points.of_sessions(Counter(entry.status for entry in entries)), *points.of_devices(reported.devices)]
    (newest, spreads), why = _newest(lake)
    return Response(prometheus.render([*measured, *newest], [*reported.absent, *why], spreads),
                    media_type=prometheus.CONTENT_TYPE)


def _newest(lake: Lake) -> tuple[Exported, list[str]]:
    entry = next((entry for entry in lake.index.entries() if entry.status == "complete"), None)
    if entry is None:
        return ([], []), ["no complete session"]
    try:
        return _points_of(lake, entry.folder), []
    except (AacoError, OSError) as error:  # it may have been removed just now
        return ([], []), [without_folders(f"session {entry.session_id}: {error}")]


def _points_of(lake: Lake, folder: Path) -> Exported:
    """Return the session's points and histograms. The session is explained again when its manifest is replaced."""
    seal = (folder, stamp(folder, MANIFEST))
    kept = _explained.get(lake)
    if kept is None or kept[0] != seal:
        explanation = pipeline.explain(Session(folder), lake.settings)
        kept = _explained[lake] = seal, (points.of_session(explanation), histograms.of_session(explanation))
    return kept[1]
