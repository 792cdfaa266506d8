"""100 requests a second, and a server that stands still for 2 s: latencies against those of a queue."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from aaco.analytics.llm.points import points_of
from aaco.llm import arrivals
from benchmarks.claims import Claim
from benchmarks.llm import _loads

RATE, SECONDS, TTFT_MS = 100, 6, 20.0
STOP_S, PAUSE_S = 2.0, 2.0
PAUSE = """
import os, signal, sys, time
pid, stop_s, pause_s = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
time.sleep(stop_s)
os.kill(pid, signal.SIGSTOP)
begin = time.monotonic_ns()
time.sleep(pause_s)
end = time.monotonic_ns()
os.kill(pid, signal.SIGCONT)
print(begin, end)
"""


def claims(captures: Path) -> Iterator[Claim]:
    """Claims about times from the intended dispatch, and about the dispatch itself."""
    count = int(RATE * SECONDS)
    with _loads.running(cpu=1) as server:
        words = [sys.executable, "-c", PAUSE, *map(str, (server.process.pid, STOP_S, PAUSE_S))]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as pausing:
            load = _loads.asked(server, [f"ttft={TTFT_MS * 1000:.0f} chunks=1 role=0"] * count,
                                arrivals.constant(RATE, count), cpu=0)
            begin, end = (int(word) / 1e6 for word in pausing.communicate()[0].split())
    points = points_of(load.requests)
    due = points.intended / 1e6
    begun = np.where((due >= begin) & (due < end), end, due)
    first = begun + TTFT_MS
    first = np.where((first >= begin) & (first < end), end, first)
    ttft = points.ttft(points.intended).ms
    sent = np.array([load.sent[request][0][0] for request in range(count)]) / 1e6
    off_ms = np.abs(ttft - (sent - due))
    yield Claim(f"TTFT of {count} requests due around a pause of {PAUSE_S:g} s, against the server's", "within 1 ms",
                f"p99 {np.quantile(off_ms, 0.99):.2f} ms, most {off_ms.max():.2f} ms", off_ms.max() <= 1)
    # After the pause the server accepts 200 connections, which takes some ms.
    late_ms = np.quantile(ttft - (first - due), (0.5, 0.99))
    text = "p50 {:.2f} ms, p99 {:.2f} ms later".format(*late_ms)
    yield Claim("the same against a queue without cost", "", text, None)
    lateness_ms = (points.send - points.intended) / 1e6
    own_ms = lateness_ms - points.cpu_wait / 1e6
    for what, behind in (("", lateness_ms), (", without waits of the client's thread for a CPU", own_ms)):
        p99 = float(np.quantile(behind, 0.99))
        yield Claim(f"dispatch behind its intended time, p99{what}", "<= 1 ms", f"{p99:.2f} ms", p99 <= 1)
