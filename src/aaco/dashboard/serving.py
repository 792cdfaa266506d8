"""The server around the application: uvicorn, patient with no one who is slow on purpose."""

from __future__ import annotations

import socket

import uvicorn

from aaco.core.errors import UsageError
from aaco.dashboard.app import create_app
from aaco.dashboard.settings import ServerSettings


def bind(settings: ServerSettings) -> socket.socket:
    """A socket on the address. Raises UsageError where it cannot be had."""
    try:
        kind, _, _, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM,
                                                    flags=socket.AI_PASSIVE)[0]
        bound = socket.socket(kind, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except (OSError, OverflowError, UnicodeError) as error:
        raise UsageError(f"--host {settings.host} --port {settings.port}: {error}",
                         "another --port; 0 takes any free one") from error
    return bound


def serve(settings: ServerSettings, bound: socket.socket) -> None:
    """Answer until a signal ends it."""
    config = uvicorn.Config(create_app(settings), lifespan="off", ws="none", log_config=None, access_log=False,
                            server_header=False, timeout_graceful_shutdown=3)
    uvicorn.Server(config).run(sockets=[bound])
