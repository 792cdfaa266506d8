"""Change points, filters, hints and the forecast on series whose course is known."""

from __future__ import annotations

import ast
import math
import re

import numpy as np
import pytest
from scipy import stats

from aaco.core.readings import Absent
from aaco.governance.changepoints import changes, documents, drift, filters, forecast, hints, noise
from aaco.governance.changepoints.drift import Question, Series
from aaco.tracelake.history.history import Accepted, Key
from tests.third_party import captures

RNG = np.random.default_rng


def noisy(levels, sigma=0.01, seed=1):
    return np.asarray(levels, float) * np.exp(RNG(seed).normal(0, sigma, len(levels)))


def series(values, name="decode", direction="lower_is_better", accepted=(), unit="ms"):
    count = len(values)
    return Series(Key(name, "latency_ms", "m", "c"), unit, direction, np.asarray(values, float),
                  tuple(f"s{i}" for i in range(count)), (None,) * count, tuple(f"c{i}" for i in range(count)), accepted)


def indices(values, **asked):
    return [item.index for item in changes.course(values, **asked).changes]


def test_the_baseline_is_the_median_and_the_scaled_mad():
    values = RNG(2).normal(10, 2, 4000)
    values[:40] = 1e6
    found = noise.baseline(values)
    assert found.sigma == pytest.approx(stats.median_abs_deviation(values, scale="normal"), rel=1e-4)
    assert (found.median, found.estimator) == (np.median(values), "median absolute deviation")
    assert found.residuals([found.median + found.sigma])[0] == pytest.approx(1)


def test_values_that_repeat_have_a_scale_and_a_constant_has_none():
    """A clock with steps: more than half of the values are one and the same, so their MAD is 0."""
    found = noise.baseline([5.0] * 8 + [6.0] * 4)
    assert found.estimator == "mean absolute deviation"
    assert found.sigma == pytest.approx(math.sqrt(math.pi / 2) * 4 / 12)
    with pytest.raises(Absent, match="every value is the same"):
        noise.baseline([5.0] * 12)
    with pytest.raises(Absent, match="finite"):
        noise.baseline([1.0] * 6 + [math.nan])


def test_memory_is_that_of_the_noise_whatever_steps_are_in_it():
    rng, values = RNG(3), np.zeros(4000)
    for place in range(1, 4000):
        values[place] = 0.6 * values[place - 1] + rng.normal()
    values[1000:] += 8
    assert noise.memory(values, 0.5) == pytest.approx(0.6, abs=0.06)
    assert noise.memory(rng.normal(size=4000), 0.5) < 0.06
    assert noise.effective(100, 0.6) == pytest.approx(25)


@pytest.mark.parametrize(("values", "why"), [
    ([1.0] * 5, "takes 6 values"), ([1.0] * 9 + [0.0], "value 9 is 0"), ([1.0] * 9 + [-1.0], "value 9 is -1"),
    ([math.nan] + [1.0] * 9, "value 0 is nan"), ([math.inf] * 9, "value 0 is inf"), ([], "there are 0")])
def test_what_is_no_history_has_a_reason(values, why):
    with pytest.raises(Absent, match=why):
        changes.course(values)


def test_a_constant_has_no_change_and_a_change_of_a_constant_is_one():
    assert changes.course([3.0] * 50) == changes.Course(50)
    assert indices([3.0] * 20 + [3.3] * 20) == [20]


def test_one_value_more_must_confirm_a_change():
    level = [10.0] * 40
    assert indices(noisy([*level, 14.0])) == []
    assert indices(noisy([*level, 14.0, 14.0])) == [40]


def test_a_spike_is_no_change_and_a_change_too_small_does_not_count():
    values = noisy([10.0] * 80)
    values[[20, 21, 50]] *= 3
    assert indices(values) == []
    stepped = noisy([10.0] * 60 + [10.3] * 60, 0.002)
    assert indices(stepped) == [60]
    assert indices(stepped, least_pct=5) == []


def test_a_small_change_of_long_stretches_is_found():
    """One sigma, too little for a window of 64: the coarser series see it."""
    found = indices(noisy([10.0] * 1000 + [10.1] * 1000))
    assert len(found) == 1 and abs(found[0] - 1000) <= 20


def test_wandering_noise_is_no_change_of_level():
    rng = RNG(5)
    found = 0
    for _ in range(20):
        values = np.zeros(300)
        for place in range(1, 300):
            values[place] = 0.8 * values[place - 1] + rng.normal(0, 0.01)
        found += len(indices(np.exp(values)))
    assert found <= 4  # of 6000 values; a test that takes them as independent finds over a hundred


def test_a_change_that_came_back_is_told_apart_from_one_that_stayed():
    course = changes.course(noisy([10.0] * 40 + [14.0] * 8 + [10.0] * 40))
    assert not course.changes
    assert [(item.index, item.until) for item in course.excursions] == [(40, 48)]
    assert course.excursions[0].change_pct == pytest.approx(40, abs=2)
    assert indices(noisy([10.0] * 40 + [14.0] * 8 + [12.0] * 40)) == [40, 48]
    assert indices(noisy([10.0] * 40 + [14.0] * 30 + [10.0] * 40)) == [40, 70]


def test_a_slope_is_not_a_flight_of_steps():
    course = changes.course(noisy(10 * np.exp(0.004 * np.arange(200))))
    assert not course.changes
    assert len(course.slopes) == 1
    assert course.slopes[0].change_pct == pytest.approx(100 * math.expm1(0.004 * 199), rel=0.05)


def test_the_change_has_its_size_and_an_interval_that_covers_it():
    inside = 0
    for seed in range(100):
        change, = changes.course(noisy([10.0] * 30 + [11.0] * 30, 0.02, seed)).changes
        inside += change.low_pct <= 10 <= change.high_pct
    assert inside >= 88
    assert change.before == pytest.approx(10, rel=0.02) and change.after == pytest.approx(11, rel=0.02)


def test_cost_that_moved_between_siblings_is_no_change():
    parse, run = noisy([30.0] * 40 + [40.0] * 40), noisy([70.0] * 40 + [60.0] * 40, seed=2)
    found = drift.examine([series(parse, "parse"), series(run, "run")], Question(recent=60))
    assert [one.status for one in found] == ["stable", "stable"]
    shift, = found[0].shifts
    assert shift.moved == pytest.approx(10, rel=0.05) and abs(shift.sum_changed) < 1
    slower = drift.examine([series(parse, "parse"), series(noisy([70.0] * 40 + [66.0] * 40), "run")],
                           Question(recent=60))
    assert [one.status for one in slower] == ["regressed", "improved"]


def test_an_accepted_shift_is_no_news_and_what_comes_after_it_is():
    accepted = (Accepted("s40", "Ada", "new tokenizer", 1),)
    values = noisy([10.0] * 40 + [12.0] * 18)
    assert drift.examine([series(values)], Question())[0].status == "regressed"
    assert drift.examine([series(values, accepted=accepted)], Question())[0].status == "stable"
    later = noisy([10.0] * 40 + [12.0] * 30 + [13.0] * 10)
    change = drift.last_change(series(later, accepted=accepted))
    assert change.index == 70
    assert change.before == pytest.approx(12, rel=0.02)
    with pytest.raises(Absent, match="the series has values"):
        filters.levelled(later, [80])


def test_what_became_of_a_series_depends_on_which_way_is_better():
    values = noisy([10.0] * 40 + [12.0] * 12)
    found = [drift.examine([series(values, direction=way)], Question())[0].status
             for way in ("lower_is_better", "higher_is_better")]
    assert found == ["regressed", "improved"]
    assert drift.examine([series(values)], Question(recent=5))[0].status == "stable"
    assert drift.examine([series(values[:4])], Question())[0].status == "insufficient"


def test_a_trend_says_when_it_reaches_a_limit_or_why_not():
    rising = noisy(10 * np.exp(0.005 * np.arange(80)))
    found = drift.examine([series(rising)], Question(limit=20, relative=True))[0]
    assert found.status == "drifting" and found.reached is not None
    assert found.reached.value == pytest.approx(math.log(1.2) / 0.005, rel=0.1)
    assert found.reached.low < found.reached.value < found.reached.high
    for limit, why in ((8.0, "beyond the limit already|leads away"), (1000.0, "too far"), (math.nan, "not a positive"),
                       (12.0, "beyond the limit already")):
        with pytest.raises(Absent, match=why):
            forecast.trend(rising).reaches(limit)
    with pytest.raises(Absent, match="no significant trend"):
        forecast.trend(noisy([10.0] * 80)).reaches(11)
    with pytest.raises(Absent, match="its own length"):
        forecast.trend(rising).predict(81)
    with pytest.raises(Absent, match="a trend takes 12"):
        forecast.trend(rising, 70)
    with pytest.raises(Absent, match="no scatter"):
        forecast.trend([5.0] * 40)


def test_the_trend_of_independent_noise_is_that_of_scipy():
    """Without memory the fit is ordinary least squares; ours is at most a little less sure."""
    values = noisy(10 * np.exp(0.001 * np.arange(400)))
    found, expected = forecast.trend(values), stats.linregress(np.arange(400), np.log(values))
    assert found.slope_pct == pytest.approx(100 * math.expm1(expected.slope), rel=0.02)
    half = stats.t.ppf(0.975, 398) * expected.stderr
    assert 0.9 < (found.high_pct - found.low_pct) / (200 * half) < 1.5


def test_wandering_noise_is_no_trend():
    """At a level of 1 %; ordinary least squares would see one in every sixth of these."""
    rng, seen = RNG(9), 0
    for _ in range(100):
        values = np.zeros(60)
        for place in range(1, 60):
            values[place] = 0.6 * values[place - 1] + rng.normal(0, 0.01)
        seen += forecast.trend(np.exp(values)).significant
    assert seen <= 4


def test_the_watch_is_held_to_the_baseline_and_never_follows_the_new_values():
    """A level that creeps: limits around a moving mean would take it in."""
    residuals = np.concatenate((RNG(6).normal(0, 1, 50), 4 + RNG(7).normal(0, 1, 200)))
    assert next(hints.ewma(residuals)).index < 60
    assert len(list(hints.cusum(residuals[50:]))) > 50  # begun anew after each hint, it hints again and again
    first = next(hint for hint in hints.cusum(residuals) if hint.index >= 50)
    assert first.upward and 45 <= first.since <= first.index
    assert next(hints.cusum(-residuals)).upward is False


def test_ewma_has_the_limits_of_its_age():
    """One value beyond the first, narrow limit of 3 x 0.1 sigmas hints at once; later it would not."""
    assert [hint.index for hint in hints.ewma([3.1])] == [0]
    assert not list(hints.ewma([0.0] * 40 + [3.1]))


def test_a_run_length_is_that_of_the_markov_chain():
    """CUSUM's average run length by Brook & Evans (1972), 2 x 60 states, against ours over 400 runs."""
    states, slack, most = 60, 0.5, 4.0
    width = 2 * most / (2 * states - 1)
    middles = width * np.arange(states)
    step = np.empty((states, states))
    for row, at in enumerate(middles):
        edges = stats.norm.cdf(np.append(middles - width / 2, middles[-1] + width / 2) - at + slack)
        step[row] = np.concatenate(([edges[1]], np.diff(edges)[1:]))
    one_sided = np.linalg.solve(np.eye(states) - step, np.ones(states))[0]
    rng = RNG(8)
    runs = [next(hints.cusum(iter(lambda: rng.normal(), None), slack, most)).index + 1 for _ in range(400)]
    assert np.mean(runs) == pytest.approx(one_sided / 2, rel=0.15)


def test_the_documents_hold_what_was_found_and_why_not():
    found = drift.examine([series(noisy([10.0] * 40 + [12.0] * 10)), series([1.0, 2.0], "short")], Question())
    status = documents.drift_status(found, Question(), "1").model_dump(mode="json")
    assert (status["status"], status["counts"]) == ("regressed", {"regressed": 1, "insufficient": 1})
    point = status["series"][0]["change_point"]
    assert point["at"] == {"index": 40, "session_id": "s40", "commit": "c40", "time_ns": None} and point["worse"]
    assert status["series"][0]["trend"] is None and "a trend takes 12" in status["series"][0]["why_absent"]["trend"]
    short = status["series"][1]
    assert all(short["why_absent"][name] for name in ("change_points", "trend", "level", "time_to_limit"))
    points = documents.change_points(found, Question(), "1").model_dump(mode="json")
    assert points["series"][0]["change_points"] == [point]
    assert points["series"][1]["why_absent"]


@pytest.mark.captures
def test_otavas_own_series_has_its_two_large_changes():
    text = re.search(r"return (\[.*?\])", (captures() / "stats/otava_tigerbeetle_test.py.txt").read_text())
    assert indices(ast.literal_eval(text[1]), least_pct=5) == [15, 71]


def test_several_series_have_the_courses_that_each_has_alone() -> None:
    """To the bit: their windows are only segmented together. Mutation: all have the kernel of the first."""
    random = RNG(5)
    series = [np.exp(random.normal(0, scale, count)) for scale, count in
              ((0.01, 6), (0.2, 40), (0.02, 64), (0.05, 700))]
    for values in series[1:]:
        values[len(values) // 3:] *= 2.5
    series.append(np.full(30, 2.0))
    together = changes.courses(series)
    assert together == [changes.course(values) for values in series]
    assert sum(len(course.changes) for course in together) >= 3
