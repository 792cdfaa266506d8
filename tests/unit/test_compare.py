"""The comparison and its verdict on planted changes, small samples, and sides that must not be compared."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from scipy import stats

from aaco.analytics import metrics
from aaco.core import registry
from aaco.core.errors import Exit, UsageError
from aaco.core.readings import Absent
from aaco.core.tables import INFERENCE_ITERS, KERNELS
from aaco.governance import verdict
from aaco.governance.compare import (
    POOR,
    Side,
    compare,
    differences,
    require_comparable,
    side_from_tables,
)
from aaco.governance.metrics import LATENCY, among_all
from aaco.governance.spread import estimate
from aaco.governance.verdict import exit_code, severity
from aaco.governance.verdict_document import RegressionVerdict
from aaco.tracelake.history.replicates import ProcessSample, Profile, Replicate
from tests.verdicts import verdict_with

QUIET = (10.00, 10.02, 9.98, 10.01, 9.99)


SERIAL = itertools.count()


def side(*sessions, profile=None, ids=None, **facts):
    """A side of these sessions, each a sequence of its processes' medians; every session is another one."""
    facts = {"machine_id": "m", "backend": "cpu", "batch": 1, "scheduler_interference": 0.0, **facts}
    return Side("side", tuple(
        Replicate(session_id=name, profile=profile,
                  processes=tuple(ProcessSample.of(np.array([float(median)])) for median in medians), **facts)
        for name, medians in zip(ids or (f"s{next(SERIAL)}" for _ in sessions), sessions, strict=True)))


def judge(baseline, current, comparison, *rest):
    return verdict.judge(baseline, current, among_all({LATENCY: comparison}, {}), *rest)


def scaled(values, factor):
    return tuple(factor * value for value in values)


@pytest.mark.parametrize(("factor", "status", "how_bad"), [
    (1.00, "equivalent", "none"), (1.02, "equivalent", "none"), (1.05, "inconclusive", "none"),
    (1.08, "regressed", "low"), (1.15, "regressed", "medium"), (1.3, "regressed", "high"),
    (1.6, "regressed", "critical"), (0.9, "improved", "none"),
])
def test_planted_changes_on_a_quiet_machine(factor, status, how_bad):
    found = compare(side(QUIET), side(scaled(QUIET, factor)), 5.0)
    assert (found.status, severity(found)) == (status, how_bad)
    assert found.effect_pct == pytest.approx(100 * (factor - 1), abs=1e-9)


def test_agrees_with_students_t_on_logarithms():
    before, after = (10.0, 10.4, 9.7, 10.1, 10.9), (10.6, 11.1, 10.2)
    found = compare(side(before), side(after), 0.0)
    oracle = stats.ttest_ind(np.log(after), np.log(before))
    interval = oracle.confidence_interval(0.95)
    assert found.p_value == pytest.approx(oracle.pvalue, rel=1e-12)
    assert found.p_tolerance == pytest.approx(oracle.pvalue / 2, rel=1e-12)
    assert (found.low_pct, found.high_pct) == pytest.approx((100 * math.expm1(interval.low),
                                                             100 * math.expm1(interval.high)), rel=1e-9)


def test_p_tolerance_is_that_of_a_slowdown_beyond_the_tolerance():
    before, after = (10.0, 10.4, 9.7, 10.1, 10.9), (11.6, 12.1, 11.2)
    found = compare(side(before), side(after), 5.0)
    oracle = stats.ttest_ind(np.log(after), np.log(before) + math.log(1.05), alternative="greater")
    assert found.p_tolerance == pytest.approx(oracle.pvalue, rel=1e-9)


def test_the_smallest_detectable_change_is_as_in_the_methods_page():
    found = compare(side(QUIET), side(QUIET), 5.0)
    sigma = np.std(np.log(QUIET), ddof=1)
    assert found.sigma_session == pytest.approx(sigma)
    assert found.mde80_normal_pct == pytest.approx(100 * 2.8 * sigma * math.sqrt(2 / 5))


@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
@pytest.mark.parametrize("size", [3, 5, 8, 30])
def test_the_smallest_detectable_change_is_seen_four_times_in_five(size, level):
    """By scipy's noncentral t, the change being that long of a known spread."""
    values = 10 + 0.01 * np.random.default_rng(size).standard_normal(size)
    found = compare(side(values), side(values[::-1]), 5.0, level)
    error = found.sigma_session * math.sqrt(2 / size)
    threshold = stats.t.ppf(0.5 + level / 2, 2 * size - 2)
    power = stats.nct.sf(threshold, 2 * size - 2, math.log1p(found.mde80_pct / 100) / error)
    assert power == pytest.approx(0.8, abs=1e-6) and found.mde80_pct > found.mde80_normal_pct * (level >= 0.95)


def test_no_change_seen_by_a_coarse_instrument_is_not_equivalence():
    # With 5 + 5 processes the interval is +-2.31 standard errors and the smallest detectable change 2.8 of them.
    noisy = np.exp(0.0395 * np.array([-1, 1, -1, 1, 0]))
    found = compare(side(noisy), side(noisy), 6.5)
    assert found.low_pct > -6.1 and found.high_pct < 6.5 < found.mde80_pct
    assert found.status == "inconclusive"
    assert compare(side(noisy), side(noisy), 8.5).status == "equivalent"


def test_a_large_change_is_seen_however_coarse_the_instrument():
    noisy = (8.0, 9.0, 10.0, 11.0, 12.0)
    found = compare(side(noisy), side(scaled(noisy, 3)), 5.0)
    assert found.mde80_pct > 5 and found.status == "regressed"


@pytest.mark.parametrize(("before", "after", "known"), [(1, 1, False), (7, 1, False), (8, 1, True), (1, 8, True),
                                                        (2, 2, True)])
def test_one_process_needs_eight_on_the_other_side(before, after, known):
    values = 10 + 0.01 * np.arange(8)
    found = compare(side(values[:before]), side(values[:after]), 5.0)
    assert (found.mde80_pct is not None) == (found.low_pct is not None) == (found.sigma_session is not None) == known
    if not known:
        assert found.status == "inconclusive" and "8" in found.why_no_interval


def test_one_process_gets_a_prediction_interval_from_the_baselines_variance():
    history = np.array([10.0, 10.4, 9.7, 10.1, 10.9, 10.2, 9.9, 10.3])
    found = compare(side(history), side([11.5]), 0.0)
    logs = np.log(history)
    half = stats.t.ppf(0.975, 7) * logs.std(ddof=1) * math.sqrt(1 + 1 / 8)
    assert found.low_pct == pytest.approx(100 * math.expm1(math.log(11.5) - logs.mean() - half))


def test_sessions_that_differ_become_the_unit():
    sessions = [scaled(QUIET, factor) for factor in (1.0, 1.1, 0.9, 1.05)]
    found = compare(side(*sessions), side(scaled(QUIET, 1.08)), 5.0)
    assert (found.unit, found.units, found.degrees) == ("session", (4, 1), 3)
    assert found.status == "inconclusive"  # five processes that agree say nothing about the next session
    means = [np.log(session).mean() for session in sessions]
    assert found.sigma_session == pytest.approx(np.std(means, ddof=1))


def test_sessions_that_agree_leave_the_process_as_the_unit():
    found = compare(side(QUIET, QUIET[::-1]), side(QUIET), 5.0)
    assert (found.unit, found.units, found.degrees, found.status) == ("process", (10, 5), 13, "equivalent")


def test_the_design_says_what_is_not_covered():
    assert "not covered" in compare(side(QUIET), side(QUIET)).design
    assert "not covered" not in compare(side(QUIET, QUIET), side(QUIET)).design
    assert "one process each" in compare(side([1.0], [2.0]), side([1.0], [2.0])).design


def test_processes_that_agree_exactly_leave_no_doubt():
    same = compare(side([5.0] * 5), side([5.0] * 5), 5.0)
    slower = compare(side([5.0] * 5), side([6.0] * 5), 5.0)
    assert (same.status, same.p_value) == ("equivalent", 1.0) and same.mde80_pct < 1e-9
    assert slower.status == "regressed" and max(slower.p_value, slower.p_tolerance) < 1e-20


@pytest.mark.parametrize("value", [0.1, 1.1, 3.3, 7e-3, 123.4])
def test_rounding_of_equal_medians_is_no_change(value):
    found = compare(side((value,) * 3, (value,) * 6), side((value,) * 7), 0.0)
    assert found.status == "inconclusive" and found.p_value > 0.5 and found.unit == "process"


def test_absurd_spread_stays_finite():
    found = compare(side((1e-6, 1e6)), side((1e-6,), (1e6,)), 5.0, level=0.9999)
    assert found.status == "inconclusive" and math.isfinite(found.high_pct)


@pytest.mark.parametrize(("tolerance", "level"), [(-1.0, 0.95), (math.nan, 0.95), (5.0, 0.0), (5.0, 1.0)])
def test_impossible_settings_are_refused(tolerance, level):
    with pytest.raises(UsageError):
        compare(side(QUIET), side(QUIET), tolerance, level)


def test_estimate_says_why_there_is_no_spread():
    with pytest.raises(Absent, match="1 against 1"):
        estimate([np.array([1.0])], [np.array([1.0])])


def test_differences_block_by_identity_only():
    before = side(QUIET, environment={"cpu.governor": "powersave", "kernel": "6.1"}, tool_version="0.1")
    after = side(QUIET, machine_id="other", environment={"cpu.governor": "performance", "kernel": "6.1"}, batch=8,
                 tool_version="0.2")
    found = {item.fact: item for item in differences(before, after)}
    assert set(found) == {"machine_id", "batch", "cpu.governor", "tool_version"}
    assert {name for name, item in found.items() if item.blocks} == {"machine_id", "batch"}
    assert (found["batch"].baseline, found["batch"].current) == ("1", "8")
    with pytest.raises(UsageError, match="machine_id m -> other; batch 1 -> 8"):
        require_comparable(tuple(found.values()))
    require_comparable([found["cpu.governor"]])


def test_a_fact_may_be_a_list():
    only, = differences(side(QUIET, environment={"cpu.flags": ["avx", "fma"]}), side(QUIET, environment={
        "cpu.flags": ["avx"]}))
    assert (only.baseline, only.current) == ("avx fma", "avx")


def test_a_fact_recorded_on_one_side_only_is_a_difference():
    only, = differences(side(QUIET), side(QUIET, model_hash="abc"))
    assert (only.fact, only.baseline, only.current, only.blocks) == ("model_hash", None, "abc", True)
    assert differences(side(QUIET), side(QUIET)) == ()


ITERS = INFERENCE_ITERS.build(
    iteration=[0, 0, 1, 2, 0, 1], phase=["warmup"] + ["measurement"] * 5, process=[0, 0, 0, 0, 1, 1],
    latency_ms=[99.0, 1.0, 2.0, 6.0, 4.0, 6.0])


def test_a_side_is_read_from_the_measured_phase_of_each_process():
    found = side_from_tables(ITERS, None, {"session_id": "s", "machine_id": "m"}, "profiling was off")
    assert found.medians_ms.tolist() == [2.0, 5.0] and (found.processes, found.iterations) == (2, 5)
    assert found.replicates[0].processes[0].latencies_ms == (1.0, 2.0, 6.0)
    with pytest.raises(Absent, match="profiling was off"):
        found.profile()


def test_a_side_without_process_column_is_one_process():
    table = INFERENCE_ITERS.build(phase=["measurement"] * 2, latency_ms=[1.0, 3.0])
    assert side_from_tables(table, None, {"session_id": "s"}).medians_ms.tolist() == [2.0]


@pytest.mark.parametrize("latency", [0.0, math.nan, None])
def test_a_latency_that_cannot_be_is_refused(latency):
    table = INFERENCE_ITERS.build(phase=["measurement"] * 2, latency_ms=[1.0, latency], process=[0, 0])
    with pytest.raises(UsageError, match="session s"):
        side_from_tables(table, None, {"session_id": "s"})


def test_a_session_without_measured_inferences_is_refused():
    with pytest.raises(UsageError, match="no measured inferences"):
        side_from_tables(ITERS.slice(0, 1), None, {"session_id": "s"})
    with pytest.raises(TypeError, match="colour"):
        side_from_tables(ITERS, None, {"session_id": "s", "colour": "red"})


def test_kernels_outside_measured_inferences_are_left_out():
    kernels = KERNELS.build(kernel_name=["a", "a", "b"], iteration=[None, 0, 0], t_start_ns=[0, 10, 40],
                            t_end_ns=[9, 30, 45], dur_ns=[9, 20, 5])
    profile = side_from_tables(ITERS, kernels, {"session_id": "s"}).profile()
    assert (profile.inferences, profile.window_ns, profile.gaps_ns) == (1, 35, 10)
    assert [(kernel.family, kernel.calls, kernel.total_ns) for kernel in profile.kernels] == [("a", 1, 20), ("b", 1, 5)]


def profile_with(calls, each_ns, gaps_ns):
    return Profile(inferences=10, window_ns=10 * (calls * each_ns + gaps_ns), gaps_ns=10 * gaps_ns, overlap_ns=0,
                   kernels=({"family": "conv", "kernel_name": "Conv", "calls": 10 * calls,
                             "total_ns": 10 * calls * each_ns},))


def judged(factor, before, after, tolerance=5.0):
    baseline, current = side(QUIET, profile=before), side(scaled(QUIET, factor), profile=after)
    return judge(baseline, current, compare(baseline, current, tolerance), differences(baseline, current), "0.1",
                 "aaco diff --baseline b --session s")


def test_the_verdict_names_the_family_and_the_missions_deltas():
    found = judged(1.45, profile_with(100, 80, 2000), profile_with(170, 76, 2000))
    assert f"<td style='text-align:left'>{found.status}</td>" in found._repr_html_()
    assert (found.regression, found.severity, found.status) == (True, "high", "regressed")
    assert found.suspected_cause == "conv: more executions per inference"
    assert found.evidence["kernel_launch_count_delta"] == "+70.0%"
    assert found.evidence["avg_kernel_duration_delta"] == "-5.0%"
    assert sum(cause.delta_ns for cause in found.causes) == 10 * (170 * 76 - 100 * 80)
    assert "fusion" in found.recommendation
    assert found.confidence == found.p_regression > 0.95 and "calibrated" in found.confidence_why


def test_a_cause_is_named_only_where_the_profile_shows_the_change():
    hidden = judged(1.5, profile_with(100, 80, 2000), profile_with(101, 80, 2000))
    assert hidden.suspected_cause is None and "does not show" in hidden.why_absent["suspected_cause"]
    opposite = judged(1.5, profile_with(100, 80, 2000), profile_with(50, 80, 2000))
    assert opposite.suspected_cause is None
    unprofiled = judged(1.5, None, None)
    assert "no kernels recorded" in unprofiled.why_absent["suspected_cause"]
    assert "no kernels recorded" in unprofiled.why_absent["evidence.kernel_launch_count_delta"]
    unconfirmed = judged(1.0, profile_with(100, 80, 2000), profile_with(170, 80, 2000))
    assert unconfirmed.suspected_cause is None and "equivalent" in unconfirmed.why_absent["suspected_cause"]


@pytest.mark.parametrize(("after", "cause"), [
    (profile_with(100, 140, 2000), "conv: longer executions"),
    (profile_with(100, 80, 9000), "longer gaps between kernels"),
])
def test_duration_and_gaps_as_causes(after, cause):
    assert judged(1.6, profile_with(100, 80, 2000), after).suspected_cause == cause


@pytest.mark.parametrize("found", [
    judged(1.5, profile_with(100, 80, 2000), profile_with(170, 76, 2000)), judged(1.0, None, None),
], ids=["regressed", "equivalent"])
def test_every_null_of_the_document_has_its_reason(found):
    document = json.loads(found.model_dump_json())
    nulls = {name for name, value in document.items() if value is None} - {"confidence"}
    assert nulls <= set(document["why_absent"]) and all(document["why_absent"].values())
    assert RegressionVerdict.model_validate(document) == found


def test_too_few_processes_leave_nulls_with_a_reason_and_a_remedy():
    baseline, current = side([10.0]), side([12.0])
    found = judge(baseline, current, compare(baseline, current), (), "0.1", "aaco diff")
    assert found.status == "inconclusive" and found.ci is None and found.mde80_pct is None
    assert "no spread" in found.why_absent["mde80_pct"] and "--processes 5" in found.recommendation
    assert found.effect_pct == pytest.approx(20.0)


@pytest.mark.parametrize(("before", "after", "judged"), [
    ([5], [5], True), ([4], [5], False), ([5], [4], False), ([4], [4], False), ([8], [1], False), ([40], [4], False),
    ([1] * 8, [1], True), ([1] * 7, [1], False), ([1], [1] * 8, True), ([2] * 8, [3], True), ([3, 2], [5], True),
])
def test_a_verdict_needs_five_a_side_or_eight_sessions_against_fewer(before, after, judged):
    """A doubled latency. Mutations: LEAST = 4 or 6, ALONE = 7 or 9, sessions for processes."""
    def made(sizes, factor):
        return side(*(factor * (10 + 0.001 * np.arange(size) - 0.0005 * (size - 1)) for size in sizes))

    found = compare(made(before, 1.0), made(after, 2.0), 5.0)
    assert found.status == ("regressed" if judged else "inconclusive"), found.why
    if not judged:
        assert f"{sum(before)} against {sum(after)} processes" in found.why and "5 a side" in found.why
        assert "aaco run MODEL --processes 5" in judge(made(before, 1.0), made(after, 2.0), found, (), "0", "x"
                                                       ).recommendation


def test_sessions_as_units_must_be_as_many():
    """Where sessions scatter, five processes of one session are one unit. Mutation: the rule asked of processes."""
    found = compare(side(*(scaled(QUIET, factor) for factor in (1.0, 1.1, 0.9, 1.05, 1.02))),
                    side(scaled(QUIET, 9.0)), 5.0)
    assert (found.unit, found.units, found.status, found.veto) == ("session", (5, 1), "inconclusive", "too few")
    assert "sessions" in found.why


@pytest.mark.parametrize(("waits", "status"), [((0.0, 0.05), "regressed"), ((0.06, 0.0), "inconclusive"),
                                               ((0.0, 0.06), "inconclusive"), ((None, None), "regressed")])
def test_a_contaminated_session_is_not_judged(waits, status):
    """Mutations: a warning only; one side only; >= in place of >."""
    sides = [side(scaled(QUIET, factor), scheduler_interference=wait)
             for factor, wait in zip((1.0, 1.5), waits, strict=True)]
    found = compare(*sides, 5.0)
    assert found.status == status
    judgement = judge(*sides, found, (), "0.1", "aaco diff")
    if status == "inconclusive":
        assert "contaminated" in found.why and sides[waits.index(0.06)].session_ids[0] in found.why
        assert "--force" in judgement.recommendation and not judgement.regression
        assert compare(*sides, 5.0, doubtful_too=True).status == "regressed"
    assert bool(judgement.warnings) == (status == "inconclusive" or None in waits)


@pytest.mark.parametrize(("scores", "status"), [((50.0, 90.0), "regressed"), ((49.9, 90.0), "inconclusive"),
                                                ((90.0, 12.0), "inconclusive"), ((None, None), "regressed")])
def test_a_badly_measured_session_is_not_judged(scores, status):
    """Mutations: a warning only; one side only; <= in place of <; what is not known taken for bad."""
    sides = [side(scaled(QUIET, factor), quality=score, quality_parts="clean 0, drift 12; 100 % of the weight measured")
             for factor, score in zip((1.0, 1.5), scores, strict=True)]
    found = compare(*sides, 5.0)
    assert found.status == status
    if status == "inconclusive":
        assert found.veto == "measured badly" and "clean 0, drift 12" in found.why
        judgement = judge(*sides, found, (), "0.1", "aaco diff")
        assert "--force" in judgement.recommendation and not judgement.regression
        assert compare(*sides, 5.0, doubtful_too=True).status == "regressed"


def test_what_is_poor_is_poor_by_its_band():
    """Mutation: bands that move without the limit."""
    registry.load(metrics, "aaco.metrics")
    band = registry.METRICS["measurement_quality"].band
    assert (band(POOR), band(POOR - 1e-6)) == ("fair", "poor")


def test_a_session_says_nothing_against_itself():
    """A copied folder keeps its session id. Mutation: without the check, a copy is `equivalent`."""
    found = compare(side(QUIET, QUIET, ids=["a", "b"]), side(QUIET, ids=["b"]), 5.0)
    assert found.status == "inconclusive" and "session b is on both sides" in found.why


@pytest.mark.parametrize(("spread", "advice"), [(0.25, "--processes N"), (1.0, "Quieten the machine")])
def test_the_remedy_says_how_many_processes_are_needed(spread, advice):
    medians = 10 + spread * np.arange(5)
    baseline, current = side(medians), side(medians)
    found = judge(baseline, current, compare(baseline, current), (), "0.1", "aaco diff")
    needed = math.ceil(2 * (280 * np.std(np.log(medians), ddof=1) / 5) ** 2)
    assert f"about {needed} processes" in found.recommendation and advice in found.recommendation


def test_the_verdict_carries_every_field_of_the_methods_page():
    required = set("""schema_version status regression severity confidence latency_delta_pct suspected_cause evidence
        recommendation metric unit direction effect_pct ci level tolerance_pct p_regression p_value q_value mde80_pct
        sigma_session n_sessions n_iterations design order_randomised estimator baseline_ids env_diff change_point
        confirmed_by causes unknown_mass seed tool_version reproduce_command
    """.split())  # noqa: SIM905 - a list of forty strings is harder to read
    assert required <= set(RegressionVerdict.model_json_schema()["properties"])


@pytest.mark.parametrize(("status", "strict", "code"), [
    ("regressed", False, Exit.REGRESSION), ("regressed", True, Exit.REGRESSION), ("inconclusive", False, Exit.FINE),
    ("inconclusive", True, Exit.INCONCLUSIVE), ("no_baseline", False, Exit.FINE),
    ("no_baseline", True, Exit.INCONCLUSIVE), ("improved", True, Exit.FINE),
    ("equivalent", True, Exit.FINE), ("error", False, Exit.TOOL_ERROR),
])
def test_exit_codes(status, strict, code):
    assert exit_code(verdict_with(status=status), strict) is code


def test_severity_bands_follow_the_methods_page():
    assert verdict.SEVERITIES == ((50.0, "critical"), (20.0, "high"), (10.0, "medium"))
