"""The server around the application: uvicorn with time limits.

uvicorn 0.54 waits forever for a request's head and for a client that does not read. Both are ended here, as are
connections above a limit.
"""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from threading import Thread
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from aaco.core.errors import UsageError
from aaco.dashboard import problems
from aaco.dashboard.access import MOST_HEAD
from aaco.dashboard.app import create_app
from aaco.dashboard.settings import Limits, ServerSettings

BACKLOG = 512
GRACE_S = 2  # for running answers when the server ends


class Connection(H11Protocol):
    """A connection with limits for its head and its reader."""

    def __init__(self, limits: Limits, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limits = limits
        self._head: asyncio.TimerHandle | None = None
        self._reader: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock of the head; abort a connection above the limit."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            transport.abort()
            return
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks."""
        self._stop_head()
        self._stop_reader()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take a piece of a request. The first of a head starts its clock, the last stops it."""
        before = self.cycle
        if self._head is None and (before is None or before.response_complete):
            self._await_head()
        super().data_received(data)
        if self.cycle is not before:
            self._stop_head()

    def pause_writing(self) -> None:
        """Start the clock of a client that does not read."""
        super().pause_writing()
        self._reader = self._reader or self.loop.call_later(self._limits.body_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop that clock."""
        super().resume_writing()
        self._stop_reader()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP in the shape of every error."""
        body = problems.body(400, msg, "the request's head", "HTTP/1.1, with a head of up to 16 KiB")
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: {problems.JSON}\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()

    def _await_head(self) -> None:
        self._head = self.loop.call_later(self._limits.header_s, self.transport.abort)

    def _stop_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _stop_reader(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None


def bind(settings: ServerSettings) -> socket.socket:
    """Return a socket that listens on the address. Raise UsageError if it cannot be bound."""
    try:
        kind, _, _, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM,
                                                    flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(kind, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)  # a reader of the printed address may connect at once
    except (OSError, OverflowError, UnicodeError) as error:
        raise UsageError(f"--host {settings.host} --port {settings.port}: {error}",
                         "another --port; 0 takes any free one") from error
    return listening


def serve(settings: ServerSettings, bound: socket.socket) -> None:
    """Serve until a signal arrives. Raise StorageError if the audit log cannot be written."""
    server(create_app(settings), settings.limits).run(sockets=[bound])


def server(app: FastAPI, limits: Limits) -> uvicorn.Server:
    """Return the server of an application, not yet running. A thread reads the index for the first request."""
    Thread(target=app.state.lake.index.entries, daemon=True).start()
    protocol: Any = partial(Connection, limits)
    return uvicorn.Server(uvicorn.Config(
        app, http=protocol, ws="none", lifespan="off", log_config=None, access_log=False, server_header=False,
        proxy_headers=False, h11_max_incomplete_event_size=MOST_HEAD, timeout_keep_alive=5, backlog=BACKLOG,
        timeout_graceful_shutdown=GRACE_S))
