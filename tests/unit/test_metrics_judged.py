"""A comparison over several metrics: tails, throughput, q-values, which of them speaks for all; and bad input."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

from aaco.core.errors import UsageError
from aaco.governance import metrics, verdict
from aaco.governance.compare import Side
from aaco.governance.verdict import in_history
from aaco.governance.verdict_document import RegressionVerdict
from aaco.tracelake.history.measures import MEASURES
from aaco.tracelake.history.replicates import ProcessSample, Replicate


def side(name, seed, change=1.0, tail=1.0, iterations=200, processes=8, **facts):
    """Processes of 200 inferences about 10 ms; `tail` multiplies the slowest three in a hundred."""
    rng, samples = np.random.default_rng(seed), []
    for _ in range(processes):
        latencies = change * 10 * np.exp(0.003 * rng.standard_normal() + 0.02 * rng.standard_normal(iterations))
        latencies[latencies > np.quantile(latencies, 0.97)] *= tail
        samples.append(ProcessSample.of(latencies))
    return Side(name, (Replicate(session_id=name, processes=tuple(samples), batch=4, **facts),))


def judged(before, after, **given):
    return metrics.judge(before, after, 5.0, 0.99, **given)


def test_every_metric_that_both_sides_have_is_judged():
    found = judged(side("a", 1), side("b", 2))
    assert set(found.found) == {"latency_ms", "latency_p90_ms", "latency_p99_ms", "throughput_per_s"}
    assert "kernels" in found.absent["kernel_time_ms"]
    assert {item.status for item in found.found.values()} == {"equivalent"} and found.metric == "latency_ms"
    oracle = stats.false_discovery_control([found.found[name].p_value for name in found.q_values])
    assert list(found.q_values.values()) == pytest.approx(list(oracle))


def test_tails_are_compared_at_session_level():
    """One value a process. Mutation: iterations pooled."""
    before, after = side("a", 1), side("b", 2)
    found = judged(before, after).found["latency_p99_ms"]
    logs = [np.log([process.p99_ms for process in one.replicates[0].processes]) for one in (before, after)]
    assert found.p_value == pytest.approx(stats.ttest_ind(logs[1], logs[0]).pvalue, rel=1e-9)
    assert found.units == (8, 8)


def test_a_tail_that_regressed_speaks_for_all():
    """Mutation: a headline that is always the median."""
    before, after = side("a", 1), side("b", 2, tail=1.5)
    found = judged(before, after)
    assert found.metric == "latency_p99_ms" and found.found["latency_ms"].status == "equivalent"
    document = verdict.judge(before, after, found, (), "0", "aaco diff a b")
    assert (document.status, document.metric, document.severity) == ("regressed", "latency_p99_ms", "critical")
    assert document.latency_delta_pct == pytest.approx(0, abs=1) and "99th" in document.estimator
    assert document.q_value == found.q_values["latency_p99_ms"] < 0.01


def test_more_throughput_is_better():
    """Mutation: the direction forgotten."""
    found = judged(side("a", 1), side("b", 2, change=0.5))
    assert found.found["throughput_per_s"].status == "improved"
    assert found.found["throughput_per_s"].effect_pct == pytest.approx(-50, abs=1)
    assert judged(side("a", 1), side("b", 2, change=2.0)).found["throughput_per_s"].status == "regressed"


def test_a_change_that_is_no_surprise_among_many_is_not_called():
    """Mutation: q-values that are printed and not heeded."""
    rows = {name: metrics.compare(side("a", 1), side("b", 2, change=1.2), 5.0, 0.99, metric=name)
            for name in list(MEASURES)[:4]}
    weak = metrics.replace(rows["latency_ms"], p_value=0.008)
    others = {name: metrics.replace(item, p_value=0.9, status="equivalent") for name, item in rows.items()}
    found = metrics.among_all(others | {"latency_ms": weak}, {})
    assert found.headline.status == "inconclusive" and "among 4 metrics" in found.headline.why
    assert metrics.among_all({metrics.LATENCY: weak}, {}).headline.status == "regressed"


def test_a_history_makes_a_change_visible():
    before, after = side("a", 1, processes=5), side("b", 2, change=1.012, processes=5)
    rng = np.random.default_rng(3)
    known = {"latency_ms": [[np.log(10) + 0.003 * rng.standard_normal(5) for _ in range(40)]]}
    alone, told = judged(before, after).headline, judged(before, after, histories=known).headline
    assert told.mde80_pct < alone.mde80_pct and told.history == 40 and told.degrees > 100


def test_the_document_has_no_null_without_its_reason_and_round_trips():
    for after in (side("b", 2, change=1.3), side("b", 2, processes=1), side("b", 2, iterations=1)):
        before = side("a", 1)
        found = verdict.judge(before, after, judged(before, after), (), "0", "aaco diff a b")
        document = json.loads(found.model_dump_json())
        nulls = {name for name, value in document.items() if value is None} - {"confidence"}
        assert nulls <= set(document["why_absent"]) and RegressionVerdict.model_validate(document) == found
        assert (found.confidence is None) == (found.status == "inconclusive")


def test_a_verdict_of_an_earlier_version_can_still_be_read():
    before, after = side("a", 1), side("b", 2)
    document = json.loads(verdict.judge(before, after, judged(before, after), (), "0", "x").model_dump_json())
    for name in ("metrics", "metrics_absent", "p_tolerance", "mde80_normal_pct", "n_history"):
        del document[name]
    assert RegressionVerdict.model_validate(document | {"schema_version": 1}).metrics == []


def test_the_last_change_of_the_history_is_part_of_the_verdict():
    before, after = side("a", 1), side("b", 2)
    found = verdict.judge(before, after, judged(before, after), (), "0", "x")
    assert "not a series" in found.why_absent["change_point"]
    known = in_history(found, {"session_id": "s"}, "")
    assert known.change_point == {"session_id": "s"} and "change_point" not in known.why_absent
    assert in_history(found, None, "too short").why_absent["change_point"] == "too short"


@pytest.mark.parametrize("facts", [{"processes": 1}, {"processes": 4}, {"iterations": 1, "processes": 2}])
def test_too_few_are_no_verdict_and_have_no_probability(facts):
    """Mutation: a probability of what was not judged."""
    found = judged(side("a", 1), side("b", 2, change=2.0, **facts)).headline
    assert found.status == "inconclusive" and found.veto == "too few"
    assert found.p_regression is None and found.p_improvement is None


def test_constant_data_leave_no_nan():
    def constant(name, value):
        samples = tuple(ProcessSample.of(np.full(200, value)) for _ in range(5))
        return Side(name, (Replicate(session_id=name, processes=samples),))

    same, slower = judged(constant("a", 5.0), constant("b", 5.0)), judged(constant("a", 5.0), constant("b", 6.0))
    assert same.headline.status == "equivalent" and slower.headline.status == "regressed"
    for item in (*same.found.values(), *slower.found.values()):
        figures = (item.effect_pct, item.low_pct, item.high_pct, item.p_value, item.mde80_pct, item.p_regression)
        assert all(math.isfinite(figure) for figure in figures)


@pytest.mark.parametrize("wrong", [math.nan, 0.0, -1.0, math.inf])
def test_what_is_no_time_is_refused(wrong):
    with pytest.raises(ValueError, match=r"greater than 0|finite"):
        ProcessSample.of(np.array([1.0, 2.0, wrong]))


def test_a_tolerance_that_is_none_is_refused():
    with pytest.raises(UsageError):
        metrics.judge(side("a", 1), side("b", 2), math.nan, 0.99)
