"""What to do next: never a gain beyond the time attributed, and only from what was measured."""

import math

from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.bottleneck import recommend
from aaco.analytics.diagnosis import diagnose
from aaco.core import registry
from aaco.core.config import Analysis
from aaco.core.readings import Reading

USED = ("launch_tax_pct", "host_pause_pct", "allocation_call_pct", "sync_limited_pct", "transfer_limited_pct",
        "pageable_copy_pct", "device_limited_pct", "memory_limited_pct", "compute_limited_pct",
        "memory_latency_limited_pct", "exposed_communication_pct")
values = st.fixed_dictionaries({name: st.none() | st.floats(0, 100) for name in USED})


def readings(found):
    return {name: Reading(name, "pct", value, "" if value is not None else "not recorded", source="budget")
            for name, value in found.items()}


@given(values)
def test_no_gain_is_beyond_the_time_attributed(found):
    """Mutation: leaving out the clamp of `feasible` lets transfers hide behind more work than there is."""
    made = recommend.ranked(readings(found))
    assert [one.gain_pct for one in made] == sorted((one.gain_pct for one in made), reverse=True)
    for one in made:
        assert recommend.LEAST_PCT <= one.gain_pct <= one.share_pct <= 100
        assert one.speedup is None or math.isclose(one.speedup, 1 / (1 - one.gain_pct / 100))
        assert one.entry().confirm.direction in ("up", "down")


def test_what_was_not_measured_is_not_advised():
    assert recommend.ranked(readings(dict.fromkeys(USED))) == ()
    only = {**dict.fromkeys(USED), "launch_tax_pct": 80.0}
    assert [one.name for one in recommend.ranked(readings(only))] == ["device_graph"]


def test_amdahl():
    """80 % launching of which nine tenths can go: 72 % at most, 1 / (1 - 0.72) = 3.57 times faster."""
    (one,) = recommend.ranked(readings({**dict.fromkeys(USED), "launch_tax_pct": 80.0}))
    assert math.isclose(one.gain_pct, 72) and math.isclose(one.speedup, 1 / 0.28)


def test_each_action_is_confirmed_by_a_metric_that_exists():
    from aaco.analytics.measure import measure

    known = measure({}, None, Analysis())
    assert {one.confirm for one in recommend.ACTIONS} <= set(registry.METRICS)
    assert len({one.name for one in recommend.ACTIONS}) == len(recommend.ACTIONS)
    assert diagnose(known).recommendations == ()
