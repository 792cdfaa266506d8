"""Objectives: what passes, what is a warning, and that nothing absent ever passes."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics import metrics
from aaco.core import documents, registry
from aaco.core.errors import UsageError
from aaco.core.readings import Reading
from aaco.governance import sla
from aaco.report.ci import sla as report

registry.load(metrics, "aaco.metrics")
GUIDE = Path(__file__).parents[2] / "docs/guides/ci.md"
REAL = st.floats(min_value=0.01, max_value=1e6)


def judged(reading, **limits):
    policy = sla.Policy(objectives=(sla.Objective(metric="p95", **limits),))
    return sla.check(policy, {"latency_p95_ms": reading}, "s").objectives[0]


def latency(value, low=None, high=None, **more):
    return Reading("latency_p95_ms", "ms", value, low=low, high=high, **more)


@pytest.mark.parametrize(("value", "low", "high", "status"), [
    (50.0, 40.0, 60.0, "pass"), (89.0, 88.0, 90.0, "pass"), (91.0, 90.5, 92.0, "warn"), (95.0, 90.0, 101.0, "warn"),
    (100.0, 99.0, 100.0, "warn"), (105.0, 99.9, 110.0, "warn"), (105.0, 100.1, 110.0, "fail"),
    (100.0, None, None, "warn"), (100.1, None, None, "fail"), (50.0, None, None, "pass")])
def test_an_upper_limit(value, low, high, status):
    """Mutation: an interval across the limit passes."""
    assert judged(latency(value, low, high), max="100 ms").status == status


def test_a_lower_limit_is_an_upper_one_turned_over():
    policy = sla.Policy(objectives=(sla.Objective(metric="throughput", min=100),))
    for value, status in ((150.0, "pass"), (111.2, "pass"), (111.0, "warn"), (100.0, "warn"), (99.9, "fail")):
        found = sla.check(policy, {"throughput_per_s": Reading("throughput_per_s", "1/s", value)}, "s").objectives[0]
        assert (found.status, found.direction) == (status, "min")
    across = Reading("throughput_per_s", "1/s", 130.0, low=99.0, high=170.0)
    assert sla.check(policy, {"throughput_per_s": across}, "s").status == "warn"


@given(value=REAL, spread=st.floats(0, 0.9), limit=REAL, margin=st.floats(1, 100))
def test_against_the_words_of_the_definition(value, spread, limit, margin):
    low, high = value * (1 - spread), value * (1 + spread)
    found = judged(latency(value, low, high), max=repr(limit), warn_pct=margin)
    expected = ("fail" if low > limit else "warn" if high > limit else
                "warn" if value > limit * margin / 100 else "pass")
    assert found.status == expected
    assert math.isclose(found.headroom_pct, 100 * (limit - value) / limit)


@pytest.mark.parametrize("reading", [latency(None, why_absent="one iteration"), latency(math.nan), latency(math.inf),
                                     None])
def test_what_is_absent_is_skipped_with_its_reason(reading):
    """Mutation: absent passes."""
    policy = sla.Policy(objectives=(sla.Objective(metric="p95", max=100),))
    found = sla.check(policy, {"latency_p95_ms": reading} if reading else {}, "s")
    assert found.status == found.objectives[0].status == "skip" and found.objectives[0].value is None
    assert "one iteration" in found.objectives[0].why or not reading or reading.value is not None
    assert sla.exit_code(found) == 0 and sla.exit_code(found, strict=True) == 4
    assert "n/a: " in report.render(found)


def test_the_whole_is_its_worst_part_and_a_skip_hides_nothing():
    assert sla.together(["pass", "skip", "warn", "fail"]) == "fail"
    assert sla.together(["skip", "pass", "warn"]) == "warn"
    assert sla.together(["skip", "pass"]) == "pass"
    assert sla.together(["skip"]) == "skip" == sla.together([])


def test_the_defaults_are_those_of_the_mission():
    limits = {one.metric: sla.limit_of(one.max or one.min, sla.find_metric(one.metric))
              for one in sla.DEFAULT.objectives}
    assert limits == {"p50": 50, "p95": 100, "p99": 200, "throughput": 100, "memory": 16e9, "utilisation": 0.7}
    assert {one.warn_pct for one in sla.DEFAULT.objectives} == {85, 90}


@pytest.mark.parametrize(("text", "metric", "value"), [
    ("50", "p50", 50), ("50 ms", "p50", 50), ("50000us", "p50", 50), ("0.05 s", "p50", 50), ("16 GiB", "memory", 2**34),
    ("16e9", "memory", 16e9), ("70 %", "utilisation", 0.7), ("0.7", "utilisation", 0.7)])
def test_limits_with_and_without_units(text, metric, value):
    assert math.isclose(sla.limit_of(text, sla.find_metric(metric)), value)


@pytest.mark.parametrize("text", ["", "fast", "50 GB", "-1", "0", "nan", "inf", "1e999", "1.2.3", "50 ms ms"])
def test_what_is_no_limit_is_refused(text):
    with pytest.raises(UsageError, match="no limit"):
        sla.limit_of(text, sla.find_metric("p50"))


GOOD = "objectives:\n- {metric: p50, max: 50 ms}\n"


@pytest.mark.parametrize("text", [
    "", "[]", "objectives: []", "objectives:\n- {metric: p50}", "objectives:\n- {metric: p50, max: 1, min: 1}",
    GOOD + "unknown: 1", GOOD + "schema_version: 2", "objectives:\n- {metric: p50, max: true}",
    "objectives:\n- {metric: p50, max: 1, warn_pct: .nan}", "a: &a [1]\nb: *a", "a: 1\na: 2", "\x00", "{" * 5000,
    "a: [", "a: 1\n---\nb: 2",
    "!!python/object/apply:os.system ['true']", GOOD + "webhook: {url_env: 'https://x'}", "? {a: 1}\n: 2"])
def test_a_policy_that_is_none_is_one_clear_error(tmp_path, text):
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as refusal:
        documents.load_yaml(path, sla.Policy, "policy")
    assert str(path) in refusal.value.what and len(refusal.value.what) < 600


def test_the_webhook_of_the_guide_is_one(tmp_path):
    """Mutation: `on` is true, as YAML 1.1 has it."""
    [block] = re.findall(r"```yaml\n(webhook:.*?)```", GUIDE.read_text(), re.DOTALL)
    path = tmp_path / "policy.yaml"
    path.write_text(GOOD + block)
    assert documents.load_yaml(path, sla.Policy, "policy").webhook.on == ("fail", "warn")


def test_a_policy_and_its_size_and_place(tmp_path):
    path = tmp_path / "policy.yaml"
    with pytest.raises(UsageError, match="no such file"):
        documents.load_yaml(path, sla.Policy, "policy")
    path.write_text(GOOD)
    assert documents.load_yaml(path, sla.Policy, "policy").objectives[0].max == "50 ms"
    path.write_text(GOOD + "#" * (1 << 20))
    with pytest.raises(UsageError, match="larger than"):
        documents.load_yaml(path, sla.Policy, "policy")


@given(st.binary(max_size=300))
def test_any_bytes_are_a_policy_or_a_clear_error(tmp_path_factory, raw):
    path = tmp_path_factory.getbasetemp() / "fuzzed.yaml"
    path.write_bytes(raw)
    with pytest.raises(UsageError):
        documents.load_yaml(path, sla.Policy, "policy")


def test_a_metric_that_there_is_not_is_named_with_its_neighbours():
    with pytest.raises(UsageError) as refusal:
        sla.check(sla.Policy(objectives=(sla.Objective(metric="latency_p59_ms", max=1),)), {}, "s")
    assert "latency_p9" in refusal.value.what


def test_the_report_is_json():
    found = sla.check(sla.DEFAULT, {"latency_p50_ms": latency(12.0, 11, 13)}, "s")
    json.dumps(found.model_dump(mode="json"), allow_nan=False)
    assert [one.status for one in found.objectives].count("skip") == 5
