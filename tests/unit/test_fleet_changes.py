"""Where a group's level changed, and what devices do for their measured ceilings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from aaco.cli import app
from aaco.core.errors import UsageError
from aaco.fleet import answers
from aaco.fleet.ingest import bundles, ingest
from aaco.fleet.overview import overview
from aaco.report.sections import fleet as tables_of
from aaco.tracelake import layout, manifest
from aaco.workflows import alert_webhook
from aaco.workflows.alert_webhook import Delivery
from benchmarks.fleet._bundles import FleetPlan, sessions, write_session

PLAN = FleetPlan(24, models=1, devices=2, iterations=10, seed=3)


def residuals(groups: int, count: int, random: np.random.Generator, direction: str = "lower_is_better") -> pa.Table:
    """Levels of groups without a change, as queries/reduce/residuals.sql gives them."""
    names = [f"model {group}" for group in range(groups) for _ in range(count)]
    rows = len(names)
    return pa.table({"model": names, **{name: ["x"] * rows for name in ("device", "backend", "fingerprint", "metric")},
                     "several_devices": pa.nulls(rows, pa.int64()), "unit": ["ms"] * rows,
                     "direction": [direction] * rows, "session_id": [f"s{row}" for row in range(rows)],
                     "time_ns": list(range(rows)), "git_commit": pa.nulls(rows, pa.string()),
                     "level": 5 * random.lognormal(0, 0.015, rows)})


def raised(table: pa.Table, begin: int, end: int, factor: float) -> pa.Table:
    levels = table["level"].to_numpy().copy()
    levels[begin:end] *= factor
    return table.set_column(table.schema.get_field_index("level"), "level", pa.array(levels))


def changes_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [change for group in document["groups"] for change in group["changes"]]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["fleet", *arguments])


@pytest.mark.parametrize(("direction", "factor", "verdict"), [
    ("lower_is_better", 1.08, "worse"), ("lower_is_better", 0.92, "better"), ("higher_is_better", 1.08, "better")])
def test_a_change_of_level_is_placed_in_both_directions(direction: str, factor: float, verdict: str) -> None:
    table = raised(residuals(3, 40, np.random.default_rng(1), direction), 40 + 25, 80, factor)
    [change] = changes_of(answers.trend_of(table, "latency_ms", 0.05))
    assert abs(int(change["session_id"][1:]) - 65) <= 1
    assert change["verdict"] == verdict
    assert change["low_pct"] <= 100 * (factor - 1) <= change["high_pct"]


def test_clean_fleets_have_few_changes_of_level() -> None:
    """Of 60 fleets of 8 groups at most 5 % may have one: 7 of 60 are beyond that with p < 0.03.

    Mutation: without Benjamini and Hochberg, a change in any of the groups counts.
    """
    random = np.random.default_rng(5)
    alarms = sum(bool(changes_of(answers.trend_of(residuals(8, 30, random), "latency_ms", 0.05))) for _ in range(60))
    assert alarms <= 6


def test_a_group_without_a_change_is_a_test_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: only what was found is counted, so that nothing is corrected."""
    table = raised(residuals(10, 40, np.random.default_rng(1)), 25, 40, 1.08)
    seen: list[int] = []
    original = answers.fleet.q_values
    monkeypatch.setattr(answers.fleet, "q_values", lambda p: [seen.append(len(p)), original(p)][1])
    assert len(changes_of(answers.trend_of(table, "latency_ms", 0.05))) == 1
    assert seen == [10, 10]


def test_a_group_of_few_sessions_says_why_it_has_no_changes() -> None:
    [group] = answers.trend_of(residuals(1, 5, np.random.default_rng(1)), "latency_ms", 0.05)["groups"]
    assert group["changes"] == [] and "takes 6 values" in group["why_no_changes"]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of two devices; one changed to a slower level, the other is calibrated. Not to be changed."""
    folder = tmp_path_factory.mktemp("lake")
    for row in sessions(PLAN)[0]:
        changed = row.device == "MI300X" and row.number >= 12
        session = write_session(folder / "s" / row.session_id, replace(
            row, level_ms=row.level_ms * (1.2 if changed else 1)), PLAN)
        env = json.loads((session.folder / layout.ENVIRONMENT).read_text())
        env["git"] = {"commit": ("b" if row.number >= 12 else "a") * 40}
        if row.device == "MI250X":
            env["machine"] |= {"ceilings": {"fp32_flops": 40e12, "dram_bytes_per_s": 2e12}, "card": {"device": "it"}}
        session.write_json(layout.ENVIRONMENT, env)
        manifest.write(session, {})
    assert not ingest(folder / "lake", bundles([folder / "s"])).refused
    return folder / "lake"


def test_all_screens_have_the_change(lake: Path) -> None:
    document = overview(lake)
    [change] = changes_of(document["trend"])
    assert change["session_id"] == sessions(PLAN)[0][12].session_id
    assert change["last_before"] == sessions(PLAN)[0][10].session_id
    assert (change["commit_before"], change["commit"]) == ("a" * 40, "b" * 40)
    text = run("trend", "--lake", str(lake)).stdout
    assert f"  changed at {change['session_id']}: {change['change_pct']:+.1f} %" in text and "worse (q = " in text
    assert "; commit aaaaaaaaaa before it, bbbbbbbbbb from it on\n" in text
    part = {part.id: part for part in tables_of.tables(document)}["changes"]
    assert [cell.text for cell in part.rows[0]][:3] == [change["session_id"], "worse", f"{change['change_pct']:+.1f} %"]
    assert part.lead == "1 change of level in 2 judged groups of comparable sessions, the newest first."


def test_throughput_for_the_measured_ceilings_is_by_its_own_device_and_says_if_absent(lake: Path) -> None:
    """Independent: the planted level. Mutation: ceilings of the processors are taken for those of a device."""
    cells = {cell["device"]: cell for cell in answers.heatmap(lake)["cells"]}
    level_ms = np.median([row.level_ms for row in sessions(PLAN)[0] if row.device == "MI250X"])
    assert cells["MI250X"]["per_tflops"] == pytest.approx(1e3 / level_ms / 40, rel=0.03)
    assert cells["MI250X"]["per_tb_per_s"] == pytest.approx(1e3 / level_ms / 2, rel=0.03)
    assert cells["MI250X"]["calibrated"] == 12
    assert cells["MI300X"]["per_tflops"] is None and "aaco calibrate" in cells["MI300X"]["why_not_normalised"]
    assert "of the measured peak, across fingerprints" in run("heatmap", "--lake", str(lake)).stdout
    part = {part.id: part for part in tables_of.tables(overview(lake))}["heatmap"]
    assert part.rows[0][1].text.endswith(" per TFLOP/s") and "per TFLOP/s" not in part.rows[0][2].text


def test_ceilings_of_the_processors_are_none_of_a_device(tmp_path: Path) -> None:
    from aaco.fleet import facts, reading

    session = write_session(tmp_path / "s", sessions(PLAN)[0][0], PLAN)
    env = json.loads((session.folder / layout.ENVIRONMENT).read_text())
    env["machine"] |= {"ceilings": {"fp32_flops": 1e12}, "card": {"device": None}}
    session.write_json(layout.ENVIRONMENT, env)
    manifest.write(session, {})
    [row] = facts.parse(reading.read(session.folder).content, "facts").to_pylist()
    assert row["fp32_flops"] is None


@pytest.mark.parametrize("factor", [1.4, 0.7])
def test_an_alert_goes_out_in_both_directions_and_names_the_sessions(
        factor: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: none of what is better."""
    plan = FleetPlan(12, models=1, devices=1, iterations=10, regressions=1, regression=factor)
    for row in sessions(plan)[0]:
        write_session(tmp_path / "s" / row.session_id, row, plan)
    ingest(tmp_path / "lake", bundles([tmp_path / "s"]))
    sent: list[tuple[str, Any]] = []
    monkeypatch.setattr(alert_webhook, "send", lambda url, document: [sent.append((url, document)),
                                                                      Delivery("127.0.0.1", 1)][1])
    monkeypatch.setenv("ALERT_URL", "http://127.0.0.1:9/key")
    done = run("regressions", "--lake", str(tmp_path / "lake"), "--webhook-env", "ALERT_URL")
    [(url, document)] = sent
    kind = "worse" if factor > 1 else "better"
    [session_id] = sessions(plan)[1].regressions
    assert url == "http://127.0.0.1:9/key" and "key" not in done.output
    assert f"{kind} {session_id}: " in document["text"]
    assert [row["session_id"] for row in document["fleet"][kind]] == [session_id]
    assert done.exit_code == (3 if factor > 1 else 0)


def test_no_alert_without_a_change_or_an_address(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert_webhook, "send", lambda *_: pytest.fail("an alert of nothing"))
    monkeypatch.setenv("ALERT_URL", "http://127.0.0.1:9/key")
    assert run("regressions", "--lake", str(lake), "--model", "none", "--webhook-env", "ALERT_URL").exit_code == 0
    for value in ("", "ftp://host/key"):
        monkeypatch.setenv("ALERT_URL", value)
        refused = run("regressions", "--lake", str(lake), "--webhook-env", "ALERT_URL")
        assert isinstance(refused.exception, UsageError) and "key" not in str(refused.exception).replace("a key", "")
