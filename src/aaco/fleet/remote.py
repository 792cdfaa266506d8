"""Bundles in a bucket, s3://BUCKET/PREFIX, go into the lake as those in folders do: a batch at a time as files here."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from aaco.core.errors import UsageError
from aaco.core.show import SILENT, Show
from aaco.fleet.ingest import Ingested, bundles, ingest
from aaco.fleet.lakes import ON_S3, open_store
from aaco.fleet.store import Place, each
from aaco.tracelake.share.archive import SUFFIXES

if TYPE_CHECKING:
    from aaco.fleet.s3 import S3Store

MOST_OBJECTS, MOST_BYTES = 1024, 1 << 30  # of a batch; a larger object is a batch of its own
SMALL_BYTES = 1 << 26  # several of these are read at once


def ingest_all(place: Place, paths: Sequence[Path], workers: int = 1, show: Show = SILENT) -> Ingested:
    """Take bundles into the lake: files, session folders, folders of them, and s3://BUCKET/PREFIX. Raise AacoError.

    A bundle that is damaged, incomplete, or has the id of another one is refused by itself.
    """
    urls = [path for path in paths if ON_S3.match(str(path))]
    local = [path for path in paths if path not in urls]
    sources = [_listed(url) for url in urls]  # before anything is written
    done = ingest(place, bundles(local), workers, show) if local else Ingested()
    for store, sizes in sources:
        for batch in _batches(sizes):
            done.add(_ingest_batch(place, store, batch, workers, show))
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
    with tempfile.TemporaryDirectory(prefix="aaco-fleet-") as folder:
        paths = {name: Path(folder) / str(number) / Path(name).name for number, name in enumerate(sizes)}

        def fetch(name: str) -> None:
            paths[name].parent.mkdir()
            paths[name].write_bytes(store.read(name))

        each(fetch, [name for name, size in sizes.items() if size <= SMALL_BYTES])
        for name in (name for name, size in sizes.items() if size > SMALL_BYTES):
            fetch(name)
        done = ingest(place, list(paths.values()), workers, show)
        names = {str(path): name for name, path in paths.items()}
        done.refused = {f"{store.name}/{names[path]}": why.replace(path, names[path])
                        for path, why in done.refused.items()}
        return done
