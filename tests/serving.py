"""A server over a folder of sessions, for tests: the application in this process, or a real one on a free port."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient
from msgspec.structs import replace

from aaco.core.config import Config, taken
from aaco.dashboard import serving
from aaco.dashboard.app import create_app
from aaco.dashboard.settings import ServerSettings

OURS = "http://127.0.0.1"


def settings(folder: Path, **given: Any) -> ServerSettings:
    """Sessions, baselines and audit log in this folder."""
    storage = {"sessions_dir": folder / "sessions", "baselines_dir": folder / "baselines"}
    return ServerSettings(taken(Config.from_dict({"storage": storage})), **given)


def client(folder: Path, **given: Any) -> TestClient:
    """The application without a network; a defect is an answer, as for a real client."""
    return TestClient(create_app(settings(folder, **given)), base_url=OURS, raise_server_exceptions=False)


def copied(source: Path, folder: Path) -> Path:
    """The sessions of another folder, to be changed."""
    shutil.copytree(source / "sessions", folder / "sessions", symlinks=True)
    return folder


@contextmanager
def running(asked: ServerSettings) -> Iterator[int]:
    """A real server on loopback for the length of the block; its port."""
    bound = serving.bind(replace(asked, port=0))
    server = serving.server(create_app(asked), asked.limits)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    try:
        yield bound.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()
