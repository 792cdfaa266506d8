"""A lake in a bucket of an S3 store.

PREFIX/landing, data, manifests    as in a folder
PREFIX/catalog/SHA256.db           the catalog as of one commit; never changed
PREFIX/head.json                   the present commit: its number, its catalog, and the machine that wrote it
A writer takes a copy of the catalog, works on it, and replaces the head under the condition that it is still the one
that the copy was taken of. Stores that do not keep conditions take the writes of one machine only.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct
from pydantic import Field

from aaco.core import config, documents, files
from aaco.core.errors import AacoError, BadBundle, StorageError, UsageError
from aaco.fleet import signed
from aaco.fleet.signed import Bucket, Reply
from aaco.fleet.store import CATALOG, FIX, CatalogFile, Overtaken, missing, no_lake

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds

HEAD, CATALOGS, PROBE = "head.json", "catalog", "probe"
WRITER = "fleet-writer"  # in the cache folder: the id of this machine as a writer
BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
PREFIX = re.compile(r"[\w.=+-][\w.=+/ -]{0,300}|", re.ASCII)
RACERS = 8  # conditional writes at once, of which a store that keeps the condition lets one win
SETTLE_S = 1.0  # after which the last of two first writes is seen by both, where conditions are not kept
LEFT_S = 86_400.0  # a file that no commit names after a day is of a writer that was killed
LOOKS = 3  # a catalog may be replaced between the look at the head and at itself
ARROW_CODE = re.compile(r"AWS Error (\w+)")
DENIED = ("ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH", "INVALID_CLIENT_TOKEN_ID",
          "UNRECOGNIZED_CLIENT", "REQUEST_EXPIRED")


class Head(documents.Document):
    """head.json. Fields are added, never renamed."""

    schema_version: int = 1
    number: int = Field(ge=1)
    catalog: str = Field(pattern=r"^[0-9a-f]{64}$")
    writer: str = Field(pattern=r"^[0-9a-f]{32}$")


class Seen(Struct, frozen=True):
    """A head, and what the store calls this version of it."""

    head: Head
    etag: str


class S3Store:
    """The files of a lake in a bucket, below a prefix."""

    batch = 4096  # each commit uploads the catalog

    def __init__(self, bucket: Bucket, prefix: str) -> None:
        self.bucket, self._prefix = bucket, prefix

    @classmethod
    def named(cls, text: str) -> Self:
        """Return the store of BUCKET/PREFIX, with the account of the environment. Raise UsageError."""
        bucket, _, prefix = text.partition("/")
        prefix = prefix.strip("/")
        if not BUCKET.fullmatch(bucket) or not PREFIX.fullmatch(prefix) or ".." in prefix:
            raise UsageError("no name of a lake on S3", "s3://BUCKET/PREFIX; credentials only in the environment")
        return cls(Bucket(signed.Account.of_environment(), bucket), prefix)

    @property
    def name(self) -> str:
        """Return s3://BUCKET/PREFIX."""
        return f"s3://{self._place}"

    @property
    def reached(self) -> str:
        """Return the same: it is everywhere the same."""
        return self.name

    @property
    def _place(self) -> str:
        return "/".join(part for part in (self.bucket.name, self._prefix) if part)

    def read(self, path: str) -> bytes:
        """Return an object's bytes. Raise BadBundle where it is missing, StorageError."""
        reply = self._request("GET", path)
        if reply.status == 404:
            raise missing(self, path)
        return self._done(reply, path).content

    def write(self, path: str, content: bytes) -> None:
        """Write a whole object; the store compares its digest. Raise StorageError."""
        self._done(self._request("PUT", path, content), path)

    def holds(self, path: str) -> bool:
        """Return whether an object is there. Raise StorageError."""
        return self._request("HEAD", path).done

    def remove(self, path: str) -> None:
        """Remove an object, if it is there. Raise StorageError."""
        reply = self._request("DELETE", path)
        if reply.status != 404:
            self._done(reply, path)

    def leftovers(self, folder: str) -> list[str]:
        """Return the objects below a folder that are older than a day: a younger one may be named by a next commit."""
        limit_ns = time.time_ns() - LEFT_S * 1e9
        return [path for path, info in self._infos(f"{self._place}/{folder}") if info.mtime_ns < limit_ns]

    def objects(self) -> dict[str, int]:
        """Return every object below the prefix, with its bytes. Raise StorageError."""
        return {path: info.size for path, info in self._infos(self._place)}

    def _infos(self, place: str) -> list[tuple[str, Any]]:
        import pyarrow.fs as pafs

        try:
            infos = self._arrow.get_file_info(pafs.FileSelector(place, allow_not_found=True, recursive=True))
        except OSError as error:
            raise self.failure(error) from error
        return [(info.path.removeprefix(f"{self._place}/"), info) for info in infos
                if info.type == pafs.FileType.File]

    def old_catalogs(self) -> list[str]:
        """Return catalogs that are older than a day and not the present one, and probes of that age. The present one is
        looked up last: what became it in between stays."""
        old = [*self.leftovers(CATALOGS), *self.leftovers(PROBE)]
        seen = self.seen()
        return [path for path in old if seen and path != _catalog_file(seen.head.catalog)]

    def dataset(self, paths: Sequence[str], schema: pa.Schema) -> ds.Dataset:
        """Return these objects as one dataset; what is missing shows when it is read."""
        import pyarrow.dataset as ds

        return ds.dataset([f"{self._place}/{path}" for path in paths], schema=schema, format="parquet",
                          filesystem=self._arrow)

    def direct(self, paths: Sequence[str]) -> list[str]:
        """Return none: DuckDB would have to download its reader of S3."""
        return []

    @contextmanager
    def catalog(self, create: bool, write: bool) -> Iterator[CatalogFile]:
        """Open a copy of the catalog. Raise NoBaseline where there is none, StorageError, UsageError for a second
        writer at a store that does not keep conditions."""
        with tempfile.TemporaryDirectory(prefix="aaco-lake-") as folder:
            path = Path(folder) / CATALOG
            seen = self._copied(path)
            if seen is None and not create:
                raise no_lake(self)
            commits = Commits(self, seen, self._writer(seen) if create or write else None)
            yield CatalogFile(path, f"{self.name}/{CATALOG}", commits.publish)

    def compacting(self) -> AbstractContextManager[None]:
        """Hold nothing: of two compactions the second cannot commit."""
        return nullcontext()

    def failure(self, error: Exception) -> AacoError:
        """Return what an error of Arrow or DuckDB over the objects means: of its text only the store's code is kept."""
        if isinstance(error, FileNotFoundError) or "does not exist" in str(error):
            return BadBundle(f"{self.name}: an object that the catalog names is missing", FIX)
        code = ARROW_CODE.search(str(error))
        if code is None:
            return BadBundle(f"{self.name}: an object is unreadable: {type(error).__name__}", FIX)
        if code[1] == "NO_SUCH_BUCKET":
            return signed.no_bucket(self.bucket.name)
        return signed.refused(self.bucket.name, code[1]) if code[1] in DENIED else StorageError(
            f"{self.name}: the store failed: {code[1]}", "try again later; check AWS_ENDPOINT_URL and the network")

    def seen(self) -> Seen | None:
        """Return the present head, None where nothing was committed yet. Raise BadBundle, StorageError."""
        reply = self._request("GET", HEAD)
        if reply.status == 404:
            return None
        content = self._done(reply, HEAD).content
        return Seen(documents.parse(content, f"{self.name}/{HEAD}", Head, "head of a lake", FIX), reply.etag)

    def replace(self, head: Head, condition: dict[str, str] | None = None) -> Seen | None:
        """Write the head; return it as it is there, None where the condition does not hold. Raise StorageError."""
        reply = self._request("PUT", HEAD, json.dumps(head.model_dump(mode="json")).encode(), condition)
        if condition and reply.status in (404, 409, 412):
            seen = self.seen()  # the answer to our own write may have been lost
            return seen if seen and seen.head == head else None
        return Seen(head, self._done(reply, HEAD).etag)

    def keeps_conditions(self) -> bool:
        """Return whether of racing conditional writes exactly one wins: of new objects, and of changes to one."""
        path = f"{PROBE}/{uuid.uuid4().hex}"

        def race(condition: dict[str, str]) -> list[Reply]:
            with ThreadPoolExecutor(RACERS) as threads:
                return list(threads.map(
                    lambda racer: self._request("PUT", path, f"{racer} {uuid.uuid4().hex}".encode(), condition),
                    range(RACERS)))

        try:
            if sum(reply.done for reply in race({"If-None-Match": "*"})) != 1:
                return False
            etag = self._request("GET", path).etag
            return bool(etag) and sum(reply.done for reply in race({"If-Match": etag})) == 1
        finally:
            self.remove(path)

    @cached_property
    def _conditional(self) -> bool:
        return self.keeps_conditions()

    def _request(self, method: str, path: str, content: bytes = b"", condition: dict[str, str] | None = None) -> Reply:
        return self.bucket.request(method, "/".join(part for part in (self._prefix, path) if part), content, condition)

    def _done(self, reply: Reply, path: str) -> Reply:
        if not reply.done:
            raise StorageError(f"{self.name}/{path}: the store answered {reply.status}",
                               "check what the store supports")
        return reply

    @cached_property
    def _arrow(self) -> Any:
        import pyarrow.fs as pafs

        account = self.bucket.account
        return pafs.S3FileSystem(
            access_key=account.key, secret_key=account.secret, session_token=account.token or None,
            region=account.region, scheme=account.scheme, endpoint_override=account.host,
            request_timeout=signed.TIMEOUT_S, connect_timeout=signed.TIMEOUT_S,
            retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=signed.TRIES))

    def _copied(self, path: Path) -> Seen | None:
        """Write the present catalog to a file of ours; return its head, None where nothing was committed yet."""
        named = ""
        for _ in range(LOOKS):
            seen = self.seen()
            if seen is None:
                return None
            named = _catalog_file(seen.head.catalog)
            reply = self._request("GET", named)
            if reply.status == 404:
                continue
            content = self._done(reply, named).content
            if hashlib.sha256(content).hexdigest() != seen.head.catalog:
                raise BadBundle(f"{self.name}/{named}: changed since it was written", FIX)
            path.write_bytes(content)
            return seen
        raise missing(self, named)

    def _writer(self, seen: Seen | None) -> Writer:
        """Return the right to write. Raise UsageError where conditions are not kept and another machine has it."""
        writer = Writer(_writer_id(), self._conditional)
        if not writer.conditional and seen is not None and seen.head.writer != writer.id:
            raise UsageError(
                f"{self.name}: another machine writes this lake, and the store does not keep conditional writes: two "
                "writers would overwrite each other",
                f"write from that machine; if it never will again, copy its {WRITER} into this machine's cache folder")
        return writer


class Writer(Struct, frozen=True):
    """Who writes. conditional: whether the store keeps conditions."""

    id: str
    conditional: bool


class Commits:
    """The commits of one open catalog. writer: None for one that may only read."""

    def __init__(self, store: S3Store, seen: Seen | None, writer: Writer | None) -> None:
        self._store, self._seen, self._writer = store, seen, writer

    def publish(self, connection: sqlite3.Connection) -> None:
        """Make a catalog the present one. Raise StorageError where another writer was faster: nothing is lost then."""
        if self._writer is None:
            raise RuntimeError("a catalog that was opened for reading is written")
        content = connection.serialize()
        sha256, before = hashlib.sha256(content).hexdigest(), self._seen
        head = Head(number=before.head.number + 1 if before else 1, catalog=sha256, writer=self._writer.id)
        self._store.write(_catalog_file(sha256), content)
        self._seen = self._replaced(head, self._writer)
        if self._seen is None:
            raise Overtaken(f"{self._store.name}: another writer was faster", "run the command again: nothing is lost")
        if before and before.head.catalog != sha256:
            self._store.remove(_catalog_file(before.head.catalog))

    def _replaced(self, head: Head, writer: Writer) -> Seen | None:
        if writer.conditional:
            return self._store.replace(head, {"If-Match": self._seen.etag} if self._seen else {"If-None-Match": "*"})
        with files.locked(_cache()):  # other processes of this machine wait here
            present = self._store.seen()
            if (present and present.head) != (self._seen and self._seen.head):
                return None
            self._store.replace(head)
            if present is None:
                time.sleep(SETTLE_S)
            after = self._store.seen()
            return after if after and after.head == head else None


def _catalog_file(sha256: str) -> str:
    return f"{CATALOGS}/{sha256}.db"


def _cache() -> Path:
    folder = config.resolve(None, None, {}).config.storage.cache_dir.expanduser()
    with files.storage(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def _writer_id() -> str:
    """Return the id of this machine as a writer, made when it first writes. Raise StorageError."""
    path = _cache() / WRITER
    with files.locked(path.parent):
        if not files.is_file(path):
            files.write_atomically(path, lambda file: file.write(uuid.uuid4().hex.encode()))
        with files.storage(path):
            return path.read_text().strip()
