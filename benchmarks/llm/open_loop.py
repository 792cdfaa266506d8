"""100 requests a second, and a server that stands still for 2 s: latencies against those of a queue."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from aaco.analytics.llm.points import points_of
from aaco.llm import arrivals
from benchmarks.claims import Claim
from benchmarks.llm import _loads

RATE, SECONDS, TTFT_MS = 100, 6, 20.0
STOP_S, PAUSE_S = 2.0, 2.0


def claims(captures: Path) -> Iterator[Claim]:
    """Claims about times from the intended dispatch, and about the dispatch itself."""
    count, stopped = int(RATE * SECONDS), list[int]()
    with _loads.running(cpu=1) as server:
        def pause() -> None:
            time.sleep(STOP_S)
            with server.stopped():
                stopped.append(time.monotonic_ns())
                time.sleep(PAUSE_S)
            stopped.append(time.monotonic_ns())

        pausing = threading.Thread(target=pause)
        pausing.start()
        load = _loads.asked(server, [f"ttft={TTFT_MS * 1000:.0f} chunks=1 role=0"] * count,
                            arrivals.constant(RATE, count), cpu=0)
        pausing.join()
    points = points_of(load.requests)
    due = points.intended / 1e6
    begin, end = (at / 1e6 for at in stopped)
    begun = np.where((due >= begin) & (due < end), end, due)
    first = begun + TTFT_MS
    first = np.where((first >= begin) & (first < end), end, first)
    off_ms = np.abs((points.first - points.intended) / 1e6 - (first - due))
    yield Claim(f"TTFT of {count} requests due around a pause of {PAUSE_S:g} s, against a queue", "within 1 ms",
                f"p99 {np.quantile(off_ms, 0.99):.2f} ms, most {off_ms.max():.2f} ms", off_ms.max() <= 1)
    lateness = float(np.quantile((points.send - points.intended) / 1e6, 0.99))
    yield Claim("dispatch behind its intended time, p99", "<= 1 ms", f"{lateness:.2f} ms", lateness <= 1)
