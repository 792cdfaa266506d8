"""profiler.rocprof_compute on workloads of known content, in the shapes its versions write."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aaco.core.errors import BadCapture
from aaco.profiler.capture import CapturedDevice, Subtotal
from aaco.profiler.formats import registry
from aaco.profiler.formats.rocprof_compute import rocprof_compute, workload_files
from aaco.profiler.io.record_accounting import ABSENT
from tests.fakes import workload
from tests.parsed import gather, rows

NAMES = [["SQ_WAVES", "TCC_HIT[0]"], ["SQ_INSTS_LDS"]]
COUNTS = [[[16, 2], [3]], [[17, 4], [5]]]
TIMES = [(1000, 1100), (2000, 2300)]
WHEN = ("t_start_ns", "t_end_ns", "dur_ns")
PAIR = st.lists(st.integers(0, 1 << 52), min_size=2, max_size=2)


def parsed(path):
    assert registry.recognise(path) is rocprof_compute
    return gather(rocprof_compute.parse(path))


def counted(tables):
    return rows(tables["counters"], "kernel_id", "counter", "value", "pass")


def test_dispatches_and_counters_with_their_passes(tmp_path):
    """Mutation: leave the numbered columns out of account; every counter is then of pass 0."""
    tables, facts = parsed(workload.write(tmp_path, COUNTS, NAMES, TIMES))
    columns = ("kernel_id", "kernel_name", "dispatch_id", "device_id", "grid_x", "grid_y", *WHEN)
    assert rows(tables["kernels"], *columns) == [
        (0, "vecCopy(double*, int)", 0, 2, 1024, None, 1000, 1100, 100),
        (1, "vecCopy(double*, int)", 1, 2, 1024, None, 2000, 2300, 300)]
    assert counted(tables) == [
        (0, "SQ_WAVES", 16.0, 0), (0, "TCC_HIT[0]", 2.0, 0), (0, "SQ_INSTS_LDS", 3.0, 1),
        (1, "SQ_WAVES", 17.0, 0), (1, "TCC_HIT[0]", 4.0, 0), (1, "SQ_INSTS_LDS", 5.0, 1)]
    assert facts.kernels == Subtotal(2, 400) and facts.records == {"kernel": 2, "counter": 6}
    assert facts.left_out == {} and facts.problems == ()


def test_the_machine_without_its_secrets(tmp_path):
    tables, facts = parsed(workload.write(tmp_path, COUNTS, NAMES, TIMES))
    assert facts.devices == (CapturedDevice(2, "MI300X_A1", "gfx942", 304),) and facts.host == "node7"
    assert "hunter2" not in repr(facts) and "hunter2" not in repr(tables)
    assert rows(tables["device_facts"], "device_id", "name", "value", "text") == [
        (2, "simd_per_cu", 4.0, None), (2, "max_clock_mhz", 2100.0, None), (2, "l1_bytes", 32768.0, None),
        (2, "l2_bytes", float(4 << 20), None), (2, "compute_partition", None, "SPX")]


def test_a_counter_that_two_passes_have(tmp_path):
    """pandas numbers the second; the numbers at the end of other counters belong to their names."""
    names = [["SQ_WAVES", "SQ_WAVES_LT_16"], ["SQ_WAVES_1", "SQC_DCACHE_REQ_READ_1"]]
    found = counted(parsed(workload.write(tmp_path, [[[1, 2], [3, 4]]], names, TIMES))[0])
    assert found == [(0, "SQ_WAVES", 1.0, 0), (0, "SQ_WAVES_LT_16", 2.0, 0), (0, "SQ_WAVES", 3.0, 1),
                     (0, "SQC_DCACHE_REQ_READ_1", 4.0, 1)]


@pytest.mark.parametrize(("times", "why"), [
    ([(0, 0), (0, 0)], "0"), ([("8.1097E+14", "8.1097E+14")] * 2, "rounded"), ([("", "")] * 2, "no time"),
    ([(1000.5, 1100.5), (2000.5, 2300.5)], "the mean of several passes"), ([("yesterday", 5)] * 2, "no time")])
def test_times_that_are_none_are_absent_and_said(tmp_path, times, why):
    """Mutation: read a time as a float; 8.1097E+14 is then a kernel of 0 ns."""
    tables, facts = parsed(workload.write(tmp_path, COUNTS, NAMES, times))
    assert rows(tables["kernels"], *WHEN) == [(None, None, None)] * 2
    assert facts.problems == (f"times are {why} in pmc_perf.csv", "2 kernel records have no time")
    assert facts.kernels == Subtotal(2, 0)


def test_an_end_before_the_start_is_no_time(tmp_path):
    tables, facts = parsed(workload.write(tmp_path, COUNTS, NAMES, [(1000, 1100), (2000, 1999)]))
    assert rows(tables["kernels"], *WHEN) == [(1000, 1100, 100), (None, None, None)]
    assert facts.problems == ("1 kernel record has no time",)


def test_times_of_the_run_without_counters_come_first(tmp_path):
    path = workload.write(tmp_path, COUNTS, NAMES, [(1.5, 2.5)] * 2)
    workload.timestamps(tmp_path, [(10, 15), (20, 27)], first=1)  # its dispatches may be numbered from 1
    tables, facts = parsed(path)
    assert rows(tables["kernels"], *WHEN, "process_id", "thread_id") == [(10, 15, 5, 77, 78), (20, 27, 7, 77, 78)]
    assert facts.problems == ()


def test_without_it_those_of_a_pass(tmp_path):
    path = workload.write(tmp_path, COUNTS, NAMES, [(1.5, 2.5)] * 2)
    workload.timestamps(tmp_path, [(10, 15), (20, 27)], "pmc_perf_0.csv", counters=NAMES[0],
                        counts=[[16, 2], [17, 4]])
    tables, facts = parsed(path)
    assert rows(tables["kernels"], *WHEN) == [(10, 15, 5), (20, 27, 7)]
    assert len(counted(tables)) == 6
    assert facts.problems == ("the times are those of one pass, pmc_perf_0.csv",)
    assert facts.left_out == {f"pass: {rocprof_compute.AGAIN}": Subtotal(2, 12)} and facts.records["pass"] == 2


def test_a_pass_that_was_not_joined_adds_its_counters(tmp_path):
    """Mutation: take a pass for joined by the names of its counters alone."""
    path = workload.write(tmp_path, COUNTS, NAMES, TIMES)
    workload.timestamps(tmp_path, [(10, 15), (20, 27)], "SQ_LEVEL_WAVES.csv", counters=["SQ_WAVES", "SQ_LEVEL"],
                        counts=[[15, 8], [14, 9]])
    workload.timestamps(tmp_path, [(30, 35), (40, 47)], "pmc_perf_9.csv", counters=["SQ_WAVES"], counts=[[15], [14]])
    tables, _ = parsed(path)
    assert [row for row in counted(tables) if row[3] > 1] == [
        (0, "SQ_WAVES", 15.0, 2), (0, "SQ_LEVEL", 8.0, 2), (1, "SQ_WAVES", 14.0, 2), (1, "SQ_LEVEL", 9.0, 2),
        (0, "SQ_WAVES", 15.0, 3), (1, "SQ_WAVES", 14.0, 3)]


def test_dispatches_are_matched_by_kernel_grid_and_order(tmp_path):
    path = workload.write(tmp_path, COUNTS, NAMES, TIMES)
    rows_of_pass = [[*workload.dispatch(0, "other"), 5, 1, 2], [*workload.dispatch(1), 6, 3, 4],
                    [*workload.dispatch(2, grid=7), 7, 5, 6], [*workload.dispatch(3), 8, 7, 8]]
    workload.table(tmp_path / "SQ_A.csv", [*workload.COMMON, "SQ_A", *workload.TIMES], rows_of_pass)
    tables, facts = parsed(path)
    assert [row for row in counted(tables) if row[1] == "SQ_A"] == [(0, "SQ_A", 6.0, 2), (1, "SQ_A", 8.0, 2)]
    assert facts.left_out[f"counter: {rocprof_compute.UNKNOWN}"] == Subtotal(2, 0)


def test_a_column_without_a_name_is_no_counter(tmp_path):
    path = workload.write(tmp_path, COUNTS, NAMES, TIMES)
    path.write_text("".join(f",{line}" for line in path.read_text().splitlines(keepends=True)))
    assert len(counted(parsed(path)[0])) == 6


def test_what_is_no_number_is_no_counter(tmp_path):
    tables, facts = parsed(workload.write(tmp_path, [[["", "inf"], ["nan"]], [["x", 4], [5]]], NAMES, TIMES))
    assert counted(tables) == [(1, "TCC_HIT[0]", 4.0, 0), (1, "SQ_INSTS_LDS", 5.0, 1)]
    assert facts.left_out == {f"counter: {rocprof_compute.NO_VALUE}": Subtotal(4, 0)} and facts.records["counter"] == 6


def test_without_a_joined_file_the_passes_stand_for_themselves(tmp_path):
    workload.write(tmp_path, COUNTS, NAMES, TIMES).unlink()
    workload.timestamps(tmp_path, TIMES, "pmc_perf_0.csv", counters=["A"], counts=[[1], [2]])
    workload.timestamps(tmp_path, TIMES, "pmc_perf_1.csv", counters=["A"], counts=[[1], [2]])
    tables, facts = parsed(tmp_path / "sysinfo.csv")
    assert counted(tables) == [(0, "A", 1.0, 0), (1, "A", 2.0, 0), (0, "A", 1.0, 1), (1, "A", 2.0, 1)]
    assert facts.kernels == Subtotal(2, 400)


def test_a_row_per_counter(tmp_path):
    """Mutation: tell passes apart by the counter's name; the same counter in two passes is then one."""
    path = workload.write_long(tmp_path, [
        (1, 100, 105, {"A": 1, "B": 2}), (2, 200, 207, {"A": 3, "B": 4}),
        (1, 1100, 1109, {"C": 5, "A": 6}), (2, 1200, 1211, {"C": 7, "A": ""})])
    tables, facts = parsed(path)
    assert rows(tables["kernels"], "kernel_id", "dispatch_id", *WHEN) == [(0, 1, 100, 105, 5), (1, 2, 200, 207, 7)]
    assert counted(tables) == [(0, "A", 1.0, 0), (0, "B", 2.0, 0), (1, "A", 3.0, 0), (1, "B", 4.0, 0),
                               (0, "C", 5.0, 1), (0, "A", 6.0, 1), (1, "C", 7.0, 1)]
    assert facts.kernels == Subtotal(2, 12) and facts.records == {"kernel": 2, "pass": 2, "counter": 8}
    assert facts.left_out == {f"pass: {rocprof_compute.AGAIN}": Subtotal(2, 20),
                              f"counter: {rocprof_compute.NO_VALUE}": Subtotal(1, 0)}


def test_a_row_per_counter_when_no_row_is_whole(tmp_path):
    """Found by fuzzing: a block without a single row."""
    path = workload.write_long(tmp_path, [(1, 100, 105, {"A": 1})])
    path.write_text(path.read_text().replace("\n2,1,", "\n2,"))
    _, facts = parsed(path)
    assert facts.kernels == Subtotal(1, 0)
    assert facts.left_out[f"kernel: {rocprof_compute.csvstream.BROKEN}"] == Subtotal(1, 0)


@pytest.mark.parametrize("block", [150, 400, 1 << 20])
def test_a_row_per_counter_in_blocks_of_any_size(tmp_path, monkeypatch, block):
    monkeypatch.setattr(rocprof_compute.csvstream, "BLOCK_BYTES", block)
    executions = [(number, 1000 * replay + 10 * number + 7, 1000 * replay + 10 * number + 10,
                   {f"C{index}": 100 * replay + 10 * number + index for index in range(replay + 1)})
                  for replay in range(4) for number in range(5)]
    tables, facts = parsed(workload.write_long(tmp_path, executions))
    assert counted(tables) == [(number, name, float(value), replay) for replay in range(4) for number in range(5)
                               for name, value in executions[5 * replay + number][3].items()]
    assert facts.records == {"kernel": 5, "pass": 15, "counter": 50} and facts.kernels == Subtotal(5, 15)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 6).flatmap(lambda passes: st.lists(st.lists(PAIR, min_size=passes, max_size=passes), min_size=1,
                                                         max_size=9)), st.sampled_from([200, 1 << 20]))
def test_any_counts(tmp_path, counts, block):
    names = [[f"P{number}_A[{number}]", f"P{number}_B_sum"] for number in range(len(counts[0]))]
    before = rocprof_compute.csvstream.BLOCK_BYTES
    rocprof_compute.csvstream.BLOCK_BYTES = block
    try:
        tables, facts = parsed(workload.write(tmp_path, counts, names, [(1, 2)] * len(counts)))
    finally:
        rocprof_compute.csvstream.BLOCK_BYTES = before
    assert counted(tables) == [(kernel, names[number][index], float(value), number)
                               for kernel, passes in enumerate(counts) for number, values in enumerate(passes)
                               for index, value in enumerate(values)]
    assert facts.records["counter"] == sum(len(values) for passes in counts for values in passes)


@pytest.mark.parametrize(("text", "expected"), [
    ("1248224501556303", 1248224501556303), ("1248224501556303.0", 1248224501556303),
    ("9007199254740993", 9007199254740993),
    ("1.248224501556303E+15", 1248224501556303), ("1.248224501556303e15", 1248224501556303), ("0", None),
    ("8.1097E+14", None), ("1248227792617386.5", None), ("-5", None), ("", None), ("9" * 30, None), ("1e99", None),
    ("nan", None), ("1.5E+15", None), ("\u0663", None)])
def test_a_time_from_its_digits(text, expected):
    """Mutation: convert through a float, and 9007199254740993 loses its last digit."""
    found, _ = workload_files.times(pa.chunked_array([pa.array([text])]), 1)
    assert found.tolist() == [ABSENT if expected is None else expected]


def test_no_column_of_times():
    found, why = workload_files.times(None, 3)
    assert found.tolist() == [ABSENT] * 3 and why == {"no time"} and found.dtype == np.int64


def test_another_csv_is_a_bad_capture(tmp_path):
    path = workload.table(tmp_path / "pmc_perf.csv", ["a"], [[1]])
    assert not rocprof_compute.recognises(path)
    with pytest.raises(BadCapture, match=r"pmc_perf\.csv: not a workload"):
        list(rocprof_compute.parse(path))


def test_a_number_in_sysinfo_that_is_none_is_a_problem(tmp_path):
    said = workload.SYSINFO | {"cu_per_gpu": "many", "max_sclk": "0"}
    tables, facts = parsed(workload.write(tmp_path, COUNTS, NAMES, TIMES, said))
    assert facts.devices[0].compute_units is None
    assert "max_clock_mhz" not in tables["device_facts"]["name"].to_pylist()
    assert facts.problems == ("sysinfo.csv: cu_per_gpu is no number: 'many'",)
