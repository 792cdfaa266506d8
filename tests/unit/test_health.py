"""The compute health index, its coverage and its trend."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.quality import health
from aaco.core.readings import Absent

GOOD = {"latency_cov_pct": 0.0, "hardware_envelope_utilization": 1.0, "launch_tax_pct": 0.0,
        "device_clock_variation_pct": 0.0, "device_temperature_max_c": 60.0, "scheduler_interference": 0.0}
BAD = {"latency_cov_pct": 10.0, "hardware_envelope_utilization": 0.0, "launch_tax_pct": 20.0,
       "device_clock_variation_pct": 5.0, "device_temperature_max_c": 95.0, "scheduler_interference": 0.05}


def test_weights_are_methods_and_the_ends_are_0_and_100():
    assert sum(part.weight for part in health.PARTS.values()) == pytest.approx(1)
    assert (health.index(GOOD).value, health.index(BAD).value) == (100, 0)
    assert health.index({**GOOD, "scheduler_interference": 0.025}).value == pytest.approx(95)


@given(st.sets(st.sampled_from(sorted(GOOD))))
def test_there_is_an_index_from_sixty_per_cent_of_the_weight_on(measured):
    """Mutation: `coverage <= NEEDED` loses sessions with exactly 60 %."""
    weight = sum(part.weight for part in health.PARTS.values() if part.metric in measured)
    values = {name: GOOD[name] if name in measured else None for name in GOOD}
    if weight >= 0.6 - 1e-9:
        found = health.index(values)
        assert found.value == pytest.approx(100) and f"{100 * weight:.0f} % of the weight" in found.method
    else:
        with pytest.raises(Absent, match="insufficient data"):
            health.index(values)


def test_the_trend_is_the_median_slope_of_the_last_ten():
    """Mutation: taking the first ten."""
    assert health.trend([0, 0, *range(50, 70, 2)]) == health.HealthTrend(2.0, 10)
    assert [health.trend(list(scores)).direction for scores in ((80, 70, 60), (80, 80.5, 81), (10, 30, 50))] == [
        "declining", "steady", "improving"]
    with pytest.raises(Absent, match="needs 3"):
        health.trend([80, 90])
