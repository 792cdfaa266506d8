"""Where the files of a lake are: a folder or a bucket. They are named by their content and never change.

What a lake holds is decided by its catalog alone: see catalog.py, and s3.py for how it is shared over a store.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from aaco.core import files
from aaco.core.errors import AacoError, BadBundle, NoBaseline, StorageError, first_line

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds

Item = TypeVar("Item")
Result = TypeVar("Result")
CATALOG = "catalog.db"
FIX = "restore the lake, or ingest the bundles into another --lake"
AT_ONCE = 16  # files that are read or written at once: a file system makes one commit of them, a store is far away
PATTERN = re.compile(r"[*?\[\]]")  # of what is below a lake's folder no name has these


class Overtaken(StorageError):
    """Another writer committed since the catalog was opened: nothing of ours was."""


class CatalogFile(Struct, frozen=True):
    """A catalog that is open: its file here, what it is called, and what makes a transaction of it seen by others."""

    path: Path
    name: str
    publish: Callable[[sqlite3.Connection], None]


class Store(Protocol):
    """The files of one lake, by their path below it, with `/`. Every method raises AacoError."""

    batch: int  # bundles that become visible together

    @property
    def name(self) -> str:
        """Return the lake as a person names it."""

    @property
    def reached(self) -> str:
        """Return the lake's name for other processes, whatever folder they run in."""

    def read(self, path: str) -> bytes:
        """Return a file's bytes. Raise BadBundle where it is missing."""

    def write(self, path: str, content: bytes) -> None:
        """Write a whole file or nothing; when this returns, it outlives this machine."""

    def holds(self, path: str) -> bool:
        """Return whether a file is there."""

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""

    def leftovers(self, folder: str) -> list[str]:
        """Return the files below a folder that no writer can be about to name in a catalog."""

    def old_catalogs(self) -> list[str]:
        """Return files of commits that were cut short, and that no writer can be about to make the present ones."""

    def dataset(self, paths: Sequence[str], schema: pa.Schema) -> ds.Dataset:
        """Return these Parquet files as one dataset."""

    def direct(self, paths: Sequence[str]) -> list[str]:
        """Return these files by names that DuckDB reads by itself, in half of Arrow's time; none where it cannot."""

    def catalog(self, create: bool, write: bool) -> AbstractContextManager[CatalogFile]:
        """Open the catalog. Raise NoBaseline where there is none and none may be made."""

    def compacting(self) -> AbstractContextManager[None]:
        """Hold what keeps another compaction of this machine away."""

    def failure(self, error: Exception) -> AacoError:
        """Return what an error of Arrow or DuckDB over the dataset means."""


Place: TypeAlias = Path | Store


def each(act: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Return what an act on a file gives for each item, in their order, several at once. Raise what it raises."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(act, items))


class FolderStore:
    """The files of a lake in a folder of this machine."""

    batch = 256

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def name(self) -> str:
        """Return the folder's path."""
        return str(self.folder)

    @property
    def reached(self) -> str:
        """Return the folder's absolute path."""
        return str(self.folder.absolute())

    def read(self, path: str) -> bytes:
        """Return a file's bytes. Raise BadBundle where it is missing, StorageError."""
        if not self.holds(path):
            raise missing(self, path)
        with files.storage(self.folder / path):
            return (self.folder / path).read_bytes()

    def write(self, path: str, content: bytes) -> None:
        """Write a whole file, flushed to the disk, or nothing. Raise StorageError."""
        files.write_atomically(self.folder / path, lambda file: file.write(content))

    def holds(self, path: str) -> bool:
        """Return whether a file is there. Raise StorageError."""
        return files.is_file(self.folder / path)

    def remove(self, path: str) -> None:
        """Remove a file, if it is there. Raise StorageError."""
        with files.storage(self.folder / path):
            (self.folder / path).unlink(missing_ok=True)

    def leftovers(self, folder: str) -> list[str]:
        """Return all files below a folder: `compacting` keeps other writers of compacted files away."""
        return [path.relative_to(self.folder).as_posix() for path in (self.folder / folder).rglob("*")
                if path.is_file()]

    def old_catalogs(self) -> list[str]:
        """Return none: SQLite keeps one file."""
        return []

    def dataset(self, paths: Sequence[str], schema: pa.Schema) -> ds.Dataset:
        """Return these Parquet files as one dataset. Raise BadBundle where one is missing."""
        import pyarrow.dataset as ds

        self._require(paths)
        return ds.dataset([str(self.folder / path) for path in paths], schema=schema, format="parquet")

    def direct(self, paths: Sequence[str]) -> list[str]:
        """Return these files' paths; none where DuckDB would take one for a pattern. Raise BadBundle where one is
        missing."""
        self._require(paths)
        return [] if PATTERN.search(str(self.folder)) else [str(self.folder / path) for path in paths]

    def _require(self, paths: Sequence[str]) -> None:
        for path in paths:
            if not self.holds(path):
                raise missing(self, path)

    @contextmanager
    def catalog(self, create: bool, write: bool) -> Iterator[CatalogFile]:
        """Open the catalog in the folder: what is committed to it is seen at once. Raise NoBaseline, StorageError."""
        path = self.folder / CATALOG
        if not files.is_file(path) and not create:
            raise no_lake(self)
        with files.storage(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        yield CatalogFile(path, str(path), lambda connection: None)

    def compacting(self) -> AbstractContextManager[None]:
        """Hold the folder's lock."""
        return files.locked(self.folder)

    def failure(self, error: Exception) -> AacoError:
        """Return the error of a file that cannot be read."""
        return BadBundle(f"{self.name}: {first_line(error)}", FIX)


def missing(store: Store, path: str) -> BadBundle:
    """Return the error of a file that the catalog names and that is not there."""
    return BadBundle(f"{store.name}/{path}: missing", FIX)


def no_lake(store: Store) -> NoBaseline:
    """Return the error of a lake that nothing was ingested into."""
    return NoBaseline(f"{store.name}: no lake of a fleet", "aaco fleet ingest BUNDLES")
