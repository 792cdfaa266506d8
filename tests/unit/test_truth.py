"""Checks of a trace against itself: a healthy one passes all, and each planted fault is found by the check for it.

Every test fails when its check's `findings` returns nothing, and the healthy trace's when a threshold is turned round.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from aaco import pipeline
from aaco.analytics.truth import launches, numbers
from aaco.analytics.truth.check import CaptureCheck, CaptureTruth, of_tables
from aaco.analytics.truth.counters import dead_counters
from aaco.analytics.truth.finding import Records, Slice
from aaco.core.config import resolve
from aaco.core.documents import encode
from aaco.core.tables import API_CALLS, COPIES, COUNTERS, KERNELS
from aaco.report.sections import truth as truth_report
from aaco.tracelake import layout
from aaco.tracelake.document_schemas.trace_check import TraceCheck
from benchmarks import losses
from tests import third_party
from tests.traces import healthy, tables, without


def check(columns: dict[str, Any], facts: dict[str, Any] | None = None) -> CaptureTruth:
    return of_tables(tables(columns), facts or {})


def found(truth: CaptureTruth) -> dict[str, tuple[str, int]]:
    return {finding.check: (finding.weight, finding.count) for finding in truth.findings}


def test_a_healthy_trace_is_trusted():
    truth = check(healthy())
    assert truth.trusted and not truth.findings
    assert truth.account.linked == truth.account.in_tables == (200, 200 * 20_000)


def test_kernels_that_were_lost_leave_launches_numbers_and_gaps():
    columns = healthy()
    columns["kernels"] = without(columns["kernels"], [7, 53, 121])
    truth = found(check(columns))
    assert truth["launches_without_work"] == ("lost", 3)
    assert truth["missing_dispatch_numbers"] == ("lost", 3)


@pytest.mark.parametrize("pieces", [1, 9])
def test_another_way_to_go_on_is_no_gap_and_a_launched_kernel_is_left_to_its_launch(pieces):
    """The last of twelve layers is followed by the head. Mutations: without what is behind; every kernel watched."""
    columns = healthy(repeats=48)
    names = np.array(columns["kernels"]["kernel_name"], object)
    names[4::60], names[55::60], names[56::60] = "norm", "head", "sample"  # nothing between norm and head
    columns["kernels"]["kernel_name"] = names.tolist()
    skip = [row for row in range(240) if row % 60 == 54]  # the last norm is left out: gemm2, head
    columns["kernels"] = without(columns["kernels"], skip)
    calls = columns["api_calls"]
    launched = tables(columns)
    columns["api_calls"] = without(calls, range(len(calls["name"])))
    alone = tables(columns)
    assert "gaps_in_a_repeated_sequence" not in found(_sliced(alone, pieces))
    lost = alone | {"kernels": alone["kernels"].take([row for row in range(236) if row not in (21, 87)])}
    assert found(_sliced(lost, pieces))["gaps_in_a_repeated_sequence"] == ("lost", 2)
    assert "gaps_in_a_repeated_sequence" not in found(_sliced(lost | {"api_calls": launched["api_calls"]}, pieces))


@pytest.mark.parametrize("pieces", [1, 9])
def test_a_path_that_launches_bear_out_is_no_gap_where_none_were_recorded(pieces):
    """Each twelfth time "gelu" is not there: a trace of only kernels cannot tell. Mutation: of those before the first
    recorded launch one is lost.
    """
    columns = healthy(repeats=48)
    turns = [*11 * ["norm", "gemm1", "gelu", "gemm2", "add"], "norm", "gemm1", "gemm2", "add"]
    columns["kernels"]["kernel_name"] = [turns[row % len(turns)] for row in range(240)]
    calls = columns["api_calls"]
    early = [row for row, launch in enumerate(calls["correlation_id"]) if launch is not None and launch < 2 * 60]
    columns["api_calls"] = without(calls, range(len(calls["name"])))
    assert found(_sliced(tables(columns), pieces))["gaps_in_a_repeated_sequence"] == ("lost", 4)
    columns["api_calls"] = without(calls, early)
    assert "gaps_in_a_repeated_sequence" not in found(_sliced(tables(columns), pieces))


def _sliced(whole: dict[str, pa.Table], pieces: int) -> CaptureTruth:
    checked = CaptureCheck(0, {})
    for begin, end in pairwise(np.linspace(0, 11_000_000, pieces + 1).astype(np.int64)):
        checked.add(*(_between(whole[name], begin, end) for name in ("kernels", "copies", "api_calls")))
    return checked.result()


def test_calls_that_were_lost_leave_kernels_without_a_launch():
    columns = healthy()
    columns["api_calls"] = without(columns["api_calls"], [207, 353])
    assert found(check(columns))["work_without_launch"] == ("lost", 2)


def test_no_launch_at_all_is_a_loss_only_where_calls_with_other_ids_were_recorded():
    """Mutations: no kind of call but launches asked; the calls of a runtime that is not known here taken for losses."""
    columns = healthy()
    names, ids = columns["api_calls"]["name"], columns["api_calls"]["correlation_id"]
    columns["api_calls"]["name"] = names[:200] + ["mtEnqueue"] * 200
    assert found(check(columns)) == {"launches_recorded": ("note", 200)}
    columns["api_calls"]["correlation_id"] = ids[:200] + [number + 1 for number in ids[200:]]
    assert found(check(columns))["work_without_launch"][0] == "lost"


def test_operations_that_were_lost_leave_numbers_and_calls():
    columns = healthy()
    columns["api_calls"] = without(columns["api_calls"], [7, 53])
    truth = found(check(columns))
    assert truth["missing_operations"] == ("lost", 2)
    assert truth["calls_of_missing_operations"] == ("lost", 2)


def test_operations_and_calls_may_be_numbered_by_different_counters():
    """As PyTorch 2.0 does with an execution-trace observer: an operation is around every call, but of another number.
    Mutation: the numbers taken for one space whatever they are around."""
    columns = healthy()
    numbers = columns["api_calls"]["external_id"]
    numbers[200:] = 3 * numbers[200:] + 50
    assert "calls_of_missing_operations" not in found(check(columns))
    columns["api_calls"] = without(columns["api_calls"], [7, 53])
    assert found(check(columns))["calls_of_missing_operations"] == ("doubt", 2)  # these calls are in no operation
    path = third_party.cases() / "external-id-two-spaces" / "trace.json"
    assert losses.truth(path).trusted


@pytest.mark.parametrize("rows", [1, 3, 400])
def test_an_operation_around_a_call_may_be_far_up_and_slices_ago(rows):
    """Ranges of Python lie between the two. Mutation: only the parent is looked at, or only this slice."""
    calls = API_CALLS.build(
        call_id=range(8), parent_id=[None, *range(7)], name=[*["range"] * 7, "hipLaunchKernel"], thread_id=[1] * 8,
        external_id=[None, 5, *[None] * 5, 5], correlation_id=[None] * 7 + [9], domain=["hip"] * 8,
        t_start_ns=range(8), t_end_ns=[100] * 8)
    checked = numbers.OperationCheck()
    for begin in range(0, 8, rows):
        part = calls.slice(begin, rows)
        empty = Records(KERNELS.build())
        checked.add(Slice(empty, empty, Records(part), np.zeros(len(part), np.int8), np.zeros(0, np.int8),
                          np.zeros(0, np.int64)))
    marks = np.concatenate([marks for _, marks in checked.numbers.pieces()])
    assert marks.tolist() == [numbers.THERE | numbers.ASKED | numbers.AROUND]


def test_what_was_launched_before_the_recording_began_is_no_loss():
    columns = healthy()
    columns["api_calls"] = without(columns["api_calls"], [*range(20), *range(200, 220)])
    truth = check(columns)
    assert found(truth) == {"launched_outside_the_window": ("note", 20)} and truth.trusted
    assert truth.account.unlinked == (20, 20 * 20_000)


def test_launches_recorded_into_a_graph_have_no_work():
    columns = healthy()
    columns["kernels"] = without(columns["kernels"], range(50, 100))
    columns["kernels"]["dispatch_id"] = range(1, 151)
    calls = columns["api_calls"]
    begin, end = calls["t_start_ns"][200 + 50] - 10, calls["t_start_ns"][200 + 99] + 10
    for name, at in (("hipStreamBeginCapture", begin), ("hipStreamEndCapture", end)):
        for column, value in (("name", [name]), ("t_start_ns", [at]), ("t_end_ns", [at + 1]), ("thread_id", [0]),
                              ("correlation_id", [None]), ("external_id", [None])):
            calls[column] = [*calls[column], *value]
    truth = check(columns)
    assert found(truth) == {"launches_into_a_graph": ("note", 50)} and truth.trusted


def test_graph_launches_hide_kernels_and_are_compared():
    columns = healthy(repeats=6)
    columns["api_calls"] = without(columns["api_calls"], [row for row in range(30, 60) if row % 5])
    columns["api_calls"]["name"] = ["op"] * 30 + ["hipGraphLaunch"] * 6
    columns["kernels"]["correlation_id"] = np.repeat(columns["kernels"]["correlation_id"][::5], 5)
    assert found(check(columns)) == {"kernels_behind_graphs": ("note", 30)}
    columns["kernels"] = without(columns["kernels"], [12])
    del columns["kernels"]["dispatch_id"]
    assert found(check(columns))["uneven_graphs"] == ("lost", 1)


def test_a_remark_is_a_sentence_of_one_or_of_thousands():
    """Mutations: "1 graph launches"; "warningprocess 7", the word and the remark in one."""
    columns = healthy(repeats=300)
    columns["api_calls"]["name"][1500] = "hipGraphLaunch"
    columns["kernels"]["correlation_id"][:5] = columns["kernels"]["correlation_id"][0]
    columns["kernels"]["dispatch_id"] *= 2
    text = truth_report.render(encode(TraceCheck(captures=[check(columns).entry("t", None)])))
    assert "\n  note    5 kernels started by 1 graph launch: one id" in text
    assert "\n  LOST    4 of 1,499 kernel launches" in text
    assert "\n  warning process -1: 1,499 of 2,999 dispatch numbers are missing" in text


@pytest.mark.parametrize("value", [0, None])
def test_kernels_without_an_id(value):
    columns = healthy()
    ids = columns["kernels"]["correlation_id"].tolist()
    columns["kernels"]["correlation_id"] = [value if row in (3, 4) else found for row, found in enumerate(ids)]
    truth = found(check(columns))
    assert truth["no_correlation_id"] == ("wrong", 2)


def test_an_id_that_is_used_twice():
    columns = healthy()
    columns["kernels"]["correlation_id"][10] = columns["kernels"]["correlation_id"][9]
    truth = found(check(columns))
    assert truth["correlation_id_used_twice"] == ("wrong", 1) and truth["launches_without_work"] == ("lost", 1)


def test_work_of_one_queue_that_overlaps():
    columns = healthy()
    columns["kernels"]["t_end_ns"][[5, 50, 150]] += 20_000
    assert found(check(columns))["overlap_on_one_queue"] == ("wrong", 3)


def test_a_habit_of_two_kernels_that_follow_each_other_is_no_contradiction():
    """Each bias begins while its gemm drains and ends after it, as with programmatic launches. Mutation: no habits."""
    columns = healthy()
    columns["kernels"]["t_end_ns"][::5] += 20_000
    truth = check(columns)
    assert found(truth)["starts_while_the_one_before_drains"] == ("note", 40) and truth.trusted
    columns["kernels"]["t_end_ns"][::5] += 20_000  # now each gemm outlasts its bias, which no launch explains
    assert not check(columns).trusted


def test_one_record_over_a_few_others_is_most_of_the_time_and_is_named():
    """2 of 1,000 kernels are rare, and 50 ms of 70 ms are not. Mutation: weighed by count alone."""
    columns = healthy(repeats=200)
    columns["kernels"]["t_end_ns"][996] += 50_000_000
    truth = check(columns)
    assert found(truth)["overlap_on_one_queue"] == ("wrong", 3) and not truth.trusted
    overlap, = (finding for finding in truth.findings if finding.check == "overlap_on_one_queue")
    assert "(bias, of 50.0 ms, by 50.0 ms)" in overlap.text
    harmless = healthy(repeats=200)
    harmless["kernels"]["t_end_ns"][996] += 26_000
    assert found(check(harmless))["overlap_on_one_queue"][0] == "doubt"


def test_a_first_collective_that_waits_for_the_other_ranks_is_a_remark():
    """Mutation: compared with the shortest instead of the longest."""
    columns = healthy()
    columns["kernels"]["family"] = ["collective", "gemm", "norm", "gemm", "norm"] * 40
    assert "first_collective_waits" not in found(check(columns))
    columns["kernels"]["t_start_ns"][0] -= 180_000  # ten times as long as all others
    assert "first_collective_waits" not in found(check(columns))
    columns["kernels"]["t_start_ns"][0] -= 1_000
    assert found(check(columns))["first_collective_waits"] == ("note", 1)


def test_a_collective_that_waits_is_held_against_its_kind_and_size():
    """Mutations: the median of all, whatever their grid; a wait that is next to nothing of the time."""
    columns = healthy()
    kernels = columns["kernels"]
    kernels["family"] = ["collective", "gemm", "norm", "gemm", "norm"] * 40
    kernels["grid_x"] = np.where(np.arange(200) == 50, 64, 1)
    for row in (50, 100):
        kernels["t_start_ns"][row + 1:] += 2_000_000
        kernels["t_end_ns"][row:] += 2_000_000
    assert found(check(columns))["collectives_wait"] == ("note", 1)  # the other may carry more: its grid is another
    assert "1 collective takes more than 10 times as long as is usual for its kind: 2.00 ms of that" in str(
        check(columns).findings)
    kernels["t_end_ns"][-1] += 100_000_000
    assert "collectives_wait" not in found(check(columns))


def test_kernels_that_all_start_after_the_last_step_were_not_recorded_when_they_ran():
    """Mutations: steps of a moment; steps with no launch in them."""
    columns = healthy()
    calls, late_ns = columns["api_calls"], 5_200_000
    for step in range(4):
        for name, value in (("name", f"ProfilerStep#{step}"), ("t_start_ns", 1_250_000 * step),
                            ("t_end_ns", 1_250_000 * (step + 1)), ("thread_id", 0), ("correlation_id", None),
                            ("external_id", None)):
            calls[name] = [*calls[name], value]
    calls["domain"] = ["hip"] * 400 + ["marker"] * 4
    assert "work_after_all_steps" not in found(check(columns))
    kernels = columns["kernels"]
    for name in ("t_start_ns", "t_end_ns"):
        kernels[name] = late_ns + (kernels[name] - kernels[name][0])
    assert found(check(columns))["work_after_all_steps"] == ("wrong", 200)
    assert found(_sliced(tables(columns), 9))["work_after_all_steps"] == ("wrong", 200)
    for row in range(200):
        for name in ("t_start_ns", "t_end_ns"):
            calls[name][row + 200] += late_ns + 5_000  # now they were launched there, too
            kernels[name][row] += 40_000
    assert "work_after_all_steps" not in found(check(columns))


def test_two_streams_may_overlap_and_their_sum_is_more_than_the_time():
    columns = healthy()
    columns["kernels"]["t_end_ns"] = columns["kernels"]["t_end_ns"] + 20_000
    columns["kernels"]["stream_id"] = np.arange(200) % 2
    assert check(columns).trusted and found(check(columns)) == {"sums_over_streams": ("note", 1)}
    assert " more than passes from the first to the last" in check(columns).findings[0].text
    columns["kernels"]["device_id"] = np.arange(200) % 2
    assert not check(columns).findings


def test_work_that_takes_no_time_or_less():
    columns = healthy()
    columns["kernels"]["t_end_ns"][:4] = columns["kernels"]["t_start_ns"][:4]
    columns["kernels"]["t_end_ns"][10] -= 30_000
    truth = found(check(columns))
    assert truth["takes_no_time"] == ("wrong", 4) and truth["ends_before_it_starts"] == ("wrong", 1)


def test_work_that_starts_before_its_launch():
    columns = healthy()
    for name in ("t_start_ns", "t_end_ns"):
        columns["kernels"][name][100:] -= 40_000
    assert found(check(columns))["starts_before_its_launch"] == ("wrong", 100)


def test_work_that_outlives_the_wait_for_it():
    """A device clock that jumps forward shows where the host waited for everything."""
    columns = healthy()
    calls = columns["api_calls"]
    at = columns["kernels"]["t_end_ns"][100] + 1_000
    for column, value in (("name", "hipDeviceSynchronize"), ("t_start_ns", at - 100), ("t_end_ns", at),
                          ("thread_id", 0), ("correlation_id", None), ("external_id", None)):
        calls[column] = [*calls[column], value]
    launched_before = int((np.array(calls["t_start_ns"][200:400]) <= at - 100).sum())
    assert launched_before > 101
    calls["t_end_ns"][-1] = int(columns["kernels"]["t_end_ns"][launched_before - 1]) + 1_000
    assert check(columns).trusted
    for name in ("t_start_ns", "t_end_ns"):
        columns["kernels"][name][80:] += 50_000_000
    assert found(check(columns))["outlives_the_wait_for_it"] == ("wrong", launched_before - 80)


@pytest.mark.parametrize(("factor", "checks"), [(1e-3, {"unlikely_units", "unlike_units"}), (1e6, {"unlikely_units"})])
def test_times_in_other_units(factor, checks):
    columns = healthy()
    origin = columns["kernels"]["t_start_ns"][0]
    for name in ("t_start_ns", "t_end_ns"):
        columns["kernels"][name] = origin + ((columns["kernels"][name] - origin) * factor).astype(np.int64)
    assert checks <= found(check(columns)).keys()


@pytest.mark.parametrize(("count", "words"), [(1, "1 kernel launch was recorded, but not its work: "),
                                              (3, "3 kernel launches were recorded, but none of their work: ")])
def test_launches_whose_device_was_not_traced_are_counted_in_words(count, words):
    """Mutation: "1 kernel launches were recorded"."""
    columns = healthy()
    launches = [row for row, launch in enumerate(columns["api_calls"]["correlation_id"]) if launch is not None]
    columns["api_calls"] = without(columns["api_calls"], launches[count:])
    columns["kernels"] = without(columns["kernels"], range(len(columns["kernels"]["kernel_name"])))
    (finding,) = (finding for finding in check(columns).findings if finding.check == "work_not_recorded")
    assert finding.text.startswith(words)


def test_a_trace_of_kernels_alone_says_what_cannot_be_told():
    columns = healthy()
    columns["api_calls"] = without(columns["api_calls"], range(400))
    truth = check(columns)
    assert found(truth) == {"launches_recorded": ("note", 200)} and truth.trusted
    columns["kernels"] = without(columns["kernels"], [31, 77])
    del columns["kernels"]["dispatch_id"]
    assert found(check(columns))["gaps_in_a_repeated_sequence"] == ("lost", 2)


def test_the_file_is_held_against_the_tables():
    whole = {"kernels": {"count": 201, "ns": 200 * 20_000 + 5}}
    truth = check(healthy(), whole)
    assert found(truth)["dropped_on_the_way"] == ("wrong", 1) and truth.account.dropped == (1, 5)


def test_a_capture_without_a_row_says_what_it_held():
    """An empty trace is no healthy one. Mutation: no finding where no table has rows."""
    left = {"statistic: a summary": {"count": 5, "ns": 0}}
    nothing = {name: {column: values[:0] for column, values in columns.items()} for name, columns in healthy().items()}
    empty, summary = (check(nothing, {"tables": {}, "left_out": each}) for each in ({}, left))
    assert found(empty) == {"no_rows": ("doubt", 0)} and "it holds no record" in empty.findings[0].text
    assert "5 x statistic: a summary" in summary.findings[0].text
    checked = encode(TraceCheck(captures=[empty.entry("", None)]))
    assert truth_report.headline(checked) == "nothing to check: no capture gave a row"
    assert not check(nothing).findings


@pytest.mark.parametrize("problem", ["truncated: the array of events has no end",
                                     "a_kernel_trace.csv: truncated: the row at line 76 is cut off"])
def test_a_truncated_file_is_a_loss(problem):
    """Mutation: only a problem that begins with the word, which no file of a set does."""
    truth = found(check(healthy(), {"problems": [problem]}))
    assert truth["truncated"] == ("lost", 1)


def test_iterations_that_lack_something():
    columns = healthy()
    columns["kernels"]["iteration"] = np.arange(200) // 20
    assert check(columns).trusted
    columns["kernels"] = without(columns["kernels"], [47, 93])
    assert found(check(columns))["short_iterations"] == ("lost", 2)


def test_streams_that_are_named_but_have_no_work():
    truth = check(healthy(), {"streams": [(0, 0), (0, 7)]})
    assert found(truth) == {"streams_without_work": ("note", 1)} and "7 of device 0" in truth.findings[0].text


def test_counters_that_are_zero_everywhere():
    table = COUNTERS.build(kernel_id=[0, 0, 1, 1], counter=["A", "B", "A", "B"], value=[0.0, 0.0, 0.0, 3.0])
    finding = next(dead_counters(table.to_batches()))
    assert (finding.check, finding.count, finding.of) == ("counters_all_zero", 1, 2) and "A" in finding.text
    of_nsight = COUNTERS.build(kernel_id=[0, 1], counter=["smsp__inst_executed.sum"] * 2, value=[0.0, 0.0])
    assert not list(dead_counters(of_nsight.to_batches()))


def test_a_queue_that_runs_long_after_its_launches_is_in_no_other_unit():
    """An all-reduce whose other rank came a second late. Mutation: `queued` left out."""
    columns = healthy()
    kernels = columns["kernels"]
    kernels["t_start_ns"][1:] += 1_160_000_000
    kernels["t_end_ns"] += 1_160_000_000
    assert "unlike_units" not in found(check(columns))
    kernels["t_end_ns"][0] -= 1_160_000_000
    assert "unlike_units" in found(check(columns))


def test_copies_that_name_no_call_do_not_say_that_one_is_missing():
    """roctracer's HSA trace. Mutation: `named_copies` not asked."""
    columns = healthy()
    columns["api_calls"]["name"][200:] = ["hsa_amd_memory_async_copy"] * 200
    columns["copies"] = {"t_start_ns": columns["kernels"]["t_start_ns"], "correlation_id": [None] * 200}
    columns["kernels"] = without(columns["kernels"], range(200))
    assert "launches_without_work" not in found(check(columns))
    columns["copies"]["correlation_id"][0] = 1
    assert found(check(columns))["launches_without_work"] == ("lost", 199)


def test_a_call_inside_a_copy_that_began_slices_ago_is_the_same_copy():
    """Mutation: `_running` not kept beyond its slice, or dropped by a slice without launches."""
    calls = API_CALLS.build(
        call_id=[0, 1, 2, 3], name=["hipMemcpy", "op", "hsa_amd_memory_async_copy", "hipMemcpy"],
        parent_id=[None, 0, 0, None],
        domain=["hip", "cpu_op", "hsa", "hip"], thread_id=[1] * 4, correlation_id=[5, None, 6, 7],
        t_start_ns=[0, 100, 200, 400], t_end_ns=[300, 150, 290, 500])
    copies = COPIES.build(copy_id=[0, 1], correlation_id=[5, 7], t_start_ns=[250, 450], t_end_ns=[280, 480])
    sliced = CaptureCheck(0, {})
    for begin in (0, 100, 200, 400):
        sliced.add(KERNELS.build(), *(_between(table, begin, begin + 100) for table in (copies, calls)))
    assert "launches_without_work" not in found(sliced.result())


@pytest.mark.parametrize("remembered", [1 << 18, 5])
@pytest.mark.parametrize("pieces", [2, 7, 60])
def test_slices_tell_the_same_as_the_whole(pieces, remembered, monkeypatch):
    """Whatever is carried from slice to slice is carried right, with every fault at once, and what is settled early.

    Fails when a launch that is settled before its work came stays lost.
    """
    monkeypatch.setattr(launches, "REMEMBERED", remembered)
    columns = healthy()
    columns["kernels"]["t_end_ns"][[5, 50, 150]] += 20_000
    columns["kernels"]["correlation_id"][[70, 71]] = 0
    columns["kernels"] = without(columns["kernels"], [9, 31, 99, 140])
    columns["api_calls"] = without(columns["api_calls"], [3, 211, 290])
    whole = tables(columns)
    assert _sliced(whole, pieces) == of_tables(whole, {})


def _between(table: pa.Table, begin: int, end: int) -> pa.Table:
    at = table["t_start_ns"].to_numpy()
    return table.filter(pa.array((at >= begin) & (at < end)))


def test_kernels_that_took_a_time_but_have_no_start_are_accounted_for(tmp_path):
    """Nsight Compute gives durations alone. Mutation: counting no time of theirs says that the file holds more."""
    settings = resolve(overrides={"storage": {"sessions_dir": str(tmp_path)}}, environment={})
    recorded = Path(__file__).parents[1] / "captures" / "ncu_h200" / "roofline.csv.gz"
    session = pipeline.import_captures([recorded], settings).session
    truth = session.read_json(layout.TRACE_CHECK)
    (one,) = truth["captures"]
    assert truth["trusted"] and one["account"]["dropped"] == {"count": 0, "ns": 0}
    assert one["account"]["unlinked"] == one["account"]["in_file"] and one["account"]["in_file"]["ns"] > 0
    assert "no total of time" not in str(one["findings"])
