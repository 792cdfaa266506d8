"""The profiler of a server on this machine: started before a load and stopped after it, by the routes that vLLM and
SGLang have, and the traces that it has written."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from aaco.core.errors import AacoError, Missing, UsageError
from aaco.llm.server_metrics import connected
from aaco.llm.target import PATHS, Server, Target

START, STOP = "/start_profile", "/stop_profile"
ANSWER_S = 300.0  # a server may write its trace before it answers
APPEAR_S, LOOK_S = 60.0, 0.25
MOST_FILES = 100_000
Written = Mapping[Path, tuple[int, int]]  # when a file was last written, ns, and its bytes


def files_in(folder: Path) -> Written:
    """Return the files below a folder. Raise UsageError."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: no folder", "the one that the server writes its traces to")
    found: dict[Path, tuple[int, int]] = {}
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            about = path.stat()
            found[path] = about.st_mtime_ns, about.st_size
        if len(found) > MOST_FILES:
            raise UsageError(f"{folder}: more than {MOST_FILES:,} files", "a folder for traces alone")
    return found


def call(route: str, to: Target, server: Server, key: str) -> None:
    """Ask the server to start or stop its profiler. Raise Missing where it has no such route, AacoError."""
    connection = http.client.HTTPConnection(to.host, to.port, timeout=ANSWER_S)
    path = to.path.removesuffix(PATHS[to.api].removeprefix("/v1")).removesuffix("/v1") + route
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        connection.sock = connected(server)
        connection.sock.settimeout(ANSWER_S)
        connection.request("POST", path, body=b"", headers=headers)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise AacoError(f"the server's {path} did not answer: {error or type(error).__name__}", "is it up?") from error
    finally:
        connection.close()
    if status == 404:
        raise Missing(f"the server has no {path}: its profiler is off",
                      "vllm serve MODEL --profiler-config.profiler torch --profiler-config.torch_profiler_dir DIR; "
                      "SGLang: SGLANG_TORCH_PROFILER_DIR=DIR")
    if status != 200:
        raise AacoError(f"the server's {path} answered HTTP {status}", "its log says why")


def written_since(folder: Path, before: Written, wait_s: float = APPEAR_S,
                  sleep: Callable[[float], None] = time.sleep) -> list[Path]:
    """Return the files that are new or changed, once none of them grows any more. Raise AacoError if there is none."""
    until, last = time.monotonic() + wait_s, dict[Path, tuple[int, int]]()
    while time.monotonic() < until:
        fresh = {path: about for path, about in files_in(folder).items() if before.get(path) != about}
        if fresh and fresh == last:
            return sorted(fresh)
        last = fresh
        sleep(LOOK_S)
    if last:
        raise AacoError(f"{folder}: the server's trace still grows after {wait_s:g} s", "a shorter load (-n)")
    raise AacoError(f"{folder}: the server has written no trace", "name the folder that its profiler writes to")
