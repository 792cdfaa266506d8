"""What a profiler's cost leaves of a verdict on the host."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.bottleneck import stretch
from aaco.analytics.bottleneck.budget import PROFILED, UNPROFILED
from aaco.analytics.bottleneck.calibration import FITTED
from aaco.core.readings import Reading


def share(name: str, value: float | None, method: str = PROFILED) -> Reading:
    return Reading(name, "pct", value, method=method)


@given(launch=st.floats(0, 100), others=st.floats(0, 100))
def test_the_threshold_is_where_the_unprofiled_share_is_the_fitted_one(launch: float, others: float) -> None:
    """Against the wall made anew: what the profiler added is taken out of the launching and of the whole.

    Mutations: the whole keeps its length; other waits shrink, too.
    """
    host = launch + others
    if host > 100:
        return
    shrunk = launch / FITTED.launch_stretch
    unprofiled_pct = 100 * (shrunk + others) / (100 - launch + shrunk)
    needed = stretch.host_needed_pct(share("host", host), share("launch", launch))
    if abs(unprofiled_pct - FITTED.host_pct) > 1e-6:
        assert (host >= needed) == (unprofiled_pct >= FITTED.host_pct)
    assert stretch.least_host_pct(host, launch) == pytest.approx(unprofiled_pct)


def test_a_wall_that_was_timed_without_a_profiler_is_taken_as_it_is() -> None:
    """Mutation: its launching shrinks as well."""
    host, launch = share("host", 40, UNPROFILED), share("launch", 40, UNPROFILED)
    assert stretch.host_needed_pct(host, launch) == FITTED.host_pct
    assert stretch.why_undecided(host, launch) == ""


def test_what_only_the_profiler_may_have_made_is_said_to_be_undecided() -> None:
    reason = stretch.why_undecided(share("host", 50), share("launch", 50))
    assert "50 % of the trace" in reason and "13 to 50 %" in reason and "--latency" in reason
    assert stretch.why_undecided(share("host", 90), share("launch", 90)) == ""
    assert stretch.why_undecided(share("host", 50), share("launch", 0)) == ""
    assert stretch.why_undecided(share("host", None), share("launch", None)) == ""
