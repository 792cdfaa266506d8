"""Questions to a lake: the SQL of queries/ by DuckDB over the files of one state, and of no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files as resources
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from aaco.core import files
from aaco.core.errors import BadBundle, StorageError, first_line
from aaco.fleet import facts
from aaco.fleet.catalog import Catalog, LakeState, landing_file
from aaco.fleet.compaction import FIX, LakeManifest, read_manifest
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


def ask(lake: Path, question: Callable[[Scan], Answer], choice: FleetFilter, metric: str = LATENCY) -> Answer:
    """Return what a question about a metric finds in the present state of a lake.

    If a compaction removes files during the query, the new state is read. Raise AacoError.
    """
    with Catalog.open(lake) as catalog:
        state = catalog.state()
        try:
            return _ask(lake, state, question, choice, metric)
        except (BadBundle, StorageError):
            after = catalog.state()
            if after == state:
                raise
            return _ask(lake, after, question, choice, metric)


def _ask(lake: Path, state: LakeState, question: Callable[[Scan], Answer], choice: FleetFilter,
         metric: str) -> Answer:
    manifest = read_manifest(lake, state.manifest)
    try:
        with _opened(_dataset(lake, state, manifest, choice), state, choice, metric) as connection:
            return question(Scan(connection))
    except (OSError, pa.ArrowException, duckdb.IOException, duckdb.InvalidInputException) as error:
        raise BadBundle(f"{lake}: {first_line(error)}", FIX) from error


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


def _dataset(lake: Path, state: LakeState, manifest: LakeManifest, choice: FleetFilter) -> ds.Dataset:
    """Return the files that may hold matching sessions. Raise BadBundle where one is missing rows, or is newer."""
    data = [file for file in manifest.files
            if all(getattr(file, name) == value for name, value in choice.terms.items())]
    paths = [lake / file.path for file in data] + [landing_file(lake, sha256) for _, sha256 in state.pending]
    for path in paths:
        if not files.is_file(path):
            raise BadBundle(f"{path}: missing", FIX)
    dataset = ds.dataset([str(path) for path in paths], schema=facts.FACTS.schema, format="parquet")
    rows = 0
    for fragment in dataset.get_fragments():
        facts.require_version(fragment.metadata.schema.to_arrow_schema(), fragment.path)
        rows += fragment.metadata.num_rows
    expected = sum(file.rows for file in data) + len(state.pending)
    if rows != expected:
        raise BadBundle(f"{lake}: {rows:,} sessions in files that were written with {expected:,}", FIX)
    return dataset


def _text(name: str) -> str:
    return resources("aaco.fleet").joinpath("queries", f"{name}.sql").read_text()


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
