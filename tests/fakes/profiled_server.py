"""A server of a language model that computes nothing and has the profile routes of vLLM and SGLang.

Each token is a step with a launch and a kernel, at times that were really spent; the trace that it writes when its
profiler is stopped has those times, as torch's profiler writes them. SLOW says which tokens are slow, and where.
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

DECODE = "execute_context_0(0)_generation_1(1)"
PREFILL = "execute_context_1(64)_generation_0(0)"
TOKENS, STEP_S, LONG_S = 24, 0.004, 0.04
SLOW = {6: "prefill", 11: "device", 16: "host", 21: "queue"}  # by the token that comes late
WORD = b'data: {"model": "ref", "choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n'


class Recorder:
    """Steps that ran while the profiler was on: name, begin, end, begin and end of the kernel; CLOCK_REALTIME ns."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.is_on = folder, False
        self.steps: list[tuple[str, int, int, int, int]] = []

    def step(self, name: str = DECODE, host_s: float = 0.0005, device_s: float = STEP_S) -> None:
        """Spend the time of a step: on the host alone, then on the device."""
        begin = time.time_ns()
        time.sleep(host_s)
        launched = time.time_ns()
        time.sleep(device_s)
        if self.is_on:
            self.steps.append((name, begin, time.time_ns(), launched, time.time_ns()))

    def write(self) -> None:
        """Write the trace as Kineto does."""
        base = self.steps[0][1] - 1_000_000
        events: list[dict[str, Any]] = []
        for number, (name, begin, end, launched, done) in enumerate(self.steps, 1):
            where = {"ph": "X", "pid": 7, "tid": 7}
            events += [
                where | {"cat": "user_annotation", "name": name, **_at(begin, end, base)},
                where | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": {"correlation": number},
                         **_at(launched - 1000, launched, base)},
                where | {"cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, **_at(launched, done, base),
                         "args": {"correlation": number, "device": 0, "stream": 7}}]
        document = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "card"}], "traceEvents": events,
                    "baseTimeNanoseconds": base}
        (self.folder / "server.pt.trace.json.gz").write_bytes(gzip.compress(json.dumps(document).encode()))
        (self.folder / "profiler_out.txt").write_text("Name  Self CPU  Calls\n")  # as vLLM 0.32 does


def _at(begin: int, end: int, base: int) -> dict[str, float]:
    return {"ts": (begin - base) / 1000, "dur": (end - begin) / 1000}


def _handler(recorder: Recorder, routes: bool) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *words: Any) -> None:
            """Say nothing."""

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.path.endswith("_profile"):
                recorder.is_on = routes and self.path == "/start_profile"
                if routes and not recorder.is_on:
                    recorder.write()
                self.send_response(200 if routes else 404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            for token in range(TOKENS):
                _spend(recorder, SLOW.get(token))
                self.wfile.write(WORD)
            self.wfile.write(b"data: [DONE]\n\n")
            self.close_connection = True

        def do_GET(self) -> None:
            self.send_error(404)

    return Handler


def _spend(recorder: Recorder, cause: str | None) -> None:
    if cause == "prefill":
        recorder.step(PREFILL, device_s=LONG_S)
    elif cause == "queue":
        time.sleep(LONG_S)
    recorder.step(host_s=LONG_S if cause == "host" else 0.0005, device_s=LONG_S if cause == "device" else STEP_S)


@contextmanager
def serving(folder: Path, routes: bool = True) -> Iterator[str]:
    """The server, which writes its trace into a folder; its address. routes: whether it has those of the profiler."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(Recorder(folder), routes)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
