"""The comparison under change of unit, swapping of sides and simulation; the decomposition sums exactly, always."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from aaco.governance.change import attribute
from aaco.governance.compare import Side, compare
from aaco.governance.spread import estimate
from aaco.tracelake.history.replicates import KernelSum, ProcessSample, Profile, Replicate

OPPOSITE = {"regressed": "improved", "improved": "regressed", "equivalent": "equivalent",
            "inconclusive": "inconclusive"}
medians = st.floats(0.01, 1e4, allow_nan=False)
sessions = st.lists(st.lists(medians, min_size=1, max_size=6), min_size=1, max_size=4)


SERIAL = itertools.count()


def side(groups, factor=1.0):
    return Side("side", tuple(
        Replicate(session_id=f"s{next(SERIAL)}", processes=tuple(ProcessSample.of(np.array([factor * value]))
                                                                 for value in group))
        for group in groups))


@given(sessions, sessions, st.sampled_from([0.0, 1.0, 5.0]))
def test_the_unit_of_time_does_not_matter(before, after, tolerance):
    in_ms, in_us = (compare(side(before, factor), side(after, factor), tolerance) for factor in (1.0, 1000.0))
    assume(in_ms.low_pct is not None and in_us.unit == in_ms.unit)  # units differ only where the mean squares tie
    for figure in ("effect_pct", "low_pct", "high_pct", "mde80_pct"):
        assert getattr(in_us, figure) == pytest.approx(getattr(in_ms, figure), rel=1e-6, abs=1e-6)


@given(sessions, sessions, st.sampled_from([0.0, 1.0, 5.0, 400.0]))
def test_swapping_the_sides_turns_the_answer_round(before, after, tolerance):
    there, back = compare(side(before), side(after), tolerance), compare(side(after), side(before), tolerance)
    assert back.status == OPPOSITE[there.status]
    assert (1 + there.effect_pct / 100) * (1 + back.effect_pct / 100) == pytest.approx(1.0)
    assert back.p_value == there.p_value and back.mde80_pct == there.mde80_pct
    if there.low_pct is not None:
        assert there.low_pct <= there.effect_pct + 1e-9 and there.effect_pct <= there.high_pct + 1e-9


@given(st.lists(medians, min_size=2, max_size=9), st.lists(medians, min_size=2, max_size=9))
def test_one_session_a_side_is_students_t(before, after):
    logs = np.log(before), np.log(after)
    assume(min(values.std() for values in logs) > 1e-3)
    found, oracle = compare(side([before]), side([after]), 0.0), stats.ttest_ind(logs[1], logs[0])
    assert found.p_value == pytest.approx(oracle.pvalue, rel=1e-8, abs=1e-12)
    assert found.degrees == oracle.df


@given(sessions, sessions)
def test_the_unit_is_decided_by_the_analysis_of_variance(before, after):
    """Where one side is one session, its F ratio is that of scipy on the other side with the spare one centred in."""
    logs = [[np.log(group) for group in groups] for groups in (before, after)]
    counts = sum(map(len, before)), sum(map(len, after))
    assume(min(counts) > 1 or max(counts) >= 8)
    everything = [group - np.concatenate(groups).mean() for groups in logs for group in groups]
    degrees = len(everything) - 2, sum(counts) - len(everything)
    found = estimate(*logs)
    if min(degrees) == 0:
        assert found.unit == "process"
        return
    whole = np.concatenate(everything)
    within = sum(((group - group.mean()) ** 2).sum() for group in everything)
    between = (whole**2).sum() - within
    ratio = (between / degrees[0]) / (within / degrees[1]) if within else math.inf
    limit = 1.0 if degrees[0] < 4 else stats.f.ppf(0.75, *degrees)
    assume(abs(ratio - limit) > 1e-6 and whole.std() > 1e-6)
    assert found.unit == ("session" if ratio > limit else "process")


def simulate(rng, shape, between, within, change=0.0):
    """Log medians of `shape` = (sessions, processes) with scatter between and within sessions."""
    return list(change + between * rng.standard_normal((shape[0], 1)) + within * rng.standard_normal(shape))


@pytest.mark.parametrize(("before", "after", "between", "least", "most"), [
    ((1, 5), (1, 5), 0.0, 0.935, 0.965), ((1, 8), (1, 1), 0.0, 0.935, 0.965), ((8, 5), (1, 5), 0.03, 0.93, 0.965),
    ((5, 5), (5, 5), 0.03, 0.93, 0.965), ((4, 5), (1, 5), 0.0, 0.95, 0.985), ((2, 5), (1, 5), 0.02, 0.84, 0.95),
], ids=["5 + 5 processes", "8 + 1", "8 + 1 drifting sessions", "5 + 5 drifting", "4 + 1 calm", "2 + 1 drifting"])
def test_the_interval_covers_the_truth_as_often_as_it_says(before, after, between, least, most):
    rng, truth, repeats = np.random.default_rng(7), 0.04, 4000
    quantile, covered = {}, 0
    for _ in range(repeats):
        found = estimate(simulate(rng, before, between, 0.02), simulate(rng, after, between, 0.02, truth))
        half = quantile.setdefault(found.degrees, stats.t.ppf(0.975, found.degrees)) * found.standard_error
        covered += abs(found.effect - truth) <= half
    assert least <= covered / repeats <= most


def test_taking_drifting_sessions_for_processes_would_not_cover():
    """The mistake that the session unit prevents: the same data with the session boundaries forgotten."""
    rng, repeats, covered = np.random.default_rng(7), 1000, 0
    for _ in range(repeats):
        data = simulate(rng, (8, 5), 0.03, 0.02), simulate(rng, (1, 5), 0.03, 0.02)
        found = estimate(*([np.concatenate(groups)] for groups in data))
        covered += abs(found.effect) <= stats.t.ppf(0.975, found.degrees) * found.standard_error
    assert covered / repeats < 0.75


families = st.dictionaries(st.sampled_from(["conv", "gemm", "norm", "copy"]),
                           st.tuples(st.integers(1, 10**6), st.integers(0, 10**12)), min_size=1)


@st.composite
def profiles(draw):
    found, gaps = draw(families), draw(st.integers(1, 10**10))
    total = sum(ns for _, ns in found.values())
    overlap = draw(st.integers(0, total))
    return Profile(inferences=draw(st.integers(1, 997)), window_ns=total + gaps - overlap, gaps_ns=gaps,
                   overlap_ns=overlap, kernels=tuple(KernelSum(family=name, kernel_name=name, calls=calls, total_ns=ns)
                                                     for name, (calls, ns) in found.items()))


@given(profiles(), profiles())
def test_the_parts_sum_to_the_change_exactly(before, after):
    change = attribute(before, after)
    per_inference = Fraction(after.window_ns, after.inferences) - Fraction(before.window_ns, before.inferences)
    assert Fraction(sum(part.delta_ns for part in change.parts), change.inferences) == per_inference
    for row in change.families:
        assert row.delta_count_ns + row.delta_duration_ns == row.ns_after - row.ns_before
        if row.count_before == row.count_after:
            assert row.delta_count_ns == 0


@given(profiles(), profiles())
def test_swapping_the_profiles_flips_every_part(before, after):
    there, back = attribute(before, after), attribute(after, before)
    assert {(part.family, part.kind): part.delta_ns for part in there.parts} == \
           {(part.family, part.kind): -part.delta_ns for part in back.parts}


@settings(max_examples=50)
@given(profiles(), st.integers(1, 50))
def test_the_same_work_more_often_is_no_change(profile, times):
    again = profile.model_copy(update={
        "inferences": profile.inferences * times, "window_ns": profile.window_ns * times,
        "gaps_ns": profile.gaps_ns * times, "overlap_ns": profile.overlap_ns * times,
        "kernels": tuple(kernel.model_copy(update={"calls": kernel.calls * times, "total_ns": kernel.total_ns * times})
                         for kernel in profile.kernels)})
    assert attribute(profile, again).parts == ()
