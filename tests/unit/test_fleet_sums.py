"""The sums of kernels that a compaction keeps: the same answers, from a part of the bytes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from aaco.core.errors import BadBundle
from aaco.fleet import compaction, facts, scan, sums
from aaco.fleet.catalog import Catalog
from aaco.fleet.ingest import bundles, ingest
from aaco.fleet.scan import FleetFilter
from aaco.fleet.store import FolderStore
from benchmarks.fleet._bundles import FleetPlan, sessions
from tests.fleets import bundles_of, manifest_of

PLAN = FleetPlan(24, models=2, devices=2, nodes=4, days=60, iterations=10, seed=5)
folder = bundles_of(PLAN)


@pytest.fixture(scope="module")
def lake(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of 20 compacted sessions and 4 in landing; not to be changed."""
    path = tmp_path_factory.mktemp("lake")
    ingest(path, bundles([folder])[:20])
    compaction.compact(path)
    ingest(path, bundles([folder]))
    return path


def kernels(lake: Path, choice: FleetFilter | None = None) -> list[dict[str, Any]]:
    table = scan.ask(lake, lambda opened: opened.run("kernels"), choice or FleetFilter())
    return [dict(row) for row in table.to_pylist()]


def without_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    shard_of = scan.shard_of
    monkeypatch.setattr(scan, "shard_of", lambda *asked: replace(shard_of(*asked), sums=None, summed=frozenset()))


@pytest.mark.parametrize("choice", [FleetFilter(), FleetFilter(model="bert"), FleetFilter(device="MI250X")])
def test_sums_of_files_and_what_is_in_landing_are_the_whole(lake: Path, choice: FleetFilter,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutations: the sums of all files for a filter of some; sessions in landing are left out."""
    assert all(file.summed for file in manifest_of(lake).files)
    found = kernels(lake, choice)
    asked = [row for row in sessions(PLAN)[0]
             if choice.model in (None, row.model) and choice.device in (None, row.device)]
    assert sum(row["sessions"] for row in found if row["kernel_name"] == "kernel_0") == len(asked)
    without_sums(monkeypatch)
    assert kernels(lake, choice) == found


def test_sums_are_read_in_place_of_sessions(lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else they would be of no use, and the test above would compare a question with itself."""
    copy = shutil.copytree(lake, tmp_path / "lake")
    monkeypatch.setattr(scan, "read_sums", lambda lake, sha256: sums.KERNEL_SUMS.build())
    assert sum(row["sessions"] for row in kernels(copy) if row["kernel_name"] == "kernel_0") == 4


def test_a_retired_session_is_in_no_sum(folder: Path, lake: Path, tmp_path: Path) -> None:
    """Mutation: the sums are read although a session of their file is retired."""
    copy = shutil.copytree(lake, tmp_path / "lake")
    with Catalog.open(copy, write=True) as catalog:
        catalog.retire([sessions(PLAN)[0][0].session_id], "ann", "x")
    before = kernels(copy)
    assert sum(row["sessions"] for row in before if row["kernel_name"] == "kernel_0") == 23
    compaction.compact(copy)
    assert manifest_of(copy).sums is not None
    assert kernels(copy) == before


def test_changed_sums_are_refused(lake: Path, tmp_path: Path) -> None:
    """Mutation: their digest is not checked."""
    copy = shutil.copytree(lake, tmp_path / "lake")
    [path] = (copy / sums.SUMS).iterdir()
    table = sums.parse(path.read_bytes(), "sums")
    path.write_bytes(sums.content([table.slice(1)])[0])
    with pytest.raises(BadBundle, match="changed since it was written"):
        kernels(copy)
    path.unlink()
    with pytest.raises(BadBundle, match="missing"):
        kernels(copy)


def test_a_lake_without_sums_gets_them_when_it_is_compacted(lake: Path, tmp_path: Path) -> None:
    """As one that an earlier version of aaco compacted."""
    copy, store = shutil.copytree(lake, tmp_path / "lake"), FolderStore(tmp_path / "lake")
    old = manifest_of(copy)
    bare = compaction.LakeManifest(files=[replace(file, summed=False) for file in old.files])
    with Catalog.open(copy, write=True) as catalog:
        catalog.commit(catalog.state(), compaction._write_manifest(store, bare))
    shutil.rmtree(copy / sums.SUMS)
    before = kernels(copy)
    compaction.compact(copy)
    assert all(file.summed for file in manifest_of(copy).files)
    assert kernels(copy) == before
    assert len(list((copy / sums.SUMS).iterdir())) == 1


def test_a_sum_that_no_column_holds_is_none_of_the_sums() -> None:
    kernel = {"family": "gemm", "kernel_name": "k", "calls": 2**62, "total_ns": 1}
    table = facts.FACTS.build(session_id=["a", "b"], time_ns=[1, 2], month=["2026-01"] * 2, fingerprint=["f"] * 2,
                              kernels=[[kernel], [kernel]])
    assert dict(sums.of_tables([("large", table), ("small", table.slice(1))])).keys() == {"small"}


def test_sums_of_a_later_version_are_refused_by_name() -> None:
    table = sums.KERNEL_SUMS.build(file=["f"], sessions=[1])
    later = table.replace_schema_metadata({**table.schema.metadata, b"aaco.version": b"99"})
    target = pa.BufferOutputStream()
    with pa.ipc.new_file(target, later.schema) as file:
        file.write_table(later)
    with pytest.raises(BadBundle, match="version 99"):
        sums.parse(target.getvalue().to_pybytes(), "sums")
    with pytest.raises(BadBundle, match="unreadable sums"):
        sums.parse(b"no file of Arrow", "sums")
