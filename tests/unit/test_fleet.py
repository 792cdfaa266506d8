"""The lake of a fleet: what goes in, what stays whole, and what is found in it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from aaco.cli import app
from aaco.core import files, tables
from aaco.core.errors import BadBundle, NoBaseline, StorageError, UsageError
from aaco.fleet import answers, compaction, facts, reading, scan
from aaco.fleet import catalog as fleet_catalog
from aaco.fleet import ingest as fleet_ingest
from aaco.fleet.catalog import Catalog, landing_file
from aaco.fleet.ingest import bundles, ingest
from aaco.fleet.scan import FleetFilter
from aaco.fleet.store import FolderStore
from aaco.governance import fleet
from aaco.tracelake import manifest
from benchmarks.fleet import durability
from benchmarks.fleet._bundles import FleetPlan, sessions, write, write_session
from tests.fleets import bundles_of, manifest_of
from tests.locks import is_locked

PLAN = FleetPlan(60, models=2, devices=1, nodes=4, days=100, iterations=20, regressions=2, regression=1.25,
                 stragglers=2, straggler=1.2, seed=3)


folder = bundles_of(PLAN)


@pytest.fixture(scope="module")
def compacted(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of all of them, compacted; not to be changed."""
    lake = tmp_path_factory.mktemp("lake")
    assert not ingest(lake, bundles([folder])).refused
    compaction.compact(lake)
    return lake


def data_of(lake: Path) -> dict[str, bytes]:
    """Every file of a lake but the catalog, which has the times of ingest in it."""
    return {path.relative_to(lake).as_posix(): path.read_bytes() for path in sorted(lake.rglob("*"))
            if path.is_file() and not path.name.startswith("catalog.db")}


def session_ids(lake: Path) -> list[str]:
    levels = scan.ask(lake, lambda opened: opened.run("residuals"), FleetFilter())
    return sorted(set(levels["session_id"].to_pylist()))


def test_a_bundle_enters_once(folder: Path, tmp_path: Path) -> None:
    first, again = (ingest(tmp_path, bundles([folder])) for _ in range(2))
    assert (len(first.added), first.present, first.refused) == (60, 0, {})
    assert (again.added, again.present, again.refused) == ([], 60, {})
    assert len(list((tmp_path / "landing").iterdir())) == 60


def test_several_readers_and_batches_give_the_same_lake(folder: Path, compacted: Path, tmp_path: Path,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a bundle that is there twice, in two batches of which one is read while the other is written."""
    monkeypatch.setattr(fleet_ingest, "MOST_AT_ONCE", 16)
    monkeypatch.setattr(FolderStore, "batch", 16)
    paths, lake = bundles([folder]), tmp_path / "lake"
    twice = Path(shutil.copy(paths[15], tmp_path))
    done = ingest(lake, [*paths[:16], twice, *paths[16:]], workers=2)
    assert (done.added, done.present, done.refused) == ([row.session_id for row in sessions(PLAN)[0]], 1, {})
    compaction.compact(lake)
    assert data_of(lake) == data_of(compacted)


def test_a_session_is_the_same_as_a_folder_and_as_a_bundle(folder: Path, tmp_path: Path) -> None:
    row = sessions(PLAN)[0][0]
    session = write_session(tmp_path / "inside" / row.session_id, row, PLAN)
    bundle = folder / f"{row.session_id}.tar.zst"
    assert reading.read(session.folder).content == reading.read(bundle).content
    done = ingest(tmp_path / "lake", bundles([bundle, tmp_path / "inside"]))
    assert (done.added, done.present) == ([row.session_id], 1)


def test_facts_are_those_of_the_session(folder: Path) -> None:
    row = sessions(PLAN)[0][0]
    read = facts.parse(reading.read(folder / f"{row.session_id}.tar.zst").content, "facts").to_pylist()[0]
    assert (read["model"], read["device"], read["devices"], read["node"]) == (row.model, row.device, 8, row.node)
    latencies = {sample["process"]: sample["value"] for sample in read["samples"] if sample["metric"] == "latency_ms"}
    assert latencies == pytest.approx(dict(enumerate(row.level_ms * np.array(row.processes))), rel=0.05)
    assert [kernel["kernel_name"] for kernel in read["kernels"][:2]] == ["kernel_0", "kernel_1"]
    assert read["why_no_kernels"] is None
    assert read["environment"] != reading.fingerprint(dict.fromkeys(reading.IDENTITY))


def test_a_credential_in_a_table_of_a_bundle_stays_out(tmp_path: Path) -> None:
    """Mutation: what wrote the bundle is trusted to have redacted it."""
    session = write_session(tmp_path / "s", sessions(PLAN)[0][0], PLAN)
    path, token = session.folder / tables.KERNEL_GROUPS.file, "ghp_" + "0123456789abcdefghijKLMNOPQRSTUVWXYZ"
    table = pq.read_table(path)
    names = pa.array([f"gemm_{token}", *table["kernel_name"].to_pylist()[1:]]).dictionary_encode()
    pq.write_table(table.set_column(table.schema.get_field_index("kernel_name"), "kernel_name", names), path)
    session.amend(tag=token)
    manifest.write(session, {})
    [row] = facts.parse(reading.read(session.folder).content, "facts").to_pylist()
    assert row["kernels"][0]["kernel_name"] == "gemm_<withheld>"
    assert row["tag"] == "<withheld>"


@pytest.mark.parametrize("identity", reading.IDENTITY)
def test_whatever_makes_sessions_incomparable_is_in_the_fingerprint(identity: str) -> None:
    same = dict.fromkeys(reading.IDENTITY)
    assert reading.fingerprint(same) != reading.fingerprint(same | {identity: "other"})


def test_a_changed_bundle_is_refused_by_itself(folder: Path, tmp_path: Path) -> None:
    """Mutation: hashes are not checked."""
    first, second, third = bundles([folder])[:3]
    for path in (first, second, third):
        shutil.copy(path, tmp_path)
    content = bytearray((tmp_path / first.name).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / first.name).write_bytes(content)
    (tmp_path / second.name).write_bytes(second.read_bytes()[:2000])
    done = ingest(tmp_path / "lake", bundles([tmp_path]))
    assert set(done.refused) == {str(tmp_path / first.name), str(tmp_path / second.name)}
    assert len(done.added) == 1


def test_a_session_folder_with_a_changed_table_is_refused(tmp_path: Path) -> None:
    """Mutation: hashes are not checked."""
    session = write_session(tmp_path / "s", sessions(PLAN)[0][0], PLAN)
    other = write_session(tmp_path / "t", sessions(PLAN)[0][1], PLAN)
    shutil.copy(other.folder / "metrics/inference_iters.parquet", session.folder / "metrics/inference_iters.parquet")
    done = ingest(tmp_path / "lake", [session.folder])
    assert "changed since it was written" in done.refused[str(session.folder)]


def test_an_id_that_is_there_with_other_facts_is_refused(folder: Path, tmp_path: Path) -> None:
    row = sessions(PLAN)[0][0]
    ingest(tmp_path / "lake", [folder / f"{row.session_id}.tar.zst"])
    impostor = write_session(tmp_path / "s", row, FleetPlan(60, iterations=21))
    done = ingest(tmp_path / "lake", [impostor.folder])
    assert "with other facts" in done.refused[str(impostor.folder)]
    assert len(session_ids(tmp_path / "lake")) == 1


@pytest.mark.parametrize(("status", "why"), [("failed", "failed"), ("running", "running")])
def test_a_session_that_is_not_complete_is_refused(tmp_path: Path, status: str, why: str) -> None:
    session = write_session(tmp_path / "s", sessions(PLAN)[0][0], PLAN)
    session.amend(status=status)
    assert why in ingest(tmp_path / "lake", [session.folder]).refused[str(session.folder)]


def test_a_folder_without_bundles_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no bundle"):
        bundles([tmp_path])


def test_a_lake_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoBaseline, match="no lake"):
        answers.status(tmp_path / "nowhere")


def test_ingest_killed_at_many_points_ends_with_the_same_files(folder: Path, compacted: Path, tmp_path: Path) -> None:
    lake, codes = tmp_path / "lake", []
    for delay_s in (0.0, 0.05, 0.1, 0.2, 0.3, 0.4):
        command = [sys.executable, "-c", durability.BOTH, str(lake), str(folder)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout and process.stdout.readline() == b"ready\n"
        time.sleep(delay_s)
        process.send_signal(signal.SIGKILL)
        codes.append(process.wait())
    ingest(lake, bundles([folder]))
    compaction.compact(lake)
    assert codes[0] == -signal.SIGKILL
    assert durability.data(lake) == durability.data(compacted)
    assert session_ids(lake) == session_ids(compacted)


def test_a_full_disk_is_named_and_the_next_ingest_ends_with_the_same_files(folder: Path, compacted: Path,
                                                                          tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", lake], capture_output=True).returncode:
        pytest.skip("cannot mount a tmpfs")
    try:
        full = run("ingest", str(folder), "--lake", str(lake))
        assert full.exit_code == 1 or isinstance(full.exception, StorageError), full.output
        assert answers.status(lake)["sessions"] == 0
        subprocess.run(["mount", "-o", "remount,size=16m", lake], check=True)
        assert len(ingest(lake, bundles([folder])).added) == 60
        compaction.compact(lake)
        assert data_of(lake) == data_of(compacted)
    finally:
        subprocess.run(["umount", lake], check=True)


def test_facts_that_could_not_be_written_are_not_in_the_catalog(folder: Path, tmp_path: Path,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: what could not be written is called written."""
    def full(path: Path, write: object) -> None:
        raise StorageError(f"{path}: no space left on device")

    monkeypatch.setattr(files, "write_atomically", full)
    with pytest.raises(StorageError, match="no space left"):
        ingest(tmp_path, bundles([folder]))
    assert answers.status(tmp_path)["sessions"] == 0


def test_two_ingests_at_once_lose_and_double_nothing(folder: Path, compacted: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "aaco", "fleet", "ingest", str(folder), "--lake", str(tmp_path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    added = [int(process.communicate()[0].split()[0]) for process in processes]
    assert sum(added) == 60
    assert session_ids(tmp_path) == session_ids(compacted)


# Opens a hundred new lakes, each when the other process is about to open it too.
OPENS_TOGETHER = """
import sys, time
from pathlib import Path
from aaco.fleet.catalog import Catalog

folder, mine, other = Path(sys.argv[1]), *sys.argv[2:]
for number in range(100):
    (folder / f"{number}.{mine}").touch()
    while not (folder / f"{number}.{other}").exists():
        time.sleep(0)
    with Catalog.open(folder / f"lake{number}", create=True):
        pass
"""


def test_two_that_make_one_catalog_at_once_both_open_it(tmp_path: Path) -> None:
    """SQLite refuses two that turn a new file to a write-ahead log at once: every eighth time without our lock."""
    processes = [subprocess.Popen([sys.executable, "-c", OPENS_TOGETHER, tmp_path, *sides], stderr=subprocess.PIPE)
                 for sides in ("ab", "ba")]
    try:
        assert processes[0].communicate(timeout=60)[1] == b""
        assert processes[1].communicate(timeout=60)[1] == b""
    finally:
        for process in processes:
            process.kill()


def test_the_tables_of_a_catalog_are_made_under_the_lock_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the lock alone, as two that come at once meet only now and then."""
    make = fleet_catalog._make

    def refused_to_others(connection: sqlite3.Connection) -> None:
        assert is_locked(tmp_path)
        make(connection)

    monkeypatch.setattr(fleet_catalog, "_make", refused_to_others)
    with Catalog.open(tmp_path, create=True) as opened:
        assert opened.number() == 0


def test_compaction_keeps_every_answer_in_few_files(folder: Path, compacted: Path, tmp_path: Path) -> None:
    ingest(tmp_path, bundles([folder]))
    before = scan.ask(tmp_path, lambda opened: opened.run("residuals"), FleetFilter())
    done = compaction.compact(tmp_path)
    assert (done.sessions, done.files) == (60, 8)  # four months, two models, one device
    assert not list((tmp_path / "landing").iterdir())
    assert scan.ask(tmp_path, lambda opened: opened.run("residuals"), FleetFilter()).equals(before)
    assert data_of(tmp_path) == data_of(compacted)
    assert compaction.compact(tmp_path) == compaction.Compacted(0, 0, 0, 0, 8)


def test_what_comes_later_is_compacted_into_the_same_files(folder: Path, compacted: Path, tmp_path: Path) -> None:
    paths = bundles([folder])
    for part in (paths[::2], paths[1::2]):
        ingest(tmp_path, part)
        compaction.compact(tmp_path)
    assert durability.data(tmp_path) == durability.data(compacted)


def test_a_compaction_that_would_lose_a_session_changes_nothing(folder: Path, tmp_path: Path,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: a compaction drops a file."""
    ingest(tmp_path, bundles([folder])[:10])
    before = data_of(tmp_path)
    monkeypatch.setattr(compaction, "_landed", lambda lake, state: {})
    with pytest.raises(BadBundle, match="0 sessions of 10"):
        compaction.compact(tmp_path)
    assert data_of(tmp_path) == before
    assert len(session_ids(tmp_path)) == 10


def test_a_landing_file_that_was_changed_is_not_compacted(folder: Path, tmp_path: Path) -> None:
    ingest(tmp_path, bundles([folder])[:2])
    first, second = (tmp_path / "landing").iterdir()
    first.write_bytes(second.read_bytes())
    with pytest.raises(BadBundle, match="changed since it was written"):
        compaction.compact(tmp_path)


def test_a_compacted_file_that_is_missing_or_shorter_is_named(compacted: Path, tmp_path: Path) -> None:
    lake = shutil.copytree(compacted, tmp_path / "lake")
    path = next((lake / compaction.MONTHS).iterdir())
    path.write_bytes(facts.content(pq.read_table(path).slice(1)))
    with pytest.raises(BadBundle, match="59 sessions in files that were written with 60"):
        answers.regressions(lake)
    path.unlink()
    with pytest.raises(BadBundle, match="missing"):
        answers.regressions(lake)


@pytest.mark.parametrize("column", ["session_id", "samples"])
def test_a_file_with_a_column_of_another_type_is_named(compacted: Path, tmp_path: Path, column: str) -> None:
    lake = shutil.copytree(compacted, tmp_path / "lake")
    path = lake / manifest_of(lake).months[-1].path  # DuckDB takes the columns of the first file for those of all
    table = pq.read_table(path)
    other = pa.array([[1.5]] * len(table))
    pq.write_table(table.set_column(table.schema.get_field_index(column), column, other), path)
    with pytest.raises(BadBundle, match=str(lake)):
        answers.regressions(lake)


def test_facts_of_a_later_version_are_refused_by_name(compacted: Path, tmp_path: Path) -> None:
    lake = shutil.copytree(compacted, tmp_path / "lake")
    path = next((lake / compaction.MONTHS).iterdir())
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, b"aaco.version": b"99"}), path)
    with pytest.raises(BadBundle, match="facts of version 99; this version of aaco reads up to 3"):
        answers.regressions(lake)


FILE = {"path": "data/x", "sha256": "0", "rows": 3, "month": "2026-01", "model": None, "device": "MI300X"}


@pytest.mark.parametrize(("document", "why"), [
    ({"schema_version": 2}, "manifest of a fleet format 2, this version of aaco reads up to 1"),
    ([], "not a manifest of a fleet: Expected `object`, got `array`"),
    ({"files": {}}, "Expected `array`, got `object` - at `\\$.files`"),
    ({"files": ["data/x"]}, "Expected `object`, got `str` - at `\\$.files\\[0\\]`"),
    ({"files": [FILE | {"rows": "3"}]}, "Expected `int`, got `str` - at `\\$.files\\[0\\].rows`"),
    ({"files": [{"path": "data/x"}]}, "not a manifest of a fleet: .*missing required field `sha256`"),
    ({"sums": 7}, "at `\\$.sums`"), ({"schema_version": "x"}, "at `\\$.schema_version`")])
def test_what_is_no_manifest_is_refused(document: object, why: str, tmp_path: Path) -> None:
    """Mutations: a newer one is read; the types of fields are taken by their word."""
    content = json.dumps(document).encode()
    lake, sha256 = FolderStore(tmp_path), hashlib.sha256(content).hexdigest()
    lake.write(f"manifests/{sha256}.json", content)
    with pytest.raises(BadBundle, match=why):
        compaction.read_manifest(lake, sha256)


def test_a_manifest_keeps_what_it_lists_and_passes_over_what_a_later_version_added(tmp_path: Path) -> None:
    content = json.dumps({"files": [FILE | {"colour": "red"}], "colours": []}).encode()
    lake, sha256 = FolderStore(tmp_path), hashlib.sha256(content).hexdigest()
    lake.write(f"manifests/{sha256}.json", content)
    [file] = compaction.read_manifest(lake, sha256).files
    assert (file, file.summed) == (compaction.DataFile("data/x", "0", 3, "2026-01", None, "MI300X"), False)


def test_a_manifest_that_was_changed_is_named(compacted: Path, tmp_path: Path) -> None:
    lake = shutil.copytree(compacted, tmp_path / "lake")
    [path] = (lake / "manifests").iterdir()
    path.write_text(path.read_text().replace('"files"', '"files" '))
    with pytest.raises(BadBundle, match="changed since it was written"):
        answers.status(lake)


def test_a_catalog_of_a_later_format_and_another_database_are_named(compacted: Path, tmp_path: Path) -> None:
    lake = shutil.copytree(compacted, tmp_path / "lake")
    with Catalog.open(lake) as catalog:
        catalog._connection.execute("PRAGMA user_version = 99")
    with pytest.raises(BadBundle, match="catalog format 99"):
        answers.status(lake)
    (lake / "catalog.db").write_bytes(b"no database of SQLite at all" * 100)
    with pytest.raises(BadBundle, match="not a database"):
        answers.status(lake)


def test_retired_sessions_are_left_out_at_once_and_dropped_later(folder: Path, tmp_path: Path) -> None:
    ingest(tmp_path, bundles([folder])[:10])
    compaction.compact(tmp_path)
    [gone, *rest] = session_ids(tmp_path)
    with Catalog.open(tmp_path) as catalog:
        assert catalog.retire([gone], "ann", "wrong model") == 1
        assert catalog.retire([gone], "ann", "again") == 0
        with pytest.raises(UsageError, match="no session nothing"):
            catalog.retire(["nothing"], "ann", "x")
    assert session_ids(tmp_path) == rest
    assert compaction.compact(tmp_path).dropped == 1
    assert session_ids(tmp_path) == rest
    assert not any(gone.encode() in content for content in data_of(tmp_path).values())
    assert ingest(tmp_path, bundles([folder])[:10]).added == []
    assert session_ids(tmp_path) == rest


def test_the_golden_lake_of_version_1_is_read() -> None:
    """tests/captures/fleet_1: a lake as the first version wrote it; its data files must stay readable."""
    found = answers.regressions(Path(__file__).parents[1] / "captures/fleet_1")
    assert found["sessions"] == 12
    assert [row["model"] for row in found["not_judged"]] == ["bert", "resnet50"]


def test_planted_regressions_and_stragglers_are_listed_and_nothing_else(compacted: Path) -> None:
    planted = sessions(PLAN)[1]
    document = answers.regressions(compacted)
    assert {row["session_id"] for row in document["worse"]} == planted.regressions
    assert document["judged"] == 60
    stragglers = answers.top(compacted)["stragglers"]
    assert {(row["session_id"], row["process"]) for row in stragglers} == planted.stragglers


@pytest.mark.parametrize("metric", ["kernel_time_ms", "nonsense"])
def test_a_metric_without_a_base_is_refused_by_name(compacted: Path, metric: str) -> None:
    """Mutation: an empty answer, as of a fleet in which nothing is off."""
    for verb in (answers.regressions, answers.trend, answers.heatmap):
        with pytest.raises(UsageError, match=metric) as refused:
            verb(compacted, metric)
        assert refused.value.fix == "one of latency_ms, latency_p90_ms, throughput_per_s"


def test_an_empty_lake_knows_its_metrics(tmp_path: Path) -> None:
    with Catalog.open(tmp_path, create=True):
        pass
    assert answers.regressions(tmp_path, "kernel_time_ms")["judged"] == 0
    with pytest.raises(UsageError, match="nonsense"):
        answers.regressions(tmp_path, "nonsense")


def test_an_improvement_is_listed_and_a_higher_throughput_is_better(tmp_path: Path) -> None:
    plan = FleetPlan(24, models=1, devices=1, iterations=20, regressions=1, regression=0.7)
    list(write(tmp_path / "bundles", plan))
    ingest(tmp_path / "lake", bundles([tmp_path / "bundles"]))
    [session_id] = sessions(plan)[1].regressions
    for metric in ("latency_ms", "throughput_per_s"):
        document = answers.regressions(tmp_path / "lake", metric)
        assert [row["session_id"] for row in document["better"]] == [session_id]
        assert document["worse"] == []


def test_a_slow_node_is_named(tmp_path: Path) -> None:
    plan = FleetPlan(80, models=1, devices=1, nodes=5, iterations=20, slow_nodes=1, slow_node=1.08)
    list(write(tmp_path / "bundles", plan))
    ingest(tmp_path / "lake", bundles([tmp_path / "bundles"]))
    document = answers.top(tmp_path / "lake")
    assert {row["node"] for row in document["slow_nodes"]} == sessions(plan)[1].slow_nodes
    assert document["nodes_judged"] == 5


def test_groups_that_are_too_small_are_absent_with_the_reason(folder: Path, tmp_path: Path) -> None:
    ingest(tmp_path, bundles([folder])[:1])
    [group] = answers.regressions(tmp_path)["not_judged"]
    assert group["why_absent"] == "1 comparable session; a base takes 8"
    document = answers.heatmap(tmp_path)
    assert document["cells"] == []
    assert document["absent"][0]["share"] is None
    assert answers.trend(tmp_path)["groups"][0]["trend"] is None


def test_an_empty_lake_has_empty_answers(tmp_path: Path) -> None:
    with Catalog.open(tmp_path, create=True):
        pass
    assert answers.status(tmp_path)["sessions"] == 0
    assert answers.regressions(tmp_path)["judged"] == 0
    assert answers.top(tmp_path)["kernels"] == []
    assert answers.trend(tmp_path)["groups"] == []
    assert answers.heatmap(tmp_path)["cells"] == []


def test_sessions_are_held_against_their_own_fingerprint_only(folder: Path, tmp_path: Path) -> None:
    """Half of the sessions have another configuration and are twice as slow: none of them is off."""
    for row in sessions(FleetPlan(20, models=1, devices=1))[0]:
        plan = FleetPlan(20, models=1, devices=1, iterations=10)
        session = write_session(tmp_path / "s" / row.session_id, row, plan)
        if row.number % 2:
            slower = write_session(tmp_path / "x", replace(row, level_ms=2 * row.level_ms), plan)
            shutil.rmtree(session.folder)
            slower.amend(config_hash="other")
            slower.folder.rename(session.folder)
    ingest(tmp_path / "lake", bundles([tmp_path / "s"]))
    document = answers.heatmap(tmp_path / "lake")
    [cell] = document["cells"]
    assert (cell["fingerprints"], cell["judged"], cell["worse"]) == (2, 20, 0)


def test_a_group_that_gets_slower_is_degrading() -> None:
    rows = pa.table({name: ["x"] * 12 for name in (*answers.GROUP, "unit")} | {
        "direction": ["lower_is_better"] * 12, "level": np.linspace(10, 12, 12)})
    trend = answers._group_trend(rows)
    assert trend["moved_pct"] == pytest.approx(20, abs=0.5)
    assert answers._direction(trend, True) == "degrading"
    assert answers._direction(trend | {"direction": "higher_is_better"}, True) == "improving"
    assert answers._direction(trend, False) == "none"


@pytest.mark.parametrize(("share", "band"), [(0, "excellent"), (0.05, "good"), (0.15, "degraded"), (0.3, "critical")])
def test_bands_of_the_heat_map(share: float, band: str) -> None:
    assert answers._band(share) == band


def test_clocks_that_are_ahead_are_named(tmp_path: Path) -> None:
    session = write_session(tmp_path / "s", sessions(PLAN)[0][0], PLAN)
    session.amend(created_utc="2099-01-01T00:00:00+00:00")
    ingest(tmp_path / "lake", [session.folder])
    assert answers.status(tmp_path / "lake")["clocks_ahead"] == [{"node": sessions(PLAN)[0][0].node, "sessions": 1}]


@pytest.mark.parametrize(("groups", "sessions_each"), [(1, 60), (16, 8), (16, 18)])
def test_clean_fleets_raise_few_alarms(groups: int, sessions_each: int) -> None:
    """Of 200 fleets without any change at most 5 % may have an alarm: 17 of 200 are beyond that with p < 0.02.

    Mutations: without Benjamini and Hochberg; the shared scatter uncapped.
    """
    random, alarms = np.random.default_rng(5), 0
    for _ in range(200):
        levels = random.standard_normal((groups, sessions_each)) * np.exp(random.normal(0, 0.3, (groups, 1)))
        residuals = levels - np.median(levels, axis=1, keepdims=True)
        sigmas = 1.4826 * np.median(np.abs(residuals), axis=1).repeat(sessions_each)
        counts = np.full(levels.size, sessions_each)
        alarms += bool((fleet.q_values(fleet.p_values(residuals.ravel(), sigmas, counts)) <= 0.05).any())
    assert alarms <= 16


def test_residuals_without_scatter_or_peers_are_not_judged() -> None:
    p = fleet.p_values(np.array([1.0, 1.0, 1.0]), np.array([0.0, 1.0, 1.0]), np.array([20, 7, 20]))
    assert np.isnan(p).tolist() == [True, True, False]
    assert np.isnan(fleet.q_values(p)).tolist() == [True, True, False]


def test_nodes_without_peers_are_not_judged() -> None:
    nodes = np.array(["a"] * 6 + ["b"] * 6, object)
    shifts = fleet.node_shifts(nodes, np.tile([1.0, 2.0, 3.0], 4), np.ones(12), np.full(12, 2))
    assert all(np.isnan(shift.p_value) and shift.why_absent for shift in shifts)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["fleet", *arguments])


def test_every_verb_has_json_and_its_exit_code(folder: Path, tmp_path: Path) -> None:
    lake = ["--lake", str(tmp_path), "--json"]
    documents = {}
    for verb, code in (("ingest", 0), ("status", 0), ("compact", 0), ("regressions", 3), ("top", 0), ("trend", 0),
                       ("heatmap", 0)):
        result = run(verb, *([str(folder)] if verb == "ingest" else []), *lake)
        assert result.exit_code == code, result.output
        documents[verb] = json.loads(result.stdout)
    assert len(documents["ingest"]["added"]) == documents["status"]["landing"] == 60
    assert documents["compact"]["sessions"] == 60
    assert all(document["schema_version"] == 1 for document in documents.values())
    retired = run("retire", "--before", "2026-02-01", "--author", "ann", "--reason", "old", *lake)
    assert json.loads(retired.stdout)["retired"] == 19
    assert json.loads(run("regressions", "--model", "gpt2", *lake).stdout)["sessions"] == 0


def test_a_verb_that_ends_at_once_keeps_its_output_its_code_and_what_runs_at_the_end(compacted: Path) -> None:
    """Mutations: what is registered for the end does not run, or its output is lost; the code is always 0."""
    program = ("import atexit, sys; atexit.register(print, 'registered', end=''); from aaco.cli import main; "
               "sys.argv[0] = 'aaco'; main()")
    done = subprocess.run([sys.executable, "-c", program, "fleet", "regressions", "--lake", str(compacted), "--json"],
                          capture_output=True, text=True, env=os.environ | {"PYTHONUNBUFFERED": ""})
    assert (done.returncode, done.stderr) == (3, "")
    assert json.loads(done.stdout.removesuffix("registered"))["judged"] == 60
    assert done.stdout.endswith("registered")


def test_answers_for_people(compacted: Path) -> None:
    for verb, text, code in (("regressions", "2 worse, 0 better of 60 judged sessions", 3), ("top", "straggler ", 0),
                             ("status", "60 sessions of 2 models on 1 device and 4 nodes", 0),
                             ("trend", "resnet50 on MI300X", 0), ("heatmap", "of 30 worse", 0)):
        result = run(verb, "--lake", str(compacted))
        assert text in result.stdout
        assert result.exit_code == code


def test_a_filter_reads_only_files_that_may_hold_it(compacted: Path) -> None:
    seen = scan.ask(compacted, lambda opened: opened.run("residuals"), FleetFilter(model="bert"))
    assert set(seen["model"].to_pylist()) == {"bert"}
    assert scan.ask(compacted, lambda opened: opened.run("residuals"), FleetFilter(device="O'Neil")).num_rows == 0


def test_a_reader_whose_files_are_compacted_meanwhile_looks_again(folder: Path, tmp_path: Path) -> None:
    ingest(tmp_path, bundles([folder])[:10])
    with Catalog.open(tmp_path) as catalog:
        pending = catalog.state().pending

    def question(opened: scan.Scan) -> int:
        if (tmp_path / landing_file(pending[0][1])).exists():
            compaction.compact(tmp_path)
            raise OSError("a file is gone")
        return int(opened.run("residuals").num_rows)

    assert scan.ask(tmp_path, question, FleetFilter()) > 0


def test_the_same_rows_give_the_same_bytes(folder: Path) -> None:
    table = facts.parse(reading.read(bundles([folder])[0]).content, "facts")
    assert facts.content(table) == facts.content(pq.read_table(io.BytesIO(facts.content(table))))
