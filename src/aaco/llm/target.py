"""Where to send requests: an address of an OpenAI-compatible server, and how a request to it is written."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from aaco import __version__
from aaco.core.errors import Missing, UsageError

Api = Literal["chat", "completions"]
PATHS: dict[Api, str] = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}
DEFAULT_PORTS = {"http": 80, "https": 443}
CONNECT_S = 5.0
EXAMPLE = "aaco llm http://127.0.0.1:8000 --model NAME"


class Target(Struct, frozen=True):
    """A server: scheme, host, port, path of requests, and the interface of its requests."""

    scheme: str
    host: str
    port: int
    path: str
    api: Api

    @property
    def url(self) -> str:
        """Return the address without anything that could be a credential."""
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def authority(self) -> str:
        """Return host and port as a request names them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


class Server(Struct, frozen=True):
    """An address that accepts connections. tls: None for plain HTTP."""

    family: int
    address: tuple[Any, ...]
    host: str
    tls: ssl.SSLContext | None


def reach(target: Target, certificates: str | None = None) -> Server:
    """Return the first address of the host that accepts a connection, with TLS where the scheme wants it.

    certificates: a file of authorities to trust in place of the system's. Raise Missing if there is none, UsageError.
    """
    context = _context(certificates) if target.scheme == "https" else None
    refusals, is_tls = [], False
    for family, address in _addresses(target):
        try:
            is_tls = False
            with socket.create_connection(address[:2], CONNECT_S) as connection:
                is_tls = context is not None
                if context:
                    context.wrap_socket(connection, server_hostname=target.host).close()
            return Server(family, address, target.host, context)
        except OSError as error:
            refusals.append(f"{address[0]}: {getattr(error, 'verify_message', '') or error.strerror or error}")
    why = "; ".join(dict.fromkeys(refusals))
    if is_tls:
        raise Missing(f"{target.url}: no TLS with the server ({why})",
                      "--certificates FILE if its certificate is your own, or http:// if it has no TLS")
    raise Missing(f"{target.url}: no server answers ({why})", "start it, or check host and port")


def is_here(server: Server) -> bool:
    """Return whether an address is one of this machine's: only those can be bound."""
    try:
        with socket.socket(server.family, socket.SOCK_STREAM) as own:
            own.bind((server.address[0], 0, *server.address[2:]))
    except OSError:
        return False
    return True


def _context(certificates: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=certificates)
    except OSError as error:
        raise UsageError(f"{certificates}: no file of certificates: {error}", "--certificates ca.pem") from error


def _addresses(target: Target) -> list[tuple[int, tuple[Any, ...]]]:
    """Return families and addresses of the host, as the resolver orders them. Raise Missing."""
    try:
        resolved = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Missing(f"{target.host}: the name does not resolve: {error}", "check the URL") from error
    return [(family, address) for family, _, _, _, address in resolved]


def parse(url: str, api: Api = "chat") -> Target:
    """Return the target of a URL: a server, its /v1, or the whole address of an interface. Raise UsageError."""
    parts = _split(url)
    path = parts.path.rstrip("/")
    if named := named_interface(url):
        return _target(parts, path, named)
    path = path.removesuffix("/v1") + PATHS[api]
    return _target(parts, path, api)


def named_interface(url: str) -> Api | None:
    """Return the interface whose whole address a URL is; None: it leaves that open. Raise UsageError."""
    path = _split(url).path.rstrip("/")
    return next((name for name, full in PATHS.items() if path.endswith(full.removeprefix("/v1"))), None)


def _split(url: str) -> SplitResult:
    try:
        url = f"127.0.0.1{url}" if url.startswith(":") else url
        parts = urlsplit(url if "://" in url else f"http://{url}")
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise UsageError(f"{url.partition('?')[0].rpartition('@')[2]}: no address of a server", EXAMPLE)
    if parts.username or parts.password or parts.query:
        raise UsageError("the URL holds a user, password or query", "a key belongs into a variable: aaco llm --help")
    return parts


def _target(parts: SplitResult, path: str, api: Api) -> Target:
    return Target(parts.scheme, parts.hostname or "", parts.port or DEFAULT_PORTS[parts.scheme], path, api)


def encode(target: Target, body: Mapping[str, Any], key: str = "") -> bytes:
    """Return a request as it goes over the wire."""
    content = json.dumps(body, ensure_ascii=False).encode(errors="surrogatepass")
    lines = [f"POST {target.path} HTTP/1.1", f"Host: {target.authority}", f"User-Agent: aaco/{__version__}",
             "Accept: text/event-stream", "Accept-Encoding: identity", "Content-Type: application/json",
             f"Content-Length: {len(content)}", *([f"Authorization: Bearer {key}"] if key else [])]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content
