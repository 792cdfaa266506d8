"""profiler.rocprof_csv on headers that no recorded capture has, each with an answer planted in it."""

import pytest

from aaco.core.errors import BadCapture
from aaco.profiler.capture import Subtotal
from aaco.profiler.formats.rocprof_legacy import rocprof_csv
from aaco.profiler.formats.rocprofv3 import rocprofv3_csv
from tests import csvs
from tests.pieces import rows, together

V1 = ["Index", "KernelName", "gpu-id", "queue-id", "queue-index", "pid", "tid", "grd", "wgr", "lds", "scr", "arch_vgpr",
      "accum_vgpr", "sgpr", "wave_size", "sig", "obj"]
TIMES = ["DispatchNs", "BeginNs", "EndNs", "CompleteNs", "DurationNs"]


def dispatch(index=0, name="k [clone .kd]"):
    return [index, name, 2, 0, 0, 33, 34, 256, 64, 512, 16, 28, 4, 32, 64, "0x0", "0x7f0d"]


def ran(start=100, end=150, took=None):
    return [90, start, end, 160, end - start if took is None else took]


def parse(path):
    return together(rocprof_csv.parse(path))


def test_a_kernel_of_rocm_6(tmp_path):
    tables, facts = parse(csvs.write(tmp_path / "results.csv", [[*V1, *TIMES], [*dispatch(), *ran()]]))
    assert rows(tables["kernels"]) == [{
        "kernel_id": 0, "kernel_name": "k", "device_id": 2, "queue_id": 0, "process_id": 33, "thread_id": 34,
        "t_start_ns": 100, "t_end_ns": 150, "dur_ns": 50, "grid_x": 256, "block_x": 64,
        "vgpr": 28, "agpr": 4, "sgpr": 32, "lds_bytes": 512,
        "scratch_bytes": 16, "source": "rocprof_csv", "timed": "execution", "dispatch_id": 0}]
    assert facts.clock == "unknown" and not facts.problems


def test_an_old_file_has_fewer_columns_and_ends_its_lines_with_a_comma(tmp_path):
    path = tmp_path / "results.csv"
    path.write_text("Index,KernelName,gpu-id,queue-id,queue-index,tid,grd,wgr,lds,scr,vgpr,sgpr,fbar,sig,obj,SQ_WAVES,"
                    "BeginNs,EndNs,\n"
                    '0,"k<a, b>.kd",0,0,0,34,256,64,0,0,28,32,0,0x0,0x7f,4,100,150,\n')
    tables, facts = parse(path)
    kernel, = rows(tables["kernels"])
    assert (kernel["kernel_name"], kernel["vgpr"], kernel["dur_ns"]) == ("k<a, b>", 28, 50)
    assert [(row["counter"], row["value"]) for row in rows(tables["counters"])] == [("SQ_WAVES", 4)]
    assert not facts.problems


def test_counters_are_every_column_that_is_none_of_the_tools_own(tmp_path):
    """Broken by: a counter row for None, which stands where a dispatch was not counted."""
    path = csvs.write(tmp_path / "results.csv", [
        [*V1, "SQ_WAVES", "TCC_HIT[0]", "L2CacheHit"], [*dispatch(0), 16384, 7, 97.5], [*dispatch(1), 8, "None", 0]])
    tables, facts = parse(path)
    assert sorted((row["kernel_id"], row["counter"], row["value"]) for row in rows(tables["counters"])) == [
        (0, "L2CacheHit", 97.5), (0, "SQ_WAVES", 16384.0), (0, "TCC_HIT[0]", 7.0), (1, "L2CacheHit", 0.0),
        (1, "SQ_WAVES", 8.0)]
    assert tables["kernels"]["t_start_ns"].null_count == 2
    assert facts.kernels.count == 2 and facts.kernels.ns == 0 and not facts.problems


def test_a_barrier_packet_is_no_kernel_and_says_so(tmp_path):
    path = csvs.write(tmp_path / "results.csv", [
        [*V1, *TIMES], [*dispatch(0), *ran()], [*dispatch(1, "<barrier packet>"), *ran(200, 207)]])
    tables, facts = parse(path)
    assert tables["kernels"].num_rows == facts.kernels.count == 1 and facts.kernels.ns == 50
    assert facts.records == {"kernel": 1, "barrier": 1}
    left = facts.left_out["barrier: it orders the queue and is no kernel"]
    assert (left.count, left.ns) == (1, 7)


@pytest.mark.parametrize("head", [
    ["Name", "BeginNs", "EndNs"],
    ["BeginNs", "EndNs", "dev-id", "queue-id", "Name", "pid", "tid", "roctx-range", "Data"],
    ["KERNELNAME", "BEGINNS", "ENDNS"], ["Kernel_Name", "Start_Timestamp", "End_Timestamp", "Dispatch_ID", "GPU_ID"]])
def test_columns_by_all_their_names(tmp_path, head):
    values = {"name": "void k<1, 2>(int)", "beginns": 100, "endns": 150, "kernelname": "void k<1, 2>(int)",
              "kernel_name": "void k<1, 2>(int)", "start_timestamp": 100, "end_timestamp": 150, "roctx-range": "x",
              "data": ""}
    tables, facts = parse(csvs.write(tmp_path / "r.csv", [head, [values.get(name.lower(), 1) for name in head]]))
    assert [(row["kernel_name"], row["t_start_ns"], row["dur_ns"]) for row in rows(tables["kernels"])] == [
        ("void k<1, 2>(int)", 100, 50)]
    assert "counters" not in tables and not facts.problems


def test_names_with_commas_that_nobody_quoted(tmp_path):
    """As in the files of some releases. Broken by: `free` left away."""
    path, name = tmp_path / "results.csv", "void k<4, f<int>, 2>(int, float*)"
    table = [[*V1, *TIMES], *([*dispatch(index, name), *ran()] for index in range(3))]
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in table))
    (tmp_path / "results.stats.csv").write_text(
        f"Name,Calls,TotalDurationNs,AverageNs,Percentage\n{name},3,150,50,100.0\n")
    tables, facts = parse(path)
    assert set(tables["kernels"]["kernel_name"].to_pylist()) == {name}
    assert facts.metadata["statistics"]["stats"] == [{"name": name, "calls": 3, "total_ns": 150}]
    assert [problem.split(": ")[1].split(" in ")[0] for problem in facts.problems] == [
        "3 rows have commas or quotes", "1 row has commas or quotes"]


def test_a_summary_that_the_kernels_do_not_add_up_to(tmp_path):
    """Broken by: comparing counts alone."""
    path = csvs.write(tmp_path / "r.csv", [[*V1, *TIMES], [*dispatch(), *ran()]])
    csvs.write(tmp_path / "r.stats.csv", [["Name", "Calls", "TotalDurationNs", "AverageNs", "Percentage"],
                                          ["k", 1, 49, 49, 100.0]])
    csvs.write(tmp_path / "r.hip_stats.csv", [["Name", "Calls", "TotalDurationNs", "AverageNs", "Percentage"],
                                              ["hipMalloc", 1, 9, 9, 100.0]])
    assert [each.name for each in rocprof_csv.members(tmp_path / "r.hip_stats.csv")] == [
        "r.csv", "r.hip_stats.csv", "r.stats.csv"]
    facts = parse(path)[1]
    assert facts.problems == ("the summary file counts 1 in 49 ns, the file holds 1 in 50 ns",)
    assert facts.records == {"kernel": 1, "statistic": 2}


def test_what_was_never_timed_is_left_out_and_said(tmp_path):
    path = csvs.write(tmp_path / "r.csv", [[*V1, *TIMES], [*dispatch(0), *ran(100, 90)], [*dispatch(1), *ran(0, 0)],
                                           [*dispatch(2), *ran(took=51)]])
    tables, facts = parse(path)
    assert tables["kernels"]["dur_ns"].to_pylist() == [50] and facts.kernels == Subtotal(3, 50)
    assert facts.left_out == {"kernel: it ends before it starts": Subtotal(1, 0),
                              "kernel: it was never timed: its start or end is 0": Subtotal(1, 0)}
    assert facts.problems == ("1 kernel has another duration than from their start to their end",)


def test_a_dispatch_with_counters_stays_without_the_times_it_lacks(tmp_path):
    """Mutation: leaving the dispatch out loses its counters."""
    path = csvs.write(tmp_path / "r.csv", [[*V1, *TIMES, "SQ_WAVES"], [*dispatch(0), *ran(100, 0), 7],
                                           [*dispatch(1), *ran(100, 150), 8]])
    tables, facts = parse(path)
    assert tables["kernels"]["dur_ns"].to_pylist() == [None, 50] and facts.kernels == Subtotal(2, 50)
    assert tables["counters"]["value"].to_pylist() == [7, 8]
    assert "1 kernel record has no time" in facts.problems


def test_what_is_not_ours(tmp_path):
    v3 = csvs.write(tmp_path / "1_kernel_trace.csv", [
        ["Kind", "Agent_Id", "Kernel_Name", "Start_Timestamp", "End_Timestamp"], ["KERNEL_DISPATCH", 1, "k", 1, 2]])
    assert rocprofv3_csv.recognises(v3) and not rocprof_csv.recognises(v3)
    with pytest.raises(BadCapture, match="its columns are Kind, Agent_Id"):
        list(rocprof_csv.parse(v3))
