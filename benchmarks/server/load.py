"""200 readers at once, each asking for the next summary as soon as it has one, over loopback from another process.

Server and readers share two CPUs. Ten thousand sessions, asked for at random (seeded), so most are read from disk for
the first time; every answer is checked.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.claims import Claim
from benchmarks.server import _sessions

READERS, EACH, BEFORE = 200, 60, 5
CPUS = 2


def claims(captures: Path) -> list[Claim]:
    """Percentiles of all answers, with the interval of the 99th (exact binomial ranks), and the errors."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CPUS])
    with tempfile.TemporaryDirectory() as folder:
        ids = _sessions.many(Path(folder))
        server = subprocess.Popen([sys.executable, "-m", "aaco", "serve", "--port", "0", "--sessions-dir",
                                   str(Path(folder) / "sessions")], stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout
            port = int(re.search(r":(\d+)/", server.stdout.readline())[1])  # type: ignore[index]
            asyncio.run(_read(port, ids[:1], readers=1))  # answered once the server has had its first look
            begun, used_s = time.perf_counter(), _cpu_s(server.pid)
            taken, errors = asyncio.run(_read(port, ids))
            answers = READERS * (BEFORE + EACH)
            rate, cost_ms = answers / (time.perf_counter() - begun), (_cpu_s(server.pid) - used_s) / answers * 1e3
        finally:
            server.terminate()
            server.wait()
    times = np.sort(np.array(taken)) * 1e3
    p50, p99 = (float(np.quantile(times, share)) for share in (0.5, 0.99))
    half = 1.96 * np.sqrt(len(times) * 0.99 * 0.01)
    low, high = (float(times[min(int(len(times) * 0.99 + sign * half), len(times) - 1)]) for sign in (-1, 1))
    return [Claim(f"{READERS} readers, {len(times):,} summaries: errors", "0", str(errors), errors == 0),
            Claim("99th percentile of an answer's time", "<= 250 ms",
                  f"{p99:.0f} ms [{low:.0f}, {high:.0f}]; median {p50:.0f} ms", p99 <= 250),
            Claim("CPU time of the server for an answer", "", f"{cost_ms:.2f} ms; {rate:,.0f} answers a second", None)]


def _cpu_s(pid: int) -> float:
    """What a process has used so far: fields 14 and 15 of proc_pid_stat(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _read(port: int, ids: list[str], readers: int = READERS) -> tuple[list[float], int]:
    """All answers' times after each reader's first BEFORE, s, and how many were not as they should be."""
    taken: list[float] = []
    wrong = await asyncio.gather(*(_reader(port, ids, random.Random(seed), taken) for seed in range(readers)))
    return taken, sum(wrong)


async def _reader(port: int, ids: list[str], choose: random.Random, taken: list[float]) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    wrong = 0
    for number in range(BEFORE + EACH):
        name = choose.choice(ids)
        begun = time.perf_counter()
        writer.write(f"GET /api/v1/sessions/{name} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        size = re.search(rb"content-length: (\d+)", head)
        body = await reader.readexactly(int(size[1]) if size else 0)
        if number >= BEFORE:
            taken.append(time.perf_counter() - begun)
        wrong += not (head.startswith(b"HTTP/1.1 200") and f'"session_id":"{name}"'.encode() in body)
    writer.close()
    return wrong
