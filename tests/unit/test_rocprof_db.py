"""profiler.rocprof_db on databases made here with rocprof's columns, against what was put in."""

import json
import sqlite3

import pytest

from aaco.core.errors import BadCapture
from aaco.profiler.capture import Subtotal
from aaco.profiler.formats import registry
from aaco.profiler.formats.rocprof_legacy import rocprof_db
from tests.pieces import rows, together

KERN = ["Index", "KernelName", "gpu-id", "queue-id", "pid", "tid", "grd", "wgr", "lds", "scr", "arch_vgpr",
        "accum_vgpr", "sgpr", "sig", "obj", "DispatchNs", "BeginNs", "EndNs", "CompleteNs", "DurationNs"]
OPS = ["BeginNs", "EndNs", "dev-id", "queue-id", "Name", "pid", "tid", "roctx-range", "stream-id", "Index", "Data"]
HSA_COPY = ["BeginNs", "EndNs", "Name", "pid", "tid", "Index", "Data"]
API = ["BeginNs", "EndNs", "pid", "tid", "Name", "args", "Index", "Data"]
EXT = ["BeginNs", "EndNs", "pid", "tid", "Name", "Index"]
FILL = '"__amd_rocclr_fillBuffer.kd"'


def make(path, **tables):
    with sqlite3.connect(path) as connection:
        for name, (columns, *lines) in ({"KERN": [KERN]} | tables).items():
            kinds = ", ".join(f'"{column}" {"TEXT" if "Name" in column or column == "args" else "INTEGER"}'
                              for column in columns)
            connection.execute(f'CREATE TABLE "{name}" ({kinds})')
            connection.executemany(f'INSERT INTO "{name}" VALUES ({", ".join("?" * len(columns))})', lines)
    return path


def kern(index, name, begin, end, *counters):
    return [index, name, 2, 1, 7, 8, 512, 64, 16, 4, 24, 8, 96, "0x0", "0x7f", begin - 9, begin, end, end + 9,
            end - begin, *counters]


def test_dispatches_with_counters(tmp_path):
    path = make(tmp_path / "results.db", KERN=[
        [*KERN, "SQ_WAVES", "TCC_HIT[3]"], kern(0, FILL, 100, 140, 8, 2.5),
        kern(1, '"void f<int, 2>(float*) [clone .kd]"', 200, 201, 4, None),
        kern(2, '"<barrier packet>"', 201, 203, None, None)])
    assert registry.recognise(path) is rocprof_db
    tables, facts = together(rocprof_db.parse(path))
    assert rows(tables["kernels"])[0] == {
        "kernel_id": 1, "kernel_name": "__amd_rocclr_fillBuffer", "device_id": 2, "queue_id": 1, "process_id": 7,
        "thread_id": 8, "dispatch_id": 0, "t_start_ns": 100, "t_end_ns": 140, "dur_ns": 40, "grid_x": 512,
        "block_x": 64, "vgpr": 24, "agpr": 8, "sgpr": 96, "lds_bytes": 16, "scratch_bytes": 4, "source": "rocprof_db",
        "timed": "execution"}
    assert tables["kernels"]["kernel_name"].to_pylist()[1] == "void f<int, 2>(float*)"
    assert facts.kernels == Subtotal(2, 41)
    assert facts.left_out == {"barrier: it orders the queue and is no kernel": Subtotal(1, 2),
                              "counter: it has no value": Subtotal(1, 0)}
    assert rows(tables["counters"]) == [{"kernel_id": 1, "counter": "SQ_WAVES", "value": 8.0},
                                        {"kernel_id": 2, "counter": "SQ_WAVES", "value": 4.0},
                                        {"kernel_id": 1, "counter": "TCC_HIT[3]", "value": 2.5}]
    assert facts.records == {"kernel": 2, "barrier": 1, "counter": 4}


def test_what_the_runtime_did_and_the_calls(tmp_path):
    """HSA's ids and HIP's count apart. Fails when a copy of HSA finds the call of HIP with the same number."""
    path = make(
        tmp_path / "results.db",
        OPS=[OPS, [300, 310, 0, 3, "gemm", 7, 8, "", 1, 5, ""],
             [320, 321, 0, 3, '"<barrier packet>"', 7, 8, "", 1, 6, ""],
             [330, 331, 0, 3, "gemm", 9, 9, "", 1, 5, ""]],
        COPY=[HSA_COPY, [400, 410, "async-copy", 7, 8, 5, ""]],
        HIP=[API, [10, 20, 7, 8, "hipLaunchKernel", '( kernel("gemm") )', 5, ""],
             [11, 21, 9, 9, "hipLaunchKernel", "", 5, ""]],
        HSA=[API, [30, 40, 7, 8, "hsa_amd_memory_async_copy", "(1)", 5, ""]],
        rocTX=[EXT, [1, 90, 7, 8, "step", 0]])
    tables, facts = together(rocprof_db.parse(path))
    calls = tables["api_calls"].to_pylist()
    by_id = {row["correlation_id"]: (row["name"], row["process_id"]) for row in calls if row["correlation_id"]}
    assert len(by_id) == 3
    assert [by_id[row["correlation_id"]] for row in tables["kernels"].to_pylist()] == [
        ("hipLaunchKernel", 7), ("hipLaunchKernel", 9)]
    assert by_id[tables["copies"]["correlation_id"][0].as_py()] == ("hsa_amd_memory_async_copy", 7)
    assert sorted((row["name"], row["domain"]) for row in calls) == [
        ("hipLaunchKernel", "hip"), ("hipLaunchKernel", "hip"), ("hsa_amd_memory_async_copy", "hsa"),
        ("step", "marker")]
    assert len({row["call_id"] for row in calls}) == 4
    assert [json.loads(text) for text in tables["call_arguments"]["arguments"].to_pylist()] == [
        {"args": '( kernel("gemm") )'}, {"args": "(1)"}]
    assert facts.kernels == Subtotal(2, 11)
    assert facts.left_out == {"barrier: it orders the queue and is no kernel": Subtotal(1, 1)}


@pytest.mark.parametrize(("dispatches", "operations", "used"), [(3, 2, "KERN"), (2, 3, "OPS"), (2, 2, "KERN")])
def test_kernels_that_stand_in_two_tables_count_once(tmp_path, dispatches, operations, used):
    """Fails when both tables become kernels: every execution twice."""
    path = make(tmp_path / "results.db",
                KERN=[KERN, *(kern(i, "k", 10 * i + 10, 10 * i + 15) for i in range(dispatches))],
                OPS=[OPS, *([10 * i + 10, 10 * i + 15, 0, 3, "k", 7, 8, "", 1, i + 1, ""] for i in range(operations))])
    tables, facts = together(rocprof_db.parse(path))
    most, fewer = max(dispatches, operations), min(dispatches, operations)
    assert (len(tables["kernels"]), facts.kernels) == (most, Subtotal(most, 5 * most))
    assert facts.left_out == {
        "again: the same execution stands in the file twice": Subtotal(fewer, 5 * fewer)}
    assert tables["kernels"]["correlation_id"].null_count == (most if used == "KERN" else 0)
    assert "KERN and OPS" in facts.problems[0]


def test_copies_of_hip_have_their_direction(tmp_path):
    path = make(tmp_path / "results.db", COPY=[
        OPS, [10, 30, 2, 0, "CopyHostToDevice", 7, 7, "", 1, 4, ""],
        [40, 41, 2, 0, "CopyDeviceToHost", 7, 7, "", 1, 5, ""],
        [50, 49, 2, 0, "FillBuffer", 7, 7, "", 1, 6, ""]])
    tables, facts = together(rocprof_db.parse(path))
    assert [(row["kind"], row["src_device"], row["dst_device"], row["dur_ns"])
            for row in tables["copies"].to_pylist()] == [
        ("h2d", None, 2, 20), ("d2h", 2, None, 1)]
    assert facts.left_out == {"copy: it ends before it starts": Subtotal(1, 0)}


def test_dispatches_recorded_without_times_are_left_out(tmp_path):
    path = make(tmp_path / "results.db", KERN=[["Index", "KernelName", "SQ_WAVES"], [0, FILL, 3]])
    tables, facts = together(rocprof_db.parse(path))
    assert "kernels" not in tables
    assert facts.left_out == {"kernel: its start or end is missing or no integer": Subtotal(1, 0)}


def test_without_its_table_it_is_a_bad_capture(tmp_path):
    with sqlite3.connect(tmp_path / "x.db") as connection:
        connection.execute("CREATE TABLE OPS (a)")
    assert not rocprof_db.recognises(tmp_path / "x.db")
    with pytest.raises(BadCapture, match="no table KERN"):
        list(rocprof_db.parse(tmp_path / "x.db"))
