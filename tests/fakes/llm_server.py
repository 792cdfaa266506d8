"""Servers of language models that compute nothing: one in C with a known schedule, and one that misbehaves as asked."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

SOURCE = Path(__file__).with_suffix(".c")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"
Answer = Callable[[socket.socket], None]


class Running(NamedTuple):
    """A server that runs: its address, and its process."""

    url: str
    process: subprocess.Popen[str]


def compiled(folder: Path) -> Path:
    """The program of the server in C."""
    program = folder / "llm_server"
    subprocess.run(["cc", "-O2", "-w", "-o", program, SOURCE], check=True)
    return program


@contextmanager
def serving(program: Path, prefix: Sequence[str] = (), slots: int = 0) -> Iterator[Running]:
    """The server in C, at a free port. prefix: words before its own, such as taskset's. slots: requests that it answers
    at once; 0: all."""
    with subprocess.Popen([*prefix, program, "0", str(slots)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield Running(f"http://127.0.0.1:{int(process.stdout.readline())}", process)
        finally:
            process.kill()


def event(content: str | None = "word", model: str = "ref", **more: Any) -> bytes:
    """An event with a chunk of a chat."""
    delta = {"role": "assistant"} if content is None else {"content": content}
    return sse({"model": model, "choices": [{"index": 0, "delta": delta, "finish_reason": None}], **more})


def sse(content: Any) -> bytes:
    """An event with this JSON."""
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def chunk(content: bytes) -> bytes:
    """A piece of a chunked body."""
    return f"{len(content):x}\r\n".encode() + content + b"\r\n"


def events(*pieces: bytes, end: bytes = LAST) -> Answer:
    """An answer that streams these pieces, each in a chunk of its own."""
    return lambda connection: connection.sendall(CHUNKED + b"".join(map(chunk, pieces)) + end)


def status(code: int, body: Any, *headers: str) -> Answer:
    """An answer that refuses."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {code} No", "Content-Type: application/json", f"Content-Length: {len(content)}", *headers]
    return lambda connection: connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + content)


def hang_up(*pieces: bytes, reset: bool = False) -> Answer:
    """An answer that is cut behind these bytes, by an end or a reset."""
    def answer(connection: socket.socket) -> None:
        connection.sendall(b"".join(pieces))
        time.sleep(0.02)
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    return answer


def in_reads(*pieces: bytes) -> Answer:
    """An answer of which the client reads each piece by itself."""
    def answer(connection: socket.socket) -> None:
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(0.05)

    return answer


def pause(seconds: float, *pieces: bytes) -> Answer:
    """An answer that stops for a while behind these pieces, and then ends."""
    def answer(connection: socket.socket) -> None:
        connection.sendall(CHUNKED + b"".join(map(chunk, pieces)))
        time.sleep(seconds)
        connection.sendall(chunk(DONE) + LAST)

    return answer


def drip(content: bytes, before: bytes = b"") -> Answer:
    """An answer that comes a byte at a time, each long before a pause is too long."""
    def answer(connection: socket.socket) -> None:
        connection.sendall(before)
        for byte in content:
            connection.sendall(bytes([byte]))
            time.sleep(0.05)

    return answer


ECHO = b'{"error": "sk-secret/0123456789 is no key"}'
ECHOES: dict[str, Answer] = {
    "echo": status(401, ECHO), "escaped echo": status(401, ECHO.replace(b"/", b"\\/")),
    "zipped echo": status(401, gzip.compress(ECHO), "Content-Encoding: gzip"),
    "echo in pieces": in_reads(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                               % len(ECHO) + ECHO[:20], ECHO[20:])}
SPOKEN = ("the key: ", "sk-se", "cret/01", "234", "56789", ".")  # by a model, token by token
COUNT = sse({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
WORDS = (event(None), event("a"), event("b"), COUNT, DONE)
LONG = sse({"model": "ref", "choices": [{"delta": {"content": "x" * (1 << 20)}}]})
TRICKY = (b": comment\r\n\r\n", b"event: message\r\nid: 7\r\ndata: " + event("a")[6:-2] + b"\r\n\r\n", b"retry: 5\n\n",
          event("b").replace(b"\n", b"\r\n"), event(""), DONE.replace(b"\n", b"\r\n"))
ANSWERS: dict[str, Answer] = {
    "whole": events(*WORDS), "tricky": events(*TRICKY), "one byte at a time": events(*(
        bytes([byte]) for byte in b"".join(TRICKY))),
    "unauthorised": status(401, {"error": {"message": "no such key"}}),
    "missing": status(404, b"<html>not here</html>"),
    "too many": status(429, {"error": "slow down"}, "Retry-After: 7"),
    "overloaded": status(503, {"detail": "loading"}),
    "too long": status(400, {"error": {"message": "maximum context length is 8", "code": "context_length_exceeded"}}),
    "error inside": events(event("a"), sse({"error": {"message": "the parser gave up", "code": 500}}), DONE),
    "error for a stream": events(sse({"error": "out of memory"})),
    "cut in a chunk": hang_up(CHUNKED, chunk(event("a")), b"ff\r\ndata: {"),
    "cut before done": events(event("a"), event("b")), "reset": hang_up(CHUNKED, chunk(event("a")), reset=True),
    "nothing": hang_up(), "not http": hang_up(b"SSH-2.0-OpenSSH_9\r\n" * 3),
    "malformed": events(event("a"), b"data: {\"choices\": [}\n\n", DONE),
    "wrong type": events(event("a"), b'data: {"choices": [{"delta": {"content": 7}}]}\n\n', DONE),
    "long line": events(LONG, DONE), "endless line": lambda connection: connection.sendall(
        CHUNKED + chunk(b"data: " + b"x" * (17 << 20))),
    "gzip": lambda connection: connection.sendall(
        HEAD + b"Content-Encoding: gzip\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        + chunk(gzip.compress(b"".join(WORDS))) + LAST),
    "two usages": events(event("a", usage=None), event("b"), sse({"choices": [], "usage": {"completion_tokens": 9}}),
                         sse({"choices": [], "usage": {"completion_tokens": 2}}), DONE),
    "no tokens": events(event(None), event(""), DONE), "null usage": events(event("a", usage=None), DONE),
    "reasoning only": events(event(None), sse({"choices": [{"delta": {"reasoning_content": "hm"}}]}), DONE),
    "another model": events(event("a", model="other"), DONE),
    "whole document": lambda connection: connection.sendall(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{\"choices\": []}"),
    "by the end": hang_up(HEAD + b"Connection: close\r\n\r\n", *WORDS),
    "interim": in_reads(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", CHUNKED + b"".join(map(chunk, WORDS)) + LAST),
    "another protocol": in_reads(b"HTTP/1.1 101 No\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"),
    "elsewhere": status(307, b"", "Location: http://other/v1?token=abc"),
    "brotli": hang_up(HEAD + b"Content-Encoding: br\r\nConnection: close\r\n\r\n", b"\x8b\x02\x80"),
    "x-gzip": hang_up(HEAD.replace(b"t/e", b"t/E") + b"Content-Encoding: X-GZIP\r\nConnection: close\r\n\r\n",
                      gzip.compress(b"".join(WORDS))),
    "silence": pause(3, event("a")), "slow": pause(3), **ECHOES,
    "spoken echo": events(event(None), *map(event, SPOKEN), DONE)}


def certify(path: Path) -> Path:
    """A file with a key and a certificate of 127.0.0.1 that signs itself."""
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
             "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", path, "-out", path.with_suffix(".crt")]
    subprocess.run([*words, *files], check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + path.with_suffix(".crt").read_bytes())
    return path


@contextmanager
def scripted(idle: bool = False, certificate: Path | None = None, host: str = "127.0.0.1") -> Iterator[str]:
    """A server that answers as the prompt of a request says, else its model; its address. idle: with it the server
    closes each connection when its second request comes. certificate: a file with key and certificate, for TLS.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener, scheme = socket.create_server((host, 0), family=family), "http"
    if certificate:
        context, scheme = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), "https"
        context.load_cert_chain(certificate)
        listener = context.wrap_socket(listener, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=_accept, args=(listener, idle), daemon=True).start()
    try:
        yield f"{scheme}://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
    finally:
        listener.close()


def _accept(listener: socket.socket, idle: bool) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except ssl.SSLError:
            continue
        except OSError:
            return
        threading.Thread(target=_answer_all, args=(connection, idle), daemon=True).start()


def _answer_all(connection: socket.socket, idle: bool) -> None:
    answered = 0
    with connection:
        try:
            while name := _name_asked(connection):
                if answered and idle:
                    return  # as if it had been closed just before
                ANSWERS[name](connection)
                answered += 1
        except OSError:
            return


def _name_asked(connection: socket.socket) -> str:
    """Read a request; return the answer that it asks for, empty at the end."""
    content = b""
    while b"\r\n\r\n" not in content:
        piece = connection.recv(1 << 16)
        if not piece:
            return ""
        content += piece
    head, _, body = content.partition(b"\r\n\r\n")
    if head.startswith(b"GET "):
        return "missing"
    size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    while len(body) < size:
        body += connection.recv(1 << 16)
    asked = json.loads(body)
    prompt = asked["messages"][0]["content"]
    return str(prompt if prompt in ANSWERS else asked["model"])
