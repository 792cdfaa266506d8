"""The sessions of one folder that the routes serve, found only through the index: no path is built from a request."""

from __future__ import annotations

import re
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

from aaco.core.config import Settings
from aaco.core.session import LATEST
from aaco.dashboard.problems import JSON, Refusal, missing
from aaco.dashboard.settings import Limits, ServerSettings
from aaco.tracelake.index import Entry, Index
from aaco.tracelake.queries import QueryableSession

SESSION_ID = r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,150}$"
AGE_S = 1.0  # of an answer at most: 200 readers at once share one look at the disk
LISTS = "GET /api/v1/sessions lists them"


T = TypeVar("T")
ENCODER = msgspec.json.Encoder(decimal_format="number", enc_hook=str)


class Lake:
    """The sessions, their index, and the limits of their use."""

    def __init__(self, settings: ServerSettings) -> None:
        self.server = settings
        self.index = Index(settings.root, AGE_S)
        self.summaries: dict[Path, tuple[Any, bytes]] = {}
        self._looking = anyio.Lock()
        self.streams = 0  # clients that follow a run
        self.turns = anyio.CapacityLimiter(settings.limits.at_work)

    @property
    def settings(self) -> Settings:
        """Return the settings that commands use."""
        return self.server.config

    @property
    def limits(self) -> Limits:
        """Return the limits of requests."""
        return self.server.limits

    async def fresh(self) -> None:
        """Refresh a stale index in a thread. Concurrent callers wait for one refresh."""
        async with self._looking:
            if self.index.stale:
                await anyio.to_thread.run_sync(self.index.entries)

    def entry(self, session_id: str) -> Entry:
        """Return the index entry of this id, or the newest that did not fail for `latest`. Raise Refusal if none is."""
        if session_id == LATEST:
            entries = self.index.entries()
            sound = (entry for entry in entries if entry.status in ("complete", "running"))
            newest = next(sound, next(iter(entries), None))
            if newest is None:
                raise missing("no session yet", "aaco run --model resnet50 --backend cpu")
            return newest
        entry = self.index.find(session_id) if re.fullmatch(SESSION_ID, session_id) else None
        if entry is None:
            raise missing(f"no session {session_id[:160]}", LISTS)
        return entry

    def session(self, session_id: str) -> QueryableSession:
        """Return the session of this id. Raise Refusal if there is none."""
        return QueryableSession(self.entry(session_id).folder)

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
        pattern=SESSION_ID, description="A session's id, or `latest`.", examples=["latest"])]) -> QueryableSession:
    lake = await of(request)
    if not lake.index.knows(session_id):
        await lake.fresh()
    return lake.session(session_id)


TheLake = Annotated[Lake, Depends(of)]
TheSession = Annotated[QueryableSession, Depends(_session)]


def respond(document: Any, status: int = 200) -> Response:
    """Return a JSON answer. A number that is not finite becomes null."""
    return Response(ENCODER.encode(document), status, media_type=JSON)
