"""S3 stores for tests: one of our own that can be told what to do wrong, and the real ones that are installed."""

from __future__ import annotations

import hashlib
import hmac
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from benchmarks.fleet import _rclone

KEY, SECRET, BUCKET = "AACOTESTKEY", "aaco/test+secret", "lake"
HOW = {"rclone": _rclone.HOW, "moto": "pip install 'moto[server]'"}


class FakeS3(ThreadingHTTPServer):
    """An S3 store in memory, with one bucket. It checks signatures and, if conditional, If-None-Match and If-Match.

    failures: answers 503 SlowDown so many times. silent_s: waits so long before each answer. forbidden: answers 403.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, conditional: bool) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.conditional = conditional
        self.objects: dict[str, tuple[bytes, float]] = {}
        self.lock = threading.Lock()
        self.failures, self.silent_s, self.forbidden = 0, 0.0, False
        self.requests: list[tuple[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """One request of an object, or the list of a bucket."""

    protocol_version = "HTTP/1.1"
    server: FakeS3

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""

    def answer(self, status: int, content: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def refuse(self, status: int, code: str) -> None:
        self.answer(status, f"<Error><Code>{code}</Code><AWSAccessKeyId>{KEY}</AWSAccessKeyId></Error>".encode(),
                    Content_Type="application/xml")

    def handle_any(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        server = self.server
        server.requests.append((self.command, key))
        time.sleep(server.silent_s)
        with server.lock:
            if server.failures:
                server.failures -= 1
                return self.refuse(503, "SlowDown")
            if server.forbidden:
                return self.refuse(403, "AccessDenied")
            if not self.signed(content, parts.path, parts.query):
                return self.refuse(403, "SignatureDoesNotMatch")
            if bucket != BUCKET:
                return self.refuse(404, "NoSuchBucket")
            if not key:
                return self.list_objects({name: values[0] for name, values in parse_qs(parts.query).items()})
            return getattr(self, f"object_{self.command.lower()}")(key, content)

    do_GET = do_PUT = do_HEAD = do_DELETE = handle_any

    def signed(self, content: bytes, path: str, query: str) -> bool:
        """Return whether the signature is what the specification says, computed again from the request."""
        _, _, fields = self.headers.get("Authorization", "").partition(" ")
        given = dict(field.strip().split("=", 1) for field in fields.split(",") if "=" in field)
        names = given.get("SignedHeaders", "").split(";")
        if given.get("Credential", "").split("/")[0] != KEY or "host" not in names:
            return False
        scope = given["Credential"].split("/", 1)[1]
        digest = self.headers["x-amz-content-sha256"]
        if digest not in ("UNSIGNED-PAYLOAD", hashlib.sha256(content).hexdigest()):
            return False
        pairs = sorted((quote(unquote(name), safe="-_.~"), quote(unquote(value), safe="-_.~")) for name, _, value in (
            part.partition("=") for part in query.split("&") if part))
        canonical = "\n".join([self.command, path, "&".join(f"{name}={value}" for name, value in pairs), *(
            f"{name}:{' '.join((self.headers[name] or '').split())}" for name in names), "", ";".join(names), digest])
        text = "\n".join(["AWS4-HMAC-SHA256", self.headers["x-amz-date"], scope,
                          hashlib.sha256(canonical.encode()).hexdigest()])
        secret = f"AWS4{SECRET}".encode()
        for part in scope.split("/"):
            secret = hmac.digest(secret, part.encode(), "sha256")
        return given["Signature"] == hmac.digest(secret, text.encode(), "sha256").hex()

    def object_get(self, key: str, _: bytes) -> None:
        if key not in self.server.objects:
            return self.refuse(404, "NoSuchKey")
        content, changed = self.server.objects[key]
        about = {"ETag": etag(content), "Last_Modified": formatdate(changed, usegmt=True)}
        if asked := self.headers.get("Range"):
            first, last = asked.removeprefix("bytes=").split("-")
            part = content[int(first):int(last) + 1]
            return self.answer(206, part, Content_Range=f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}",
                               **about)
        return self.answer(200, content, **about, **(
            {"Content_Length": str(len(content))} if self.command == "HEAD" else {}))

    object_head = object_get

    def object_put(self, key: str, content: bytes) -> None:
        present = self.server.objects.get(key)
        if self.server.conditional and (
                (self.headers.get("If-None-Match") == "*" and present)
                or (self.headers.get("If-Match") and (not present or etag(present[0]) != self.headers["If-Match"]))):
            return self.refuse(412, "PreconditionFailed")
        self.server.objects[key] = content, time.time()
        return self.answer(200, ETag=etag(content))

    def object_delete(self, key: str, _: bytes) -> None:
        self.server.objects.pop(key, None)
        self.answer(204)

    def list_objects(self, asked: dict[str, str]) -> None:
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(content)}</Size><LastModified>"
            f"{datetime.fromtimestamp(changed, UTC):%Y-%m-%dT%H:%M:%S.000Z}</LastModified></Contents>"
            for key, (content, changed) in sorted(self.server.objects.items())
            if key.startswith(asked.get("prefix", "")))
        self.answer(200, f"<ListBucketResult><Name>{BUCKET}</Name><IsTruncated>false</IsTruncated>{rows}"
                    "</ListBucketResult>".encode(), Content_Type="application/xml")


def etag(content: bytes) -> str:
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'


@contextmanager
def fake(conditional: bool = True) -> Iterator[FakeS3]:
    with FakeS3(conditional) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def lacks(kind: str) -> bool:
    """Return whether a real store is not installed."""
    return shutil.which("rclone") is None if kind == "rclone" else find_spec("moto") is None


@contextmanager
def real(kind: str, folder: Path) -> Iterator[str]:
    """Start a real store with the bucket in it; yield its address."""
    if kind == "rclone":
        with _rclone.serve(folder, KEY, SECRET) as account:
            yield account["AWS_ENDPOINT_URL"]
        return
    port = _rclone.free_port()
    with subprocess.Popen([sys.executable, "-m", "moto.server", "-p", str(port)], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as process:
        try:
            _rclone.wait_for(port, process)
            url = f"http://127.0.0.1:{port}"
            urllib.request.urlopen(urllib.request.Request(f"{url}/{BUCKET}", method="PUT"))
            yield url
        finally:
            process.kill()
