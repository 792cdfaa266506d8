"""The guard in front of every route. It decides before the route is resolved, and refuses by default.

Without tokens, loopback may read, and may write only with --writable. With tokens, every request needs one. A request
that changes something must not come from a page of another site. On loopback every request must use a loopback name of
this machine: otherwise any page could read it through a name that resolves here (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import re
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from starlette.types import ASGIApp, Receive, Scope, Send

from aaco.core.errors import StorageError
from aaco.core.redaction import redact
from aaco.dashboard import problems
from aaco.dashboard.problems import Refusal
from aaco.dashboard.settings import Limits, Role, ServerSettings, Token, digest, is_loopback
from aaco.tracelake.share.audit import Audit

SAFE = {"GET", "HEAD", "OPTIONS"}
UPLOADS = {"/api/v1/bundles", "/api/v1/captures"}
ASKING = re.compile(r"/api/v1/sessions/[^/]+/sql")  # a POST that changes nothing
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="aaco", Basic realm="aaco: any name, the token as password"'}
HARDENED = ((b"x-content-type-options", b"nosniff"), (b"x-frame-options", b"SAMEORIGIN"),
            (b"referrer-policy", b"no-referrer"), (b"cache-control", b"no-store"),
            (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"))
MOST_HEAD = 16 << 10  # bytes of a request's first line and headers
EMPTY: Mapping[str, str] = {}
# Answers that are logged, in addition to all writes: refused for the caller, the origin, the size or the speed.
NOTED = (401, 403, 408, 413, 421, 503)
LONGEST = 300  # letters of a path or a reason in the log


class Caller(Struct, frozen=True):
    """The caller, by its name in the audit log, and its role."""

    name: str
    role: Role


class Guard:
    """An ASGI application around another: passes requests on or refuses them, and writes the audit log."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, audit: Audit) -> None:
        self.app, self.settings, self.audit = app, settings, audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        send = self._noting(scope, _hardened(_headed(send) if scope["method"] == "HEAD" else send))
        try:
            scope.setdefault("state", {})["caller"] = admit(scope, self.settings)
            limited = _limited(scope, receive, self.settings.limits)
        except Refusal as refusal:
            await refuse(scope, send, refusal)
            return
        await self.app({**scope, "method": "GET"} if scope["method"] == "HEAD" else scope, limited, send)

    def _noting(self, scope: Scope, send: Send) -> Send:
        """Return a send that logs before the answer begins. If the log cannot be written, the answer is that error."""

        async def noting(message: Any) -> None:
            if message["type"] == "http.response.start":
                try:
                    self._note(scope, message["status"])
                except StorageError as error:
                    scope["state"]["unnoted"] = True
                    await _answer(scope, send, 507, error.what.rpartition("/")[2], error.fix)
            if not scope.get("state", {}).get("unnoted"):
                await send(message)

        return noting

    def _note(self, scope: Scope, status: int) -> None:
        changing, state = scope["method"] not in SAFE, scope.get("state", {})
        asking = changing and asks(scope)
        if status not in NOTED and not (changing and not asking) and not (asking and status >= 400):
            return
        caller, client = state.get("caller"), scope.get("client")
        facts = {"caller": caller.name if caller else None, "client": client[0] if client else None,
                 "method": scope["method"], "path": redact(scope["path"])[:LONGEST], "status": status,
                 "what": redact(state["problem"])[:LONGEST] if "problem" in state else None}
        self.audit.note(facts, written=changing and status < 400)


def _limited(scope: Scope, receive: Receive, limits: Limits) -> Receive:
    """Return a receive that limits the body's size and time. Raise Refusal if the announced size is too big."""
    most = limits.upload_bytes if scope["path"] in UPLOADS else limits.body_bytes
    announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    if int(announced) > most:
        raise _too_big(most)
    begun, size, whole = time.monotonic(), 0, False

    async def limited() -> Any:
        nonlocal size, whole
        if whole:  # only the client's disconnect can follow, and it has no time limit
            return await receive()
        left = limits.body_s + size / limits.body_bytes_per_s - (time.monotonic() - begun)
        try:
            async with asyncio.timeout(min(max(left, 0), limits.body_s)):
                message = await receive()
        except TimeoutError:
            raise Refusal(HTTPStatus.REQUEST_TIMEOUT, "the body comes too slowly", "send it at once",
                          {"Connection": "close"}) from None
        size += len(message.get("body", b""))
        whole = not message.get("more_body", False)
        if size > most:
            raise _too_big(most)
        return message

    return limited


def _too_big(most: int) -> Refusal:
    return Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body of more than the {most:,} bytes that are allowed",
                   "import it on the machine itself: aaco import, aaco bundle import", {"Connection": "close"})


def admit(scope: Scope, settings: ServerSettings) -> Caller:
    """Return the caller. Raise Refusal if it may not make this request."""
    _require_short_head(scope)
    headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
    if settings.on_loopback:
        _require_loopback_name(headers.get(b"host", ""))
    caller = _caller(headers.get(b"authorization"), settings)
    if scope["method"] not in SAFE:
        _require_own_page(headers)
        if caller.role != "write" and not asks(scope):
            raise Refusal(HTTPStatus.FORBIDDEN, f"{caller.name} may read, not write",
                          "a token with the role write; on loopback without tokens: aaco serve --writable")
    return caller


def asks(scope: Scope) -> bool:
    """Return whether a POST only reads."""
    return scope["method"] == "POST" and ASKING.fullmatch(scope["path"]) is not None


def _require_short_head(scope: Scope) -> None:
    """Raise Refusal if the head is too long. The server itself notices only one that arrives in pieces."""
    target = b"?".join(filter(None, (scope.get("raw_path"), scope["query_string"])))
    size = len(f"{scope['method']}  HTTP/1.1\r\n\r\n") + len(target)
    if size + sum(len(name) + len(text) + len(": \r\n") for name, text in scope["headers"]) > MOST_HEAD:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"a head of more than {MOST_HEAD >> 10} KiB", "a shorter address",
                      {"Connection": "close"})


def _require_loopback_name(host: str) -> None:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        name = ""
    if not is_loopback(name):
        raise Refusal(HTTPStatus.MISDIRECTED_REQUEST, f"this server is not called {host[:80]!r}",
                      "http://127.0.0.1:PORT or http://localhost:PORT")


def _require_own_page(headers: dict[bytes, str]) -> None:
    """Raise Refusal if a browser names a page of another site. Other programs name none."""
    origin = headers.get(b"origin")
    foreign = origin is not None and origin.lower().partition("://")[2] != headers.get(b"host", "").lower()
    if foreign or headers.get(b"sec-fetch-site", "none") not in ("none", "same-origin"):
        raise Refusal(HTTPStatus.FORBIDDEN, f"a request of another site's page ({(origin or 'unnamed')[:80]})",
                      "send it from a page of this server, or from no page")


def _caller(authorization: str | None, settings: ServerSettings) -> Caller:
    if not settings.tokens:
        return Caller("local", "write" if settings.writable else "read")
    token = _token(_token_text(authorization), settings.tokens)
    if token is None:
        raise Refusal(HTTPStatus.UNAUTHORIZED, "no token" if authorization is None else "not a token of this server",
                      "Authorization: Bearer TOKEN", CHALLENGE)
    return Caller(token.name, token.role)


def _token(text: str, tokens: tuple[Token, ...]) -> Token | None:
    """Return the token that the text is, else None. It is compared with every token, always in the same time."""
    shown_digest = digest(text)
    matching = None
    for token in tokens:
        if hmac.compare_digest(shown_digest, token.digest):
            matching = token
    return matching


def _token_text(authorization: str | None) -> str:
    """Return the token of an Authorization header: Bearer, or the password of Basic, which browsers send."""
    scheme, _, credentials = (authorization or "").partition(" ")
    if scheme.lower() == "bearer":
        return credentials.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(credentials.strip(), validate=True).decode("latin-1").partition(":")[2]
        except (binascii.Error, ValueError):
            return ""
    return ""


async def refuse(scope: Scope, send: Send, refusal: Refusal) -> None:
    """Send the refusal as the answer."""
    scope["state"]["problem"] = refusal.what
    await _answer(scope, send, refusal.status_code, refusal.what, refusal.fix, refusal.headers or {})


async def _answer(scope: Scope, send: Send, status: int, what: str, fix: str, more: Mapping[str, str] = EMPTY) -> None:
    content = problems.body(status, what, f"{scope['method']} {scope['path']}", fix)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode()),
               *((name.lower().encode(), value.encode()) for name, value in more.items())]
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
    await send({"type": "http.response.body", "body": content})


def _headed(send: Send) -> Send:
    """Return a send that passes only the head of an answer on, and ends with it."""

    async def head_alone(message: Any) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b""})

    return head_alone


def _hardened(send: Send) -> Send:
    """Return a send that adds headers against sniffing of types, framing, caching and script; a route's own win."""

    async def with_headers(message: Any) -> None:
        if message["type"] == "http.response.start":
            present = {name.lower() for name, _ in message["headers"]}
            message["headers"] = [*message["headers"], *(header for header in HARDENED if header[0] not in present)]
        await send(message)

    return with_headers
