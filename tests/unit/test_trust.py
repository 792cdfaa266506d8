"""What the trace check takes away: no class from what is missing, and none that the fault does not touch."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from aaco.analytics.diagnosis import UNKNOWN, diagnose
from aaco.analytics.measure import measure
from aaco.analytics.truth import trust
from aaco.core.config import Analysis
from aaco.core.readings import Reading
from aaco.workflows import judge
from tests.explained import Sample
from tests.verdicts import verdict_with

LOST = {"check": "launches_without_work", "weight": "lost", "count": 180, "of": 200,
        "text": "180 launches have no work", "advice": "record it again", "alarms": True}
FALSE = {"check": "overlap_on_one_queue", "weight": "wrong", "count": 3, "of": 1000, "text": "kernels overlap",
         "advice": "", "alarms": True}
CLOCKS = {"check": "starts_before_its_launch", "weight": "wrong", "count": 50, "of": 100, "text": "the clocks disagree",
          "advice": "align", "alarms": True}
NOTE = {"check": "no_times", "weight": "note", "count": 1, "of": 100, "text": "one has no time", "advice": "",
        "alarms": False}
BOUND = {
    "cpu_bound": {"host_limited_pct": 90.0, "host_pause_pct": 88.0, "launch_tax_pct": 1.0, "sync_limited_pct": 1.0},
    "sync_bound": {"host_limited_pct": 60.0, "host_pause_pct": 2.0, "launch_tax_pct": 1.0,
                   "sync_limited_pct": 57.0},
    "transfer_bound": {"transfer_limited_pct": 70.0, "device_limited_pct": 20.0, "host_limited_pct": 5.0},
    "compute_bound": {"device_limited_pct": 80.0, "compute_limited_pct": 70.0, "host_limited_pct": 15.0},
    "memory_bound": {"device_limited_pct": 75.0, "memory_limited_pct": 55.0, "host_limited_pct": 20.0},
}


def document(*findings: dict[str, Any], captures: int = 1) -> dict[str, Any]:
    account = {"in_file": {"count": 9, "ns": 9}}
    return {"trusted": not any(finding["alarms"] for finding in findings),
            "captures": [{"capture": number, "findings": list(findings) if number == captures - 1 else [],
                          "account": account} for number in range(captures)]}


def readings(label: str) -> dict[str, Reading]:
    empty = measure({}, None, Analysis())
    return empty | {name: Reading(name, "pct", value, source="budget") for name, value in BOUND[label].items()}


def judged(label: str, *findings: dict[str, Any]):
    return diagnose(readings(label), trust=trust.of(document(*findings)))


@pytest.mark.parametrize("label", BOUND)
def test_a_sound_trace_has_its_class(label):
    found = judged(label, NOTE)
    assert found.label == label and found.confidence and found.trust.line == f"{trust.NOTHING}, 1 remark"


@pytest.mark.parametrize(("label", "fault", "stands"), [
    ("cpu_bound", LOST, False), ("sync_bound", LOST, False), ("transfer_bound", LOST, False),
    ("memory_bound", LOST, False),  # 55 % of the wall: the lost kernels may have filled the rest with something else
    ("compute_bound", LOST, True),  # 70 % of the wall stay the majority, whatever ran in the rest
    *((label, FALSE, False) for label in BOUND),
    ("cpu_bound", CLOCKS, False), ("sync_bound", CLOCKS, False), ("transfer_bound", CLOCKS, True),
    ("compute_bound", CLOCKS, True), ("memory_bound", CLOCKS, True)])
def test_a_fault_takes_the_classes_that_rest_on_what_it_makes_false(label, fault, stands):
    """Mutation: without `against` every class stands."""
    found = judged(label, fault)
    assert found.label == (label if stands else UNKNOWN)
    assert stands or (fault["text"] in found.abstained_because and ". " not in found.abstained_because)
    assert found.confidence is None and found.document()["trust"]["trusted"] is False
    assert found.trust.line.startswith(trust.NOT_TRUSTED) and fault["text"] in found.trust.line


def test_gains_are_not_told_from_shares_that_the_fault_makes_false():
    """Mutation: `gains_stand` always true."""
    assert [advice.name for advice in judged("cpu_bound").recommendations] == ["move_host_work", "device_graph"]
    assert judged("cpu_bound", LOST).recommendations == ()
    assert judged("compute_bound", FALSE).recommendations == ()
    assert [advice.name for advice in judged("compute_bound", CLOCKS).recommendations] == [
        "narrower_types", "allow_tf32", "eight_bit_types"]
    assert judged("sync_bound", CLOCKS).recommendations == ()


def test_a_rare_record_is_told_and_takes_nothing_away():
    """One launch of a thousand: the line says it, the class and its confidence stay. Mutation: RARE ignored."""
    found = judged("cpu_bound", LOST | {"count": 1, "of": 1000})
    assert found.label == "cpu_bound" and found.confidence and not found.trust.trusted


def test_nothing_stands_because_the_times_are_false_and_not_for_lack_of_shapes():
    untold = readings("compute_bound") | {"unplaced_kernel_pct": Reading("unplaced_kernel_pct", "pct", 100.0),
                                          "compute_limited_pct": Reading("compute_limited_pct", "pct", 0.0)}
    found = diagnose(untold, trust=trust.of(document(FALSE)))
    assert FALSE["text"] in found.abstained_because and "record_shapes" not in found.abstained_because


def test_a_class_that_rests_on_telemetry_stays():
    assert trust.against("throttled", trust.of(document(FALSE)), {}) == ""


def test_the_line_names_the_capture_of_several_and_counts_the_others():
    line = trust.of(document(LOST, CLOCKS, captures=2)).line
    assert line == f"{trust.NOT_TRUSTED}: capture 1: {LOST['text']} (and 1 more alarm)"


def test_what_ended_early_says_so_first():
    ended = trust.of(document(LOST), trust.unfinished("failed", "out of memory"))
    assert ended.line == f"{trust.NOT_TRUSTED}: the recording failed: out of memory (and 1 more alarm)"
    assert trust.unfinished("complete", None) == "" and trust.of({}).line == ""
    assert trust.of({}).entry().trusted is None


def test_a_verdict_warns_first_of_a_side_whose_trace_is_false():
    """Mutation: `with_trust` gives the verdict back as it is."""
    before, after = Sample().explain(), Sample().explain()
    before = replace(before, session_id="s1", diagnosis=replace(before.diagnosis, trust=trust.of(document(LOST))))
    found = verdict_with(warnings=["noise"])
    assert judge.with_trust(found, [before, after]).warnings == [
        f"session s1 is {trust.NOT_TRUSTED}: {LOST['text']}", "noise"]
