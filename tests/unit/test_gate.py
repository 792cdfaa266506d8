"""The gate over a suite: two hurdles before red, a failure of the tool is no change, and every form says the same."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from datetime import date, timedelta
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from pydantic import ValidationError

from aaco.core import documents
from aaco.core.errors import Exit, UsageError
from aaco.governance import gate, sla
from aaco.governance.gate import Measured, Measurement
from aaco.governance.suite import Benchmark, Ignore, Suite
from aaco.governance.verdict_document import Counts, MetricVerdict, RegressionVerdict
from aaco.report.ci import comment, github, junit, sarif
from aaco.report.ci import gate as text
from tests.explained import HOSTILE

TODAY = date(2026, 5, 17)


def metric(name="latency_ms", status="equivalent", p_value=0.5, effect=0.3):
    return MetricVerdict(
        metric=name, unit="ms", direction="lower_is_better", status=status, why="because", baseline_value=2.0,
        current_value=2.0 * (1 + effect / 100), effect_pct=effect, ci=(effect - 1, effect + 1), p_value=p_value,
        q_value=p_value, p_regression=0.5, mde80_pct=1.9, sigma_session=0.012, replication_unit="process",
        n_units=Counts(baseline=5, current=5))


WORSE = metric(status="regressed", p_value=1e-6, effect=12.0)


def measurement(*metrics, session="s1", objectives=None):
    verdict = RegressionVerdict(
        status=metrics[0].status, why="because", regression=False, severity="none", recommendation="", level=0.99,
        tolerance_pct=5, metrics=list(metrics), tool_version="0",
        reproduce_command="aaco diff a b") if metrics else None
    return Measurement(session, verdict, objectives)


def objective(status):
    one = sla.Outcome(metric="latency_p99_ms", unit="ms", status=status, why="because", direction="max", limit=200,
                      warn_at=180, value=None if status == "skip" else 300.0, ci=None, headroom_pct=None)
    return sla.Report(session_id="s", policy="p", status=status, objectives=(one,))


def suite(*names, **more):
    return Suite(benchmarks=tuple(Benchmark(name=name, model="m", baseline="main") for name in names or ("a",)), **more)


def decided(made, *measured, today=TODAY):
    report = gate.decide(made, measured, today, "0")
    json.dumps(report.model_dump(mode="json"), allow_nan=False)
    return report


def of(made, number, *metrics, again=(), **more):
    return Measured(made.benchmarks[number], measurement(*metrics, objectives=more.pop("objectives", None)),
                    [measurement(*each, session=f"s{place + 2}") for place, each in enumerate(again)], **more)


def test_nothing_changed_is_silent():
    made = suite()
    report = decided(made, of(made, 0, metric(), metric("throughput_per_s")))
    assert (report.status, report.exit_code, report.silent) == ("passed", 0, True)
    assert comment.render(report) == "" and comment.marker(report) in comment.summary(report)


def test_a_suspect_must_be_shown_by_fresh_processes():
    """Mutation: the first look decides."""
    made = suite("a", "b")
    quiet = of(made, 1, metric())
    assert gate.suspects(made, [of(made, 0, WORSE), quiet]) == {"a"}
    assert gate.suspects(made, [of(made, 0, metric()), quiet]) == set()
    red = decided(made, of(made, 0, WORSE, again=[[WORSE]]), quiet)
    assert (red.status, red.exit_code) == ("failed", Exit.REGRESSION) and red.checks[0].confirmed_by == ["s2"]
    for again in ([metric()], [metric(status="inconclusive", effect=11.0)], [metric("throughput_per_s", "regressed")]):
        calm = decided(made, of(made, 0, WORSE, again=[again]), quiet)
        assert (calm.status, calm.checks[0].outcome) == ("passed", "unconfirmed")
    twice = decided(made, of(made, 0, WORSE, again=[[WORSE], [metric()]]), quiet)
    assert twice.checks[0].outcome == "unconfirmed"
    alone = decided(made, of(made, 0, WORSE), quiet)
    assert (alone.status, alone.checks[0].outcome) == ("inconclusive", "suspect")
    assert gate.exit_code(alone) == 0 and gate.exit_code(alone, strict=True) == 4


def test_what_the_baselines_version_shows_too_is_the_machine():
    """Mutation: the baseline's version, measured anew, is not asked."""
    made = suite()
    for anew, outcome, why in ((WORSE, "regressed", "because"), (metric(), "unconfirmed", "the machine changed"),
                               (metric(status="inconclusive", effect=11.0), "unconfirmed", "the machine changed"),
                               (metric("throughput_per_s", "regressed"), "unconfirmed", "the machine changed")):
        again = replace(measurement(WORSE, session="s2"), anew=measurement(anew, session="b2").verdict)
        check = decided(made, Measured(made.benchmarks[0], measurement(WORSE), [again])).checks[0]
        assert check.outcome == outcome and why in check.why
    never = replace(measurement(metric(), session="s2"), anew=measurement(WORSE).verdict)
    check = decided(made, Measured(made.benchmarks[0], measurement(WORSE), [never])).checks[0]
    assert check.outcome == "unconfirmed" and "did not show it again" in check.why
    missed = Measurement("s2", None, objective("fail"), anew=measurement(metric()).verdict)  # of no baseline's business
    report = decided(made, Measured(made.benchmarks[0], Measurement("s1", None, objective("fail")), [missed]))
    assert report.checks[0].outcome == "missed"


@pytest.mark.parametrize("more", [
    {"command": ["a"], "baseline_command": ["b"]}, {"command": ["a"], "baseline": "m", "baseline_model": "b"},
    {"model": "a", "baseline": "m", "baseline_command": ["b"]},
    {"session": "a", "baseline": "m", "baseline_command": ["b"]}])
def test_a_baselines_version_needs_a_baseline_and_its_like(more):
    with pytest.raises(ValidationError, match="to hold against it"):
        Benchmark(name="a", **more)
    assert Benchmark(name="a", command=("a",)).of_baseline is None
    both = Benchmark(name="a", command=("a",), baseline="m", baseline_command=("b",), processes=7)
    assert (both.of_baseline.command, both.of_baseline.processes) == (("b",), 7) and both.of_baseline.name != "a"


def test_one_among_many_is_no_surprise():
    """Mutation: no adjustment for the suite."""
    names = [f"b{number}" for number in range(50)]
    made = suite(*names)
    lucky = metric(status="regressed", p_value=0.009, effect=8.0)
    measured = [of(made, number, lucky if number == 7 else metric(p_value=0.5)) for number in range(50)]
    assert gate.suspects(made, measured) == set()
    report = decided(made, *measured)
    assert report.comparisons == 50 and report.checks[0].outcome == "inconclusive"
    assert "q = 0.45" in report.checks[0].why
    assert gate.suspects(suite("a"), [of(suite("a"), 0, lucky)]) == {"a"}


def test_objectives_need_fresh_processes_too():
    made = suite()
    first = Measurement("s1", None, objective("fail"))
    assert gate.suspects(made, [Measured(made.benchmarks[0], first)]) == {"a"}
    for again, outcome, code in (("fail", "missed", 3), ("warn", "unconfirmed", 0), ("pass", "unconfirmed", 0)):
        each = Measured(made.benchmarks[0], first, [Measurement("s2", None, objective(again))])
        report = decided(made, each)
        assert (report.checks[0].outcome, report.exit_code) == (outcome, code)
    for status, outcome in (("warn", "near"), ("skip", "skipped"), ("pass", "kept")):
        report = decided(made, Measured(made.benchmarks[0], Measurement("s1", None, objective(status))))
        assert (report.benchmarks[0].outcome, report.exit_code) == (outcome, 0)


@pytest.mark.parametrize("codes", [*product((None, 1, 2, 5, 6), repeat=2)])
@pytest.mark.parametrize("red", [True, False])
def test_a_failure_of_the_tool_is_no_regression_and_hides_none(codes, red):
    """Mutation: an error is red; an error comes before red."""
    made = suite("a", "b", "c")
    measured = [Measured(each, error="broken", error_code=code) if code else
                Measured(each, measurement(metric()))
                for each, code in zip(made.benchmarks[:2], codes, strict=True)]
    report = decided(made, *measured, of(made, 2, WORSE, again=[[WORSE]]) if red else of(made, 2, metric()))
    found = {code for code in codes if code}
    expected = 3 if red else 0 if not found else found.pop() if len(found) == 1 else 1
    assert report.exit_code == expected and gate.exit_code(report, strict=True) == expected
    assert (report.status == "failed") == red
    assert sum(each.outcome == "error" for each in report.benchmarks) == sum(code is not None for code in codes)
    root = ET.fromstring(junit.render(report))
    assert int(root.get("errors")) == sum(code is not None for code in codes)
    assert int(root.get("failures")) == red
    run = sarif.render(report, "aaco-ci.yaml")["runs"][0]
    assert run["invocations"][0]["executionSuccessful"] == (not any(codes))
    assert len(run["results"]) == red


def test_a_suspect_whose_rerun_failed_is_not_red():
    made = suite()
    report = decided(made, of(made, 0, WORSE, error="the disk is full", error_code=1))
    assert report.checks[0].outcome == "suspect" and report.exit_code == 1 and report.status == "error"
    assert "the disk is full" in report.checks[0].why


def test_no_baseline_is_not_known():
    made = suite()
    report = decided(made, of(made, 0, no_baseline="no baseline 'main'"))
    assert report.status == "inconclusive" and gate.exit_code(report) == 0 and gate.exit_code(report, True) == 4
    assert "no baseline" in comment.render(report) and "<skipped" in junit.render(report)


@pytest.mark.parametrize(("days", "outcome", "state"), [(0, "ignored", "used"), (1, "ignored", "used"),
                                                        (-1, "regressed", "expired")])
def test_what_is_overlooked_is_so_until_its_day(days, outcome, state):
    """Mutation: an entry holds for ever."""
    until = TODAY + timedelta(days=days)
    made = suite("a", "b", ignore=(Ignore(benchmark="a", metric="latency_ms", until=until, reason="driver bug 12"),))
    assert gate.suspects(made, [of(made, 0, WORSE)]) == {"a"}
    report = decided(made, of(made, 0, WORSE, again=[[WORSE]]), of(made, 1, metric()))
    assert (report.checks[0].outcome, report.ignored[0].state) == (outcome, state)
    assert report.exit_code == (0 if days >= 0 else 3)
    shown = comment.render(report) + text.render(report)
    assert "driver bug 12" in shown and ("ended on" in shown) == (days < 0)


def test_an_entry_that_overlooks_nothing_and_one_of_another_metric():
    for entry in (Ignore(benchmark="b", until=TODAY, reason="r"),
                  Ignore(benchmark="a", metric="p99", until=TODAY, reason="r")):
        made = suite("a", "b", ignore=(entry,))
        report = decided(made, of(made, 0, WORSE, again=[[WORSE]]), of(made, 1, metric()))
        assert report.exit_code == 3 and report.ignored[0].state == "unused"
    every = suite("a", ignore=(Ignore(benchmark="*", until=TODAY, reason="r"),))
    assert decided(every, of(every, 0, WORSE, again=[[WORSE]])).exit_code == 0
    expired = suite("a", ignore=(Ignore(benchmark="a", until=date(2020, 1, 1), reason="r"),))
    assert not decided(expired, of(expired, 0, metric())).silent


STATUS = st.sampled_from(["regressed", "improved", "equivalent", "inconclusive"])
PROBABILITY = st.one_of(st.none(), st.floats(0, 1), st.floats(0, 1e-4))


@given(st.lists(st.tuples(STATUS, PROBABILITY, st.lists(STATUS, max_size=2), st.booleans()), min_size=1, max_size=8))
def test_red_is_what_both_hurdles_let_through_and_nothing_else(drawn):
    """Against the definition, worked out the slow way."""
    made = suite(*(f"b{number}" for number in range(len(drawn))))
    measured = [of(made, number, metric(status=status, p_value=p, effect=9.0),
                   again=[[metric(status=each, effect=9.0)] for each in again],
                   **({"error": "x", "error_code": 1} if broken else {}))
                for number, (status, p, again, broken) in enumerate(drawn)]
    tested = sorted(p for _, p, _, _ in drawn if p is not None)
    limit = max((p for rank, p in enumerate(tested, 1) if p * len(tested) / rank <= 0.01), default=-1.0)
    red = {f"b{number}" for number, (status, p, again, _) in enumerate(drawn)
           if status == "regressed" and (p is None or p <= limit) and again and set(again) == {"regressed"}}
    report = decided(made, *measured)
    assert {check.benchmark for check in report.checks if check.outcome == "regressed"} == red
    assert (report.exit_code == 3) == bool(red)
    worst = [gate.WORST_FIRST.index(check.outcome) for check in report.checks]
    assert worst == sorted(worst)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_text_steers_any_form(hostile):
    """Mutation: workflow commands are not escaped."""
    made = suite("a", "b")
    bad = WORSE.model_copy(update={"why": hostile, "metric": f"m {hostile}"})
    report = decided(made, of(made, 0, bad, again=[[bad]]), Measured(made.benchmarks[1], error=hostile, error_code=2))
    root = ET.fromstring(junit.render(report))
    assert int(root.get("failures")) == 1 == int(root.get("errors"))
    lines = list(github.lines(report, "a:b,c.yaml"))
    for line in lines:
        assert line.isprintable() and line.startswith(("::error file=a%3Ab%2Cc.yaml,", "::warning file="))
    outside = re.sub(r"(`+).+?\1", "", comment.render(report))
    assert "<script" not in outside and "<img" not in outside and outside.count("<!--") == 1
    document = json.dumps(sarif.render(report, "aaco-ci.yaml"))
    assert "\x1b" not in document + text.render(report)


def test_workflow_commands_are_escaped_as_the_runner_unescapes_them():
    line = github.command("error", "50 % of\n::set-env name=A::b", file="a,b:c", title="t")
    assert line == "::error file=a%2Cb%3Ac,title=t::50 %25 of\\n::set-env name=A::b"


def test_sarif_has_what_the_specification_asks_for():
    made = suite("a", "b")
    report = decided(made, of(made, 0, WORSE, again=[[WORSE]]), of(made, 1, metric(status="regressed", p_value=1e-9)))
    log = sarif.render(report, "ci/aaco ci.yaml")
    assert log["version"] == "2.1.0" and len(log["runs"]) == 1
    run = log["runs"][0]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(set(rules)) == len(rules)
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"] and result["level"] in ("error", "warning", "note")
        assert result["message"]["text"]
        assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "ci/aaco%20ci.yaml"
    assert {result["level"] for result in run["results"]} == {"error", "warning"}
    prints = [result["partialFingerprints"]["aacoCheck/v1"] for result in run["results"]]
    assert len(set(prints)) == 2


def test_the_comment_says_the_worst_first_with_what_it_rests_on():
    made = suite("a", "b", "c")
    small = metric(status="regressed", p_value=1e-6, effect=6.0)
    better = metric(status="improved", p_value=1e-6, effect=-20.0)
    report = decided(made, of(made, 0, small, again=[[small]]), of(made, 1, better),
                     of(made, 2, WORSE, again=[[WORSE]]))
    found = comment.render(report)
    assert found.startswith("<!-- aaco-ci: aaco -->\n")
    assert found.index("+12.0 % \\[+11.0, +13.0\\]") < found.index("+6.0 %") < found.index("-20.0 %")
    assert "1.9 %" in found and "1.2 %" in found and "`aaco diff a b`" in found
    assert len(comment.summary(decided(made, *[Measured(each, error="e" * 50_000, error_code=1)
                                               for each in made.benchmarks]))) < 65_536


GOOD = "benchmarks:\n- {name: a, model: m, baseline: main}\n"


@pytest.mark.parametrize("wrong", [
    "benchmarks: []", "benchmarks:\n- {name: a}", "benchmarks:\n- {name: a, model: m, command: [x]}",
    GOOD + "- {name: a, model: n}", "benchmarks:\n- {name: a, model: m, confirm: [s]}",
    "benchmarks:\n- {name: '../a', model: m}", GOOD + "reruns: 0", GOOD + "false_alarm_pct: 50",
    GOOD + "tolerance_pct: 0", GOOD + "ignore:\n- {benchmark: a, until: 2026-01-01}",
    GOOD + "ignore:\n- {benchmark: a, until: soon, reason: r}", GOOD + "x: 1",
    GOOD + "ignore:\n- {benchmark: z, until: 2026-01-01, reason: r}",
    "benchmarks:\n- {name: \"a\\n::error::\", model: m}", "benchmarks:\n- {name: a, command: 'sh -c x'}"])
def test_a_suite_that_is_none_is_refused(tmp_path, wrong):
    (tmp_path / "aaco-ci.yaml").write_text(wrong)
    with pytest.raises(UsageError, match=r"aaco-ci\.yaml: not a suite"):
        documents.load_yaml(tmp_path / "aaco-ci.yaml", Suite, "suite")


def test_a_suite(tmp_path):
    path = tmp_path / "aaco-ci.yaml"
    path.write_text(GOOD + "- {name: b, command: [sleep, 0.01], processes: 10}\n"
                    "ignore:\n- {benchmark: a, until: 2026-01-01, reason: r}\n")
    made = documents.load_yaml(path, Suite, "suite")
    assert made.benchmarks[1].command == ("sleep", "0.01") and made.ignore[0].until == date(2026, 1, 1)
    with pytest.raises(ValidationError):
        Suite(benchmarks=())
