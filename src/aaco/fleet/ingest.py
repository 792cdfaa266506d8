"""Bundles go into the lake, each once.

A bundle's facts are written to LAKE/landing under the digest of their bytes and flushed to the disk; only then does the
catalog name them. A kill leaves at most files that no row names, and the next ingest writes the same ones again.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, field

from aaco.core import files
from aaco.core.errors import AacoError, UsageError
from aaco.core.session import RECORD
from aaco.core.show import SILENT, Show
from aaco.fleet import reading
from aaco.fleet.catalog import Catalog, landing_file
from aaco.fleet.facts import BundleFacts
from aaco.fleet.lakes import open_store
from aaco.fleet.store import Item, Overtaken, Place, Store, each
from aaco.tracelake.share.archive import SUFFIXES

PAUSES_S = (0.1, 0.2, 0.4, 0.8)  # at most, before an ingest that another writer overtook enters its sessions again
MOST_AT_ONCE = 256  # bundles that one process reads
Outcomes: TypeAlias = Iterator[BundleFacts | str]
Read: TypeAlias = Callable[[Iterable[Path]], Outcomes]


class Ingested(Struct):
    """What an ingest did. refused: by path, why; the other bundles were taken in all the same."""

    added: list[str] = field(default_factory=list)
    present: int = 0
    refused: dict[str, str] = field(default_factory=dict)

    def add(self, more: Ingested) -> None:
        """Add what another ingest, or a part of this one, did."""
        self.added += more.added
        self.present += more.present
        self.refused |= more.refused


def bundles(paths: Sequence[Path]) -> list[Path]:
    """Return the bundle files and session folders at these paths, and inside them if they are folders, sorted.

    Raise UsageError for a path that holds none.
    """
    listed: dict[Path, None] = {}
    for path in paths:
        inside = sorted(_bundles_in(path))
        if not inside:
            raise UsageError(f"{path}: no bundle and no session is there", f"a file of {', '.join(SUFFIXES)}")
        listed |= dict.fromkeys(inside)
    return list(listed)


def _bundles_in(path: Path) -> Iterator[Path]:
    if not files.is_folder(path):
        yield from [path] if files.is_file(path) else []
        return
    with files.storage(path):
        for folder, inner, names in os.walk(path):
            if RECORD in names:
                inner.clear()
                yield Path(folder)
                continue
            inner[:] = [name for name in inner if not name.startswith(".")]
            yield from (Path(folder) / name for name in names
                        if name.endswith(tuple(SUFFIXES)) and not name.startswith("."))


def ingest(place: Place, paths: Sequence[Path], workers: int = 1, show: Show = SILENT) -> Ingested:
    """Take bundles into the lake. Raise AacoError where the lake itself cannot be used.

    A bundle that is damaged, incomplete, or has the id of another one is refused by itself.
    """
    lake, done = open_store(place), Ingested()
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="aaco-fleet-")))
        read_one = partial(_read, scratch)
        read: Read = partial(map, read_one)
        if workers > 1 and len(paths) > MOST_AT_ONCE:
            context = get_context("forkserver")
            context.set_forkserver_preload([__name__])
            pool = ProcessPoolExecutor(workers, context)
            stack.callback(pool.shutdown, cancel_futures=True)
            read = partial(pool.map, read_one, chunksize=16)
        # Open from the first batch to the last: what SQLite needs beside its file has room, however full the disk gets.
        known = stack.enter_context(Catalog.open(lake, create=True))
        parts = (paths[begin:begin + lake.batch] for begin in range(0, len(paths), lake.batch))
        for number, batch in enumerate(_one_ahead(_begun(known, part, read, done) for part in parts)):
            show.progress(number * lake.batch, len(paths))
            _finish(lake, batch, done)
    return done


def _one_ahead(items: Iterable[Item]) -> Iterator[Item]:
    """Yield each item when the one after it is there."""
    waiting: deque[Item] = deque()
    for item in items:
        waiting.append(item)
        if len(waiting) > 1:
            yield waiting.popleft()
    yield from waiting


class _Unread(Struct, frozen=True):
    """Bundles of a batch that the lake does not know: their digests, and what reading them gives, in the same order.

    Workers read one batch while the one before it is written.
    """

    digests: Mapping[Path, str]
    outcomes: Outcomes


def _begun(known: Catalog, paths: Sequence[Path], read: Read, done: Ingested) -> _Unread:
    """Return a batch that workers begin to read."""
    digests = dict(_digests(paths, done))
    unknown = {path: digest for path, digest in digests.items() if not known.knows(digest)}
    done.present += len(digests) - len(unknown)
    return _Unread(unknown, read(unknown))


def _finish(lake: Store, batch: _Unread, done: Ingested) -> None:
    """Write what a batch gave, then enter it in the catalog. Raise StorageError."""
    rows: dict[Path, tuple[str, BundleFacts]] = {}
    for (path, digest), outcome in zip(batch.digests.items(), batch.outcomes, strict=True):
        if isinstance(outcome, BundleFacts):
            rows[path] = digest, outcome
        else:
            done.refused[str(path)] = outcome
    if not rows:
        return
    _land(lake, [row for _, row in rows.values()])
    with Catalog.open(lake, create=True) as catalog:
        done.add(_entered(lake, catalog, rows))


def _entered(lake: Store, catalog: Catalog, rows: Mapping[Path, tuple[str, BundleFacts]]) -> Ingested:
    """Enter sessions that are in landing, with their sources; return what was new. Where another writer is faster, try
    again on top of what is there then, a few times. Raise Overtaken after that."""
    with ExitStack() as later:
        for pause_s in PAUSES_S:
            try:
                return _enter(catalog, rows)
            except Overtaken:
                time.sleep(random.uniform(0, pause_s))
                catalog = later.enter_context(Catalog.open(lake, create=True))
        return _enter(catalog, rows)


def _enter(catalog: Catalog, rows: Mapping[Path, tuple[str, BundleFacts]]) -> Ingested:
    entered = Ingested()
    with catalog.transaction():
        for path, (source, row) in rows.items():
            try:
                is_new = catalog.add(source, row)
            except UsageError as error:
                entered.refused[str(path)] = error.what
                continue
            entered.added += [row.session_id] if is_new else []
            entered.present += not is_new
    return entered


def _read(scratch: Path, path: Path) -> BundleFacts | str:
    """Return a bundle's facts, or why there are none: what a worker hands back."""
    try:
        return reading.read(path, scratch / str(os.getpid()))
    except AacoError as error:
        return error.what


def _digests(paths: Sequence[Path], done: Ingested) -> Iterator[tuple[Path, str]]:
    for path in paths:
        try:
            yield path, reading.source_digest(path)
        except AacoError as error:
            done.refused[str(path)] = error.what


def _land(lake: Store, rows: Collection[BundleFacts]) -> None:
    """Write facts under their digests; what is there already is the same. Raise StorageError."""
    def write(row: BundleFacts) -> None:
        path = landing_file(row.sha256)
        if not lake.holds(path):
            lake.write(path, row.content)

    each(write, rows)
