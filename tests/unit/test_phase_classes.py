"""What limits the prefill and decode steps of an engine: planted budgets."""

import pytest

from aaco.analytics.measure import measure
from aaco.analytics.phase_classes import phase_classes
from aaco.analytics.truth.trust import Alarm, Trust
from aaco.core.config import Analysis

ABSENT = measure({}, None, Analysis())


def judge(*budgets):
    return {phase.phase: phase for phase in phase_classes(budgets, ABSENT, None)}


def test_each_phase_has_the_class_of_its_own_time():
    """Mutation: the budgets of all phases are one."""
    found = judge(("decode", 2, {"memory": 80.0, "compute": 5.0, "idle": 5.0}), ("decode", 1, {"memory": 40.0}),
                  ("prefill", 1, {"compute": 90.0, "idle_before": 10.0}), (None, 4, {"compute": 900.0}))
    assert [(phase, judged.steps, judged.label) for phase, judged in found.items()] == [
        ("prefill", 1, "compute_bound"), ("decode", 3, "memory_bound")]
    assert found["decode"].budget == {"memory": 120.0, "compute": 5.0, "idle": 5.0}
    assert found["decode"].confidence and found["decode"].confidence > 0.9


@pytest.mark.parametrize(("budget", "why"), [
    ({"memory": 30.0, "idle": 40.0, "idle_before": 30.0}, "waits 70 % of the time of mixed steps"),
    ({"memory": 40.0, "kernel": 60.0}, "60 % of the wall time is in kernels of which nothing tells what limits them"),
    ({}, "")])
def test_a_phase_without_evidence_has_no_class_and_the_reason(budget, why):
    """Mutation: idle time is left out of the shares."""
    (judged,) = phase_classes([("mixed", 1, budget)], ABSENT, None)
    assert judged.label is None and judged.confidence is None and judged.why and why in judged.why


def test_why_a_device_waits_is_not_said_to_be_known():
    """A session may have no diagnosis, either. Mutation: it is promised to say why."""
    (judged,) = phase_classes([("decode", 1, {"memory": 5.0, "idle": 95.0})], ABSENT, None)
    assert "waits 95 % of the time of decode steps; why is judged of the whole session alone" in judged.why


def test_a_phase_has_no_class_where_nothing_can_judge_it():
    """Mutation: the reason is not asked for."""
    (judged,) = phase_classes([("decode", 2, {"memory": 95.0, "idle": 5.0})], ABSENT, None, why_none="engines share it")
    assert (judged.label, judged.confidence, judged.why) == (None, None, "engines share it")


def test_a_trace_whose_times_are_wrong_gives_no_phase_a_class():
    """Mutation: the trace check is left out."""
    false = Trust((Alarm("a clock jumped", harm="times"),), checked=True)
    (judged,) = phase_classes([("decode", 2, {"memory": 95.0, "idle": 5.0})], ABSENT, None, false)
    assert judged.label is None and "a clock jumped" in judged.why
