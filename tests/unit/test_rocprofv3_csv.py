"""profiler.rocprofv3_csv on headers and runs that no recorded capture has, each with an answer planted in it."""

import csv

import pyarrow.compute as pc
import pytest

from aaco.core.errors import BadCapture
from aaco.profiler.capture import Subtotal
from aaco.profiler.formats.rocprofv3 import rocprofv3_csv
from tests import csvs
from tests.pieces import rows, together

KERNEL = ["Kind", "Agent_Id", "Queue_Id", "Stream_Id", "Thread_Id", "Dispatch_Id", "Kernel_Id", "Kernel_Name",
          "Correlation_Id", "Start_Timestamp", "End_Timestamp", "LDS_Block_Size", "Scratch_Size", "VGPR_Count",
          "Accum_VGPR_Count", "SGPR_Count", "Workgroup_Size_X", "Workgroup_Size_Y", "Workgroup_Size_Z", "Grid_Size_X",
          "Grid_Size_Y", "Grid_Size_Z"]
OLD = ["Kind", "Agent_Id", "Queue_Id", "Kernel_Id", "Kernel_Name", "Correlation_Id", "Start_Timestamp", "End_Timestamp",
       "Private_Segment_Size", "Group_Segment_Size", "Workgroup_Size_X", "Workgroup_Size_Y", "Workgroup_Size_Z",
       "Grid_Size_X", "Grid_Size_Y", "Grid_Size_Z"]
CALL = ["Domain", "Function", "Process_Id", "Thread_Id", "Correlation_Id", "Start_Timestamp", "End_Timestamp"]
COUNTER = ["Correlation_Id", "Dispatch_Id", "Agent_Id", "Queue_Id", "Process_Id", "Thread_Id", "Grid_Size", "Kernel_Id",
           "Kernel_Name", "Workgroup_Size", "LDS_Block_Size", "Scratch_Size", "VGPR_Count", "Accum_VGPR_Count",
           "SGPR_Count", "Counter_Name", "Counter_Value", "Start_Timestamp", "End_Timestamp"]


def kernel(dispatch=1, start=100, end=150, name="k", agent="Agent 4", correlation=7, thread=9):
    return ["KERNEL_DISPATCH", agent, 1, 2, thread, dispatch, 5, name, correlation, start, end,
            512, 16, 24, 8, 96, 64, 2, 1, 1024, 2, 1]


def counted(dispatch, name, value, start=100, end=150, thread=9):
    return [7, dispatch, "Agent 4", 1, 33, thread, 2048, 5, "k", 128, 512, 16, 24, 8, 96, name, value, start, end]


def call(correlation=7, process=33, function="hipLaunchKernel", domain="HIP_RUNTIME_API"):
    return [domain, function, process, 9, correlation, 50, 60]


def parse(path):
    return together(rocprofv3_csv.parse(path))


def test_a_kernel_of_rocm_7(tmp_path):
    path = csvs.write(tmp_path / "1_kernel_trace.csv", [KERNEL, kernel(name="void k<float, 4>(float*)")])
    tables, facts = parse(path)
    assert rows(tables["kernels"]) == [{
        "kernel_id": 0, "kernel_name": "void k<float, 4>(float*)", "device_id": 4, "queue_id": 1, "stream_id": 2,
        "thread_id": 9, "correlation_id": 7, "t_start_ns": 100, "t_end_ns": 150, "dur_ns": 50,
        "grid_x": 1024, "grid_y": 2, "grid_z": 1, "block_x": 64, "block_y": 2, "block_z": 1,
        "vgpr": 24, "agpr": 8, "sgpr": 96, "lds_bytes": 512,
        "scratch_bytes": 16, "source": "rocprofv3_csv", "timed": "execution", "dispatch_id": 1}]
    assert facts.clock == "boottime" and facts.kernels.count == 1 and facts.kernels.ns == 50 and not facts.problems


def test_a_kernel_of_rocm_6_0_names_its_memory_otherwise_and_its_agent_by_number(tmp_path):
    path = csvs.write(tmp_path / "1_kernel_trace.csv", [
        OLD, ["KERNEL_DISPATCH", 1, 139690710949888, 15, "k.kd", 0, 100, 150, 16, 512, 4, 4, 1, 1024, 1024, 1]])
    kernel, = rows(parse(path)[0]["kernels"])
    assert (kernel["device_id"], kernel["queue_id"], kernel["kernel_name"]) == (1, 139690710949888, "k")
    assert (kernel["lds_bytes"], kernel["scratch_bytes"], kernel["block_y"]) == (512, 16, 4)
    assert "vgpr" not in kernel and "stream_id" not in kernel and "dispatch_id" not in kernel


def test_rocpd_convert_spells_differently_and_names_the_process_by_guid(tmp_path):
    """Two processes in one file: both launch with correlation id 7. Broken by: leaving correlation ids as they are."""
    other = {"LDS_Block_Size": "Lds_Block_Size", "VGPR_Count": "Vgpr_Count"}
    head = ["Guid", *[other.get(name, name) for name in KERNEL]]
    csvs.write(tmp_path / "out_kernel_trace.csv", [head, ["a-1", *kernel()], ["b-2", *kernel(start=1000, end=1200)]],
               csv.QUOTE_ALL)
    path = csvs.write(tmp_path / "out_hip_api_trace.csv", [
        ["Guid", *CALL], ["b-2", *call(process=44)], ["a-1", *call()]], csv.QUOTE_ALL)
    tables, facts = parse(path)
    kernels, calls = rows(tables["kernels"]), rows(tables["api_calls"])
    owner = {call["correlation_id"]: call["process_id"] for call in calls}
    assert [owner[kernel["correlation_id"]] for kernel in kernels] == [33, 44]
    assert [kernel["lds_bytes"] for kernel in kernels] == [512, 512]
    assert not facts.problems


def test_a_dispatch_both_traced_and_counted_is_one_kernel(tmp_path):
    """Broken by: kernels made of every counter row, or of every dispatch of the counters."""
    csvs.write(tmp_path / "1_kernel_trace.csv", [KERNEL, kernel(2, 300, 350), kernel(1)])
    path = csvs.write(tmp_path / "1_counter_collection.csv", [
        COUNTER, counted(1, "A", 1.5), counted(1, "B", 2), counted(2, "A", 3), counted(3, "A", 4, 500, 520)])
    tables, facts = parse(path)
    kernels = {row["kernel_id"]: row for row in rows(tables["kernels"])}
    assert sorted(row["dispatch_id"] for row in kernels.values()) == [1, 2, 3]
    assert facts.kernels.count == 3 and facts.kernels.ns == 120
    assert facts.records == {"kernel": 3, "counter": 4}
    assert [(kernels[row["kernel_id"]]["dispatch_id"], row["counter"], row["value"]) for row in rows(
        tables["counters"])] == [(1, "A", 1.5), (1, "B", 2), (2, "A", 3), (3, "A", 4)]
    assert {row["kernel_id"] for row in rows(tables["counters"])} == set(kernels)


def test_counters_of_another_run_keep_their_own_kernels(tmp_path):
    csvs.write(tmp_path / "1_kernel_trace.csv", [KERNEL, kernel(1, thread=1)])
    path = csvs.write(tmp_path / "1_counter_collection.csv", [COUNTER, counted(1, "A", 1, thread=2)])
    tables, facts = parse(path)
    assert tables["kernels"].num_rows == 2
    assert "from another run" in facts.problems[0]


def test_replay_passes_are_executions_of_their_own_and_say_so(tmp_path):
    folder = tmp_path / "pass_2" / "host"
    folder.mkdir(parents=True)
    path = csvs.write(folder / "1_counter_collection.csv", [COUNTER, counted(1, "A", 1)])
    tables, facts = parse(path)
    assert facts.metadata["pass"] == 2 and rows(tables["counters"])[0]["pass"] == 2
    path = csvs.write(tmp_path / "x_counter_collection.csv", [
        [*COUNTER, "Replay_Pass"], [*counted(1, "A", 1), 0], [*counted(1, "B", 2, 200, 260), 1],
        [*counted(1, "C", 2, 200, 260), 1]])
    tables, facts = parse(path)
    assert tables["kernels"].num_rows == 2 and facts.kernels.ns == 110
    assert [(row["kernel_id"], row["pass"]) for row in rows(tables["counters"])] == [(0, 0), (1, 1), (1, 1)]


def test_counters_without_times_are_kernels_without_times(tmp_path):
    path = csvs.write(tmp_path / "t.csv", [COUNTER[:-2], counted(1, "A", 1)[:-2]])
    tables, facts = parse(path)
    assert tables["kernels"]["t_start_ns"].null_count == 1
    assert rows(tables["kernels"])[0]["grid_x"] == 2048 and "grid_y" not in rows(tables["kernels"])[0]
    assert facts.kernels.count == 1 and facts.kernels.ns == 0


def test_copies_know_their_direction_and_their_devices(tmp_path):
    head = ["Kind", "Direction", "Stream_Id", "Source_Agent_Id", "Destination_Agent_Id", "Correlation_Id",
            "Start_Timestamp", "End_Timestamp"]
    path = csvs.write(tmp_path / "1_memory_copy_trace.csv", [head, *(
        ["MEMORY_COPY", direction, 0, source, target, index, 10 * index, 10 * index + 5]
        for index, (direction, source, target) in enumerate([
            ("MEMORY_COPY_HOST_TO_DEVICE", "Agent 0", "Agent 4"), ("MEMORY_COPY_DEVICE_TO_HOST", "Agent 4", "Agent 0"),
            ("MEMORY_COPY_DEVICE_TO_DEVICE", "Agent 4", "Agent 4"),
            ("MEMORY_COPY_DEVICE_TO_DEVICE", "Agent 4", "Agent 5"), ("MEMORY_COPY_NONE", "Agent 0", "Agent 4")], 1))])
    copies = rows(parse(path)[0]["copies"])
    assert [(copy["kind"], copy.get("src_device"), copy.get("dst_device"), copy["device_id"]) for copy in copies] == [
        ("h2d", None, 4, 4), ("d2h", 4, None, 4), ("d2d", 4, 4, 4), ("p2p", 4, 5, 4), ("unknown", 0, 4, 4)]


def test_agents_are_described_and_the_host_is_no_device(tmp_path):
    csvs.write(tmp_path / "1_agent_info.csv", [
        ["Node_Id", "Logical_Node_Id", "Agent_Type", "Cu_Count", "Name", "Product_Name"],
        [0, 0, "CPU", 0, "AMD EPYC", "AMD EPYC"], [4, 1, "GPU", 304, "gfx942", "AMD Instinct MI300X"]])
    csvs.write(tmp_path / "1_kernel_trace.csv", [KERNEL, kernel(agent="Agent 1")])
    path = csvs.write(tmp_path / "1_memory_allocation_trace.csv", [
        ["Kind", "Operation", "Agent_Id", "Allocation_Size", "Address", "Correlation_Id", "Start_Timestamp",
         "End_Timestamp"],
        ["MEMORY_ALLOCATION", "MEMORY_ALLOCATION_ALLOCATE", "Agent 1", 1024, "0x00007ffb26354000", 1, 5, 9],
        ["MEMORY_ALLOCATION", "MEMORY_ALLOCATION_VMEM_ALLOCATE", "Agent 0", 1, "0x1", 1, 5, 9],
        ["MEMORY_ALLOCATION", "MEMORY_ALLOCATION_FREE", "", 0, "0x00007ffb26354000", 7, 11, 13]])
    tables, facts = parse(path)
    device, = facts.devices
    assert (device.id, device.name, device.arch, device.compute_units) == (1, "AMD Instinct MI300X", "gfx942", 304)
    assert [(row["kind"], row.get("device_id"), row["bytes"], row["address"])
            for row in rows(tables["allocations"])] == [
        ("allocate", 1, 1024, 0x7FFB26354000), ("virtual_allocate", None, 1, 1), ("free", None, 0, 0x7FFB26354000)]
    csvs.write(tmp_path / "1_kernel_trace.csv", [KERNEL, kernel(agent="GPU 0")])
    tables, facts = parse(path)
    assert facts.devices[0].id == 0 and rows(tables["kernels"])[0]["device_id"] == 0


def test_a_summary_is_no_kernel_but_catches_a_trace_that_lost_some(tmp_path):
    """Broken by: comparing counts alone."""
    head = ["Name", "Calls", "TotalDurationNs", "AverageNs", "Percentage", "MinNs", "MaxNs", "StdDev"]
    stats = csvs.write(tmp_path / "1_kernel_stats.csv", [head, ["k", 2, 100, 50.0, 100.0, 50, 50, 0.0]])
    tables, facts = parse(stats)
    assert not tables and facts.kernels is None
    assert facts.left_out["statistic: a summary of executions, not an execution"].count == 1
    path = csvs.write(tmp_path / "1_kernel_trace.csv", [KERNEL, kernel(1), kernel(2)])
    assert not parse(path)[1].problems
    csvs.write(path, [KERNEL, kernel(1), kernel(2, end=151)])
    assert parse(path)[1].problems == (
        "kernel: the summary file counts 2 in 100 ns, the trace holds 2 in 101 ns",)


def test_what_was_never_timed_is_left_out_and_said(tmp_path):
    path = csvs.write(tmp_path / "1_kernel_trace.csv", [KERNEL, kernel(1, 100, 90), kernel(2, 0, 0), kernel(3),
                                                             kernel(4, 100, 0), kernel(5, 0, 100)])
    tables, facts = parse(path)
    assert tables["kernels"]["dur_ns"].to_pylist() == [50] and facts.kernels == Subtotal(5, 50)
    assert facts.left_out == {"kernel: it ends before it starts": Subtotal(1, 0),
                              "kernel: it was never timed: its start or end is 0": Subtotal(3, 0)}


def test_marker_texts_that_nobody_escaped(tmp_path):
    path = tmp_path / "1_marker_api_trace.csv"
    path.write_text(",".join(f'"{name}"' for name in CALL) + "\n" + "\n".join(
        f'"MARKER_CORE_API","{text}",33,9,{index},50,60' for index, text in enumerate(
            ['step "warm", 3', "plain", "a, b", '"'])) + "\n")
    tables, facts = parse(path)
    assert sorted(tables["api_calls"]["name"].to_pylist()) == ['"', "a, b", "plain", 'step "warm", 3']
    assert set(tables["api_calls"]["domain"].to_pylist()) == {"marker"}
    assert facts.records == {"call": 4}


def test_rows_that_are_none_are_left_out_by_name(tmp_path):
    path = csvs.write(tmp_path / "1_kernel_trace.csv", [KERNEL, kernel(1), ["nonsense"], kernel(2)])
    tables, facts = parse(path)
    assert facts.kernels.count == 3 == tables["kernels"].num_rows + facts.left_out[
        "kernel: not a whole row under its header"].count
    assert "1_kernel_trace.csv: 1 row has not the fields of the header" in facts.problems[0]


def test_other_csv_is_not_ours_and_says_what_it_has(tmp_path):
    path = csvs.write(tmp_path / "t.csv", [["a", "b"], [1, 2]])
    assert not rocprofv3_csv.recognises(path)
    with pytest.raises(BadCapture, match="its columns are a, b"):
        list(rocprofv3_csv.parse(path))


def test_the_header_alone_is_a_capture_without_rows(tmp_path):
    tables, facts = parse(csvs.write(tmp_path / "1_kernel_trace.csv", [KERNEL]))
    assert not tables and facts.kernels.count == 0


def test_pieces_stay_small_and_keys_unique(tmp_path, monkeypatch):
    monkeypatch.setattr("aaco.profiler.io.csvstream.BLOCK_BYTES", 4096)
    path = csvs.write(tmp_path / "1_kernel_trace.csv", [KERNEL, *(kernel(number) for number in range(1000))])
    pieces = list(rocprofv3_csv.parse(path))[:-1]
    assert len(pieces) > 10 and max(piece.num_rows for piece in pieces) < 100
    ids = [value for piece in pieces for value in piece["kernel_id"].to_pylist()]
    assert sorted(ids) == list(range(1000))
    assert sum(pc.sum(piece["dur_ns"]).as_py() for piece in pieces) == 50_000
