"""The file of each month that a compaction keeps beside the many of data/: the same answers, from fewer files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from aaco.fleet import answers, compaction, scan
from aaco.fleet.catalog import Catalog
from aaco.fleet.ingest import bundles, ingest
from aaco.fleet.overview import overview
from aaco.fleet.scan import FleetFilter
from aaco.fleet.store import FolderStore
from benchmarks.fleet._bundles import FleetPlan, sessions
from tests.fleets import bundles_of, manifest_of

PLAN = FleetPlan(40, models=2, devices=2, nodes=4, days=60, iterations=10, seed=7)
FILTERS = [FleetFilter(), FleetFilter(model="bert"), FleetFilter(device="MI250X")]
folder = bundles_of(PLAN)


@pytest.fixture(scope="module")
def lake(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of 36 compacted sessions and 4 in landing; not to be changed."""
    path = tmp_path_factory.mktemp("lake")
    ingest(path, bundles([folder])[:36])
    compaction.compact(path)
    ingest(path, bundles([folder]))
    return path


def rows(lake: Path, folder: str) -> list[dict[str, Any]]:
    """Return the facts in the files of a folder of a lake."""
    return [row for path in (lake / folder).rglob("*.parquet") for row in pq.ParquetFile(path).read().to_pylist()]


def month_files(lake: Path) -> set[str]:
    return {path.relative_to(lake).as_posix() for path in (lake / compaction.MONTHS).iterdir()}


@pytest.mark.parametrize("choice", FILTERS)
def test_the_files_of_months_give_the_answers_of_all_files(lake: Path, choice: FleetFilter,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutations: a month is read for a filter of none of its sessions; the condition of the filter is left out."""
    document = overview(lake, choice)
    shard_of = scan.shard_of

    def without_months(state: Any, listed: compaction.LakeManifest, *asked: Any) -> scan.Shard:
        return shard_of(state, replace(listed, months=[]), *asked)

    monkeypatch.setattr(scan, "shard_of", without_months)
    assert overview(lake, choice) == document


def test_each_month_has_one_file_with_its_sessions_and_no_kernels(lake: Path) -> None:
    listed = manifest_of(lake)
    assert month_files(lake) == {file.path for file in listed.months}
    for file in listed.months:
        month = pq.ParquetFile(lake / file.path).read()
        paths = [lake / other.path for other in listed.files if other.month == file.month]
        assert len(paths) > 1
        assert sorted(month["session_id"].to_pylist()) == sorted(
            name for path in paths for name in pq.ParquetFile(path).read()["session_id"].to_pylist())
        assert "kernels" not in month.column_names


def test_questions_read_the_files_of_months(lake: Path, tmp_path: Path) -> None:
    """Mutation: a question opens all files of data/, which are many and small; one with a filter does."""
    copy = shutil.copytree(lake, tmp_path / "lake")
    shutil.rmtree(copy / compaction.DATA)
    for choice in FILTERS:
        assert answers.regressions(copy, choice=choice) == answers.regressions(lake, choice=choice)
    assert answers.top(copy)["kernels"] == answers.top(lake)["kernels"]  # from their sums


def test_a_compaction_makes_the_files_of_the_months_that_changed(lake: Path, tmp_path: Path) -> None:
    """Mutations: all are made again; that of a month which changed is taken over; the old one is left."""
    copy = shutil.copytree(lake, tmp_path / "lake")
    before = {file.month: file for file in manifest_of(copy).months}
    session = sessions(PLAN)[0][0]
    with Catalog.open(copy, write=True) as catalog:
        catalog.retire([session.session_id], "ann", "x")
    compaction.compact(copy)
    after = {file.month: file for file in manifest_of(copy).months}
    assert month_files(copy) == {file.path for file in after.values()}
    kept = {row["session_id"] for row in rows(copy, compaction.MONTHS)}
    assert kept == {row["session_id"] for row in rows(copy, compaction.DATA)}
    assert session.session_id not in kept and len(kept) == 39
    assert {month for month in before if before[month] != after[month]} == changed_months(lake, session.session_id)


def changed_months(lake: Path, retired: str) -> set[str]:
    """Return the months of a session that was retired, and of those in landing."""
    return {row["month"] for row in rows(lake, "landing")} | {
        row["month"] for row in rows(lake, compaction.DATA) if row["session_id"] == retired}


def test_a_lake_without_files_of_months_gets_them_when_it_is_compacted(lake: Path, tmp_path: Path) -> None:
    """As one that an earlier version of aaco compacted."""
    copy, store = shutil.copytree(lake, tmp_path / "lake"), FolderStore(tmp_path / "lake")
    with Catalog.open(copy, write=True) as catalog:
        bare = replace(manifest_of(copy), months=[])
        catalog.commit(replace(catalog.state(), pending=()), compaction._write_manifest(store, bare))
    shutil.rmtree(copy / compaction.MONTHS)
    before = answers.regressions(copy)
    compaction.compact(copy)
    assert manifest_of(copy).months
    assert answers.regressions(copy) == before


def test_a_month_of_large_files_has_none_of_its_own(folder: Path, tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each compaction would write a month of a large fleet again. Mutation: the limit is left out."""
    monkeypatch.setattr(compaction, "MOST_ROWS", 4)
    ingest(tmp_path, bundles([folder]))
    compaction.compact(tmp_path)
    assert not manifest_of(tmp_path).months
    assert answers.regressions(tmp_path)["sessions"] == 40
