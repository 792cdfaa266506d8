"""The sessions of one folder that the routes serve, found only through the index: no path is built from a request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, TypeVar

import anyio
import anyio.to_thread
import msgspec
from fastapi import Depends, Request
from fastapi import Path as InPath
from fastapi.responses import Response

from aaco.core.session import LATEST, STANDING
from aaco.dashboard.fleet import FleetLake
from aaco.dashboard.paths import without_folders
from aaco.dashboard.problems import JSON, Refusal, missing
from aaco.dashboard.settings import ServerSettings
from aaco.tracelake.index import Entry, Index
from aaco.tracelake.queries import QueryableSession

REFERENCE = r"^[^\x00-\x1f\x7f]{1,200}$"  # to a session: tags are any words
AGE_S = 1.0  # of an answer at most: 200 readers at once share one look at the disk
LISTS = "GET /api/v1/sessions lists them"


T = TypeVar("T")
ENCODER = msgspec.json.Encoder(decimal_format="number", enc_hook=str)


class Lake:
    """The sessions, their index, and the limits of their use. settings: those that commands use."""

    def __init__(self, settings: ServerSettings) -> None:
        self.server, self.settings, self.limits = settings, settings.config, settings.limits
        self.index = Index(settings.root, AGE_S)
        self.fleet = FleetLake(settings.config.config.storage.fleet_dir)
        self.summaries: dict[Path, tuple[Any, bytes]] = {}
        self._looking = anyio.Lock()
        self.streams = 0  # clients that follow a run
        self.turns = anyio.CapacityLimiter(settings.limits.at_work)

    async def fresh(self) -> None:
        """Refresh a stale index in a thread. Concurrent callers wait for one refresh."""
        async with self._looking:
            if self.index.stale:
                await anyio.to_thread.run_sync(self.index.entries)

    def entry(self, reference: str) -> Entry:
        """Return the index entry that an id, the beginning of one, a tag or `latest` means. Raise Refusal."""
        if reference == LATEST:
            entries = self.index.entries()
            if not entries:
                raise missing("no session yet", "aaco import TRACE, or aaco run MODEL")
            return next((entry for entry in entries if entry.status in STANDING), entries[0])
        return self.index.find(reference) or self._meant(reference)

    def _meant(self, reference: str) -> Entry:
        """Return the entry of the beginning of an id or of a tag, of several with it the newest."""
        entries = self.index.entries() if reference else []
        begun = [entry for entry in entries if entry.session_id.startswith(reference)]
        if len(begun) > 1:
            ids = ", ".join(entry.session_id for entry in begun[:4])
            raise Refusal(HTTPStatus.BAD_REQUEST, f"session {reference[:160]!r} is ambiguous: {ids}", "more of the id")
        meant = next((entry for entry in begun or entries if begun or entry.tag == reference), None)
        if meant is None:
            raise missing(f"no session {reference[:160]}", LISTS)
        return meant

    def session(self, reference: str) -> QueryableSession:
        """Return the session that is meant. Raise Refusal if there is none."""
        return QueryableSession(self.entry(reference).folder)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Hold a turn among the requests that compute. Raise Refusal if too many wait."""
        if self.turns.statistics().tasks_waiting >= self.limits.waiting:
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests wait for their turn", "ask again later",
                          {"Retry-After": "2"})
        async with self.turns:
            yield

    async def in_turn(self, work: Callable[..., T], *arguments: Any) -> T:
        """Return the result of the work, done in a thread when its turn comes."""
        async with self.turn():
            return await anyio.to_thread.run_sync(partial(work, *arguments))


async def of(request: Request) -> Lake:
    """Return the application's lake."""
    lake: Lake = request.app.state.lake
    return lake


async def _session(request: Request, session_id: Annotated[str, InPath(
        pattern=REFERENCE, description="A session's id, its tag, or `latest`.", examples=["latest"])]
                   ) -> QueryableSession:
    lake = await of(request)
    if not lake.index.knows(session_id):
        await lake.fresh()
    return lake.session(session_id)


TheLake = Annotated[Lake, Depends(of)]
TheSession = Annotated[QueryableSession, Depends(_session)]


def respond(document: Any, status: int = 200) -> Response:
    """Return a JSON answer. A number that is not finite becomes null; no folder of this machine is in it."""
    return Response(encode(document), status, media_type=JSON)


def encode(document: Any) -> bytes:
    """Return a document as JSON that names no folder of this machine."""
    return without_folders(ENCODER.encode(document).decode()).encode()
