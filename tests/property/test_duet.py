"""The statistics of a duet against closed formulas, brute force and scipy; what cannot be measured has no numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import special, stats

from aaco.core import statistics
from aaco.core.errors import UsageError
from aaco.core.readings import Absent
from aaco.core.tables import PAIRS
from aaco.governance.interleaved import duet
from aaco.governance.interleaved.duet import Fit, Look, Prior, Unit
from aaco.workflows.duet import schedule

ratios = st.floats(-0.5, 0.5, allow_nan=False).map(lambda value: round(value, 6))
signs = st.sampled_from([-1.0, 1.0])
LOOK = Look(5, 0.05)


def changes(*values, order=0.0):
    return [Unit("change", value, order, 100) for value in values]


def controls(*values, order=0.0):
    return [Unit("baseline control", value, order, 100) for value in values]


@given(st.lists(ratios, min_size=2, max_size=8))
def test_changes_alone_are_students_t(values):
    assume(np.std(values) > 1e-4)
    found, oracle = duet.fit(changes(*values)), stats.ttest_1samp(values, 0.0)
    assert found.effect == pytest.approx(oracle.statistic * found.standard_error, abs=1e-9)
    assert found.degrees == oracle.df
    judged = duet.judge(found, LOOK, 0.05, 5.0, "process", "")
    assert judged.p_value == pytest.approx(oracle.pvalue, rel=1e-6, abs=1e-12)
    low, high = oracle.confidence_interval(0.95)
    assert judged.low_pct == pytest.approx(100 * math.expm1(low), abs=1e-6)
    assert judged.high_pct == pytest.approx(100 * math.expm1(min(high, 700)), rel=1e-6, abs=1e-6)


@given(st.lists(ratios, min_size=2, max_size=6), st.lists(ratios, min_size=1, max_size=6))
def test_controls_without_an_order_only_add_their_squares(before, after):
    """Mutation: controls left out of the variance."""
    assume(np.std(before) > 1e-4)
    found = duet.fit(changes(*before) + controls(*after))
    squares = sum((value - np.mean(before)) ** 2 for value in before) + sum(value**2 for value in after)
    assert found.degrees == len(before) - 1 + len(after)
    assert found.sigma == pytest.approx(math.sqrt(squares / found.degrees))
    assert found.standard_error == pytest.approx(found.sigma / math.sqrt(len(before)))


@given(st.lists(st.tuples(ratios, signs), min_size=3, max_size=6), st.lists(st.tuples(ratios, signs), min_size=2,
                                                                           max_size=6))
def test_the_order_is_subtracted_as_least_squares_say(before, after):
    """Against the normal equations, solved exactly. Mutation: the order's column left out of the design."""
    units = [Unit("change", value, order, 1) for value, order in before]
    units += [Unit("current control", value, order, 1) for value, order in after]
    try:
        found = duet.fit(units)
    except Absent:
        return
    assume(found.order_effect is not None)
    rows = [(Fraction(one.kind == "change"), Fraction(one.order), Fraction(one.log_ratio)) for one in units]
    xx, xo, oo, xy, oy = (sum(row[a] * row[b] for row in rows) for a, b in ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2)))
    determinant = xx * oo - xo * xo
    assert found.effect == pytest.approx(float((oo * xy - xo * oy) / determinant), abs=1e-9)
    assert found.order_effect == pytest.approx(float((xx * oy - xo * xy) / determinant), abs=1e-9)
    assert found.standard_error == pytest.approx(found.sigma * math.sqrt(oo / determinant), rel=1e-6)


@given(st.lists(st.tuples(ratios, signs), min_size=4, max_size=9))
def test_swapped_sides_turn_the_answer_round(values):
    units = [Unit(duet.KINDS[at % 2], value, order, 1) for at, (value, order) in enumerate(values)]
    turned = [Unit(one.kind, -one.log_ratio, -one.order, 1) for one in units]
    try:
        there, back = duet.fit(units), duet.fit(turned)
    except Absent:
        return
    assert back.effect == pytest.approx(-there.effect, abs=1e-12)
    assert back.standard_error == pytest.approx(there.standard_error)


def test_a_bias_of_the_order_is_not_in_the_estimate():
    """Later created sides are 1 % slower; nothing else differs. Mutation: orders not given to the fit."""
    rng = np.random.default_rng(4)
    for orders in ((1, 1, 1, 1, -1), (1, -1, -1, -1, -1)):
        units = [Unit("change", 0.01 * order + rng.normal(0, 1e-5), order, 1) for order in orders]
        units += [Unit("baseline control", 0.01 * order + rng.normal(0, 1e-5), order, 1) for order in (1, -1, 1, -1)]
        found = duet.fit(units)
        assert abs(found.effect) < 1e-4 and found.order_effect == pytest.approx(0.01, abs=1e-4)


def test_the_prior_is_found_again():
    """Runs of six whose variances are drawn from a known prior. Mutation: worth doubled or the digamma left out."""
    rng, degrees, scale = np.random.default_rng(8), 12.0, 0.01
    variances = scale**2 * degrees / rng.chisquare(degrees, 4000)
    found = duet.prior(rng.normal(0, np.sqrt(variances)[:, None], (4000, 6)).tolist())
    assert found.variance == pytest.approx(scale**2, rel=0.05) and found.degrees == pytest.approx(degrees, rel=0.2)
    assert found.runs == 4000


def test_runs_that_scatter_alike_are_worth_all_they_hold():
    rng = np.random.default_rng(1)
    base = rng.normal(0, 0.02, 6)
    found = duet.prior([(base * sign).tolist() for sign in (1, -1, 1, -1)])
    assert found.degrees == 20 and found.variance == pytest.approx(base.var(ddof=1))


@pytest.mark.parametrize("history", [[], [[0.1, 0.2]] * 2, [[0.1]] * 9, [[0.0, 0.0]] * 9, [[math.nan, 0.1]] * 9])
def test_a_history_that_says_too_little_is_no_prior(history):
    """Mutation: LEAST_RUNS = 2."""
    with pytest.raises(Absent):
        duet.prior(history)


def test_the_prior_is_pooled_by_degrees_unless_this_run_is_unlike_it():
    """Mutation: UNLIKE = 0 believes it always."""
    units = changes(0.01, -0.01, 0.02, -0.02, 0.0)
    own = np.var([one.log_ratio for one in units], ddof=1)
    found = duet.fit(units, Prior(2 * own, 6.0, 4))
    assert found.sigma**2 == pytest.approx((4 * own + 6 * 2 * own) / 10) and found.degrees == 10
    unlike = duet.fit(units, Prior(own / 50, 6.0, 4))
    assert unlike.sigma**2 == pytest.approx(own) and unlike.prior is None and "times as much" in unlike.why_no_prior


@given(st.integers(2, 40), st.integers(0, 100), st.floats(0.001, 0.5))
def test_looks_share_out_alpha(first, more, alpha):
    """Mutation: every look at the whole alpha."""
    looks = duet.looks(first, first + more, alpha)
    assert math.fsum(look.alpha for look in looks) == pytest.approx(alpha)
    counts = [look.processes for look in looks]
    assert counts[0] == first and counts[-1] == first + more and counts == sorted(set(counts))
    assert all(look.alpha > 0 for look in looks)


@given(st.floats(-0.2, 0.2), st.floats(1e-4, 0.1), st.floats(2, 50), st.sampled_from([0.01, 0.02, 0.05]))
def test_the_p_value_and_the_interval_agree_at_every_look(effect, error, degrees, look_alpha):
    """Mutation: p_value not scaled to the whole alpha."""
    fit = Fit(effect, error, degrees, error, None, None, "", 9)
    found = duet.judge(fit, Look(9, look_alpha), 0.05, 5.0, "process", "")
    assume(abs(found.p_value - 0.05) > 1e-9)
    assert (found.p_value < 0.05) == (found.low_pct > 0 or found.high_pct < 0)
    assert found.p_value == pytest.approx(min(1.0, 2 * stats.t.sf(abs(effect) / error, degrees) * 0.05 / look_alpha),
                                          rel=1e-6, abs=1e-12)


def test_the_smallest_change_is_seen_four_times_in_five():
    fit = Fit(0.0, 0.01, 7.0, 0.02, None, None, "", 5)
    mde = math.log1p(duet.judge(fit, LOOK, 0.05, 5.0, "process", "").mde80_pct / 100)
    assert stats.nct.sf(stats.t.ppf(0.975, 7), 7, mde / 0.01) == pytest.approx(0.8, abs=0.002)


def test_false_alarms_are_as_many_as_promised():
    """A thousand comparisons of a thing with itself, a history and early looks among them; seeded."""
    rng = np.random.default_rng(3)
    alarms = 0
    for _ in range(1000):
        orders = rng.choice([-1.0, 1.0], 20)
        units = [Unit(duet.KINDS[at % 2], value, order, 1) for at, (value, order)
                 in enumerate(zip(rng.normal(0, 0.01, 20) - 0.004 * orders, orders, strict=True))]
        believed = duet.prior(rng.normal(0, 0.01, (3, 5)).tolist())
        for look in duet.looks(5, 10, 0.05):
            found = duet.judge(duet.fit(units[:2 * look.processes], believed), look, 0.05, 1.0, "process", "")
            if found.p_value < 0.05:
                alarms += 1
                break
    assert 0.03 < alarms / 1000 < 0.06


@pytest.mark.parametrize("values, why", [((), "0 process"), ((0.1,), "1 process"), ((0.1, 0.1, 0.1), "very same")])
def test_too_little_or_constant_data_have_no_figures(values, why):
    """Mutation: own <= ROUNDING**2 made False judges constant data with certainty."""
    with pytest.raises(Absent, match=why):
        duet.fit(changes(*values))


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0])
@pytest.mark.parametrize("side", [0, 1])
def test_times_that_are_none_are_refused(bad, side):
    times = [np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0])]
    times[side][1] = bad
    with pytest.raises(ValueError):
        duet.unit("change", *times, 1.0, np.zeros(3, bool))


def test_a_process_says_the_median_of_its_pairs_not_the_ratio_of_medians():
    baseline, current = np.array([1.0, 10.0, 100.0]), np.array([2.0, 10.0, 90.0])
    assert duet.unit("change", baseline, current, 1.0, np.zeros(3, bool)).log_ratio == 0.0
    quiet = duet.unit("change", baseline, current, 1.0, np.array([False, True, True]), only_quiet=True)
    assert quiet.log_ratio == pytest.approx(math.log(2)) and (quiet.pairs, quiet.disturbed) == (1, 2)


def test_fewer_than_five_processes_are_no_verdict():
    """Mutation: LEAST_PROCESSES = 4."""
    found = duet.fit(changes(0.5, 0.51, 0.52, 0.5))
    assert duet.judge(found, LOOK, 0.05, 5.0, "process", "").status == "inconclusive"
    found = duet.fit(changes(0.5, 0.51, 0.52, 0.5, 0.5))
    assert duet.judge(found, LOOK, 0.05, 5.0, "process", "").status == "regressed"


@pytest.mark.parametrize("tolerance", [0.0, 0.49, math.nan, math.inf, -1.0])
def test_a_margin_below_what_the_order_alone_makes_is_refused(tolerance):
    with pytest.raises(UsageError):
        duet.judge(duet.fit(changes(0.1, 0.2)), LOOK, 0.05, tolerance, "process", "")


@settings(max_examples=30)
@given(st.floats(0.01, 1000))
def test_special_functions_are_scipys(x):
    assert statistics.digamma([x])[0] == pytest.approx(special.digamma(x))
    assert statistics.inverse_trigamma(float(special.polygamma(1, x))) == pytest.approx(x, rel=1e-6)
    assert statistics.f_upper(x, 4, 7) == pytest.approx(stats.f.sf(x, 4, 7), abs=1e-12)


@given(st.integers(0, 2**32), st.integers(2, 9), st.integers(0, 9), st.integers(1, 30), st.booleans(), st.booleans())
def test_the_order_is_balanced_and_the_seeds_own(seed, first, more, pairs, with_controls, created):
    """Mutation: orders not shuffled, or controls of one side only."""
    drawn = schedule.draw(seed, [first, first + more] if more else [first], pairs, with_controls, created)
    assert drawn == schedule.draw(seed, [first, first + more] if more else [first], pairs, with_controls, created)
    every = [process for look in drawn for process in look]
    assert [process.process for process in every] == list(range(len(every)))
    for look in drawn:
        kinds = [process.kind for process in look]
        assert len(kinds) - kinds.count("change") == (kinds.count("change") if with_controls else 0)
        for changed in (True, False):
            first_created = [p.created[0] for p in look if p.created and (p.kind == "change") == changed]
            assert abs(2 * sum(first_created) - len(first_created)) <= 1
        assert all((process.created is None) != created for process in look)
    assert all(abs(2 * sum(process.first) - pairs) <= 1 for process in every)
    sides = [process.kind for process in every]
    assert abs(sides.count("baseline control") - sides.count("current control")) <= 1


def test_only_quiet_pairs_count_where_a_device_works():
    """Mutation: LEAST_QUIET = 0 takes a process that was disturbed throughout."""
    count = 50
    table = PAIRS.build(process=[0] * count + [1] * count, kind=["change"] * 2 * count, pair=[*range(count)] * 2,
                        created_first=["baseline"] * count + ["current"] * count, ran_first=["baseline"] * 2 * count,
                        baseline_ms=[1.0] * 2 * count, current_ms=[1.0] * 10 + [2.0] * (2 * count - 10),
                        spin_ns=[300] * 10 + [100] * (count - 10) + [300] * (count - 10) + [100] * 10)
    table = duet.marked(table)
    quiet, = duet.units(table, only_quiet=True)
    assert (quiet.log_ratio, quiet.pairs, quiet.disturbed) == (math.log(2), 40, 10)
    assert [one.order for one in duet.units(table)] == [1.0, -1.0]
