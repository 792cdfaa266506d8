"""Questions to a lake: the SQL of queries/ by DuckDB over the files of one state, and of no other.

queries/map/*.sql run over files, all or some of them: the same rows come out, in some order. queries/reduce/*.sql run
over all that the maps gave, in an order of their own, and have only exact medians and whole sums: an engine that
spreads the maps gives the same bits.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files as resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import duckdb
import pyarrow as pa

from aaco.core.errors import BadBundle, StorageError
from aaco.fleet import facts
from aaco.fleet.catalog import Catalog, LakeState, landing_file
from aaco.fleet.compaction import LakeManifest, read_manifest
from aaco.fleet.lakes import open_store
from aaco.fleet.store import FIX, Place, Store, each
from aaco.tracelake.history.replicates import LATENCY

if TYPE_CHECKING:
    import pyarrow.dataset as ds

MEMORY = "500MB"
ARROW_SCHEMA = "ARROW:schema"  # where Arrow keeps a file's columns, in the file's own metadata
JUDGES = "scipy.special"  # all answers need it: 0.15 s of import, in which DuckDB already computes
# What each question reduces, and what a map is made of itself.
REDUCES = {"residuals": "levels", "processes": "measured", "kernels": "kernel_sums", "metrics": "metric_names",
           "unmeasured": "unmeasured_sessions", "scaling": "throughputs", "per_ceiling": "throughputs",
           "device_skews": "device_times"}
MADE_OF = {"levels": ("measured",), "unmeasured_sessions": ("measured", "session_facts"),
           "device_times": ("session_facts",)}
UNREADABLE = (duckdb.IOException, duckdb.InvalidInputException, duckdb.BinderException, duckdb.ConversionException)
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


@dataclass(frozen=True)
class Shard:
    """Files of a lake, with all that a map over them depends on. files: by path, how many sessions each holds."""

    files: Mapping[str, int]
    retired: Sequence[str]
    choice: FleetFilter
    metric: str


class Maps(Protocol):
    """The tables of maps, in one connection."""

    connection: Any

    def provide(self, name: str) -> None:
        """Make the table of queries/map/NAME.sql there, if it is not."""


class Engine(Protocol):
    """Where maps run."""

    def maps(self, lake: Store, shard: Shard) -> Any:
        """Return a context manager that gives the maps over all files of a shard."""


class Scan:
    """A state of a lake, open for questions."""

    def __init__(self, maps: Maps, beside: Executor) -> None:
        self._maps, self._beside = maps, beside

    def run(self, name: str) -> pa.Table:
        """Return the answer of queries/reduce/NAME.sql."""
        return self.begin(name).result()

    def begin(self, name: str) -> Future[pa.Table]:
        """Return the same as a future: queries run one after the other in a thread, while the caller computes."""
        return self._beside.submit(self._answer, name)

    def _answer(self, name: str) -> pa.Table:
        self._maps.provide(REDUCES[name])
        return self._maps.connection.sql(_text(f"reduce/{name}")).to_arrow_table()


class LocalMaps:
    """Maps over files that one connection reads."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._there: set[str] = set()

    def provide(self, name: str) -> None:
        """Make the table of queries/map/NAME.sql, once: reading files is what takes the time."""
        if name in self._there:
            return
        for source in MADE_OF.get(name, ()):
            self.provide(source)
        self.connection.execute(f"CREATE TEMP TABLE {name} AS {_text(f'map/{name}')}")
        self._there.add(name)


class LocalEngine:
    """Everything in this process."""

    @contextmanager
    def maps(self, lake: Store, shard: Shard) -> Iterator[LocalMaps]:
        """Open the files of a shard. Raise AacoError where one is missing, unreadable, or of a later version."""
        try:
            with connected() as connection:
                _open(connection, lake, shard)
                connection.register("retired", pa.table({"session_id": pa.array(shard.retired, pa.string())}))
                terms = "".join(f" AND {name} = {_quoted(value)}" for name, value in shard.choice.terms.items())
                connection.execute(f"CREATE VIEW facts AS SELECT * FROM lake WHERE session_id NOT IN "
                                   f"(SELECT session_id FROM retired){terms}")
                connection.execute(f"SET VARIABLE metric = {_quoted(shard.metric)}")
                connection.execute(f"SET VARIABLE before = {_quoted(facts.BEFORE)}")
                yield LocalMaps(connection)
        except (OSError, pa.ArrowException, *UNREADABLE) as error:
            raise lake.failure(error) from error


LOCAL = LocalEngine()


def ask(place: Place, question: Callable[[Scan], Answer], choice: FleetFilter, metric: str = LATENCY,
        engine: Engine = LOCAL) -> Answer:
    """Return what a question about a metric finds in the present state of a lake.

    If a compaction removes files during the query, the new state is read. Raise AacoError.
    """
    lake = open_store(place)
    state = state_of(lake)
    try:
        return _ask(lake, state, question, choice, metric, engine)
    except (BadBundle, StorageError):
        after = state_of(lake)
        if after == state:
            raise
        return _ask(lake, after, question, choice, metric, engine)


def state_of(lake: Store) -> LakeState:
    """Return what a reader sees now. Raise AacoError."""
    with Catalog.open(lake) as catalog:
        return catalog.state()


def _ask(lake: Store, state: LakeState, question: Callable[[Scan], Answer], choice: FleetFilter, metric: str,
         engine: Engine) -> Answer:
    held = _held(state, read_manifest(lake, state.manifest), choice)
    shard = Shard(held, sorted(state.retired), choice, metric)
    with ThreadPoolExecutor(1) as early:
        early.submit(import_module, JUDGES)
        with engine.maps(lake, shard) as maps, ThreadPoolExecutor(1) as beside:
            return question(Scan(maps, beside))


def _held(state: LakeState, manifest: LakeManifest, choice: FleetFilter) -> dict[str, int]:
    """Return the files that may hold matching sessions, each with the number of its sessions."""
    return {file.path: file.rows for file in manifest.files
            if all(getattr(file, name) == value for name, value in choice.terms.items())} | {
        landing_file(sha256): 1 for _, sha256 in state.pending}


@contextmanager
def connected() -> Iterator[Any]:
    """Open a DuckDB that loads nothing by itself; what does not fit into MEMORY goes to a folder that is removed."""
    with tempfile.TemporaryDirectory(prefix="aaco-fleet-") as folder:
        connection: Any = duckdb.connect(config={
            "memory_limit": MEMORY, "threads": 2, "autoinstall_known_extensions": False,
            "autoload_known_extensions": False, "python_enable_replacements": False,
            "preserve_insertion_order": False, "temp_directory": str(Path(folder) / "spill")})
        try:
            connection.execute("SET parquet_metadata_cache = true")  # each map opens all files again
            yield connection
        finally:
            connection.close()


def _open(connection: Any, lake: Store, shard: Shard) -> None:
    """Make the files of a shard the view `lake`. Raise BadBundle where one is missing rows, or is newer."""
    direct = lake.direct(list(shard.files))
    if direct:
        rows = _open_direct(connection, direct)
    else:
        dataset = lake.dataset(list(shard.files), facts.FACTS.schema)
        connection.register("lake", dataset)
        rows = sum(each(_rows, dataset.get_fragments()))
    expected = sum(shard.files.values())
    if rows != expected:
        raise BadBundle(f"{lake.name}: {rows:,} sessions in files that were written with {expected:,}", FIX)


def _open_direct(connection: Any, paths: Sequence[str]) -> int:
    """Make files that DuckDB reads the view `lake`; return how many rows there are. Columns that an older version does
    not have are null."""
    stamps: dict[str, dict[bytes, bytes]] = {path: {} for path in paths}
    for path, key, value in connection.execute(
            f"SELECT file_name, key, value FROM parquet_kv_metadata({_listed(paths)}) WHERE starts_with(key::VARCHAR, "
            f"'aaco.') OR key::VARCHAR = '{ARROW_SCHEMA}'").fetchall():
        stamps[path][key] = value
    alike: dict[bytes, list[str]] = {}
    for path, stamp in stamps.items():
        facts.require_version(stamp, path)
        alike.setdefault(stamp.get(ARROW_SCHEMA.encode(), b""), []).append(path)
    connection.register("nothing", facts.FACTS.schema.empty_table())
    # Only files of one schema are read together: DuckDB then takes the columns of the first for those of all, which for
    # 200 files is a third of the work of a map.
    connection.execute("CREATE VIEW lake AS SELECT * FROM nothing" + "".join(
        f" UNION ALL BY NAME SELECT * FROM read_parquet({_listed(files)}, hive_partitioning = false)"
        for files in alike.values()))
    [(rows,)] = connection.execute(f"SELECT sum(num_rows) FROM parquet_file_metadata({_listed(paths)})").fetchall()
    return int(rows)


def _listed(paths: Sequence[str]) -> str:
    return f"[{', '.join(map(_quoted, paths))}]"


def _rows(fragment: ds.ParquetFileFragment) -> int:
    facts.require_version(fragment.metadata.schema.to_arrow_schema().metadata or {}, fragment.path)
    return int(fragment.metadata.num_rows)


def _text(name: str) -> str:
    return resources("aaco.fleet").joinpath("queries", f"{name}.sql").read_text()


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
