"""What a lake says of sessions on several devices: scaling efficiency and skew, of facts that version 2 added."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from aaco import pipeline
from aaco.analytics.bottleneck.own_times import ALONE, RankTimes
from aaco.analytics.bottleneck.ranks import Windows
from aaco.cli import app
from aaco.core import config, tables
from aaco.core.documents import decode
from aaco.core.errors import BadBundle
from aaco.core.session import Session
from aaco.fleet import answers, compaction, facts, reading, scan
from aaco.fleet.catalog import Catalog, landing_file
from aaco.fleet.ingest import bundles, ingest
from aaco.fleet.overview import card, overview
from aaco.fleet.scan import FleetFilter
from aaco.fleet.store import FolderStore
from aaco.report.renderers import fleet_page
from aaco.report.sections import fleet as tables_of
from aaco.tracelake import layout, manifest, store
from benchmarks.fleet._bundles import FleetPlan, SessionPlan, sessions, write_session

CAPTURES = Path(__file__).parents[1] / "captures"
PLAN = FleetPlan(6, models=1, devices=1, iterations=10, ranks=4, slow_devices=1, seed=3)
WINDOWS = layout.finding("windows")


def write(folder: Path, plan: FleetPlan = PLAN) -> Path:
    for row in sessions(plan)[0]:
        write_session(folder / row.session_id, row, plan)
    return folder


def run_of_command(folder: Path, row: SessionPlan, used: int, factor: float) -> Session:
    """A session of a command whose processes were seen on so many devices."""
    session = write_session(folder / row.session_id, replace(row, level_ms=factor * row.level_ms), PLAN)
    session.amend(plan={"model": row.model, "backend": "host", "batch": 1, "command": {"argv": ["train"]}},
                  backend_ran="host")
    device = list(range(8))
    store.write(session, tables.SAMPLES, tables.SAMPLES.build(
        t_ns=device, name=["own_sm_pct"] * 8, device_id=device, value=[50.0 * (n < used) for n in device]))
    manifest.write(session, {})
    return session


def changed(folder: Path, change: object) -> Session:
    """The first session with another windows.json."""
    session = write_session(folder / "s", sessions(PLAN)[0][0], PLAN)
    document = json.loads((session.folder / WINDOWS).read_text())
    change(document)  # type: ignore[operator]
    session.write_json(WINDOWS, document)
    manifest.write(session, {})
    return session


def row_of(session: Session) -> dict[str, object]:
    [row] = facts.parse(reading.read(session.folder).content, "facts").to_pylist()
    return dict(row)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["fleet", *arguments])


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of a command on 2 devices, 4 times at 10 ms, and on 8, twice at 4 ms, of a model on 1 device, and of a
    command without telemetry. Not to be changed."""
    folder = tmp_path_factory.mktemp("scaled")
    plan = FleetPlan(8, models=1, devices=1)
    rows = [replace(row, level_ms=1.0, processes=(1.0,) * 5) for row in sessions(plan)[0]]
    for number, row in enumerate(rows[:6]):
        run_of_command(folder / "s", row, *((2, 10.0) if number < 4 else (8, 4.0)))
    write_session(folder / "s" / rows[6].session_id, rows[6], PLAN)
    blind = run_of_command(folder / "s", replace(rows[7], model="other"), 1, 1.0)
    (blind.folder / tables.SAMPLES.file).unlink()
    manifest.write(blind, {})
    assert not ingest(folder / "lake", bundles([folder / "s"])).refused
    return folder / "lake"


def test_efficiency_is_throughput_per_device_over_that_on_the_fewest(scaled: Path) -> None:
    """2.5 times the throughput on 4 times the devices. Mutation: against the throughput of all."""
    two, eight = answers.scaling(scaled)["groups"]
    assert (two["devices_used"], two["sessions"], two["efficiency"]) == (2, 4, None)
    assert (eight["devices_used"], eight["sessions"], eight["base_devices"], eight["base_sessions"]) == (8, 2, 2, 4)
    assert eight["efficiency"] == pytest.approx(2.5 / 4, rel=0.02)
    assert eight["throughput"] == pytest.approx(250, rel=0.02)


def test_efficiency_is_absent_with_the_reason(scaled: Path) -> None:
    reasons = {row["devices_used"]: row["why_absent"] for row in answers.scaling(scaled)["absent"]}
    assert reasons == {1: "recorded on 1 device only",
                       None: "no telemetry of the devices that the command used (aaco run --telemetry)"}


def test_sessions_on_other_numbers_of_devices_are_no_base_for_each_other(scaled: Path) -> None:
    """Mutation: one base for all numbers of devices."""
    groups = {row["several_devices"]: row["why_absent"] for row in answers.regressions(scaled)["not_judged"]
              if row["backend"] == "host" and row["model"] != "other"}
    assert groups == {
        number: f"{sessions} comparable sessions; a base takes 8" for number, sessions in {2: 4, 8: 2}.items()}


def test_all_screens_say_the_same_efficiency(scaled: Path) -> None:
    document = overview(scaled)
    assert document["scaling"] == answers.scaling(scaled) == json.loads(run(
        "scaling", "--lake", str(scaled), "--json").stdout)
    text = run("scaling", "--lake", str(scaled)).stdout
    efficiency = document["scaling"]["groups"][1]["efficiency"]
    assert f"on 8 devices (2 sessions), efficiency {100 * efficiency:.1f} % of 2 devices" in text
    assert "no efficiency of 1 session: recorded on 1 device only" in text
    part = {part.id: part for part in tables_of.tables(document)}["scaling"]
    assert [row[3].text for row in part.rows] == ["the base", f"{100 * efficiency:.1f} %"]
    assert "No efficiency: 1 session; recorded on 1 device only." in part.lead
    assert "the base" in fleet_page.render(document, "Fleet")


def test_the_slowest_device_is_held_against_the_median_and_the_straggler_is_named(tmp_path: Path) -> None:
    """Independent: the times that were planted. Mutation: waits for the slow device count as a device's own time."""
    document = card([write(tmp_path)])
    [(session_id, device)] = sessions(PLAN)[1].slow_devices
    first = document["top"]["device_skews"][0]
    assert (first["session_id"], first["slowest"]["device_id"], first["devices"]) == (session_id, device, 4)
    assert first["straggler"] == first["slowest"]
    own = sorted(next(row.ranks for row in sessions(PLAN)[0] if row.session_id == session_id))
    assert first["skew_pct"] == pytest.approx(100 * (own[3] / ((own[1] + own[2]) / 2) - 1), abs=0.01)
    assert [row["straggler"] for row in document["top"]["device_skews"][1:]] == [None] * 5
    listed = {row["session_id"]: row for row in document["listed"]}[session_id]
    assert (listed["device_skew_pct"], listed["straggler_device"]) == (first["skew_pct"], first["straggler"])
    assert document["top"]["no_device_times"] == []


def test_device_skew_on_the_card_and_its_page(tmp_path: Path) -> None:
    folder = write(tmp_path / "s")
    [(session_id, device)] = sessions(PLAN)[1].slow_devices
    text = run("card", str(folder)).stdout
    skew = card([folder])["top"]["device_skews"][0]["skew_pct"]
    assert f"skewed {session_id}: device {device} is {skew:+.1f} % off the median of 4 devices" in text
    assert f"the others wait for device {device} (" in text and "no rank is late throughout" in text
    assert f"slowest device (device {device}) {skew:+.1f} %" in text
    part = {part.id: part for part in tables_of.tables(card([folder]))}["devices"]
    assert [cell.text for cell in part.rows[0]][:3] == [session_id, f"device {device}", f"{skew:+.1f} %"]
    assert part.rows[0][3].text.startswith(f"device {device}, ")
    assert part.rows[1][3].text == "n/a: no rank is late throughout"


@pytest.mark.parametrize(("change", "why"), [
    (lambda document: document.update(ranks=document["ranks"][:1], budgets_ns=document["budgets_ns"][:1], slowest=0,
                                      stragglers=None), "one device was recorded"),
    (lambda document: (document["captures"].append(document["captures"][0] | {"capture": 1}),
                       document["ranks"][1].update(capture=1), document.update(stragglers=None)),
     "captures without rank numbers: nothing says that they are of one job")])
def test_times_of_devices_are_absent_with_the_reason(tmp_path: Path, change: object, why: str) -> None:
    """Mutation: captures of anything are compared."""
    row = row_of(changed(tmp_path, change))
    assert (row["device_times"], row["why_no_device_times"], row["devices_used"]) == ([], why, 1)


def test_a_session_without_collectives_names_no_straggler(tmp_path: Path) -> None:
    row = row_of(changed(tmp_path, lambda document: document.update(stragglers=None)))
    assert (row["straggler"], row["straggler_pct"], row["why_no_straggler"]) == (None, None, ALONE)


@pytest.mark.parametrize("change", [
    lambda document: document["ranks"][0].update(capture=7),
    lambda document: document["stragglers"].update(late=9),
    lambda document: document["budgets_ns"].pop(),
    lambda document: document.update(schema_version=99)])
def test_damaged_windows_are_refused_by_name(tmp_path: Path, change: object) -> None:
    with pytest.raises(BadBundle, match=r"windows\.json"):
        reading.read(changed(tmp_path, change).folder)


def test_the_recorded_ranks_have_the_straggler_that_was_planted(tmp_path: Path) -> None:
    """Independent: the waits in all-reduce that device events measured beside the trace (tests/captures)."""
    recorded = CAPTURES / "torch_ranks_h100"
    settings = config.resolve(None, None, {"storage": {"sessions_dir": tmp_path}})
    session = pipeline.import_captures(sorted(recorded.glob("late_rank*.json.gz")), settings).session
    pipeline.explain(session, settings)
    row = row_of(session)
    own_ms = [device["own_ns"] / 1e6 for device in row["device_times"]]  # type: ignore[attr-defined]
    waits_ms = [np.median(json.loads((recorded / f"truth_rank{rank}.json").read_text())["all_reduce_ms"]["late"][1:])
                for rank in (0, 1)]
    assert (row["straggler"], row["devices_used"]) == (1, 2)
    assert own_ms[1] - own_ms[0] == pytest.approx(waits_ms[0] - waits_ms[1], rel=0.03)
    document = card([session.folder])
    assert document["listed"][0]["straggler_device"]["rank"] == 1


def test_the_own_times_are_those_that_choose_the_slowest_rank(tmp_path: Path) -> None:
    session = write_session(tmp_path / "s", sessions(PLAN)[0][0], PLAN)
    document = json.loads((session.folder / WINDOWS).read_text())
    own = RankTimes.of(document, "windows").own_ns
    assert own.index(max(own)) == decode(document, Windows).slowest
    assert own == pytest.approx([1e6 * sessions(PLAN)[0][0].level_ms * rank for rank in sessions(PLAN)[0][0].ranks])


def test_rows_of_version_1_have_neither_and_say_why() -> None:
    """tests/captures/fleet_1: version 1 as it was written. Mutation: the reason is lost."""
    lake = CAPTURES / "fleet_1"
    assert {row["why_absent"] for row in answers.scaling(lake)["absent"]} == {facts.BEFORE}
    assert answers.top(lake)["no_device_times"] == [{"why_absent": facts.BEFORE, "sessions": 12}]
    assert f"No efficiency: 12 sessions; {facts.BEFORE}." in fleet_page.render(overview(lake), "Fleet")


def test_the_golden_lake_of_version_2_is_read() -> None:
    """tests/captures/fleet_2: a lake as version 2 wrote it; its data files must stay readable."""
    lake = CAPTURES / "fleet_2"
    assert answers.status(lake)["sessions"] == 8
    first = answers.top(lake)["device_skews"][0]
    assert (first["session_id"], first["straggler"]["device_id"]) == ("20260213_180000_000007", 1)
    assert first["skew_pct"] == pytest.approx(28.53, abs=0.01)
    assert [row["devices_used"] for row in answers.scaling(lake)["absent"]] == [3, 3]
    assert [cell["calibrated"] for cell in answers.heatmap(lake)["absent"]] == [4, 4]


@pytest.mark.parametrize("version", range(1, facts.FACTS.version + 1))
def test_every_version_has_a_golden_lake(version: int) -> None:
    paths = list((CAPTURES / f"fleet_{version}").rglob("*.parquet"))
    assert {pq.read_schema(path).metadata[b"aaco.version"] for path in paths} == {str(version).encode()}
    assert {path.relative_to(CAPTURES / f"fleet_{version}").parts[0] for path in paths} == {"landing", "data"}


def test_version_1_is_read_by_arrow_as_by_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket's objects are read by Arrow."""
    lake = CAPTURES / "fleet_1"
    expected = overview(lake)
    monkeypatch.setattr(FolderStore, "direct", lambda store, paths: [])
    assert overview(lake) == expected


def test_compaction_takes_rows_of_both_versions_together(tmp_path: Path) -> None:
    lake = shutil.copytree(CAPTURES / "fleet_1", tmp_path / "lake")
    done = ingest(lake, bundles([write(tmp_path / "s", replace(PLAN, sessions=4, seed=9))]))
    assert (len(done.added), len(done.refused)) == (3, 1)  # an id is there with other facts
    before = overview(lake)
    assert compaction.compact(lake).sessions == 2 + 3
    after = overview(lake)
    assert [after[name] for name in ("top", "scaling", "regressions")] == [
        before[name] for name in ("top", "scaling", "regressions")]
    stamps = {pq.read_schema(path).metadata[b"aaco.version"] for path in (lake / "data").rglob("*.parquet")}
    assert stamps == {b"1", str(facts.FACTS.version).encode()}


def test_a_session_of_version_1_that_comes_again_is_the_same(tmp_path: Path) -> None:
    """As a folder in place of the bundle: its bytes are others, its facts are not. Mutation: it is refused."""
    lake = shutil.copytree(CAPTURES / "fleet_1", tmp_path / "lake")
    with Catalog.open(lake) as catalog:
        held = next(row for row in catalog.sessions() if row["place"] == "landing")
    now = facts.content(facts.parse((lake / landing_file(held["facts"])).read_bytes(), "facts"))
    again = facts.BundleFacts(held["session_id"], held["month"], held["model"], held["device"], held["node"],
                              held["time_ns"], now)
    assert again.sha256 != held["facts"]
    with Catalog.open(lake) as catalog, catalog.transaction():
        assert catalog.add("0" * 64, again) is False


def test_every_column_of_a_version_is_added_by_one() -> None:
    added = [name for names in facts.ADDED.values() for name in names]
    assert sorted(facts.ADDED) == list(range(2, facts.FACTS.version + 1))
    assert len(added) == len(set(added)) and set(added) < set(facts.FACTS.columns)
    held = pq.read_schema(next((CAPTURES / "fleet_1/landing").iterdir())).names
    assert held == [name for name in facts.FACTS.columns if name not in added]


def test_the_map_of_devices_has_a_row_for_every_session(scaled: Path) -> None:
    table = scan.ask(scaled, lambda opened: opened.run("device_skews"), FleetFilter())
    assert table.num_rows == 8
    assert set(table["why_absent"].to_pylist()) == {"no work of a device was recorded"}
