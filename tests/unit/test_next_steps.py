"""What a report says to do next: once for each limit, and where nothing can be advised, what would tell more."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from aaco.analytics.advice import recommend
from aaco.analytics.advice.expected import Expected
from aaco.analytics.bottleneck.ranks import RankTime, Windows
from aaco.analytics.diagnosis import ONLY_CAPTURED, Diagnosis, diagnose
from aaco.analytics.measure import measure
from aaco.analytics.timeline.idle import IdleTime
from aaco.analytics.timeline.timeline import DeviceTime
from aaco.analytics.timeline.windows import CaptureWindow
from aaco.analytics.truth.launches import TRACE_DEVICE
from aaco.analytics.truth.trust import Alarm, Trust
from aaco.analytics.workload.facts import WorkloadFact, WorkloadFacts
from aaco.core.config import Analysis
from aaco.core.documents import encode
from aaco.core.readings import Reading, Verdict
from aaco.report.sections import content
from aaco.tracelake.document_schemas.answers import Together
from tests.explained import Sample


def explained(diagnosis=None, facts=None, **shares):
    """An explanation of a trace whose time went to these parts, per cent, with this diagnosis and these facts."""
    readings = measure({}, None, Analysis()) | {name: Reading(name, "pct", share) for name, share in shares.items()}
    facts = WorkloadFacts(tuple(WorkloadFact(name, value) for name, value in (facts or {}).items()))
    examined = {"workload_facts": facts.document()}
    return replace(Sample().explain(), readings=readings, examined=examined,
                               diagnosis=diagnosis or diagnose(readings))


def said(explanation):
    return [text for _, text in content.next_steps(explanation)]


def test_a_condition_is_not_told_beside_the_action_that_says_more():
    """Mutation: every condition's advice is told."""
    late = Verdict("straggler", (), ("give the ranks equal work",))
    readings = {"straggler_wait_pct": Reading("straggler_wait_pct", "pct", 40.0)}
    advised = recommend.gaining(readings)
    assert [advice.name for advice in advised] == ["help_the_late_rank"]
    assert "give the ranks equal work" in said(explained(Diagnosis(None, "", (), (late,))))
    (text,) = said(explained(Diagnosis(None, "", (), (late,), advised)))
    assert text.startswith("Make the late rank as fast as the others")


def test_an_interval_without_width_is_a_bound_and_no_certainty():
    """Mutation: "2.43 to 2.43 in 9 of 10"."""
    (late,) = recommend.gaining({"straggler_wait_pct": Reading("straggler_wait_pct", "pct", 40.0)})
    for low, high, interval in ((2.431, 2.429, "if all that it acts on goes"), (1.06, 2.5, "1.06 to 2.50 in 9 of 10")):
        advised = replace(late, expected=Expected(2.43, low, high, 9, 3, own=True))
        (text,) = said(explained(Diagnosis(None, "", (), (), (advised,))))
        assert f"2.43 x faster expected ({interval}, by 9 recorded changes of this kind)" in text
        assert f"({interval.removesuffix(' in 9 of 10')})" in content.next_steps(
            explained(Diagnosis(None, "", (), (), (advised,))), brief=True)[0][1]


@pytest.mark.parametrize("brief", [True, False])
def test_a_gain_whose_interval_begins_below_what_is_worth_advice_is_no_promise(brief):
    """Mutation: `may_gain_nothing` is `low > LEAST_GAIN`."""
    (late,) = recommend.gaining({"straggler_wait_pct": Reading("straggler_wait_pct", "pct", 40.0)})
    for low, promised in ((1.04, False), (1.05, True)):
        advised = replace(late, expected=Expected(1.43, low, 2.5, 9, 3, own=True))
        ((_, text),) = content.next_steps(explained(Diagnosis(None, "", (), (), (advised,))), brief)
        assert f"{low:.2f} to 2.50" in text and (": maybe nothing" in text) is not promised


@pytest.mark.parametrize("brief", [True, False])
def test_what_makes_a_ceiling_plausible_is_told_beside_one(brief):
    """Mutation: `_evidence` is the evidence always."""
    (late,) = recommend.gaining({"straggler_wait_pct": Reading("straggler_wait_pct", "pct", 40.0)})
    for ceiling, is_told in ((19.9, True), (81.2, False)):
        advised = replace(late, ceiling=ceiling, floor_ms=0.5, works_pct=5.0)
        ((_, text),) = content.next_steps(explained(Diagnosis(None, "", (), (), (advised,))), brief)
        assert ("the device works 5 % of it" in text) is is_told


@pytest.mark.parametrize(("of", "words"), [
    ("the step without a profiler", "): at most 3.00 x faster."),
    ("the device's work in the profiled step", "): the device's work in the profiled step at most 3.00 x faster.")])
def test_a_first_screen_says_of_what_a_ceiling_is(of, words):
    """Mutation: "3.00 x faster of the profiled step"."""
    (late,) = recommend.gaining({"straggler_wait_pct": Reading("straggler_wait_pct", "pct", 40.0)})
    advised = replace(late, ceiling=3.0, ceiling_of=of, floor_ms=0.5)
    ((_, text), *_) = content.next_steps(explained(Diagnosis(None, "", (), (), (advised,))), brief=True)
    assert words in text


@pytest.mark.parametrize(("ceiling", "told"), [(19.9, True), (81.2, False)])
def test_a_ceiling_that_tells_nothing_is_not_told_of_several_changes_either(ceiling, told):
    """Mutation: what the first ones gain together is told whatever it is."""
    both = Together(actions=["a", "b"], ceiling=ceiling, floor_ms=0.5)
    texts = said(explained(Diagnosis(None, "", (), (), together=both), device_limited_pct=5.0))
    assert any(text.startswith("The first 2 together") for text in texts) is told


def test_where_the_trace_does_not_tell_why_the_device_idles_it_says_what_would():
    """Before what can be advised of the rest. Mutation: it is told only where there is no advice."""
    idle, late = {"device_limited_pct": 5.0, "memory_limited_pct": 5.0, "other_idle_pct": 95.0}, "straggler_wait_pct"
    advised = recommend.gaining({late: Reading(late, "pct", 4.0)})
    record = ("Record the calls of the runtime, too (rocprofv3 --runtime-trace): the device is idle 95.0 % of the "
              "time, and without them nothing tells why.")
    first, second = said(explained(Diagnosis(None, "", (), (), advised), {"vendor": "amd"}, **idle))
    assert first == record and second.startswith("Make the late rank as fast")
    traced = replace(explained(Diagnosis(None, "", (), ()), {"vendor": "amd"}, **idle),
                     captures={"captures": [{"format": "kineto"}]})
    assert "too (ProfilerActivity.CPU): the device" in said(traced)[0]
    (text,) = said(explained(Diagnosis(None, "", (), ()), {"vendor": "amd", "runtime": "hip"}, **idle))
    assert text == "Nothing can be advised: the device is idle 95.0 % of the time, and this trace does not tell why."


@pytest.mark.parametrize(("unstarted_ns", "told"), [(463_000_000, True), (100_000_000, False)])
def test_a_device_that_does_not_begin_launched_work_is_said_to(unstarted_ns, told):
    """Where that is most of its idle time. Mutations: of any; nothing is said of it."""
    idle = IdleTime(0, 0, None, None, 464_000_000, 9, {}, {}, 0, unstarted_ns, 1)
    rank = RankTime(0, 0, 0, DeviceTime(0, 0, *[0] * 15), idle, {}, 0, (), {}, 0, {}, ())
    judged = Windows((CaptureWindow(0, "whole", "", None, None, 1, 0, 474_000_000, 0, 474_000_000),), (rank,), ({},), 0)
    one = explained(Diagnosis(None, "", (), ()), {"runtime": "hip"}, device_limited_pct=3.0, other_idle_pct=97.0)
    (text,) = said(replace(one, examined={**one.examined, "windows": encode(judged)}))
    assert text.startswith("Nothing can be advised: the device is idle 97.0 % of the time, and this trace")
    assert (": for 463 ms, in 1 gap, it did not begin work that had been launched" in text) is told
    assert ("it did not begin" in text) is told


@pytest.mark.parametrize(("vendor", "form", "option"), [
    ("amd", "rocpd", " (rocprofv3 --kernel-trace)"), ("nvidia", "nsys", " (nsys profile --trace=cuda)"),
    ("nvidia", "kineto", " (ProfilerActivity.CUDA)"), ("cpu", "chrome", "")])
def test_the_option_of_the_captures_own_profiler_is_named(vendor, form, option):
    """Mutation: that of rocprofv3, of a trace of PyTorch on NVIDIA."""
    lost = Trust((Alarm("11 kernel launches were recorded", TRACE_DEVICE, "records"),))
    told = replace(explained(Diagnosis(None, "", (), (), trust=lost), {"vendor": vendor}),
                   captures={"captures": [{"format": form}]})
    assert said(told)[0] == f"trace the device too{option}"


def test_what_takes_most_of_the_time_is_named_where_no_action_is_known():
    """Mutation: it is said that no limit takes 1 % of the time."""
    (text,) = said(explained(Diagnosis(None, "", (), ()), device_limited_pct=90.0, memory_limited_pct=90.0,
                             launch_tax_pct=10.0))
    assert text == ("Nothing left to advise: no action is known against what takes most of the time, memory (90.0 %).")
    (text,) = said(explained(Diagnosis(None, "", (), ()), device_limited_pct=90.0, unplaced_kernel_pct=90.0))
    assert text == "Nothing can be advised: 90.0 % of the time goes to kernels of which nothing tells what limits them."
    (text,) = said(explained(Diagnosis(None, "", (), ()), device_limited_pct=0.0))
    assert text == "Nothing can be advised: the recorded work takes no time."


def test_the_capture_of_a_graph_has_no_time_against_which_something_could_be_advised():
    """Mutation: nothing is left to advise of it."""
    assert said(explained(Diagnosis(None, ONLY_CAPTURED, (), ()), device_limited_pct=90.0)) == []
