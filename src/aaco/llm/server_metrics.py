"""Reads the counters of a server from its /metrics, before and after a load."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Timer

from aaco.analytics.llm.server_counters import ServerCounters, totals
from aaco.core.readings import Absent, or_why
from aaco.llm.target import PATHS, Server, Target

TIMEOUT_S = 2.0  # of a pause
WHOLE_S = 5.0  # of the whole reading: a server may drip
SETTLE_S = 0.2  # a server counts a request a little after it has sent its last token
MOST_BYTES = 16 << 20


def before(to: Target, server: Server, key: str) -> ServerCounters:
    """Return what the server has counted until now, or why that is not known."""
    counted, why_absent = or_why(lambda: totals(_text(to, server, key)))
    return ServerCounters(counted or {}, None, why_absent)


def after(counters: ServerCounters, to: Target, server: Server, key: str) -> ServerCounters:
    """Return them with what the server has counted since."""
    if counters.why_absent:
        return counters
    time.sleep(SETTLE_S)
    try:
        return ServerCounters(counters.before, totals(_text(to, server, key)), "")
    except Absent as reason:
        return ServerCounters({}, None, f"after the load: {reason}")


def _text(to: Target, server: Server, key: str) -> str:
    """Return the text at the /metrics beside the path of requests. Raise Absent."""
    connection = http.client.HTTPConnection(to.host, to.port, timeout=TIMEOUT_S)
    path = to.path.removesuffix(PATHS[to.api].removeprefix("/v1")).removesuffix("/v1") + "/metrics"
    is_late = Event()
    try:
        connection.sock = connected(server)
        with _cut_after(WHOLE_S, connection.sock, is_late):
            connection.request("GET", path, headers={"Authorization": f"Bearer {key}"} if key else {})
            answer = connection.getresponse()
            content = _whole(answer) if answer.status == 200 else b""
    except (OSError, http.client.HTTPException) as error:
        why = f"not whole within {WHOLE_S:g} s" if is_late.is_set() else error or type(error).__name__
        raise Absent(f"the server's {path} could not be read: {why}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise Absent(f"the server has no {path} (HTTP {answer.status})")
    return content.decode(errors="replace")


def _whole(answer: http.client.HTTPResponse) -> bytes:
    """Return the body. Raise IncompleteRead where it is cut, or larger than MOST_BYTES, OSError."""
    content = answer.read(MOST_BYTES)
    if answer.length or len(content) == MOST_BYTES:
        raise http.client.IncompleteRead(content)
    return content


def connected(server: Server) -> socket.socket:
    """Return a connection to a server, with TLS where it has it. Raise OSError."""
    connection = socket.create_connection(server.address[:2], TIMEOUT_S)
    return server.tls.wrap_socket(connection, server_hostname=server.host) if server.tls else connection


@contextmanager
def _cut_after(seconds: float, connection: socket.socket, is_late: Event) -> Iterator[None]:
    """End a connection that is still read after this time, and say so. Raise TimeoutError."""
    def cut() -> None:
        is_late.set()
        socket.socket.shutdown(connection, socket.SHUT_RDWR)  # of TLS, too, beneath what is being read

    timer = Timer(seconds, cut)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
    if is_late.is_set():
        raise TimeoutError
