"""Signed requests to an S3 store (AWS Signature Version 4): whole objects, and writes under a condition.

Arrow's file system has no conditional write, and uploads in a way that some stores refuse; it reads columns.
Credentials come from the environment only. No message holds one: of an answer only status and code are passed on.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import os
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Self
from urllib.parse import quote, urlsplit

from msgspec import Struct

from aaco.core.errors import AacoError, StorageError, UsageError

TIMEOUT_S = 20.0  # for any part of an answer
TRIES, PAUSE_S = 4, 0.2  # the pause doubles
BUSY = (429, 500, 502, 503, 504)
REFUSED = (400, 401, 403)
CODE = re.compile(rb"<Code>([A-Za-z]{1,60})</Code>")
MOST_BYTES = 1 << 31  # of an object that is read whole


@dataclass(frozen=True)
class Account:
    """Where the store is, and who we are to it."""

    scheme: str
    host: str
    region: str
    key: str = field(repr=False)
    secret: str = field(repr=False)
    token: str = field(repr=False)

    @classmethod
    def of_environment(cls) -> Self:
        """Return the account that the usual variables of AWS name. Raise UsageError, which names variables only."""
        key, secret = os.environ.get("AWS_ACCESS_KEY_ID", ""), os.environ.get("AWS_SECRET_ACCESS_KEY", "")
        if not key or not secret:
            raise UsageError("a lake on S3 needs credentials",
                             "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_ENDPOINT_URL for a store that "
                             "is not Amazon's)")
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
        url = (os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
               or f"https://s3.{region}.amazonaws.com")
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.path not in ("", "/"):
            raise UsageError("AWS_ENDPOINT_URL is no address of a store", "http://HOST:PORT or https://HOST")
        return cls(parts.scheme, parts.netloc, region, key, secret, os.environ.get("AWS_SESSION_TOKEN", ""))


class Reply(Struct, frozen=True):
    """The answer to a request: 404 and 412 (the condition does not hold) are answers, too."""

    status: int
    etag: str
    content: bytes

    @property
    def done(self) -> bool:
        """Return whether the store did it."""
        return 200 <= self.status < 300


class Bucket:
    """One bucket of a store. Threads may share it; each has a connection of its own."""

    def __init__(self, account: Account, name: str) -> None:
        self.account, self.name = account, name
        self._local = threading.local()

    def request(self, method: str, key: str, content: bytes = b"", condition: Mapping[str, str] | None = None) -> Reply:
        """Return the answer; a store that is busy or silent is asked TRIES times. Raise StorageError.

        A conditional write whose answer was lost may be answered with 412 although it was done: compare the content.
        """
        why = ""
        for attempt in range(TRIES):
            if attempt:
                time.sleep(PAUSE_S * 2 ** (attempt - 1))
            try:
                reply = self._ask(method, key, content, condition or {})
            except (OSError, http.client.HTTPException) as error:
                self._local.connection = None
                why = "no answer" if isinstance(error, TimeoutError) else f"no connection ({type(error).__name__})"
                continue
            if reply.status not in BUSY:
                return self._judged(reply)
            why = _code(reply)
        raise StorageError(f"s3://{self.name}: the store at {self.account.host} failed {TRIES} times: {why}",
                           "try again later; check AWS_ENDPOINT_URL and the network")

    def _judged(self, reply: Reply) -> Reply:
        code = CODE.search(reply.content) if not reply.done else None
        if code and code[1] == b"NoSuchBucket":
            raise no_bucket(self.name)
        if reply.status in REFUSED or 300 <= reply.status < 400:
            raise refused(self.name, _code(reply))
        return reply

    def _ask(self, method: str, key: str, content: bytes, condition: Mapping[str, str]) -> Reply:
        path = quote(f"/{self.name}/{key}", safe="/-_.~")
        headers = {**self._signed(method, path, content, condition), "Content-Length": str(len(content))}
        connection = self._connection()
        connection.request(method, path, content, headers)
        response = connection.getresponse()
        body = response.read(MOST_BYTES)
        return Reply(response.status, response.getheader("ETag") or "", body)

    def _connection(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            kind = http.client.HTTPSConnection if self.account.scheme == "https" else http.client.HTTPConnection
            connection = self._local.connection = kind(self.account.host, timeout=TIMEOUT_S)
        return connection

    def _signed(self, method: str, path: str, content: bytes, condition: Mapping[str, str]) -> dict[str, str]:
        """Return the headers with their signature. Source: AWS Signature Version 4, one chunk."""
        now = datetime.now(UTC)
        moment, day = f"{now:%Y%m%dT%H%M%SZ}", f"{now:%Y%m%d}"
        digest = hashlib.sha256(content).hexdigest()
        headers = {"host": self.account.host, "x-amz-content-sha256": digest, "x-amz-date": moment,
                   **{name.lower(): value for name, value in condition.items()}}
        if self.account.token:
            headers["x-amz-security-token"] = self.account.token
        names = ";".join(sorted(headers))
        lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        canonical = f"{method}\n{path}\n\n{lines}\n{names}\n{digest}"
        scope = f"{day}/{self.account.region}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        secret = f"AWS4{self.account.secret}".encode()
        for part in scope.split("/"):
            secret = hmac.digest(secret, part.encode(), "sha256")
        signature = hmac.digest(secret, text.encode(), "sha256").hex()
        headers["authorization"] = (f"AWS4-HMAC-SHA256 Credential={self.account.key}/{scope}, SignedHeaders={names}, "
                                    f"Signature={signature}")
        return headers


def _code(reply: Reply) -> str:
    code = CODE.search(reply.content)
    return f"{reply.status} {code[1].decode()}" if code else str(reply.status)


def refused(bucket: str, why: str) -> AacoError:
    """Return the error of a store that knows us and says no, or does not know us."""
    return StorageError(f"s3://{bucket}: the store refused: {why}",
                        "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and what they may do there")


def no_bucket(bucket: str) -> AacoError:
    """Return the error of a bucket that is not there."""
    return StorageError(f"s3://{bucket}: no such bucket", "make the bucket first, or name another --lake")
