"""Questions to a lake: the SQL of queries/ by DuckDB over the files of one state, and of no other.

queries/map/*.sql run over files, all or some of them: the same rows come out, in some order. queries/reduce/*.sql run
over all that the maps gave, in an order of their own, and have only exact medians and whole sums: an engine that
spreads the maps gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import duckdb
import pyarrow as pa
from msgspec import Struct

from aaco.core.errors import BadBundle, StorageError, UsageError
from aaco.core.labels import LONGEST, NAMES, is_value
from aaco.fleet import facts, sql
from aaco.fleet.catalog import Catalog, LakeState, landing_file
from aaco.fleet.compaction import LakeManifest, read_manifest, read_sums
from aaco.fleet.lakes import open_store
from aaco.fleet.store import FIX, Place, Store, each
from aaco.tracelake.history.measures import LATENCY

if TYPE_CHECKING:
    import pyarrow.dataset as ds

ARROW_SCHEMA = "ARROW:schema"  # where Arrow keeps a file's columns, in the file's own metadata
SHARED = "session_facts"  # most maps are made of it
KERNEL_SUMS = "kernel_sums"  # the one map that is made of more than facts
# What each question reduces, and what a map is made of itself.
REDUCES = {"residuals": "levels", "processes": "process_lags", "kernels": "kernel_sums", "metrics": "metric_names",
           "unmeasured": "unmeasured_sessions", "scaling": "throughputs", "per_ceiling": "throughputs",
           "device_skews": "device_times", "device_health": "device_health", "descriptions": "descriptions",
           "metric_levels": "metric_levels", "label_counts": "label_counts"}
MADE_OF = {"levels": "measured", **dict.fromkeys(("measured", "process_lags", "unmeasured_sessions", "throughputs",
                                                  "device_times", "device_health", "descriptions", "label_counts"),
                                                 SHARED)}
UNREADABLE = (duckdb.IOException, duckdb.InvalidInputException, duckdb.BinderException, duckdb.ConversionException)
Answer = TypeVar("Answer")


class FleetFilter(Struct, frozen=True):
    """Which sessions: of this model, this device, with all of these labels; None and () for all."""

    model: str | None = None
    device: str | None = None
    labels: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, model: str | None, device: str | None, labels: Sequence[str]) -> FleetFilter:
        """Return the sessions of this model, this device, with these labels, each NAME=VALUE. Raise UsageError for
        what is no label: it would select nothing."""
        pairs = tuple((name, text) for name, _, text in (label.partition("=") for label in labels))
        for (name, text), label in zip(pairs, labels, strict=True):
            if name not in NAMES or not is_value(text):
                raise UsageError(f"no label of a session: {label[:80]!r}",
                                 f"NAME=VALUE, of {', '.join(NAMES)}; one line of at most {LONGEST} letters")
        return cls(model, device, pairs)

    @property
    def terms(self) -> dict[str, str]:
        """Return the columns of files that are restricted, with their values."""
        return {name: value for name in ("model", "device") if (value := getattr(self, name)) is not None}

    @property
    def condition(self) -> str:
        """Return which sessions these are, in SQL."""
        return " AND ".join(["true", *(f"{name} = {sql.quoted(value)}" for name, value in self.terms.items()), *(
            f"list_contains(labels, {{'name': {sql.quoted(name)}, 'value': {sql.quoted(value)}}})"
            for name, value in self.labels)])


class Shard(Struct, frozen=True):
    """Files of a lake, with all that a map over them depends on: by path, how many sessions each holds.

    files: of all facts but kernels. with_kernels: of the same sessions, with kernels, which one map needs.
    sums: the digest of the sums of kernels that hold for the files of `summed`, and maybe for others; None: of no file.
    """

    files: Mapping[str, int]
    with_kernels: Mapping[str, int]
    retired: Sequence[str]
    choice: FleetFilter
    metric: str
    sums: str | None = None
    summed: frozenset[str] = frozenset()


class Maps(Protocol):
    """The tables of maps, in one connection."""

    connection: Any

    def provide(self, name: str) -> None:
        """Make the table of queries/map/NAME.sql there, if it is not."""

    def read_once(self) -> None:
        """Keep what several maps are made of. For one map fewer columns are read."""


class Engine(Protocol):
    """Where maps run."""

    def maps(self, lake: Store, shard: Shard) -> Any:
        """Return a context manager that gives the maps over all files of a shard."""


class Scan:
    """A state of a lake, open for questions."""

    def __init__(self, maps: Maps, beside: Executor) -> None:
        self._maps, self._beside = maps, beside

    def read_once(self) -> None:
        """Prepare for several questions: files are then opened once for all of them."""
        self._maps.read_once()

    def run(self, name: str) -> pa.Table:
        """Return the answer of queries/reduce/NAME.sql."""
        return self.begin(name).result()

    def begin(self, name: str) -> Future[pa.Table]:
        """Return the same as a future: queries run one after the other in a thread, while the caller computes."""
        return self._beside.submit(self._answer, name)

    def _answer(self, name: str) -> pa.Table:
        self._maps.provide(REDUCES[name])
        return self._maps.connection.sql(sql.text(f"reduce/{name}")).to_arrow_table()


class LocalMaps:
    """Maps over files that one connection reads."""

    def __init__(self, connection: Any, lake: Store, shard: Shard) -> None:
        self.connection = connection
        self._lake, self._shard = lake, shard
        self._there: set[str] = set()
        self._views = {SHARED}

    def read_once(self) -> None:
        """Make what several maps are made of a table. A view of it reads only the columns that one map needs."""
        self._views.clear()

    def provide(self, name: str) -> None:
        """Make the table of queries/map/NAME.sql, once: reading files is what takes the time."""
        if name in self._there:
            return
        if name in MADE_OF:
            self.provide(MADE_OF[name])
        if name == KERNEL_SUMS:
            _open_sums(self.connection, self._lake, self._shard)
        kind = "VIEW" if name in self._views else "TABLE"
        self.connection.execute(f"CREATE TEMP {kind} {name} AS {sql.text(f'map/{name}')}")
        self._there.add(name)


class LocalEngine:
    """Everything in this process."""

    @contextmanager
    def maps(self, lake: Store, shard: Shard) -> Iterator[LocalMaps]:
        """Open the files of a shard. Raise AacoError where one is missing, unreadable, or of a later version."""
        try:
            with sql.connected() as connection:
                connection.execute(f"CREATE TEMP TABLE retired AS {sql.column('session_id', shard.retired)}")
                connection.execute(f"SET VARIABLE metric = {sql.quoted(shard.metric)}")
                connection.execute(f"SET VARIABLE before = {sql.quoted(facts.BEFORE)}")
                _open(connection, lake, shard, shard.files, "facts")
                yield LocalMaps(connection, lake, shard)
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


def one_table(place: Place, name: str, choice: FleetFilter | None, engine: Engine) -> pa.Table:
    """Return the answer of queries/reduce/NAME.sql alone. Raise AacoError."""
    return ask(place, lambda scan: scan.run(name), choice or FleetFilter(), engine=engine)


def state_of(lake: Store) -> LakeState:
    """Return what a reader sees now. Raise AacoError."""
    with Catalog.open(lake) as catalog:
        return catalog.state()


def _ask(lake: Store, state: LakeState, question: Callable[[Scan], Answer], choice: FleetFilter, metric: str,
         engine: Engine) -> Answer:
    shard = shard_of(state, read_manifest(lake, state.manifest), choice, metric)
    with engine.maps(lake, shard) as maps, ThreadPoolExecutor(1) as beside:
        return question(Scan(maps, beside))


def shard_of(state: LakeState, manifest: LakeManifest, choice: FleetFilter, metric: str) -> Shard:
    """Return the files that may hold matching sessions. What was summed over files holds where all of a file's sessions
    match, and none is retired."""
    matching = [file for file in manifest.files
                if all(getattr(file, name) == value for name, value in choice.terms.items())]
    matching_months = {file.month for file in matching}
    months = {file.month: file for file in manifest.months if file.month in matching_months}
    landing = {landing_file(sha256): 1 for _, sha256 in state.pending}
    sums = None if state.retired or choice.labels else manifest.sums
    return Shard(
        {file.path: file.rows for file in months.values()}
        | {file.path: file.rows for file in matching if file.month not in months} | landing,
        {file.path: file.rows for file in matching} | landing, sorted(state.retired), choice, metric, sums,
        frozenset(file.path for file in matching if file.summed and sums))


def _open(connection: Any, lake: Store, shard: Shard, files: Mapping[str, int], view: str) -> None:
    """Make a view of the sessions of these files that a shard asks for. Raise BadBundle where a file is missing rows,
    or is newer."""
    direct = lake.direct(list(files))
    if direct:
        rows = _open_direct(connection, direct, f"all_{view}")
    else:
        dataset = lake.dataset(list(files), facts.FACTS.schema)
        connection.register(f"all_{view}", dataset)
        rows = sum(each(_rows, dataset.get_fragments()))
    expected = sum(files.values())
    if rows != expected:
        raise BadBundle(f"{lake.name}: {rows:,} sessions in files that were written with {expected:,}", FIX)
    connection.execute(f"CREATE VIEW {view} AS SELECT * FROM all_{view} WHERE session_id NOT IN "
                       f"(SELECT session_id FROM retired) AND {shard.choice.condition}")


def _open_sums(connection: Any, lake: Store, shard: Shard) -> None:
    """Make the sums of the shard's files the view `sums`, and the sessions of files without sums the view `unsummed`.
    Raise AacoError."""
    summed = sorted(shard.summed.intersection(shard.with_kernels))
    connection.register("all_sums", read_sums(lake, shard.sums if summed else None))
    connection.execute(f"CREATE TEMP TABLE summed AS {sql.column('file', summed)}")
    connection.execute("CREATE VIEW sums AS SELECT * FROM all_sums WHERE file IN (SELECT file FROM summed)")
    unsummed = {path: rows for path, rows in shard.with_kernels.items() if path not in shard.summed}
    if unsummed == shard.files:
        connection.execute("CREATE VIEW unsummed AS SELECT * FROM facts")
    elif unsummed:
        _open(connection, lake, shard, unsummed, "unsummed")
    else:
        connection.register("nothing_unsummed", facts.FACTS.schema.empty_table())
        connection.execute("CREATE VIEW unsummed AS SELECT * FROM nothing_unsummed")


def _open_direct(connection: Any, paths: Sequence[str], view: str) -> int:
    """Make a view of files that DuckDB reads; return how many rows there are. Columns that an older version does not
    have are null."""
    stamps: dict[str, dict[bytes, bytes]] = {path: {} for path in paths}
    for path, key, value in connection.execute(
            f"SELECT file_name, key, value FROM parquet_kv_metadata({sql.listed(paths)}) WHERE "
            f"starts_with(key::VARCHAR, 'aaco.') OR key::VARCHAR = '{ARROW_SCHEMA}'").fetchall():
        stamps[path][key] = value
    alike: dict[bytes, list[str]] = {}
    for path, stamp in stamps.items():
        facts.require_version(stamp, path)
        alike.setdefault(stamp.get(ARROW_SCHEMA.encode(), b""), []).append(path)
    connection.register("nothing", facts.FACTS.schema.empty_table())
    # Only files of one schema are read together: DuckDB then takes the columns of the first for those of all, which for
    # 200 files is a third of the work of a map.
    connection.execute(f"CREATE VIEW {view} AS SELECT * FROM nothing" + "".join(
        f" UNION ALL BY NAME SELECT * FROM read_parquet({sql.listed(files)}, hive_partitioning = false)"
        for files in alike.values()))
    [(rows,)] = connection.execute(f"SELECT sum(num_rows) FROM parquet_file_metadata({sql.listed(paths)})").fetchall()
    return int(rows)


def _rows(fragment: ds.ParquetFileFragment) -> int:
    facts.require_version(fragment.metadata.schema.to_arrow_schema().metadata or {}, fragment.path)
    return int(fragment.metadata.num_rows)
