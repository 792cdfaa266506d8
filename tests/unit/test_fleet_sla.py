"""A policy of `aaco sla` held against a lake: its groups, its exit codes, and its alert."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from aaco.analytics import metrics
from aaco.cli import app
from aaco.core import registry
from aaco.core.errors import UsageError
from aaco.fleet import compaction, objectives
from aaco.fleet.ingest import bundles, ingest
from aaco.fleet.scan import FleetFilter
from aaco.governance.sla import DEFAULT, Policy, find_metric
from benchmarks.fleet._bundles import FleetPlan, SessionPlan, sessions, write_session
from tests.unit.test_fleet_labels import labelled
from tests.unit.test_webhook import KEY, Endpoint

PLAN = FleetPlan(18, models=2, devices=1, nodes=2, iterations=10, seed=5)
ALONE = "gpt2"  # a group of one session


def limits(**most: str) -> Policy:
    return Policy.model_validate({"name": "slo", "objectives": [{"metric": name, "max": limit}
                                                                for name, limit in most.items()]})


def run(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(app, ["fleet", "sla", *arguments], env=environ)


def models(document: dict[str, list[dict[str, object]]]) -> dict[object, object]:
    return {group["model"]: group["status"] for group in document["groups"]}


@pytest.fixture(scope="module")
def rows() -> list[SessionPlan]:
    """Nine sessions of each of two models, the first at about 5 ms and the second at 10, and one of a third model."""
    planned = sessions(PLAN)[0]
    return [*planned, replace(planned[0], number=99, model=ALONE)]


@pytest.fixture(scope="module")
def lake(rows: list[SessionPlan], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of all of them, half of it compacted; not to be changed."""
    folder, path = tmp_path_factory.mktemp("sessions"), tmp_path_factory.mktemp("lake")
    for row in rows:
        labelled(folder, row, {"job": str(row.number % 3)})
    assert not ingest(path, bundles([folder])[:9]).refused
    compaction.compact(path)
    assert not ingest(path, bundles([folder])).refused
    return path


def test_a_group_is_the_median_of_its_sessions_with_its_interval(lake: Path) -> None:
    """Held against numpy on the files themselves. Mutation: processes are put together, not sessions."""
    [group] = objectives.check(lake, limits(p50="99 s", p90="99 s"), FleetFilter(model="resnet50"))["groups"]
    facts = [row for path in lake.rglob("*.parquet") for row in pq.ParquetFile(path).read().to_pylist()]
    levels = {row["session_id"]: np.median([sample["value"] for sample in row["samples"]
                                            if sample["metric"] == "latency_p90_ms"])
              for row in facts if row["model"] == "resnet50"}
    p50, p90 = group["objectives"]
    assert (group["sessions"], p90["measured"], p90["beyond"], group["status"]) == (9, 9, 0, "pass")
    assert p90["value"] == np.median(list(levels.values()))
    assert p90["ci"] == [sorted(levels.values())[1], sorted(levels.values())[7]]  # of 9: ranks 2 and 8
    assert p90["worst_session"] == max(levels, key=lambda name: levels[name])
    assert p50["value"] < p90["value"]


def test_groups_fail_warn_pass_and_are_absent(lake: Path) -> None:
    """Mutations: a group of one session is judged; a failure of one group is hidden by the others."""
    document = objectives.check(lake, limits(p50="7 ms"))
    assert models(document) == {"bert": "fail", ALONE: "skip", "resnet50": "pass"}
    assert (document["status"], document["counts"]) == ("fail", {"fail": 1, "warn": 0, "skip": 1, "pass": 1})
    failed, alone, _ = document["groups"]
    assert failed["objectives"][0]["beyond"] == 9
    assert (alone["objectives"][0]["value"], alone["sessions"]) == (None, 1)
    assert alone["objectives"][0]["why"] == "1 session has a value; the level of a group takes 2"
    [bert] = objectives.check(lake, limits(p50="99 s"), FleetFilter(model="bert"))["groups"]
    middle = bert["objectives"][0]["value"]
    across = objectives.check(lake, limits(p50=f"{middle} ms"), FleetFilter(model="bert"))["groups"][0]
    assert (across["status"], across["objectives"][0]["beyond"]) == ("warn", 4)


def test_what_the_lake_does_not_hold_is_skipped_with_the_reason(lake: Path) -> None:
    """Mutation: a metric without a value passes."""
    document = objectives.check(lake, limits(memory="16 GB", p99="1 s"), FleetFilter(model="bert"))
    memory, p99 = document["groups"][0]["objectives"]
    assert (document["status"], document["not_held"]) == ("skip", ["measured_peak_rss_bytes"])
    assert memory["why"].startswith("a lake does not hold it; it has latency_p50_ms, ")
    assert (p99["value"], p99["measured"]) == (None, 0)
    assert p99["why"] == "a process has fewer than the 100 iterations that p99 needs"


def test_a_session_without_timed_inferences_counts_and_says_why(rows: list[SessionPlan], tmp_path: Path) -> None:
    from aaco.tracelake import manifest

    for row in rows[:2]:
        session = write_session(tmp_path / "s" / row.session_id, replace(row, model="bert"), PLAN)
        (session.folder / "metrics/inference_iters.parquet").unlink()
        manifest.write(session, {})
    ingest(tmp_path / "lake", bundles([tmp_path / "s"]))
    [group] = objectives.check(tmp_path / "lake", limits(p50="1 s"))["groups"]
    assert (group["sessions"], group["objectives"][0]["why"]) == (2, "no timed inferences")


def test_the_newest_sessions_alone_are_judged(lake: Path, rows: list[SessionPlan]) -> None:
    """Mutation: all sessions are."""
    document = objectives.check(lake, limits(p50="1 ms"), FleetFilter(model="bert"), newest=3)
    [group] = document["groups"]
    newest = {row.session_id for row in rows[-7:] if row.model == "bert"}
    assert (len(newest), group["sessions"], group["objectives"][0]["beyond"]) == (3, 3, 3)
    assert group["objectives"][0]["worst_session"] in newest
    one = objectives.check(lake, limits(p50="1 ms"), FleetFilter(model="bert"), newest=1)
    assert one["status"] == "skip"


def test_labels_choose_the_sessions(lake: Path, rows: list[SessionPlan]) -> None:
    document = objectives.check(lake, limits(p50="1 ms"), FleetFilter(labels=(("job", "1"),)))
    assert sum(group["sessions"] for group in document["groups"]) == sum(row.number % 3 == 1 for row in rows)


def test_a_metric_or_a_limit_that_is_none_is_refused_even_of_no_session(lake: Path) -> None:
    for policy in (limits(nonsense="1"), limits(p50="5 kg")):
        with pytest.raises(UsageError):
            objectives.check(lake, policy, FleetFilter(model="none"))


@pytest.mark.parametrize(("limit", "strict", "code"), [
    ("7 ms", False, 3), ("99 s", False, 0), ("99 s", True, 4), ("7 ms", True, 3)])
def test_exit_codes_are_those_of_aaco_sla(lake: Path, tmp_path: Path, limit: str, strict: bool, code: int) -> None:
    policy = tmp_path / "slo.yaml"
    policy.write_text(f"name: slo\nobjectives: [{{metric: p50, max: {limit}}}]\n")
    found = run("--policy", str(policy), "--lake", str(lake), "--json", *(["--strict"] if strict else []))
    assert found.exit_code == code
    assert json.loads(found.stdout)["policy"] == "slo"


def test_a_lake_without_such_sessions_keeps_no_promise(lake: Path) -> None:
    """Mutation: nothing judged is fine under --strict."""
    found = run("--lake", str(lake), "--model", "none", "--strict")
    assert (found.exit_code, found.stdout.splitlines()[0]) == (
        4, "SKIP: groups against policy default: there is none")


def test_an_alert_names_what_failed_and_changes_no_verdict(lake: Path, tmp_path: Path) -> None:
    policy = tmp_path / "slo.yaml"
    policy.write_text("objectives: [{metric: p50, max: 7 ms}, {metric: memory, max: 1 GB}]\n"
                      "webhook: {url_env: ALERTS}\n")
    server = Endpoint(200, 403)
    try:
        done = [run("--policy", str(policy), "--lake", str(lake), ALERTS=server.url) for _ in range(2)]
    finally:
        server.shutdown()
        server.server_close()
    assert [one.exit_code for one in done] == [3, 3]
    assert "alert delivered" in done[0].stderr and "it answered 403" in done[1].stderr
    assert not any(KEY in one.output for one in done)
    [text, *_] = [sent[2] for sent in server.got]
    assert text["sla"]["counts"]["fail"] == 1
    assert "  fail latency_p50_ms" in text["text"] and "9 of 9 sessions are beyond it" in text["text"]
    assert "resnet50" not in text["text"]
    assert done[0].stdout.endswith("skipped, as a lake does not hold them: measured_peak_rss_bytes\n")
    unset = run("--policy", str(policy), "--lake", str(lake))
    assert unset.exit_code == 3 and "ALERTS is not set" in unset.stderr


def test_the_policy_that_is_judged_where_none_is_given_needs_no_other_metrics_declared() -> None:
    """To import all takes longer than the question. Mutation: the modules of two metrics are not named."""
    registry.load(metrics, "aaco.metrics")
    declared = {inspect.unwrap(find_metric(objective.metric).compute).__module__ for objective in DEFAULT.objectives}
    assert declared <= set(objectives.DECLARED)
