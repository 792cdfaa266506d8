"""A connection to a server: what is sent on it, and the parser of the answer that comes back."""

from __future__ import annotations

import json
import socket
import ssl
import zlib
from typing import Any

import httptools

from aaco.llm import stamps
from aaco.llm.answers import ANY_WINDOW, MOST_READ, is_stream

KEPT_HEADERS = (b"content-type", b"content-encoding", b"retry-after", b"location")
LONGEST_KEPT = 200
MOST_DOCUMENT = 1 << 16  # bytes that are kept of an answer that is no stream
LINE = b"\r\n"


class ServerConnection:
    """A TCP connection with at most one request on it. The parser calls the methods that begin with `on_`."""

    def __init__(self, family: int) -> None:
        """Raise OSError, also where no descriptor is left."""
        self.socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stamps.ask(self.socket)
        self.descriptor = self.socket.fileno()
        self.used = False  # whether a request was answered on it
        self.request = -1  # the one that is on it; -1: it is idle
        self.at = 0  # when something last came or went, ns
        self.port, self.received = 0, 0  # the local one; bytes of the server that were read, encrypted or not
        self.blocked = False  # whether the kernel takes no more for now
        self._left = memoryview(b"")
        self.receive = self.socket.recvmsg
        self._bodies: list[bytes] = []
        self._headers: dict[str, str] = {}
        self._parser: Any = None

    def begin(self, request: int, content: bytes, at: int) -> None:
        """Put a request on it, which `send` sends."""
        self._parser = httptools.HttpResponseParser(self)
        self.request, self.at, self._left = request, at, memoryview(content)
        self._headers = {}
        self.is_sent = self.was_full = False  # was_full: whether the last read may have left something
        self.has_head = self.is_complete = self.is_alive = self._is_framed = self.has_answer = False
        self._document: bytearray | None = None  # the answer so far, if it is no stream
        self._ends_chunk = self._is_between = False  # is_between: the next byte begins a chunk

    def send(self) -> None:
        """Send what is left of the request, as far as the kernel takes it. Raise OSError."""
        self._left = self._push(self._left)
        self.is_sent = not self._left

    def _push(self, content: memoryview) -> memoryview:
        """Send; return what the kernel does not take."""
        try:
            while content:
                content = content[self.socket.send(content):]
        except BlockingIOError:
            pass
        self.blocked = bool(content)
        return content

    def feed(self, content: bytes) -> bytes:
        """Parse what was read; return the content of the stream in it. Raise httptools.HttpParserError.

        An answer that is no stream is kept until its end: it has no times, and a key is found only in the whole of it.
        The parser is left out where a read is one whole chunk (RFC 9112, section 7.1), as of an event: it expects
        the next one then as before.
        """
        if begin := self.chunk_begin(content):
            return content[begin:-len(LINE)]
        self.has_answer = True
        try:
            self._parser.feed_data(content)
        except httptools.HttpParserUpgrade:
            raise httptools.HttpParserError("it changes to another protocol") from None
        bodies = self._bodies
        if self._document is not None:
            self._document += b"".join(bodies)[:MOST_DOCUMENT - len(self._document)]
            bodies.clear()
            return b""
        self._is_between = self._ends_chunk and content.endswith(LINE)
        if len(bodies) == 1:
            return bodies.pop()
        joined = b"".join(bodies)
        bodies.clear()
        return joined

    def chunk_begin(self, content: bytes) -> int:
        """Return where the data begins if what was read is one whole chunk; 0 if it is not."""
        return chunk_begin(content) if self._is_between else 0

    @property
    def head(self) -> bytes:
        """Return what the answer's header says, as JSON."""
        facts: dict[str, Any] = {"status": self._parser.get_status_code(), **self._headers}
        if self._document is not None:
            facts.pop("content-encoding", None)  # as `document` returns it
        return json.dumps(facts).encode()

    @property
    def document(self) -> bytes:
        """Return an answer that is no stream as far as it came, uncompressed; empty for a stream."""
        content = bytes(self._document or b"")
        if self._headers.get("content-encoding", "").lower() not in ("gzip", "x-gzip", "deflate"):
            return content
        try:
            return zlib.decompressobj(ANY_WINDOW).decompress(content, MOST_DOCUMENT)
        except zlib.error:
            return b"compressed, and not as its header says"

    @property
    def ends_with_answer(self) -> bool:
        """Return whether the server closes it to end the answer, as its header gives no other end."""
        return self.has_head and not self._is_framed

    def close(self) -> None:
        """Close it, and let go of the parser, which refers to it."""
        self._parser = None
        self.socket.close()

    def on_header(self, name: bytes, content: bytes) -> None:
        """Keep the few headers that say how to read the answer."""
        lowered = name.lower()
        if lowered in KEPT_HEADERS:
            kept = content.partition(b"?")[0] if lowered == b"location" else content  # a query may be a credential
            self._headers[lowered.decode()] = kept.decode("latin-1")[:LONGEST_KEPT]
        elif lowered in (b"content-length", b"transfer-encoding"):
            self._is_framed = True

    def on_headers_complete(self) -> None:
        """Note that the header is complete, unless it is of an interim answer (RFC 9110, section 15.2)."""
        status = self._parser.get_status_code()
        self.has_head = status >= 200
        if self.has_head and not is_stream(status, self._headers):
            self._document = bytearray()

    def on_body(self, content: bytes) -> None:
        """Collect content."""
        self._bodies.append(content)

    def on_chunk_header(self) -> None:
        """Note that a chunk has begun."""
        self._ends_chunk = False

    def on_chunk_complete(self) -> None:
        """Note that a chunk has ended."""
        self._ends_chunk = True

    def on_message_complete(self) -> None:
        """Note that the answer is complete; one without a head was an interim one."""
        if not self.has_head:
            self._headers = {}
            return
        self.is_complete, self.is_alive = True, bool(self._parser.should_keep_alive())


_chunk_headers: dict[int, bytes] = {}  # by the length of a chunk with all around it, made as lengths come


def chunk_begin(content: bytes) -> int:
    """Return where the data of the chunk begins that these bytes are, in the plainest form; 0 if they are not."""
    try:
        header = _chunk_headers[len(content)]
    except KeyError:
        header = _chunk_headers[len(content)] = chunk_header(len(content))
    return len(header) if header and content.startswith(header) and content.endswith(LINE) else 0


def chunk_header(size: int) -> bytes:
    """Return the header of a chunk that is so many bytes with it and its end; empty if there is none."""
    for digits in range(1, 9):
        data = size - digits - 2 * len(LINE)
        if data > 0 and len(header := b"%x" % data) == digits:
            return header + LINE
    return b""


class TlsConnection(ServerConnection):
    """A connection with TLS; the kernel's stamps are those of the encrypted bytes."""

    def __init__(self, family: int, context: ssl.SSLContext, host: str) -> None:
        """Raise OSError."""
        super().__init__(family)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._is_shaken = False
        self._encrypted = memoryview(b"")

    def send(self) -> None:
        """Shake hands, then send, as far as it goes now. Raise OSError, ssl.SSLError among them."""
        try:
            if not self._is_shaken:
                self._tls.do_handshake()
                self._is_shaken = True
            while self._left:
                self._left = self._left[self._tls.write(self._left):]
        except ssl.SSLWantReadError:
            pass
        self._encrypted = self._push(memoryview(bytes(self._encrypted) + self._outgoing.read()))
        self.is_sent = self._is_shaken and not self._left and not self._encrypted

    def decoded(self, content: bytes) -> bytes | None:
        """Return what can be decrypted now, maybe nothing yet; None at the end. Raise OSError, ssl.SSLError among them.
        """
        self._incoming.write(content)
        if not self.is_sent:
            self.send()
        return self._decrypted()

    def _decrypted(self) -> bytes | None:
        pieces = []
        try:
            while self._is_shaken and (piece := self._tls.read(MOST_READ)):
                pieces.append(piece)
        except ssl.SSLWantReadError:
            return b"".join(pieces)
        return b"".join(pieces) or (None if self._is_shaken else b"")
