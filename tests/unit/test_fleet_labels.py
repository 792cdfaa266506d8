"""Labels of schedulers and the health of devices: in a session, in a lake, and on a card."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from aaco.analytics.quality import device_health
from aaco.cli import app
from aaco.collectors.inventory import environment, scheduler
from aaco.core import labels, tables
from aaco.core.readings import Absent
from aaco.core.session import Session
from aaco.fleet import answers, compaction, facts, overview, reading
from aaco.fleet.ingest import bundles, ingest
from aaco.fleet.scan import FleetFilter
from aaco.report.renderers import fleet_page
from aaco.tracelake import layout, manifest, store
from benchmarks.fleet._bundles import FleetPlan, SessionPlan, sessions, write_session
from tests.unit.test_dashboard_pages import text
from tests.unit.test_fleet_page import client

CAPTURES = Path(__file__).parents[1] / "captures"
PLAN = FleetPlan(6, models=1, devices=1, nodes=2, iterations=10, seed=3)
SLURM = {"SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "train", "SLURM_JOB_PARTITION": "mi300", "SLURMD_NODENAME": "n17",
         "SLURM_PROCID": "3", "SLURM_CLUSTER_NAME": "hpc"}
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "POD_NAME": "bert-7d9f8b6c5d-x2x4k", "MY_POD_NAMESPACE": "team-a",
       "NODE_NAME": "gpu-3"}


def labelled(folder: Path, row: SessionPlan, named: object, samples: Any = None) -> Session:
    """A session with these labels in its environment, and these samples of telemetry: (device, degC, reasons)."""
    session = write_session(folder / row.session_id, row, PLAN)
    env = json.loads((session.folder / layout.ENVIRONMENT).read_text())
    session.write_json(layout.ENVIRONMENT, env | {"labels": named})
    if samples is not None:
        device, heat, held = zip(*samples, strict=True)
        store.write(session, tables.GPU_EVENTS, tables.GPU_EVENTS.build(
            t_ns=range(len(device)), device_id=device, temp_c=heat, throttle_reasons=held))
    manifest.write(session, {})
    return session


def row_of(session: Session) -> dict[str, Any]:
    [row] = facts.parse(reading.read(session.folder).content, "facts").to_pylist()
    return dict(row)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["fleet", *arguments])


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six sessions on two nodes, three of job 1: device 1 is hot in one of them. Not to be changed."""
    folder = tmp_path_factory.mktemp("sessions")
    for number, row in enumerate(sessions(PLAN)[0]):
        heat = 88.0 if number == 2 else 60.0
        watched = [(0, 60.0, ["sw_power_cap"]), (1, heat, [])] if number < 4 else None
        labelled(folder, row, {"job": str(number % 2), "job_name": f"<b>{number}</b>"}, watched)
    return folder


@pytest.fixture(scope="module")
def lake(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lake")
    assert not ingest(path, bundles([sources])).refused
    compaction.compact(path)
    return path


def test_labels_are_those_of_slurm_and_of_a_pod() -> None:
    assert scheduler.of_environment(SLURM) == {"job": "4711", "job_name": "train", "partition": "mi300",
                                               "cluster": "hpc", "node": "n17", "rank": "3"}
    assert scheduler.of_environment(POD) == {"node": "gpu-3", "pod": "bert-7d9f8b6c5d-x2x4k", "namespace": "team-a"}
    assert scheduler.of_environment(SLURM | POD)["node"] == "gpu-3"


@pytest.mark.parametrize("environ", [{}, {"NODE_NAME": "jenkins-agent"}, {"SLURM_JOB_NAME": "x"},
                                     {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}])
def test_variables_of_somebody_else_are_no_labels(environ: dict[str, str]) -> None:
    """Mutation: the sign of the scheduler is not asked for."""
    with pytest.raises(Absent, match="no job of Slurm"):
        scheduler.of_environment(environ)


@pytest.mark.parametrize("value", ["", "x" * 254, "a\nb", "\x1b[31mred", "a\x00", "\u202eevil", 7, None, ["a"]])
def test_what_is_no_line_of_text_is_no_label(value: object) -> None:
    """Mutation: a bundle is trusted to hold labels as aaco writes them."""
    assert labels.kept({"job": value, "partition": "p", "made_up": "x"}) == {"partition": "p"}
    assert labels.kept(value) == {}


def test_a_credential_in_a_name_stays_out() -> None:
    token = "ghp_" + "0123456789abcdefghijKLMNOPQRSTUVWXYZ"
    assert token not in str(scheduler.of_environment(SLURM | {"SLURM_JOB_NAME": f"run-{token}"}))


def test_the_environment_has_labels_that_do_not_make_runs_differ(tmp_path: Path,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: a job's number is a fact that two runs must share."""
    found = []
    for job in ("1", "2"):
        monkeypatch.setenv("SLURM_JOB_ID", job)
        found.append(environment.capture(tmp_path))
    assert [env["labels"]["job"] for env in found] == ["1", "2"]
    assert not any(row.key.startswith("labels") for row in environment.diff(*found))
    assert not any(name.startswith("labels") for name in environment.comparable(found[0]))


def test_facts_have_labels_and_health_or_say_why_not(tmp_path: Path) -> None:
    rows = sessions(PLAN)[0]
    watched = [(0, 96.0, None), (1, None, ["hw_slowdown"])]
    whole = row_of(labelled(tmp_path, rows[0], {"job": "4711", "node": "\x1b"}, watched))
    assert whole["labels"] == [{"name": "job", "value": "4711"}]
    assert whole["health"] == [
        {"device_id": 0, "state": "critical", "evidence": "at most 96 degC"},
        {"device_id": 1, "state": "critical", "evidence": "hw_slowdown held the clock down in 1 of 1 sample"}]
    bare = row_of(labelled(tmp_path, rows[1], None, [(0, None, None)]))
    assert (bare["labels"], bare["why_no_labels"]) == ([], reading.NO_LABELS)
    assert (bare["health"], bare["why_no_health"]) == (
        [], "no temperature, no reason of a clock and no count of errors was recorded")
    older = row_of(write_session(tmp_path / "older", rows[2], PLAN))
    assert "earlier version" in older["why_no_labels"] and older["why_no_health"] == "not explained"


@pytest.mark.parametrize(("heat", "held", "state", "evidence"), [
    ([70.0], [["sw_power_cap"]], "healthy", "at most 70 degC; sw_power_cap held the clock down in 1 of 1 sample"),
    ([70.0, 84.9], [["gpu_idle"], []], "healthy", "at most 85 degC; no clock was held down"),
    ([85.0], [], "degraded", "at most 85 degC"),
    ([70.0], [["temp_hotspot"], []], "degraded", "temp_hotspot held the clock down in 1 of 2 samples"),
    ([86.0], [["prochot_gfx"]], "critical", "prochot_gfx held the clock down in 1 of 1 sample"),
    ([95.0], [["hw_thermal_slowdown"]], "critical",
     "at most 95 degC; hw_thermal_slowdown held the clock down in 1 of 1 sample"),
    ([70.0], [["\x1b[2J hw_evil"]], "healthy", "at most 70 degC; no clock was held down")])
def test_the_state_of_a_device_has_its_evidence(heat: list[float], held: list[list[str]], state: str,
                                                evidence: str) -> None:
    """Mutations: a limit of temperature; the hardware's own reasons count as heat."""
    assert device_health.of_samples(3, heat, held) == device_health.DeviceHealth(3, state, evidence)


@pytest.mark.parametrize(("errors", "state", "evidence"), [
    ({"corrected_errors": [4.0, 4.0], "uncorrected_errors": [1.0, 1.0]}, "healthy",
     "no clock was held down; no new error was counted"),
    ({"corrected_errors": [4.0, 7.0], "uncorrected_errors": [1.0, 1.0]}, "degraded",
     "3 corrected errors during the session"),
    ({"corrected_errors": [4.0, 7.0], "uncorrected_errors": [1.0, 2.0]}, "critical",
     "1 uncorrected error during the session"),
    ({"uncorrected_errors": [9.0]}, "healthy", "no clock was held down"),  # killed: nothing says when these were
    ({"xid": [31.0, 13.0, 31.0]}, "healthy", "no clock was held down; XID 13; XID 31, 2 times"),
    ({"xid": [79.0, 13.0]}, "critical", "XID 79")])
def test_errors_of_a_device_make_its_state(errors: dict[str, list[float]], state: str, evidence: str) -> None:
    """Mutations: errors from before the session count; every XID is the device's; a corrected error is no sign."""
    assert device_health.of_samples(3, [], [[]], errors) == device_health.DeviceHealth(3, state, evidence)


def test_errors_in_telemetry_are_in_the_facts(tmp_path: Path) -> None:
    """Mutations: errors are not read; a number that is no count is one."""
    session = labelled(tmp_path, sessions(PLAN)[0][0], None, [(0, 60.0, [])])
    errors = [("xid", 1, 79.0), ("corrected_errors", 0, 1.0), ("corrected_errors", 0, 3.0), ("xid", 0, 1e300),
            ("xid", None, 79.0), ("own_sm_pct", 0, 50.0)]
    names, devices, values = zip(*errors, strict=True)
    store.write(session, tables.SAMPLES, tables.SAMPLES.build(t_ns=range(len(names)), name=names, device_id=devices,
                                                              value=values))
    manifest.write(session, {})
    assert row_of(session)["health"] == [
        {"device_id": 0, "state": "degraded", "evidence": "2 corrected errors during the session"},
        {"device_id": 1, "state": "critical", "evidence": "XID 79"}]


def test_verbs_take_the_sessions_of_a_label_alone(lake: Path) -> None:
    """Mutations: sums of all sessions are read; one of two labels is enough."""
    asked = FleetFilter(labels=(("job", "1"),))
    whole, part = answers.top(lake), answers.top(lake, asked)
    assert [found["kernels"][0]["sessions"] for found in (whole, part)] == [6, 3]
    assert answers.regressions(lake, choice=asked)["sessions"] == 3
    both = FleetFilter(labels=(("job", "1"), ("job_name", "<b>0</b>")))
    assert answers.scaling(lake, both)["absent"] == []
    assert run("scaling", "--lake", str(lake), "--label", "job=1", "--json").exit_code == 0


@pytest.mark.parametrize("label", ["job", "job=", "colour=red", "job=a\nb", "=1"])
def test_what_is_no_label_is_refused(lake: Path, label: str) -> None:
    assert "no label of a session" in str(run("top", "--lake", str(lake), "--label", label).exception)


def test_devices_that_were_hot_are_listed_with_their_node(lake: Path) -> None:
    found = answers.health(lake)
    [row] = found["unhealthy"]
    hot = sessions(PLAN)[0][2]
    assert (row["node"], row["device_id"], row["state"]) == (hot.node, 1, "degraded")
    assert (row["session_id"], row["evidence"], row["unhealthy"]) == (hot.session_id, "at most 88 degC", 1)
    assert sum(absent["sessions"] for absent in found["absent"]) == 2
    printed = run("health", "--lake", str(lake)).output
    assert f"degraded: device 1 (MI300X) of node {hot.node} in {hot.session_id}" in printed
    assert "not known of 2 sessions: not explained" in printed


def test_labels_are_counted_for_the_option_that_chooses_them(lake: Path) -> None:
    found = answers.labels(lake, most=2)
    assert found["labels"] == [{"name": "job", "value": job, "sessions": 3} for job in "01"]
    assert (found["found"], found["absent"]) == (8, [])
    assert "job=1: 3 sessions\nand 6 more; --most 8 lists them" in run("labels", "--lake", str(lake), "--most",
                                                                      "2").output
    older = answers.labels(CAPTURES / "fleet_2")
    assert older["absent"] == [{"why_absent": facts.BEFORE, "sessions": 8}] and not older["labels"]


@pytest.mark.parametrize("label", [(), ("job=0",), ("job=1",), ("job=0", "job_name=<b>2</b>")])
def test_the_page_of_the_dashboard_has_the_health_and_labels_of_the_commands(
        lake: Path, tmp_path: Path, label: tuple[str, ...]) -> None:
    """Mutation: the page does not filter by labels."""
    site, options = client(tmp_path, lake), [word for pair in label for word in ("--label", pair)]
    health, labels_ = (json.loads(run(verb, "--lake", str(lake), "--json", *options).output)
                       for verb in ("health", "labels"))
    found = site.get("/api/v1/fleet", params={"label": label}).json()
    assert (found["health"], found["labels"]) == (health, labels_)
    page = site.get("/fleet", params={"label": [*label, ""]})
    shown = unescape(text(page))
    for row in health["unhealthy"]:
        assert f"{row['session_id']} {row['state']} {row['evidence']} {row['device_id']} " in shown
    assert f"{len(health['unhealthy'])} of them not always healthy" in shown
    assert all(f"{row['name']}={row['value']}" in shown for row in labels_["labels"])
    assert '<a href="/fleet?label=job%3D' in page.text and "<b>2</b>" not in page.text
    assert page.text.count('<input name="label"') == len(label) + 1
    assert site.get("/fleet?label=colour=red").status_code == 400


def test_the_card_has_labels_and_health_and_runs_no_markup(sources: Path) -> None:
    document = overview.card([sources])
    listed = {row["session_id"]: row for row in document["listed"]}
    hot, cold = (listed[sessions(PLAN)[0][number].session_id] for number in (2, 5))
    assert (hot["labels"]["job"], hot["health"], hot["health_evidence"]) == ("0", "degraded",
                                                                            "device 1: at most 88 degC")
    assert cold["health"] is None and cold["why_no_health"] == "not explained"
    page = fleet_page.render(document, "Report card")
    assert "job_name &lt;b&gt;2&lt;/b&gt;" in page and "<b>2</b>" not in page
    assert "degraded: device 1: at most 88 degC" in run("card", str(sources)).output


@pytest.mark.parametrize("version", [1, 2])
def test_lakes_of_earlier_versions_say_that_they_have_neither(version: int) -> None:
    lake = CAPTURES / f"fleet_{version}"
    assert {row["why_absent"] for row in answers.health(lake)["absent"]} == {facts.BEFORE}
    assert answers.regressions(lake, choice=FleetFilter(labels=(("job", "1"),)))["sessions"] == 0


def test_the_golden_lake_of_version_3_is_read() -> None:
    """tests/captures/fleet_3: a lake as version 3 wrote it; its data files must stay readable."""
    lake = CAPTURES / "fleet_3"
    assert answers.status(lake)["sessions"] == 6
    [row] = answers.health(lake)["unhealthy"]
    assert (row["device_id"], row["state"], row["evidence"]) == (1, "degraded", "at most 88 degC")
    assert answers.regressions(lake, choice=FleetFilter(labels=(("job", "1"),)))["sessions"] == 3
    assert answers.top(lake)["kernels"][0]["sessions"] == 6
