"""The settings of a server: address, tokens and limits."""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
import stat
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from msgspec import Struct

from aaco.core import files
from aaco.core.config import Settings
from aaco.core.errors import UsageError

Role = Literal["read", "write"]
READ_TOKEN, WRITE_TOKEN = "AACO_SERVE_READ_TOKEN", "AACO_SERVE_WRITE_TOKEN"
AUDIT = "audit.jsonl"
MAKE_ONE = "python -c 'import secrets; print(secrets.token_urlsafe(32))'"
MOST_TOKENS_FILE = 1 << 20
# The letters of RFC 6750's b64token, so that any client can send it; 16 of them hold 96 bits where they are random.
TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{16,512}")
NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True)
class Token:
    """A caller's name and role. Only the SHA-256 of the token is kept, so that no log, trace or bundle holds it."""

    name: str
    role: Role
    digest: bytes = field(repr=False)


class Limits(Struct, frozen=True):
    """The limits of requests."""

    upload_bytes: int = 2 << 30
    unpacked_bytes: int = 16 << 30
    body_bytes: int = 1 << 16  # of a request that is no upload
    rows: int = 10_000  # of a table or an answer in JSON; Arrow may have a hundred times as many
    sql_s: float = 15.0
    sql_memory_bytes: int = 4 << 30  # of address space, of which DuckDB may use 400 MB
    answer_bytes: int = 64 << 20
    import_s: float = 600.0
    import_memory_bytes: int = 32 << 30  # of address space: scratch files are mapped
    streams: int = 64  # clients that follow a run
    connections: int = 1024
    at_work: int = 2  # requests that compute, at once; others wait for their turn
    waiting: int = 64  # for their turn, until the next is sent away
    header_s: float = 10.0  # a request's head must be there
    body_s: float = 20.0  # between two pieces of a body, or of an answer that a client is slow to take
    body_bytes_per_s: int = 16 << 10  # of a body, once body_s are over

    def of_form(self, limit: int, form: str) -> int:
        """Return how many of the requested rows an answer of this form may have."""
        return min(limit, self.rows * (100 if form == "arrow" else 1))


class ServerSettings(Struct, frozen=True):
    """Address, sessions, tokens and limits. writable: on loopback, callers without a token may write.

    Raise UsageError if other machines reach the address and there is no token.
    """

    config: Settings
    host: str = "127.0.0.1"
    port: int = 8502
    tokens: tuple[Token, ...] = ()
    writable: bool = False
    limits: Limits = Limits()
    audit_file: Path | None = None
    config_file: Path | None = None

    def __post_init__(self) -> None:
        """Check the address against the tokens."""
        if not self.on_loopback and not self.tokens:
            raise UsageError(f"--host {self.host}: other machines may reach it, so callers must show a token",
                             f"{READ_TOKEN}=$({MAKE_ONE}) aaco serve --host {self.host}; or --tokens FILE")
        if self.writable and self.tokens:
            raise UsageError("--writable is for callers without a token", "give a token the role write")

    @property
    def on_loopback(self) -> bool:
        """Return whether only this machine can reach the address."""
        return is_loopback(self.host)

    @property
    def root(self) -> Path:
        """Return the folder of sessions."""
        return self.config.config.storage.sessions_dir

    @property
    def baselines(self) -> Path:
        """Return the folder of baselines and of the history of measurements."""
        return self.config.config.storage.baselines_dir

    @property
    def audit(self) -> Path:
        """Return the path of the log of writes and refusals."""
        return self.audit_file or self.root / AUDIT

    @property
    def url(self) -> str:
        """Return the address for a client on this machine."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def is_loopback(host: str) -> bool:
    """Return whether the spelling of a host names only this machine. No name server is used."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def token(name: str, role: str, text: str) -> Token:
    """Return a token. Raise UsageError if it is easy to guess; the message does not repeat it."""
    if role not in get_args(Role):
        raise UsageError(f"token {name[:20]!r}: no role {role[:20]!r}", f"one of {', '.join(get_args(Role))}")
    if not NAME.fullmatch(name):
        raise UsageError(f"token {name[:20]!r}: a name has up to 64 letters, digits, '.', '_' or '-'", "ci write TOKEN")
    if not TOKEN.fullmatch(text):
        raise UsageError(f"token {name}: shorter than 16 letters, or with others than A-Z a-z 0-9 - . _ ~ + / =",
                         MAKE_ONE)
    return Token(name, "read" if role == "read" else "write", digest(text))


def digest(text: str) -> bytes:
    """Return the SHA-256 of a token."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()


def from_environment(environment: MutableMapping[str, str] | None = None) -> tuple[Token, ...]:
    """Return the tokens of the environment, and remove them there: child processes do not inherit them."""
    environment = os.environ if environment is None else environment
    named = (("environment-read", "read", READ_TOKEN), ("environment-write", "write", WRITE_TOKEN))
    return tuple(token(name, role, text) for name, role, variable in named
                 if (text := environment.pop(variable, None)) is not None)


def from_file(path: Path) -> tuple[Token, ...]:
    """Return the tokens of a file: lines of NAME ROLE TOKEN; # begins a comment. Raise UsageError, StorageError.

    Only its owner may read the file, as ssh(1) requires of keys.
    """
    if not files.is_file(path):
        raise UsageError(f"{path}: no such file", "lines of: NAME read|write TOKEN")
    with files.storage(path), path.open("rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        raw = file.read(MOST_TOKENS_FILE)
    if stat.S_IMODE(mode) & 0o077:
        raise UsageError(f"{path}: others may read it", f"chmod 600 {path}")
    try:
        lines = raw.decode().splitlines()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not text", "lines of: NAME read|write TOKEN") from error
    tokens = tuple(_line(path, number, words) for number, text in enumerate(lines, 1)
                   if (words := text.partition("#")[0].split()))
    if not tokens:
        raise UsageError(f"{path}: no token in it", "lines of: NAME read|write TOKEN")
    return tokens


def _line(path: Path, number: int, words: list[str]) -> Token:
    if len(words) != 3:
        raise UsageError(f"{path}, line {number}: not NAME ROLE TOKEN", "ci write TOKEN")
    return token(*words)
