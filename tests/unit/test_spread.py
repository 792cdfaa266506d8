"""The spread of units: against scipy, textbook formulas and simulation; histories, accepted shifts, turns in time."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from aaco.core.readings import Absent
from aaco.governance.compare import judge
from aaco.governance.spread import DIFFER, epochs, estimate, in_pairs


def singles(values):
    return [np.array([value]) for value in values]


def test_a_history_of_single_processes_is_pooled_as_groups_of_an_analysis_of_variance():
    """Mutation: a history that is left out, or taken for one group with the sides."""
    rng = np.random.default_rng(1)
    before, after, old, older = (rng.standard_normal(size) + 5 * shift for shift, size in enumerate((5, 5, 9, 4)))
    found = estimate(singles(before), singles(after), [singles(old), singles(older)])
    groups = (before, after, old, older)
    degrees = sum(len(group) - 1 for group in groups)
    assert found.degrees == degrees and found.history == 13
    within = sum(group.var(ddof=1) * (len(group) - 1) for group in groups) / degrees
    assert found.sigma == pytest.approx(math.sqrt(within), rel=1e-12)
    assert found.standard_error == pytest.approx(math.sqrt(within * 2 / 5))


def test_without_a_history_it_is_students_t():
    rng = np.random.default_rng(2)
    before, after = rng.standard_normal(7), rng.standard_normal(5) + 1
    found = judge(estimate(singles(before), singles(after)), 0.0, 0.95)
    assert found.p_value == pytest.approx(stats.ttest_ind(after, before).pvalue, rel=1e-12)


def test_a_history_of_another_level_makes_no_difference_between_the_sides():
    rng = np.random.default_rng(3)
    before, after, history = (singles(rng.standard_normal(8)) for _ in range(3))
    here, elsewhere = (estimate(before, after, [[session + shift for session in history]]) for shift in (0.0, 50.0))
    assert here.effect == elsewhere.effect and here.sigma == pytest.approx(elsewhere.sigma)


def test_sessions_of_unequal_size_against_simulation():
    """Eight sessions of five processes against one of a single process: its value scatters more than theirs.
    Mutation: the variance of a session's mean taken to be the same for all."""
    rng, covered, repeats = np.random.default_rng(4), 0, 2500
    for _ in range(repeats):
        sides = [[0.03 * rng.standard_normal() + 0.04 * rng.standard_normal(size) for size in sizes]
                 for sizes in ([5] * 12, [1])]
        found = estimate(*sides)
        covered += abs(found.effect) <= stats.t.ppf(0.975, found.degrees) * found.standard_error
    assert 0.93 <= covered / repeats <= 0.97


@pytest.mark.parametrize("between", [0.0, 0.45, 1.0])
@pytest.mark.parametrize(("sessions", "history"), [((1, 1), 8), ((5, 5), 6)])
def test_false_alarms_stay_near_their_level_whatever_sessions_differ_by(sessions, history, between):
    """Mutations: DIFFER of 0.01 (sessions that differ are taken for none) or no pooling of processes."""
    rng, wrong, repeats = np.random.default_rng(5), 0, 1500

    def made(count):
        return list(between * rng.standard_normal((count, 1)) + rng.standard_normal((count, 5)))

    for _ in range(repeats):
        found = estimate(made(sessions[0]), made(sessions[1]), [made(history)] if history else ())
        wrong += abs(found.effect) > stats.t.ppf(0.975, found.degrees) * found.standard_error
    assert 0.028 <= wrong / repeats <= 0.075


def test_whether_sessions_differ_is_fishers_f():
    """At the limit itself, by scipy."""
    rng = np.random.default_rng(6)
    within = [rng.standard_normal(5) for _ in range(14)]
    within = [session - session.mean() for session in within]
    degrees = 12, 14 * 4
    mean_within = sum((session**2).sum() for session in within) / degrees[1]
    limit = stats.f.ppf(1 - dict(DIFFER)[12], *degrees)
    shape = np.array([-1.0, 1.0] * 7)  # two groups of seven sessions: 14 - 2 degrees
    shape[6], shape[13] = 0.0, 0.0
    unit = 5 * (shape**2).sum() / degrees[0]
    for share, differ in ((0.999, "process"), (1.001, "session")):
        shift = math.sqrt(share * limit * mean_within / unit)
        sides = [session + shift * sign for session, sign in zip(within, shape, strict=True)]
        assert estimate(sides[:7], sides[7:]).unit == differ


def test_one_against_one_is_known_only_by_a_history():
    with pytest.raises(Absent):
        estimate(singles([1.0]), singles([1.0]), [singles(range(7))])
    assert estimate(singles([1.0]), singles([1.0]), [singles(range(8))]).degrees == 7


def test_neighbours_in_either_order_are_compared_pair_by_pair():
    rng = np.random.default_rng(7)
    before, after = rng.standard_normal(5), rng.standard_normal(5)
    found = in_pairs(singles(before), singles(after), [False, True, True, False, False, True, True, False, True, False])
    oracle = stats.ttest_rel(after, before)
    assert judge(found, 0.0, 0.95).p_value == pytest.approx(oracle.pvalue, rel=1e-9)
    assert found.degrees == 4


@pytest.mark.parametrize("order", [
    [], [False] * 5 + [True] * 5, [False, True] * 5, [True, False] * 5, [False, True, True, False],
    [False, False, True, True, False, True, True, False, True, False]])
def test_sides_that_did_not_take_turns_are_not_paired(order):
    assert in_pairs(singles(range(5)), singles(range(5)), order) is None


def test_a_drift_that_both_sides_share_is_no_change():
    """Mutation: sides that took turns compared unpaired find nothing of a change of 3 %."""
    rng, order = np.random.default_rng(8), np.array([0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0], bool)
    seen = 0
    for _ in range(200):
        values = np.cumsum(0.05 * rng.standard_normal(12)) * 0.1 + 0.002 * rng.standard_normal(12) + 0.03 * order
        found = in_pairs(singles(values[~order]), singles(values[order]), order.tolist())
        seen += judge(found, 0.0, 0.95).p_value < 0.05
    assert seen > 180


def table(rows):
    return pa.table({"session_id": [row[0] for row in rows], "value": [float(row[1]) for row in rows]})


def test_an_accepted_shift_moves_the_mean_and_keeps_the_variance():
    rows = [(f"s{day}", 10 + 0.01 * (-1) ** day) for day in range(10)]
    rows += [(f"t{day}", 20 + 0.02 * (-1) ** day) for day in range(10)]
    shifted = epochs(table(rows), ["t0"], ["s3"], 1)
    assert [len(epoch) for epoch in shifted] == [9, 10]
    spread = estimate(singles([1.0] * 2), singles([1.0] * 2), shifted).sigma
    assert spread < 0.002 < 0.2 < estimate(singles([1.0] * 2), singles([1.0] * 2),
                                           epochs(table(rows), [], [], 1)).sigma


def test_values_without_a_logarithm_are_no_history():
    found = epochs(table([("a", 0.0), ("a", -1.0), ("b", math.inf), ("c", math.nan), ("d", 2.0), ("d", 4.0)]), [], [],
                   -1)
    assert len(found) == 1 and found[0][0] == pytest.approx(-np.log([2.0, 4.0]))
    assert epochs(table([]), ["x"], [], 1) == []
