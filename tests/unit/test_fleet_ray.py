"""Questions on Ray: the same bits as in this process, also when workers die; and no cluster that is merely found."""

from __future__ import annotations

import os
import signal
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from aaco.cli import app
from aaco.core.errors import BadBundle, Missing, UsageError
from aaco.core.extras import missing
from aaco.fleet import answers, compaction, ray_engine, scan, sql
from aaco.fleet.ingest import bundles, ingest
from aaco.fleet.ray_engine import TASKS, RayEngine, map_shard, parts_of
from aaco.fleet.scan import LOCAL, FleetFilter, Shard
from aaco.fleet.store import FolderStore
from benchmarks.fleet._bundles import FleetPlan, sessions
from tests.fleets import bundles_of

PLAN = FleetPlan(64, models=2, devices=2, nodes=4, days=150, iterations=10, regressions=1, regression=1.3,
                 stragglers=1, straggler=1.2, seed=3)
folder = bundles_of(PLAN)
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'ray>=2.50'")


@pytest.fixture(scope="module")
def lake(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with compacted files, files in landing, and a retired session; not to be changed."""
    path = tmp_path_factory.mktemp("lake")
    paths = bundles([folder])
    ingest(path, paths[:-4])
    compaction.compact(path)
    ingest(path, paths)
    with compaction.Catalog.open(path, write=True) as catalog:
        catalog.retire([row.session_id for row in sessions(PLAN)[0][:1]], "ann", "x")
    return path


def shard(lake: Path) -> Shard:
    state = scan.state_of(FolderStore(lake))
    manifest = compaction.read_manifest(FolderStore(lake), state.manifest)
    return scan.shard_of(state, manifest, FleetFilter(), "latency_ms")


@pytest.mark.parametrize(("name", "field"), [("levels", "files"), (scan.KERNEL_SUMS, "with_kernels")])
def test_parts_are_the_whole_and_about_as_large(lake: Path, name: str, field: str) -> None:
    """Mutation: kernels are read from files that have none."""
    whole = getattr(shard(lake), field)
    parts = [getattr(part, field) for part in parts_of(shard(lake), name)]
    assert len(parts) == min(TASKS, len(whole)) > 1
    assert dict(sorted(item for part in parts for item in part.items())) == dict(sorted(whole.items()))
    assert sum(len(part) for part in parts) == len(whole)
    rows = [sum(part.values()) for part in parts]
    assert max(rows) - min(rows) <= max(whole.values())
    assert len(parts_of(Shard({}, {}, [], FleetFilter(), "latency_ms"), name)) == 1


@pytest.mark.parametrize("question", list(scan.REDUCES))
def test_maps_over_parts_give_the_bits_of_one_map(lake: Path, question: str) -> None:
    """What Ray does, without it: each part is mapped by itself. Mutations: a part is left out; a sum of floats."""
    whole, name = shard(lake), scan.REDUCES[question]
    expected = scan.ask(lake, lambda opened: opened.run(question), FleetFilter())
    tables = [map_shard(str(lake), part, name, ray_engine.VERSIONS) for part in reversed(parts_of(whole, name))]
    with sql.connected() as connection:
        connection.register(name, pa.concat_tables(tables))
        found = connection.sql(sql.text(f"reduce/{question}")).to_arrow_table()
    assert found.equals(expected)
    assert (expected.num_rows > 0) == (question != "unmeasured")


def test_a_worker_of_another_version_is_refused(lake: Path) -> None:
    with pytest.raises(UsageError, match="a worker of Ray has"):
        map_shard(str(lake), shard(lake), "levels", "aaco 0.0.0, duckdb 0.0.0")


@pytest.mark.parametrize("address", ["auto", "", "127.0.0.1", "http://127.0.0.1:1", "a:1 b:2"])
def test_only_an_address_or_local_is_taken(address: str) -> None:
    """Mutation: `auto` joins whatever cluster runs on this machine."""
    with pytest.raises(UsageError, match="no address of a Ray cluster"):
        RayEngine(address)


@pytest.mark.parametrize(("options", "why"), [(["--engine", "ray"], "no cluster is looked for"),
                                              (["--address", "local"], "--address without --engine ray")])
def test_engine_and_address_go_together(lake: Path, options: list[str], why: str) -> None:
    done = CliRunner().invoke(app, ["fleet", "regressions", "--lake", str(lake), *options])
    assert isinstance(done.exception, UsageError) and why in str(done.exception)


def test_without_ray_the_extra_is_named(lake: Path) -> None:
    if find_spec("ray"):
        pytest.skip("Ray is installed")
    with pytest.raises(ModuleNotFoundError) as raised:
        answers.regressions(lake, engine=RayEngine("local"))
    message = missing(raised.value)
    assert isinstance(message, Missing) and "aaco[ray]" in message.fix


def test_what_does_not_fit_into_memory_spills_beside_no_lake(lake: Path, tmp_path: Path,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """A sort of 160 MB in 60 MB. Mutation: without a folder of its own, DuckDB leaves one where the command runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sql, "MEMORY", "60MB")
    with sql.connected() as connection:
        spill = Path(connection.execute("SELECT current_setting('temp_directory')").fetchone()[0])
        rows = connection.execute("SELECT max(n) FROM (SELECT row_number() OVER (ORDER BY hash(i)) AS n, hash(i) AS a, "
                                  "hash(i + 1) AS b FROM range(5000000) AS r(i))").fetchone()[0]
    assert rows == 5_000_000
    assert not spill.exists() and not spill.parent.exists()
    assert not list(tmp_path.iterdir())


def killed_once(lake: str, part: Shard, name: str, versions: str) -> pa.Table:
    """Map, but the workers of the first two tasks are killed when they first try."""
    marks = Path(os.environ["AACO_TEST_MARKS"])
    for mark in (marks / "first", marks / "second"):
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            continue
        os.kill(os.getpid(), signal.SIGKILL)
    return map_shard(lake, part, name, versions)


@needs_ray
def test_ray_gives_the_same_bits_though_two_of_its_tasks_are_killed(lake: Path, tmp_path: Path,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AACO_TEST_MARKS", str(tmp_path))
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")  # of a cluster that is not asked for
    ours, rays = (scan.ask(lake, lambda opened: [opened.run(name) for name in ("residuals", "kernels")], FleetFilter(),
                           engine=engine) for engine in (LOCAL, RayEngine("local", killed_once)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "second"]
    assert all(own.equals(rays_own) for own, rays_own in zip(ours, rays, strict=True))
    assert ours[0].num_rows == 63


@needs_ray
def test_what_a_task_refuses_is_what_the_asker_reads(lake: Path, tmp_path: Path) -> None:
    def other_version(place: str, part: Shard, name: str, versions: str) -> pa.Table:
        raise BadBundle("facts of version 99", "upgrade")

    with pytest.raises(BadBundle, match="facts of version 99"):
        answers.regressions(lake, engine=RayEngine("local", other_version))
