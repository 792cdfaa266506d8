"""Batch sweeps: what must not depend on units or order, and sets against their definitions."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from aaco.analytics.what_if.sweep import BatchPoint, curve

Positive = st.floats(0.01, 1000)


@st.composite
def points(draw):
    """One to seven points of free shape; coarse values make ties."""
    chosen = draw(st.lists(st.integers(1, 64), unique=True, min_size=1, max_size=7))
    number = draw(st.sampled_from([Positive, st.integers(1, 4).map(float)]))
    made = []
    for batch in chosen:
        latency, spread = draw(number), draw(st.none() | st.floats(0, 0.5))
        low, high = (None, None) if spread is None else (latency * (1 - spread), latency * (1 + spread))
        made.append(BatchPoint(batch, latency, low, high, draw(number)))
    return made


def scaled(point, time, rate):
    """The same point in other units."""
    return replace(point, latency_p50_ms=point.latency_p50_ms * time, throughput_per_s=point.throughput_per_s * rate,
                   low=point.low and point.low * time, high=point.high and point.high * time)


@given(points(), st.integers(-20, 20), st.integers(-20, 20))
def test_the_units_do_not_matter(made, time, rate):
    """Powers of two scale a double exactly, so the answers are equal to the last bit."""
    before, after = curve(made), curve([scaled(point, 2.0**time, 2.0**rate) for point in made])
    assert after.gains == before.gains and after.readings == before.readings and after.pareto == before.pareto
    slo = sorted(point.latency_p50_ms for point in made)[len(made) // 2]
    assert after.best_under(slo * 2.0**time).value == before.best_under(slo).value


@given(points(), st.randoms(use_true_random=False))
def test_the_order_of_points_does_not_matter(made, random):
    shuffled = list(made)
    random.shuffle(shuffled)
    assert curve(shuffled).document() == curve(made).document()


@given(points())
def test_the_pareto_set_is_the_staircase(made):
    """The other way round: for each latency the best throughput, kept while it beats all that is faster."""
    best: dict[float, float] = {}
    for point in made:
        best[point.latency_p50_ms] = max(point.throughput_per_s, best.get(point.latency_p50_ms, 0.0))
    stairs, reached = set(), 0.0
    for latency, throughput in sorted(best.items()):
        if throughput > reached:
            stairs.add((latency, throughput))
            reached = throughput
    expected = {point.batch for point in made if (point.latency_p50_ms, point.throughput_per_s) in stairs}
    assert set(curve(made).pareto) == expected


@given(points())
def test_gains_multiply_up_to_the_whole_rise(made):
    found = curve(made)
    assume(all(-99 < gain.pct.value < 1e9 for gain in found.gains))  # else a percentage has lost its digits
    rise = 1.0
    for gain in found.gains:
        rise *= (1 + gain.pct.value / 100) ** _doublings(gain)
    assert rise == pytest.approx(found.points[-1].throughput_per_s / found.points[0].throughput_per_s, rel=1e-6)


@given(points())
def test_a_gain_is_distinct_exactly_where_two_intervals_are_apart(made):
    found = curve(made)
    for gain, old, new in zip(found.gains, found.points, found.points[1:], strict=False):
        if gain.is_distinct is not None:
            apart = (_rate(new, new.high) > _rate(old, old.low) * (1 + 1e-9)
                     or _rate(new, new.low) * (1 + 1e-9) < _rate(old, old.high))
            near = _near(_rate(new, new.high), _rate(old, old.low)) or _near(_rate(new, new.low), _rate(old, old.high))
            assert near or gain.is_distinct == apart
            slack = 1e-6 + 1e-12 * abs(gain.pct.value)  # a gain of 10^11 % has no digits after the point
            assert gain.pct.low <= gain.pct.value + slack and gain.pct.value <= gain.pct.high + slack


@given(points(), Positive)
def test_the_best_under_a_limit_is_the_best_of_those_that_meet_it(made, slo_ms):
    allowed = [point for point in made if (point.high or point.latency_p50_ms) <= slo_ms]
    found = curve(made).best_under(slo_ms)
    if not allowed:
        assert found.value is None and found.why_absent
    else:
        chosen = next(point for point in made if point.batch == found.value)
        assert chosen in allowed and chosen.throughput_per_s == max(point.throughput_per_s for point in allowed)


def _doublings(gain):
    return math.log2(gain.after / gain.before)


def _rate(point, latency):
    return point.throughput_per_s * point.latency_p50_ms / latency


def _near(a, b):
    return abs(a - b) <= 1e-9 * max(a, b)
