"""The maps of a question as tasks of Ray: the same SQL over parts of the files, on the nodes of a cluster.

A cluster is joined only at an address that is given, or started on this machine (`local`): never one that is found.
The nodes need this version of aaco and of DuckDB, and the lake at the same path or address, with credentials in their
own environment. A task whose worker dies runs again. Ray passes arguments by pickle: a cluster is trusted as a login.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from msgspec.structs import replace

from aaco import __version__
from aaco.core.errors import AacoError, StorageError, UsageError, first_line
from aaco.fleet import sql
from aaco.fleet.lakes import open_store
from aaco.fleet.scan import KERNEL_SUMS, LOCAL, Shard
from aaco.fleet.store import Store

HERE = "local"
ADDRESS = re.compile(r"(ray://)?[\w.-]+:\d{1,5}", re.ASCII)
TASKS = 16  # at most: each reads files that no other does
RETRIES = 3  # of a task whose worker died
PATIENCE_S = 600.0  # for all tasks of a map
VERSIONS = f"aaco {__version__}, duckdb {duckdb.__version__}"
Task = Callable[[str, Shard, str, str], pa.Table]


def map_shard(lake: str, shard: Shard, name: str, versions: str) -> pa.Table:
    """Return the table of a map over the files of a shard: what a worker does. Raise AacoError.

    versions: of the asker; another version could give other bits.
    """
    if versions != VERSIONS:
        raise UsageError(f"a worker of Ray has {VERSIONS}, the asker {versions}", "install the same on all nodes")
    with LOCAL.maps(open_store(Path(lake)), shard) as maps:
        maps.provide(name)
        return maps.connection.sql(f"SELECT * FROM {name}").to_arrow_table()


class RayEngine:
    """Maps on a cluster of Ray. address: HOST:PORT or ray://HOST:PORT of a cluster, or `local`. task: what runs."""

    def __init__(self, address: str, task: Task = map_shard) -> None:
        if address != HERE and not ADDRESS.fullmatch(address):
            raise UsageError(f"no address of a Ray cluster: {address!r}",
                             "--address HOST:PORT, ray://HOST:PORT or local")
        self._address, self._task = address, task

    @contextmanager
    def maps(self, lake: Store, shard: Shard) -> Iterator[RayMaps]:
        """Join or start the cluster for the time of a question. Raise Missing without Ray, StorageError."""
        with self._joined() as ray, sql.connected() as connection:
            yield RayMaps(connection, ray, lake, shard, self._task)

    @contextmanager
    def _joined(self) -> Iterator[Any]:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        if ray.is_initialized():
            raise UsageError("this process is in a Ray cluster already", "ray.shutdown() first")
        only_here = {"include_dashboard": False, "_node_ip_address": "127.0.0.1"} if self._address == HERE else {}
        try:
            ray.init(address=self._address, log_to_driver=False, configure_logging=False, **only_here)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise StorageError(f"no Ray cluster at {self._address}: {first_line(error)}",
                               "check the address, or --address local") from error
        try:
            yield ray
        finally:
            ray.shutdown()


class RayMaps:
    """Maps whose tables come from tasks."""

    def __init__(self, connection: Any, ray: Any, lake: Store, shard: Shard, task: Task) -> None:
        self.connection = connection
        self._ray, self._lake, self._shard = ray, lake, shard
        self._task = ray.remote(max_retries=RETRIES)(task)
        self._tables: dict[str, pa.Table] = {}

    def read_once(self) -> None:
        """Do nothing: each map is a task of its own."""

    def provide(self, name: str) -> None:
        """Make the table of a map from what its tasks give. Raise what a task raises, StorageError where it is lost."""
        if name in self._tables:
            return
        tasks = [self._task.remote(self._lake.reached, part, name, VERSIONS)
                 for part in parts_of(self._shard, name)]
        try:
            self._tables[name] = pa.concat_tables(self._ray.get(tasks, timeout=PATIENCE_S))
        except self._ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, AacoError):
                raise cause from error
            raise StorageError(f"a task of Ray was lost {RETRIES + 1} times, or failed: {type(error).__name__}",
                               "look at the cluster's logs, or --engine local") from error
        self.connection.register(name, self._tables[name])


def parts_of(shard: Shard, name: str) -> list[Shard]:
    """Return at most TASKS shards with about as many sessions each, one at least: for a map they are the shard."""
    empty = replace(shard, files={}, with_kernels={})
    if name == KERNEL_SUMS:
        return [replace(empty, with_kernels=part) for part in _split(shard.with_kernels)]
    return [replace(empty, files=part) for part in _split(shard.files)]


def _split(files: Mapping[str, int]) -> list[dict[str, int]]:
    parts: list[dict[str, int]] = [{} for _ in range(max(1, min(TASKS, len(files))))]
    rows = [0] * len(parts)
    for path, count in sorted(files.items(), key=lambda file: (-file[1], file[0])):
        least = rows.index(min(rows))
        parts[least][path] = count
        rows[least] += count
    return parts
