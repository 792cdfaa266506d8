"""Who may do what: the guard in front of every route. It decides before a route is looked for, and by default no.

Loopback without tokens reads, and writes only where the server was told so; with tokens every request shows one. A
request that changes something must not come from a page of another site, and on loopback every request must call this
machine by a name of its own: else a page anywhere could read it through a name that it lets point here (DNS rebinding).
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from aaco.dashboard import problems
from aaco.dashboard.problems import Refusal
from aaco.dashboard.settings import Role, ServerSettings, Token, digest, is_loopback

SAFE = {"GET", "HEAD", "OPTIONS"}
ASKING = re.compile(r"/api/v1/sessions/[^/]+/sql")  # a POST that changes nothing
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="aaco", Basic realm="aaco: any name, the token as password"'}
HARDENED = ((b"x-content-type-options", b"nosniff"), (b"x-frame-options", b"SAMEORIGIN"),
            (b"referrer-policy", b"no-referrer"), (b"cache-control", b"no-store"))


@dataclass(frozen=True)
class Caller:
    """Who asks, as the audit log names it, and what it may do."""

    name: str
    role: Role


class Guard:
    """An ASGI application around another: lets requests through, or answers them itself."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self.app, self.settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            scope.setdefault("state", {})["caller"] = admit(scope, self.settings)
        except Refusal as refusal:
            await refuse(scope, send, refusal)
            return
        await self.app(scope, receive, _hardened(send))


def admit(scope: Scope, settings: ServerSettings) -> Caller:
    """Who asks. Raises Refusal."""
    headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
    if settings.on_loopback:
        _require_our_name(headers.get(b"host", ""))
    caller = _caller(headers.get(b"authorization"), settings)
    if scope["method"] not in SAFE:
        _require_own_page(headers)
        if caller.role != "write" and not asks(scope):
            raise Refusal(HTTPStatus.FORBIDDEN, f"{caller.name} may read, not write",
                          "a token with the role write; on loopback without tokens: aaco serve --writable")
    return caller


def asks(scope: Scope) -> bool:
    """Whether the request only asks, though by POST."""
    return scope["method"] == "POST" and ASKING.fullmatch(scope["path"]) is not None


def _require_our_name(host: str) -> None:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        name = ""
    if not is_loopback(name):
        raise Refusal(HTTPStatus.MISDIRECTED_REQUEST, f"this server is not called {host[:80]!r}",
                      "http://127.0.0.1:PORT or http://localhost:PORT")


def _require_own_page(headers: dict[bytes, str]) -> None:
    """A browser names the page that a changing request comes from; other programs name none."""
    origin = headers.get(b"origin")
    other = origin is not None and origin.lower().partition("://")[2] != headers.get(b"host", "").lower()
    if other or headers.get(b"sec-fetch-site", "none") not in ("none", "same-origin"):
        raise Refusal(HTTPStatus.FORBIDDEN, f"a request of another site's page ({(origin or 'unnamed')[:80]})",
                      "send it from a page of this server, or from no page")


def _caller(authorization: str | None, settings: ServerSettings) -> Caller:
    if not settings.tokens:
        return Caller("local", "write" if settings.writable else "read")
    token = _token(_shown(authorization), settings.tokens)
    if token is None:
        raise Refusal(HTTPStatus.UNAUTHORIZED, "no token" if authorization is None else "not a token of this server",
                      "Authorization: Bearer TOKEN", CHALLENGE)
    return Caller(token.name, token.role)


def _token(shown: str, tokens: tuple[Token, ...]) -> Token | None:
    """The one that was shown. Every one is compared, in the same time whatever was shown."""
    mine = digest(shown)
    found = None
    for token in tokens:
        if hmac.compare_digest(mine, token.digest):
            found = token
    return found


def _shown(authorization: str | None) -> str:
    """The token of an Authorization header: as Bearer, or as the password of Basic, which is what browsers send."""
    scheme, _, rest = (authorization or "").partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(rest.strip(), validate=True).decode("latin-1").partition(":")[2]
        except (binascii.Error, ValueError):
            return ""
    return ""


async def refuse(scope: Scope, send: Send, refusal: Refusal) -> None:
    """Answer with an error of our own."""
    content = problems.body(refusal.status, refusal.what, f"{scope['method']} {scope['path']}", refusal.fix)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode()),
               *HARDENED, *((name.lower().encode(), value.encode()) for name, value in refusal.headers.items())]
    await send({"type": "http.response.start", "status": int(refusal.status), "headers": headers})
    await send({"type": "http.response.body", "body": content})


def _hardened(send: Send) -> Send:
    """With the headers that keep browsers from guessing, framing and keeping; a route's own go before."""

    async def with_headers(message: Any) -> None:
        if message["type"] == "http.response.start":
            given = {name.lower() for name, _ in message["headers"]}
            message["headers"] = [*message["headers"], *(each for each in HARDENED if each[0] not in given)]
        await send(message)

    return with_headers
