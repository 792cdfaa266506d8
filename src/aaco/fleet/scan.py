"""Questions to a lake: the SQL of queries/ by DuckDB over the files of one state, and of no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files as resources
from typing import Any, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from aaco.core.errors import BadBundle, StorageError
from aaco.fleet import facts
from aaco.fleet.catalog import Catalog, LakeState, landing_file
from aaco.fleet.compaction import LakeManifest, read_manifest
from aaco.fleet.store import FIX, Place, Store, each, open_store
from aaco.tracelake.history.replicates import LATENCY

MEMORY = "500MB"
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class FleetFilter:
    """Which sessions: of this model, this device; None for all."""

    model: str | None = None
    device: str | None = None

    @property
    def terms(self) -> dict[str, str]:
        """Return the columns that are restricted, with their values."""
        return {name: value for name, value in vars(self).items() if value is not None}


class Scan:
    """A state of a lake, open for questions."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def run(self, name: str) -> pa.Table:
        """Return the answer of queries/NAME.sql; `facts`, `measured` and `levels` are there."""
        return self._connection.sql(_text(name)).to_arrow_table()


def ask(place: Place, question: Callable[[Scan], Answer], choice: FleetFilter, metric: str = LATENCY) -> Answer:
    """Return what a question about a metric finds in the present state of a lake.

    If a compaction removes files during the query, the new state is read. Raise AacoError.
    """
    lake = open_store(place)
    state = state_of(lake)
    try:
        return _ask(lake, state, question, choice, metric)
    except (BadBundle, StorageError):
        after = state_of(lake)
        if after == state:
            raise
        return _ask(lake, after, question, choice, metric)


def state_of(lake: Store) -> LakeState:
    """Return what a reader sees now. Raise AacoError."""
    with Catalog.open(lake) as catalog:
        return catalog.state()


def _ask(lake: Store, state: LakeState, question: Callable[[Scan], Answer], choice: FleetFilter,
         metric: str) -> Answer:
    manifest = read_manifest(lake, state.manifest)
    try:
        with _opened(_dataset(lake, state, manifest, choice), state, choice, metric) as connection:
            return question(Scan(connection))
    except (OSError, pa.ArrowException, duckdb.IOException, duckdb.InvalidInputException) as error:
        raise lake.failure(error) from error


@contextmanager
def _opened(lake: ds.Dataset, state: LakeState, choice: FleetFilter, metric: str) -> Iterator[Any]:
    connection: Any = duckdb.connect(config={
        "memory_limit": MEMORY, "threads": 2, "autoinstall_known_extensions": False,
        "autoload_known_extensions": False, "python_enable_replacements": False})
    try:
        connection.register("lake", lake)
        connection.register("retired", pa.table({"session_id": pa.array(sorted(state.retired), pa.string())}))
        terms = "".join(f" AND {name} = {_quoted(value)}" for name, value in choice.terms.items())
        connection.execute(f"CREATE VIEW facts AS SELECT * FROM lake WHERE session_id NOT IN "
                           f"(SELECT session_id FROM retired){terms}")
        connection.execute(f"SET VARIABLE metric = {_quoted(metric)}")
        connection.execute(f"CREATE TEMP TABLE measured AS {_text('measured')}")  # once: it is what takes the time
        connection.execute(f"CREATE VIEW levels AS {_text('levels')}")
        yield connection
    finally:
        connection.close()


def _dataset(lake: Store, state: LakeState, manifest: LakeManifest, choice: FleetFilter) -> ds.Dataset:
    """Return the files that may hold matching sessions. Raise BadBundle where one is missing rows, or is newer."""
    data = [file for file in manifest.files
            if all(getattr(file, name) == value for name, value in choice.terms.items())]
    paths = [file.path for file in data] + [landing_file(sha256) for _, sha256 in state.pending]
    dataset = lake.dataset(paths, facts.FACTS.schema)
    rows = sum(each(_rows, dataset.get_fragments()))
    expected = sum(file.rows for file in data) + len(state.pending)
    if rows != expected:
        raise BadBundle(f"{lake.name}: {rows:,} sessions in files that were written with {expected:,}", FIX)
    return dataset


def _rows(fragment: ds.ParquetFileFragment) -> int:
    facts.require_version(fragment.metadata.schema.to_arrow_schema(), fragment.path)
    return int(fragment.metadata.num_rows)


def _text(name: str) -> str:
    return resources("aaco.fleet").joinpath("queries", f"{name}.sql").read_text()


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
