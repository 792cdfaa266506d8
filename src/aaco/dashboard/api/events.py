"""Progress of runs as server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from typing import Any

import anyio.to_thread
from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from aaco.core.errors import AacoError
from aaco.core.records import as_dict
from aaco.core.session import Session
from aaco.dashboard.lake import Lake, TheLake, TheSession, encode
from aaco.dashboard.problems import Refusal
from aaco.workflows import progress
from aaco.workflows.progress import Progress

router = APIRouter(tags=["live"])

EVERY_S = 0.5  # between looks at the disk; a change is sent within this and the age of the index
SILENCE_S = 10.0  # without an event; then a comment keeps the stream alive
STREAM = "text/event-stream"
EVENTS: dict[int | str, dict[str, Any]] = {200: {"content": {STREAM: {"schema": {"type": "string"}, "example": (
    'event: progress\ndata: {"session_id":"20260101_120000_1a2b3c","status":"running","failure":null,'
    '"processes_begun":1,"processes":1,"phase":"measurement","done":57,"planned":110,"median_ms":2.91,'
    '"recent_ms":[2.9,2.93]}\n\n')}}, "description": "Events `progress`, and `ended` for a run that has."}}


@router.get("/sessions/{session_id}/events", responses=EVENTS, response_class=StreamingResponse,
            summary="Follow one run until it ends")
async def follow(lake: TheLake, session: TheSession) -> StreamingResponse:
    """An event whenever the run has come further, within a second, and `ended` with its last state."""
    return RunEvents(lake, lambda: session, forever=False)


@router.get("/events", responses=EVENTS, response_class=StreamingResponse, summary="Follow the newest run")
async def newest(lake: TheLake) -> StreamingResponse:
    """The same for whichever session is the newest; the stream goes on with the next one."""

    def latest() -> Session | None:
        first = next(iter(lake.index.entries()), None)
        return Session(first.folder) if first else None

    return RunEvents(lake, latest, forever=True)


class RunEvents(StreamingResponse):
    """The events of a run, to a client that has one of the limited places."""

    def __init__(self, lake: Lake, which: Callable[[], Session | None], forever: bool) -> None:
        super().__init__(_events(which, forever), media_type=STREAM)
        self._lake = lake

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a place and send. Nothing awaits between the look at the limit and the taking: no client slips by."""
        lake = self._lake
        if lake.streams >= lake.limits.streams:
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"{lake.streams} clients follow runs already",
                          "ask again later", {"Retry-After": "10"})
        lake.streams += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            lake.streams -= 1


async def _events(which: Callable[[], Session | None], forever: bool) -> AsyncIterator[bytes]:
    sent: Progress | None = None
    silent_s = 0.0
    yield b": follows\n\n"
    while True:
        now = await anyio.to_thread.run_sync(_look, which)
        if now is not None and now != sent:
            yield _event("ended" if now.ended else "progress", now)
            sent, silent_s = now, 0.0
        elif silent_s >= SILENCE_S:
            yield b": nothing new\n\n"
            silent_s = 0.0
        if not forever and (now is None or now.ended):
            return
        await asyncio.sleep(EVERY_S)
        silent_s += EVERY_S


def _look(which: Callable[[], Session | None]) -> Progress | None:
    """Return the progress of the run; None without a run, or if its record cannot be read."""
    try:
        session = which()
        return progress.of(session) if session else None
    except AacoError:
        return None


def _event(name: str, now: Progress) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + encode(as_dict(now)) + b"\n\n"
