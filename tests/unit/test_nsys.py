"""profiler.nsys on exports made by tests/fakes/nsys.py: as a version of 2021 wrote them, and as one of 2025 does."""

import sqlite3

import pytest

from aaco.core.errors import BadCapture
from aaco.profiler.capture import CapturedDevice, Subtotal
from aaco.profiler.formats import registry
from aaco.profiler.formats.nvidia import nsys
from tests.fakes.nsys import COPY, EPOCH, KERNEL, P, example, export, kernel
from tests.pieces import rows, together


@pytest.fixture
def new(tmp_path):
    return example(tmp_path / "x.sqlite")


@pytest.fixture
def old(tmp_path):
    return export(tmp_path / "x.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=(KERNEL, kernel(100, 130, 5)),
                  CUPTI_ACTIVITY_KIND_MEMCPY=(COPY, [300, 310, 0, 1, 7, 5, 4096, 1, 1, 2]),
                  CUPTI_ACTIVITY_KIND_RUNTIME=(["start", "end", "globalTid", "correlationId", "nameId"],
                                               [90, 95, P | 101, 5, 3]),
                  NVTX_EVENTS=(["start", "end", "globalTid", "text"], [10, 500, P | 101, "r"]))


def test_kernels(new):
    tables, facts = together(nsys.parse(new))
    first, node, other = tables["kernels"].to_pylist()
    assert {key: value for key, value in first.items() if value is not None} == {
        "kernel_id": 1, "kernel_name": "gemm<float>(int)", "device_id": 0, "queue_id": 1, "stream_id": 7,
        "process_id": 100, "correlation_id": 5, "t_start_ns": EPOCH + 100, "t_end_ns": EPOCH + 130, "dur_ns": 30,
        "grid_x": 1280, "grid_y": 2, "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1, "vgpr": 96,
        "lds_bytes": 1536, "scratch_bytes": 16, "source": "nsys", "timed": "execution"}
    assert node["graph_node_id"] == 8589934593
    assert other["process_id"] == 200
    assert facts.kernels == Subtotal(3, 71)


def test_each_process_has_its_own_correlation_ids(new):
    """Fails when the ids are taken as they are: process 200's kernel finds process 100's launch."""
    tables, _ = together(nsys.parse(new))
    launches = {row["correlation_id"]: row["process_id"] for row in tables["api_calls"].to_pylist()
                if row["correlation_id"]}
    assert [launches[row["correlation_id"]] for row in tables["kernels"].to_pylist()] == [100, 100, 200]


def test_copies(new):
    tables, _ = together(nsys.parse(new))
    assert [(row["kind"], row["bytes"], row["pinned"], row["src_device"], row["dst_device"], row["dur_ns"])
            for row in tables["copies"].to_pylist()] == [
        ("h2d", 4096, True, None, 0, 10), ("d2h", 16, False, 0, None, 1), ("d2d", 16, None, 0, 0, 6),
        ("memset", 64, None, None, 0, 1)]
    assert len(set(tables["copies"]["copy_id"].to_pylist())) == 4


def test_calls_and_ranges(new):
    tables, facts = together(nsys.parse(new))
    assert [(row["name"], row["domain"], row["thread_id"], row["t_start_ns"] - EPOCH, row["dur_ns"])
            for row in tables["api_calls"].to_pylist()] == [
        ("cudaLaunchKernel", "cuda_runtime", 101, 90, 5), ("cuLaunchKernel", "cuda_driver", 101, 96, 3),
        ("cudaLaunchKernel", "cuda_runtime", 201, 80, 15), ("cudaMemcpyAsync_ptsz", "cuda_runtime", 101, 290, 5),
        ("read", "osrt", 101, 50, 10), ("iteration 1", "marker", 101, 10, 490), ("step", "marker", 101, 20, 10),
        ("mark", "marker", 101, 25, 0)]
    assert len(set(tables["api_calls"]["call_id"].to_pylist())) == 8
    assert facts.left_out == {
        "NVTX_EVENTS: it is no range and no mark": Subtotal(1, 0),
        "NVTX_EVENTS: its start or end is missing or no integer": Subtotal(1, 0),
        "GPU_METRICS: it has no value": Subtotal(1, 0),
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: records of this table are not read": Subtotal(2, 0)}


def test_memory_and_metrics(new):
    tables, _ = together(nsys.parse(new))
    assert rows(tables["allocations"]) == [
        {"t_ns": EPOCH + 70, "kind": "allocate", "bytes": 1024, "address": 4096, "device_id": 0, "process_id": 100,
         "correlation_id": 3},
        {"t_ns": EPOCH + 75, "kind": "free", "bytes": 1024, "address": 4096, "device_id": 0, "process_id": 100,
         "correlation_id": 4}]
    assert rows(tables["samples"]) == [{"t_ns": EPOCH + 60, "name": "SM Active", "value": 55.5, "device_id": 0}]


def test_what_the_export_says_of_itself_and_what_stays_there(new):
    assert registry.recognise(new) is nsys
    tables, facts = together(nsys.parse(new))
    assert facts.devices == (CapturedDevice(0, "NVIDIA H200", "sm_90", 132, 150 << 30),)
    assert (facts.tool, facts.tool_version, facts.host, facts.clock) == (
        "Nsight Systems", "2025.3.1.90", "node7", "realtime")
    assert "hunter2" not in str(facts)
    assert sum(facts.records.values()) == sum(part.count for part in facts.left_out.values()) + sum(
        table.num_rows for table in tables.values())


def test_an_old_export_with_fewer_columns(old):
    """Fails when the process, which its kernels do not say, is taken as one more process."""
    assert registry.recognise(old) is nsys
    tables, facts = together(nsys.parse(old))
    (kernel,), (copy,) = tables["kernels"].to_pylist(), tables["copies"].to_pylist()
    call = tables["api_calls"].to_pylist()[0]
    assert kernel["correlation_id"] == copy["correlation_id"] == call["correlation_id"] == 5
    assert (kernel["process_id"], kernel["t_start_ns"], kernel["grid_x"]) == (None, 100, 1280)
    assert (facts.clock, facts.kernels, facts.problems) == ("unknown", Subtotal(1, 30), ())
    assert tables["api_calls"]["name"].to_pylist() == ["cudaLaunchKernel", "r"]


def test_a_graph_that_was_recorded_whole_is_a_range_and_a_problem(tmp_path):
    path = export(tmp_path / "x.sqlite", CUPTI_ACTIVITY_KIND_GRAPH_TRACE=(
        ["start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "graphId"],
        [100, 150, 0, 1, 7, 5, P, 3]))
    tables, facts = together(nsys.parse(path))
    assert "kernels" not in tables
    assert [(row["name"], row["domain"], row["device_id"], row["stream_id"], row["dur_ns"])
            for row in tables["api_calls"].to_pylist()] == [("cudaGraph 3", "gpu_graph", 0, 7, 50)]
    assert facts.problems[0].startswith("1 graph was recorded as a whole: their kernels are not in the file")


def test_without_its_strings_it_is_a_bad_capture(tmp_path):
    path = export(tmp_path / "x.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=(KERNEL, kernel(1, 2, 3)))
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE StringIds")
    assert not nsys.recognises(path)
    with pytest.raises(BadCapture, match="no table StringIds"):
        list(nsys.parse(path))
