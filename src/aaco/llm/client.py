"""The client: one loop over epoll(7) that sends requests when they are due and records every read with its times.

Nothing of an answer's content is parsed here: that would take the time in which the next one waits to be read. A
request that is due does not wait for answers to earlier ones, unless `most_open` are under way.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import httptools
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from aaco.llm import key_search, own_thread, stamps
from aaco.llm.answers import MOST_READ
from aaco.llm.connection import LINE, ServerConnection, TlsConnection
from aaco.llm.conversations import RunningConversations
from aaco.llm.packets import PacketTap
from aaco.llm.record import NO_STAMP, Kind, ReadRecorder, RecorderOfSides
from aaco.llm.target import Server

CHECK_NS = 50_000_000  # between looks at the timeouts
LOOK_NS = stamps.NS  # between looks at the clocks, and writes of the record
START_NS = 5_000_000  # before the first request is due
MS = 1_000_000
COARSE_NS = 2 * MS  # epoll waits in milliseconds: for what is due sooner select(2) does
SPACING_NS = 500_000  # between looks at MANY sockets: to be woken for each event costs more than to read it
MANY = 100  # of fewer connections one may bring several events in that time, which one read would merge
BRIEF_NS = 50_000  # a wait after which the time before it will do as that of the look at the sockets
READABLE = select.EPOLLIN
BODY = int(Kind.BODY)
NEVER = 1 << 62
# Why a request ended without a whole answer, as the record has it.
REFUSED, TLS, CUT, GARBLED, SILENT, SLOW, DESCRIPTORS = (
    b"connect", b"tls", b"cut", b"not_http", b"gap_timeout", b"timeout", b"descriptors")


class Load(Struct, frozen=True):
    """What to send: the requests, and when.

    due_ns: since the start, in order; None: each as soon as one of `most_open` is done. most_open: requests under way
    at once; None: no limit. gap_s, whole_s: how long an answer may pause, and take. real_time: whether the client runs
    before all other programs. packet_stamps: whether a packet socket stamps each packet. conversations: what to send in
    place of requests: the plan is of their first turns, the others go when the answer before them has ended.
    """

    requests: Sequence[bytes]
    due_ns: NDArray[np.int64] | None
    most_open: int | None
    gap_s: float = 60.0
    whole_s: float = 600.0
    real_time: bool = False
    packet_stamps: bool = False
    conversations: RunningConversations | None = None

    @property
    def total(self) -> int:
        """Return how many requests there are, if no turn of a conversation fails."""
        return self.conversations.left if self.conversations else len(self.requests)


def run(load: Load, server: Server, path: Path, secret: str = "",
        progress: Callable[[int, int], None] = lambda done, total: None) -> None:
    """Send every request of a load and record what comes back into a file. Raise StorageError, Missing.

    secret: what must not reach the record.
    """
    run_in_turns(load, [server], [0] * load.total, [path], secret, progress)


def run_in_turns(load: Load, servers: Sequence[Server], sides: Sequence[int], paths: Sequence[Path], secret: str = "",
                 progress: Callable[[int, int], None] = lambda done, total: None) -> None:
    """Send every request of a load to the server of its side; each server has a record of its own, in which its
    requests count from 0. Raise StorageError, Missing."""
    recorders, collecting = [ReadRecorder(path, secret.encode()) for path in paths], gc.isenabled()
    gc.collect()
    gc.disable()  # a collection takes milliseconds, and nothing here goes in circles
    try:
        with own_thread.exact_timers(), own_thread.real_time(load.real_time):
            _Client(load, servers, sides, recorders, progress).run()
    finally:
        for recorder in recorders:
            recorder.close()
        if collecting:
            gc.enable()
        for path in paths if secret else ():
            key_search.blank(path, secret.encode())


class _Client:
    """The state of the loop: connections by descriptor, idle ones, and the time each request was dispatched."""

    def __init__(self, load: Load, servers: Sequence[Server], sides: Sequence[int],
                 recorders: Sequence[ReadRecorder], progress: Callable[[int, int], None]) -> None:
        self._load, self._recorders, self._progress = load, recorders, progress
        self._recorder = RecorderOfSides(recorders, sides) if len(recorders) > 1 else recorders[0]
        self._servers, self._sides = servers, sides
        self._epoll = select.epoll()
        self._by_descriptor: dict[int, ServerConnection] = {}
        self._idle: list[list[ServerConnection]] = [[] for _ in servers]
        self._began: dict[int, int] = {}  # when each request under way was dispatched
        self._next = self._done = self._begun = 0  # begun: of the plan; the other requests are later turns
        self._talk = load.conversations
        self._planned = self._talk.count if self._talk else len(load.requests)
        self._since = self._looked = 0  # before the look at the sockets before this one, and before this one
        self._spacing = 0  # of looks, ns; without the kernel's stamps a later look would be a later time
        self._due = load.due_ns
        self._upcoming = NEVER  # when the next request is due
        self._freed: deque[int] = deque()  # of a load without times: when the next requests may go
        self._taps = [PacketTap(server.family, *server.address[:2]) for server in servers if load.packet_stamps]
        self._is_plain = not (self._taps or self._talk or any(server.tls for server in servers))
        self._add = self._recorder.add
        self._waits = own_thread.CpuWaits()
        self._waited = 0  # for a CPU, until the loop last began to wait for a time at which a request is due

    def run(self) -> None:
        """Send all, and read until every answer has ended."""
        total, start = self._load.total, stamps.now() + START_NS
        if self._due is None:
            self._freed.extend([start] * min(self._load.most_open or self._planned, self._planned))
        else:
            self._due = self._due + start
        self._upcoming = self._next_due()
        check = look = 0
        try:
            while self._is_left(total):
                at = stamps.now()
                if at >= look:
                    look = at + LOOK_NS
                    self._look()
                    self._progress(self._done, total)
                if at >= check:
                    check = at + CHECK_NS
                    self._end_late(at)
                self._dispatch_due(at)
                self._read_ready(self._wait(min(check, self._upcoming)))
        finally:
            self._look()
            for connection in self._by_descriptor.values():
                connection.close()
            self._epoll.close()
            self._waits.close()
            for recorder, tap in zip(self._recorders, self._taps, strict=False):
                recorder.add(-1, Kind.PACKETS, NO_STAMP, stamps.now(), json.dumps(tap.counts()).encode())
                tap.close()

    def _read_ready(self, ready: list[tuple[int, int]]) -> None:
        """Serve the connections with something to read, or to send."""
        connections = self._by_descriptor
        for descriptor, events in ready:
            if connection := connections.get(descriptor):
                if events == READABLE:
                    self._read(connection)
                else:
                    self._serve(connection, events)
            if self._upcoming != NEVER:
                self._dispatch_due(stamps.now())  # what is due waits for no answer that is to be read

    def _look(self) -> None:
        """Record both clocks, and hand over what was recorded until now."""
        real, monotonic, width = stamps.look()
        self._recorder.add(-1, Kind.CLOCK, real, monotonic, str(width).encode())
        self._recorder.flush()

    def _is_left(self, total: int) -> bool:
        return self._talk.left > 0 if self._talk else self._done < total

    def _next_due(self) -> int:
        if self._is_full():
            return NEVER
        if self._talk and self._talk.due is not None:  # who talks goes on before another begins
            return self._talk.due
        if self._begun >= self._planned:
            return NEVER
        if self._due is not None:
            return int(self._due[self._begun])
        return self._freed[0] if self._freed else NEVER

    def _is_full(self) -> bool:
        return self._load.most_open is not None and len(self._began) >= self._load.most_open

    def _wait(self, until: int) -> list[tuple[int, int]]:
        """Return what is ready at the latest at `until`.

        What is not among it came after `_looked`. After a long wait that is a look of its own: how long before the end
        of the wait the kernel looked at each socket is not known.
        """
        if self._due is not None:
            self._waited = self._waits.total_ns()
        begin, most = self._rest(until), len(self._by_descriptor) + 1
        if until - begin < COARSE_NS:
            select.select([self._epoll], [], [], max(0, until - begin) / stamps.NS)
            ready = None
        else:
            ready = self._epoll.poll(((until - begin) // MS - 0.5) / 1000, most)  # rounded up to milliseconds
        now = stamps.now()
        if ready is None or now - begin > BRIEF_NS:
            begin, ready = now, self._epoll.poll(0, most)
        self._since, self._looked = self._looked, begin
        return ready

    def _rest(self, until: int) -> int:
        """Return the time, a while after the last look where many connections keep the client busy.

        Events that come until then are read at one look, each with the kernel's stamp of its own.
        """
        begin, is_dense = stamps.now(), self._looked - self._since < 2 * self._spacing
        left = min(until, self._looked + self._spacing) - begin
        if not is_dense or left <= 0 or len(self._by_descriptor) < MANY:
            return begin
        time.sleep(left / stamps.NS)
        return stamps.now()

    def _dispatch_due(self, at: int) -> None:
        while (intended := self._upcoming) <= at:
            request = self._next
            self._next += 1
            self._choose(request)
            at = stamps.now()
            self._began[request] = at
            self._recorder.add(request, Kind.DISPATCH, intended, at, self._cpu_wait(at - intended))
            if self._talk:
                self._recorder.add(request, Kind.TURN, NO_STAMP, at, self._talk.note(request))
            self._upcoming = self._next_due()
            self._begin(request, at)

    def _choose(self, request: int) -> None:
        """Take what may go next: a turn that waits, else the next of the plan."""
        if self._talk and self._talk.due is not None:
            self._talk.go_on(request)
            return
        if self._due is None:
            self._freed.popleft()
        if self._talk:
            self._talk.begin(request, self._begun)
        self._begun += 1

    def _cpu_wait(self, late_ns: int) -> bytes:
        """Return how long of a dispatch's lateness the thread at most waited for a CPU, in digits; none: not known."""
        if self._due is None or (total := self._waits.total_ns()) == own_thread.UNKNOWN:
            return b""
        return str(min(late_ns, total - self._waited)).encode()

    def _begin(self, request: int, at: int, on_new: bool = False) -> None:
        """Send a request on an idle connection, else on a new one."""
        content = self._talk.content(request) if self._talk else self._load.requests[request]
        side = self._sides[request]
        if self._idle[side] and not on_new:
            connection = self._idle[side].pop()
            connection.begin(request, content, at)
            self._send(connection)
            return
        try:
            connection = self._open(side)
        except OSError as error:
            self._end(request, DESCRIPTORS if error.errno in (errno.EMFILE, errno.ENFILE) else REFUSED, error)
            return
        connection.begin(request, content, at)
        code = connection.socket.connect_ex(self._servers[side].address)
        connection.port = connection.socket.getsockname()[1]
        self._by_descriptor[connection.descriptor] = connection
        self._epoll.register(connection.descriptor, select.EPOLLIN | select.EPOLLOUT)
        if code not in (0, errno.EINPROGRESS):
            self._fail(connection, REFUSED, OSError(code, os.strerror(code)))

    def _open(self, side: int) -> ServerConnection:
        server = self._servers[side]
        return TlsConnection(server.family, server.tls, server.host) if server.tls else ServerConnection(server.family)

    def _serve(self, connection: ServerConnection, events: int) -> None:
        if events & select.EPOLLOUT:
            code = connection.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._fail(connection, REFUSED, OSError(code, os.strerror(code)))
                return
            self._send(connection)
        if events & ~select.EPOLLOUT and connection.descriptor in self._by_descriptor:
            self._read(connection)

    def _send(self, connection: ServerConnection) -> None:
        try:
            connection.send()
        except OSError as error:
            self._lose(connection, error)
            return
        self._epoll.modify(connection.descriptor, select.EPOLLIN | (select.EPOLLOUT if connection.blocked else 0))
        if connection.is_sent:
            self._note_sent(connection)

    def _note_sent(self, connection: ServerConnection) -> None:
        connection.at = stamps.now()
        self._recorder.add(connection.request, Kind.SENT, NO_STAMP, connection.at)

    def _read(self, connection: ServerConnection) -> None:
        try:
            raw, messages, _, _ = connection.receive(MOST_READ, stamps.ROOM)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(connection, error)
            return
        user_ns, request, kernel_ns = stamps.now(), connection.request, stamps.stamp_of(messages)
        if not raw or request < 0:
            self._closed(connection)
            return
        since_ns, connection.was_full = 0 if connection.was_full else self._since, len(raw) >= MOST_READ
        connection.at, self._spacing = user_ns, SPACING_NS if kernel_ns else 0
        if self._is_plain and (begin := connection.chunk_begin(raw)):  # most reads of a stream
            self._add(request, BODY, kernel_ns, user_ns, raw[begin:-len(LINE)], since_ns)
            return
        if not self._taps:
            self._take(connection, raw, kernel_ns, user_ns, since_ns)
            return
        for piece, stamp in self._pieces(connection, raw, kernel_ns):
            if self._by_descriptor.get(connection.descriptor) is connection and connection.request == request:
                self._take(connection, piece, stamp, user_ns, since_ns)
            since_ns = 0  # of those behind it: since the piece before

    def _pieces(self, connection: ServerConnection, raw: bytes, kernel_ns: int) -> Iterable[tuple[bytes, int]]:
        """Return what one read returned, as it came; each piece with its stamp."""
        begin = connection.received
        connection.received += len(raw)
        return self._taps[self._sides[connection.request]].split(connection.port, begin, raw, kernel_ns)

    def _take(self, connection: ServerConnection, raw: bytes, kernel_ns: int, user_ns: int, since_ns: int) -> None:
        content = self._decoded(connection, raw) if isinstance(connection, TlsConnection) else raw
        if content:
            self._record(connection, content, kernel_ns, user_ns, since_ns)

    def _decoded(self, connection: TlsConnection, raw: bytes) -> bytes:
        """Return the plain text of what was read; none so far, or none as the connection is lost."""
        was_sent = connection.is_sent
        try:
            content = connection.decoded(raw)
        except OSError as error:
            self._lose(connection, error)
            return b""
        if content is None:
            self._closed(connection)
            return b""
        if not was_sent and connection.is_sent:
            self._note_sent(connection)
        return content

    def _record(self, connection: ServerConnection, content: bytes, kernel_ns: int, user_ns: int, since_ns: int
                ) -> None:
        add, request, had_head = self._recorder.add, connection.request, connection.has_head
        if not connection.has_answer:
            add(request, Kind.FIRST, kernel_ns, user_ns)
        try:
            body = connection.feed(content)
        except httptools.HttpParserError as error:
            self._fail(connection, GARBLED, error)
            return
        if not had_head and connection.has_head:
            add(request, Kind.HEAD, kernel_ns, user_ns, connection.head, self._since)
        if body:
            add(request, Kind.BODY, kernel_ns, user_ns, body, since_ns)
            if self._talk:
                self._talk.add(request, body)
        if connection.is_complete:
            self._answered(connection)

    def _keep_document(self, connection: ServerConnection) -> None:
        """Record an answer that is no stream."""
        if document := connection.document:
            self._recorder.add(connection.request, BODY, NO_STAMP, stamps.now(), document)

    def _answered(self, connection: ServerConnection) -> None:
        self._keep_document(connection)
        request, connection.request = connection.request, -1
        if connection.is_complete and connection.is_alive:
            connection.used = True
            self._idle[self._sides[request]].append(connection)
        else:
            self._drop(connection)
        self._end(request)

    def _closed(self, connection: ServerConnection) -> None:
        """The server closed it, which ends an answer, cuts one, or leaves an idle connection less."""
        if connection.request < 0:
            next(idle for idle in self._idle if connection in idle).remove(connection)
            self._drop(connection)
        elif connection.ends_with_answer:
            self._answered(connection)
        else:
            self._lose(connection, None)

    def _lose(self, connection: ServerConnection, error: OSError | None) -> None:
        """End a request that lost its connection; or send it once more, if the connection died while it was idle.

        A server may close a connection that it kept alive at any time, and a request then meets a closed one (RFC 9112,
        section 9.3.1).
        """
        request = connection.request
        if request < 0:
            self._closed(connection)
        elif connection.used and not connection.has_answer:
            self._drop(connection)
            self._recorder.add(request, Kind.AGAIN, NO_STAMP, stamps.now())
            self._begin(request, stamps.now(), on_new=True)
        else:
            self._fail(connection, TLS if isinstance(error, ssl.SSLError) else CUT, error)

    def _fail(self, connection: ServerConnection, why: bytes, error: Exception | None = None) -> None:
        self._keep_document(connection)
        self._drop(connection)
        self._end(connection.request, why, error)

    def _drop(self, connection: ServerConnection) -> None:
        del self._by_descriptor[connection.descriptor]
        self._epoll.unregister(connection.descriptor)
        connection.close()

    def _end(self, request: int, why: bytes = b"", error: Exception | None = None) -> None:
        """Record how a request ended. In a load without times the next may go now."""
        at = stamps.now()
        detail = b": " + str(error).encode(errors="replace")[:200] if error else b""
        self._recorder.add(request, Kind.END, NO_STAMP, at, why + detail)
        del self._began[request]
        self._done += 1
        if self._talk:
            self._talk.end(request, at, not why)
        if self._due is None and not (self._talk and self._talk.due is not None):  # else a turn that waits may go
            self._freed.append(at)
        self._upcoming = self._next_due()

    def _end_late(self, at: int) -> None:
        """End the requests with answers that pause, or take, too long."""
        gap, whole = int(self._load.gap_s * stamps.NS), int(self._load.whole_s * stamps.NS)
        for connection in list(self._by_descriptor.values()):
            if connection.request < 0:
                continue
            why = SLOW if at - self._began[connection.request] > whole else SILENT if at - connection.at > gap else b""
            if why:
                self._fail(connection, why)
