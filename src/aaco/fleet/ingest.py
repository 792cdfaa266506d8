"""Bundles go into the lake, each once.

A bundle's facts are written to LAKE/landing under the digest of their bytes and flushed to the disk; only then does the
catalog name them. A kill leaves at most files that no row names, and the next ingest writes the same ones again.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from aaco.core import files
from aaco.core.errors import AacoError, UsageError
from aaco.core.session import RECORD
from aaco.core.show import SILENT, Show
from aaco.fleet import reading
from aaco.fleet.catalog import Catalog, landing_file
from aaco.fleet.facts import BundleFacts
from aaco.fleet.lakes import open_store
from aaco.fleet.store import Overtaken, Place, Store, each
from aaco.tracelake.share.archive import SUFFIXES

PAUSES_S = (0.1, 0.2, 0.4, 0.8)  # at most, before an ingest that another writer overtook enters its sessions again
MOST_AT_ONCE = 256  # bundles that one process reads


@dataclass
class Ingested:
    """What an ingest did. refused: by path, why; the other bundles were taken in all the same."""

    added: list[str] = field(default_factory=list)
    present: int = 0
    refused: dict[str, str] = field(default_factory=dict)


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
        run: Callable[..., Iterator[object]] = map
        if workers > 1 and len(paths) > MOST_AT_ONCE:
            context = get_context("forkserver")
            context.set_forkserver_preload([__name__])
            run = partial(stack.enter_context(ProcessPoolExecutor(workers, context)).map, chunksize=16)
        for begin in range(0, len(paths), lake.batch):
            show.progress(begin, len(paths))
            _ingest_batch(lake, paths[begin:begin + lake.batch], run, done)
    return done


def _ingest_batch(lake: Store, paths: Sequence[Path], run: Callable[..., Iterator[object]], done: Ingested) -> None:
    digests = dict(_digests(paths, done))
    readable: dict[Path, BundleFacts] = {}
    with Catalog.open(lake, create=True) as catalog:
        unknown = [path for path, digest in digests.items() if not catalog.knows(digest)]
        done.present += len(digests) - len(unknown)
        for path, outcome in zip(unknown, run(_read, unknown), strict=True):
            if isinstance(outcome, BundleFacts):
                readable[path] = outcome
            else:
                done.refused[str(path)] = str(outcome)
        _land(lake, readable.values())
        entered = _entered(lake, catalog, {path: (digests[path], row) for path, row in readable.items()})
    done.added += entered.added
    done.present += entered.present
    done.refused |= entered.refused


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


def _read(path: Path) -> BundleFacts | str:
    """Return a bundle's facts, or why there are none: what a worker hands back."""
    try:
        return reading.read(path)
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
