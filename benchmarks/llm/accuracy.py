"""1,000 streams of 50 tokens a second: the time of each event against that of its sending, and the client's cost."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from aaco.llm import client, stamps, target
from aaco.llm.connection import MOST_READ
from benchmarks.claims import Claim
from benchmarks.llm import _loads
from tests.fakes.llm_server import LAST, Running

STREAMS, CHUNKS, HOGS = 1000, 250, 4
SCHEDULE = "ttft=200000 spread=20000 period=20000 role=0 usage=0 chunks="
SLACK_NS = 20_000  # between the server's look at the clock and the kernel's, in either direction


def claims(captures: Path) -> Iterator[Claim]:
    """Claims about stamps, cost, and a client that is kept from its CPU."""
    with _loads.running(cpu=1) as server:
        schedules = [SCHEDULE + str(CHUNKS)] * STREAMS
        before = _bare(server, schedules)
        quiet = _loads.asked(server, schedules, most_open=STREAMS, cpu=0)
        yield _beside_bare(quiet, [before, _bare(server, schedules)])
        yield from _exactness(quiet)
        stamped = _loads.asked(server, schedules, most_open=STREAMS, cpu=0, packet_stamps=True)
        with _hogs():
            starved = _loads.asked(server, schedules, most_open=STREAMS, cpu=0)
            apart = _loads.asked(server, schedules, most_open=STREAMS, cpu=0, packet_stamps=True)
        yield _intervals(starved, f"client beside {HOGS} busy processes on its CPU")
        yield from _packets(stamped, apart)


def _exactness(load: _loads.Recording) -> Iterator[Claim]:
    late_us = load.late_ns(exact=True)[:, 0] / 1e3
    events = load.events.num_rows
    for share, bar in ((0.5, 10), (0.99, 50), (0.999, 200)):
        (us,) = _loads.quantiles(late_us, share)
        yield Claim(f"{STREAMS} x 50 events/s, kernel's stamp after the send, p{100 * share:g}", f"<= {bar} us",
                    f"{us:.1f} us", us <= bar)
    yield Claim("events with a time of their own", "", f"{len(late_us):,} of {events:,}", None)
    per_event = 1e6 * load.cpu_s / events
    yield Claim("client's CPU time per event", "<= 10 us", f"{per_event:.1f} us", per_event <= 10)
    yield _intervals(load, "quiet client")


def _beside_bare(load: _loads.Recording, bare: list[tuple[float, int]]) -> Claim:
    cpu_s, reads = (sum(column) / len(bare) for column in zip(*bare, strict=True))
    return Claim("CPU time per event of a loop that reads the same events with their stamps and keeps nothing", "",
                 f"{1e6 * cpu_s / load.events.num_rows:.1f} us in {reads:,.0f} reads, the client's is "
                 f"{load.cpu_s / cpu_s:.2f} of it", None)


def _bare(server: Running, schedules: list[str]) -> tuple[float, int]:
    """CPU time, s, and reads: what it cannot cost less than here, with epoll(7) asked as rarely as the client does."""
    to = target.parse(server.url)
    with _loads.on_cpu(0), select.epoll() as epoll, ExitStack() as stack:
        began, receive, reads = time.process_time(), {}, 0
        for request in _loads.encoded(server, schedules):
            connection = stack.enter_context(socket.create_connection((to.host, to.port)))
            stamps.ask(connection)
            connection.sendall(request)
            receive[connection.fileno()] = connection.recvmsg
            epoll.register(connection, select.EPOLLIN)
        while receive:
            time.sleep(client.SPACING_NS / 1e9)
            for descriptor, _ in epoll.poll():
                content, messages, _, _ = receive[descriptor](MOST_READ, stamps.ROOM)
                stamps.now(), stamps.stamp_of(messages)
                reads += 1
                if content.endswith(LAST):
                    epoll.unregister(descriptor)
                    del receive[descriptor]
        return time.process_time() - began, reads


def _packets(quiet: _loads.Recording, starved: _loads.Recording) -> Iterator[Claim]:
    """How far a busy machine moves the times of packets, and what they cost the client."""
    (calm,), (shifted,) = (_loads.quantiles(load.late_ns(exact=True)[:, 0] / 1e6, 0.99) for load in (quiet, starved))
    points = 100 * len(starved.late_ns(exact=True)) / starved.events.num_rows
    yield Claim("packet stamps: p99 after the send moves when the client is starved", "<= 0.5 ms",
                f"{shifted - calm:.3f} ms, {points:.1f} % of events are points", shifted - calm <= 0.5)
    yield Claim("packet stamps: client's CPU time per event", "", f"{1e6 * quiet.cpu_s / quiet.events.num_rows:.1f} us",
                None)


def _intervals(load: _loads.Recording, where: str) -> Claim:
    late, early = load.late_ns(exact=False).T
    inside = (late >= -SLACK_NS) & (early <= SLACK_NS)
    return Claim(f"{where}: merged events sent in their interval", "all", f"{inside.sum():,} of {len(inside):,}",
                 bool(inside.all()))


@contextmanager
def _hogs() -> Iterator[None]:
    busy = [subprocess.Popen(["taskset", "-c", "0", sys.executable, "-c", "while True: pass"]) for _ in range(HOGS)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()
