"""llama.cpp's server, where this machine has it: AACO_LLAMA_SERVER names the program, else it is looked for on PATH."""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from tests.fakes import gguf_model
from tests.fakes.llm_server import Running

VARIABLE, NAME = "AACO_LLAMA_SERVER", "llama-server"
READY_S = 60.0


def program() -> str | None:
    """The program, or None."""
    return os.environ.get(VARIABLE) or shutil.which(NAME)


@contextmanager
def serving(command: str, folder: Path, slots: int, prefix: Sequence[str] = ()) -> Iterator[Running]:
    """The server with a small model of random weights, at a free port. prefix: words before its own."""
    model = gguf_model.write(folder / "model.gguf")
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = int(free.getsockname()[1])
    words = ["-m", str(model), "--host", "127.0.0.1", "--port", str(port), "-t", "1", "-np", str(slots), "-c",
             str(2048 * slots), "--metrics", "--no-warmup"]
    with (folder / "server.log").open("w") as log, \
            subprocess.Popen([*prefix, command, *words], stdout=log, stderr=log, text=True) as process:
        try:
            _await(process, port, folder / "server.log")
            yield Running(f"http://127.0.0.1:{port}", process)
        finally:
            process.kill()


def _await(process: subprocess.Popen[str], port: int, log: Path) -> None:
    until = time.monotonic() + READY_S
    while time.monotonic() < until and process.poll() is None:
        try:
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return
        except OSError:
            pass
        time.sleep(0.05)
    raise RuntimeError(f"llama-server did not become ready: {log.read_text()[-2000:]}")
