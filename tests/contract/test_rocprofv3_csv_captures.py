"""profiler.rocprofv3_csv on every recorded file, against the csv module and int: nothing lost, 0 ns of error."""

import shutil

import pyarrow.compute as pc
import pytest

from aaco.profiler.formats import registry
from aaco.profiler.formats.rocprofv3 import rocprofv3_csv
from tests import csvs
from tests.pieces import together

pytestmark = pytest.mark.captures
ROWS = {"kernel": "kernels", "call": "api_calls", "copy": "copies", "allocation": "allocations",
        "scratch": "allocations", "counter": "counters"}


def alone(captures, tmp_path):
    """Every file by itself, as if no other of its run were there."""
    files = sorted(path for path in captures.glob("rocprofv3-csv/**/*.csv") if not path.name.startswith("pc_sampling"))
    assert len(files) == 29
    for number, path in enumerate(files):
        folder = tmp_path / str(number)
        folder.mkdir()
        yield shutil.copyfile(path, folder / path.name)


def times(rows):
    return sorted((int(row["Start_Timestamp"]), int(row["End_Timestamp"]), int(row["Correlation_Id"])) for row in rows)


def of_table(table):
    columns = [table[name].to_pylist() for name in ("t_start_ns", "t_end_ns", "correlation_id")]
    return sorted(zip(*columns, strict=True))


def test_every_row_of_every_file_is_in_the_tables_to_the_ns(captures, tmp_path):
    """Fails when a row is dropped, or when time passes through a float."""
    for path in alone(captures, tmp_path):
        rows = csvs.rows(path)
        assert registry.recognise(path) is rocprofv3_csv
        tables, facts = together(rocprofv3_csv.parse(path))
        kind = sorted(facts.records)[0]  # a counter file also holds kernels
        assert facts.records[kind] == len(rows)
        left = sum(part.count for part in facts.left_out.values())
        assert left == (len(rows) if kind == "statistic" else 0)
        if kind == "statistic":
            assert not tables
            continue
        table = tables[ROWS[kind]]
        assert table.num_rows == len(rows)
        if kind in ("kernel", "call", "copy"):
            assert of_table(table) == times(rows)
        if kind in ("allocation", "scratch"):
            assert sorted(zip(table["t_ns"].to_pylist(), table["dur_ns"].to_pylist(), strict=True)) == sorted(
                (int(row["Start_Timestamp"]), int(row["End_Timestamp"]) - int(row["Start_Timestamp"])) for row in rows)


def test_kernels_keep_their_names_sizes_and_places(captures):
    for path in captures.glob("rocprofv3-csv/**/*kernel_trace*.csv"):
        rows = csvs.rows(path)
        tables, facts = together(rocprofv3_csv.parse(path))
        kernels = tables["kernels"]
        took = sum(int(row["End_Timestamp"]) - int(row["Start_Timestamp"]) for row in rows)
        assert (facts.kernels.count, facts.kernels.ns) == (len(rows), took)
        assert pc.sum(kernels["dur_ns"]).as_py() == took
        ours = ["kernel_name", "dispatch_id", "queue_id", "stream_id", "thread_id", "grid_x", "grid_y", "block_z",
                "vgpr", "sgpr", "lds_bytes", "scratch_bytes", "device_id"]
        theirs = ["Kernel_Name", "Dispatch_Id", "Queue_Id", "Stream_Id", "Thread_Id", "Grid_Size_X", "Grid_Size_Y",
                  "Workgroup_Size_Z", "VGPR_Count", "SGPR_Count", "LDS_Block_Size", "Scratch_Size", "Agent_Id"]
        assert list(zip(*(map(str, kernels[name].to_pylist()) for name in ours), strict=True)) == [
            (row["Kernel_Name"], *(row[name].removeprefix("Agent ") for name in theirs[1:])) for row in rows]


def test_counters_are_of_the_kernels_they_were_counted_on(captures):
    for path in captures.glob("rocprofv3-csv/**/*counter_collection.csv"):
        rows = csvs.rows(path)
        tables, facts = together(rocprofv3_csv.parse(path))
        kernels = {row["kernel_id"]: row for row in tables["kernels"].to_pylist()}
        assert len(kernels) == tables["kernels"].num_rows == len({row["Dispatch_Id"] for row in rows})
        found = sorted((*(kernels[row["kernel_id"]][name] for name in ("dispatch_id", "t_start_ns")), row["counter"],
                        row["value"]) for row in tables["counters"].to_pylist())
        assert found == sorted((int(row["Dispatch_Id"]), int(row["Start_Timestamp"]), row["Counter_Name"],
                                float(row["Counter_Value"])) for row in rows)
        assert facts.kernels.ns == sum(kernel["dur_ns"] for kernel in kernels.values())


def test_the_files_of_a_run_are_one_capture_and_those_of_others_are_not(captures):
    folder = captures / "rocprofv3-csv/jimw567_llamacpp"
    for name in ("kernel_trace", "hip_api_trace"):
        assert [path.name for path in rocprofv3_csv.members(folder / f"decode_{name}.csv")] == [
            "decode_kernel_trace.csv", "decode_hip_api_trace.csv"]
    assert len(rocprofv3_csv.members(folder / "decode_fetch_counter_collection.csv")) == 1
    docs = captures / "rocprofv3-csv/rocm_systems_docs"  # samples of many runs, under the names of one
    assert [len(rocprofv3_csv.members(path)) for path in docs.glob("*trace.csv")] == [1] * 13
