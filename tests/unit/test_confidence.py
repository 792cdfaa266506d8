"""A verdict's margin and its calibrated probability; Wilson's interval."""

import pytest

from aaco.analytics.bottleneck.calibration import RELIABILITY, ReliabilityBin, Thresholds
from aaco.analytics.bottleneck.confidence import margin, probability
from aaco.core.readings import Reading, Verdict


def share(name, value, source="budget"):
    return Reading(name, "pct", value, source=source)


def test_the_margin_is_that_of_the_narrowest_essential_evidence():
    """Mutation: `max` in place of `min`."""
    verdict = Verdict("x", (share("a", 90).above(70, "", essential=True), share("b", 12).below(30, "", essential=True),
                            share("c", 5).above(1, "")))
    assert margin(verdict) == 18


@pytest.mark.parametrize("evidence", [
    (share("a", 60).above(70, "", essential=True),), (share("a", None).above(70, "", essential=True),),
    (share("a", 90, "window").above(70, "", essential=True),), ()])
def test_without_a_standing_verdict_over_the_budget_there_is_no_margin(evidence):
    assert margin(Verdict("x", evidence)) is None


def test_few_recordings_make_no_certainty():
    bins = (ReliabilityBin(0.0, 0, 0), ReliabilityBin(10.0, 8, 8))
    assert [probability(each, bins) for each in (None, 3.0, 10.0, 99.0)] == [None, 0.5, 0.9, 0.9]
    assert probability(5.0, ()) is None
    assert all(each.probability < 1 and each.right <= each.judged for each in RELIABILITY)


def test_the_thresholds_leave_room_for_one_class_at_a_time():
    """The device's and the host's shares cannot both pass: no step is called compute-bound and launch-bound."""
    assert Thresholds().device_pct + Thresholds().host_pct >= 100
