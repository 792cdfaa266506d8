"""Bundles in a bucket, s3://BUCKET/PREFIX, and behind addresses go into the lake as those in folders do: a batch at a
time as files here."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from aaco.core.errors import BadBundle, UsageError
from aaco.core.show import SILENT, Show
from aaco.fleet import web
from aaco.fleet.ingest import Ingested, bundles, ingest
from aaco.fleet.lakes import ON_S3, open_store
from aaco.fleet.store import Place, each
from aaco.tracelake.share.archive import SUFFIXES

if TYPE_CHECKING:
    from aaco.fleet.s3 import S3Store

MOST_OBJECTS, MOST_BYTES = 1024, 1 << 30  # of a batch; a larger object is a batch of its own
SMALL_BYTES = 1 << 26  # several of these are read at once


def ingest_all(place: Place, paths: Sequence[Path], workers: int = 1, show: Show = SILENT) -> Ingested:
    """Take bundles into the lake: files, session folders, folders of them, s3://BUCKET/PREFIX, and https://HOST/NAME.

    A bundle that is damaged, incomplete, behind an address that does not hand it out, or has the id of another one is
    refused by itself. Raise AacoError.
    """
    buckets = [path for path in paths if ON_S3.match(str(path))]
    addresses = {web.shown(path): path for path in paths if web.ON_THE_WEB.match(str(path))}
    local = [path for path in paths if path not in buckets and path not in addresses.values()]
    sources = [_listed(bucket) for bucket in buckets]  # before anything is written
    done = ingest(place, bundles(local), workers, show) if local else Ingested()
    for store, sizes in sources:
        for batch in _batches(sizes):
            done.add(_ingest_batch(place, store, batch, workers, show))
    for name, address in addresses.items():
        try:
            done.add(_ingest_fetched(place, [name], partial(_fetch_one, address), workers, show))
        except BadBundle as error:
            done.refused[name] = error.what
    return done


def _listed(url: Path) -> tuple[S3Store, dict[str, int]]:
    """Return the store and the bundles there, each with its bytes. Raise UsageError where there is none."""
    is_bundle = url.name.endswith(tuple(SUFFIXES))
    store = cast("S3Store", open_store(url.parent if is_bundle else url))
    sizes = {name: size for name, size in sorted(store.objects().items())
             if (name == url.name if is_bundle else name.endswith(tuple(SUFFIXES)))}
    if not sizes:
        raise UsageError(f"{store.name}: no bundle is there", f"an object of {', '.join(SUFFIXES)}")
    return store, sizes


def _batches(sizes: dict[str, int]) -> Iterator[dict[str, int]]:
    batch: dict[str, int] = {}
    for name, size in sizes.items():
        if batch and (len(batch) == MOST_OBJECTS or sum(batch.values()) + size > MOST_BYTES):
            yield batch
            batch = {}
        batch[name] = size
    yield batch


def _ingest_batch(place: Place, store: S3Store, sizes: dict[str, int], workers: int, show: Show) -> Ingested:
    def fetch(paths: dict[str, Path]) -> None:
        def write(name: str) -> None:
            paths[f"{store.name}/{name}"].write_bytes(store.read(name))

        each(write, [name for name, size in sizes.items() if size <= SMALL_BYTES])
        for name in (name for name, size in sizes.items() if size > SMALL_BYTES):
            write(name)

    return _ingest_fetched(place, [f"{store.name}/{name}" for name in sizes], fetch, workers, show)


def _fetch_one(address: Path, paths: dict[str, Path]) -> None:
    web.fetch(address, *paths.values())


def _ingest_fetched(place: Place, names: Sequence[str], fetch: Callable[[dict[str, Path]], None], workers: int,
                    show: Show) -> Ingested:
    """Take bundles into the lake that `fetch` writes into a file for each name; what is refused has this name."""
    with tempfile.TemporaryDirectory(prefix="aaco-fleet-") as folder:
        paths = {name: Path(folder) / str(number) / Path(name).name for number, name in enumerate(names)}
        for path in paths.values():
            path.parent.mkdir()
        fetch(paths)
        done = ingest(place, list(paths.values()), workers, show)
        known = {str(path): name for name, path in paths.items()}
        done.refused = {known[path]: why.replace(path, known[path]) for path, why in done.refused.items()}
        return done
