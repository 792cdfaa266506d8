"""What the routes serve: the sessions of one folder, found through the index alone, so that no path is ever built from
a request."""

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
from aaco.tracelake.queries import Session

SESSION_ID = r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,150}$"
AGE_S = 1.0  # an answer may be as old: 200 readers at once share one look at the disk
LISTS = "GET /api/v1/sessions lists them"


T = TypeVar("T")
ENCODER = msgspec.json.Encoder(decimal_format="number", enc_hook=str)


class Lake:
    """The sessions and what is around them."""

    def __init__(self, settings: ServerSettings) -> None:
        self.server = settings
        self.index = Index(settings.root, AGE_S)
        self.summaries: dict[Path, tuple[Any, bytes]] = {}
        self._looking = anyio.Lock()
        self.streams = 0  # clients that follow a run
        self.turns = anyio.CapacityLimiter(settings.limits.at_work)

    @property
    def settings(self) -> Settings:
        """As commands have them."""
        return self.server.config

    @property
    def limits(self) -> Limits:
        """How much of anything is too much."""
        return self.server.limits

    async def fresh(self) -> None:
        """See that the index is fresh, without holding up the loop; all who ask meanwhile wait for one look."""
        async with self._looking:
            if self.index.stale:
                await anyio.to_thread.run_sync(self.index.entries)

    def entry(self, session_id: str) -> Entry:
        """The session of this id, or the newest as `latest`. Raises Refusal where there is none."""
        if session_id == LATEST:
            newest = next(iter(self.index.entries()), None)
            if newest is None:
                raise missing("no session yet", "aaco run --model resnet50 --backend cpu")
            return newest
        found = self.index.find(session_id) if re.fullmatch(SESSION_ID, session_id) else None
        if found is None:
            raise missing(f"no session {session_id[:160]}", LISTS)
        return found

    def session(self, session_id: str) -> Session:
        """The same, to be read."""
        return Session(self.entry(session_id).folder)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """A turn among the requests that compute. Raises Refusal where too many wait for one."""
        if self.turns.statistics().tasks_waiting >= self.limits.waiting:
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests wait for their turn", "ask again later",
                          {"Retry-After": "2"})
        async with self.turns:
            yield

    async def in_turn(self, work: Callable[..., T], *given: Any) -> T:
        """Do the work in a thread when it is its turn."""
        async with self.turn():
            return await anyio.to_thread.run_sync(partial(work, *given))


async def of(request: Request) -> Lake:
    """The application's lake."""
    found: Lake = request.app.state.lake
    return found


async def _session(request: Request, session_id: Annotated[str, InPath(
        pattern=SESSION_ID, description="A session's id, or `latest`.", examples=["latest"])]) -> Session:
    lake = await of(request)
    if not lake.index.knows(session_id):
        await lake.fresh()
    return lake.session(session_id)


TheLake = Annotated[Lake, Depends(of)]
TheSession = Annotated[Session, Depends(_session)]


def told(document: Any, status: int = 200) -> Response:
    """A JSON answer; what is no finite number is null."""
    return Response(ENCODER.encode(document), status, media_type=JSON)
