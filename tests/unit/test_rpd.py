"""profiler.rpd on traces made here, in schemas 2 and 3, against what was put in."""

import gzip
import json
import sqlite3

import pytest

from aaco.core.errors import BadCapture
from aaco.profiler.capture import Subtotal
from aaco.profiler.formats import registry
from aaco.profiler.formats.rocprof_legacy import rpd
from tests.fakes.rpd import Trace
from tests.pieces import rows, together


def trace(schema=2):
    made = Trace(schema)
    made.call(11, "hipLaunchKernel", 100, 120)
    made.launch(11, "gemm.kd", (4, 2, 1), (64, 1, 2))
    made.op(1, "KernelExecution", 200, 233, 11, "gemm.kd")
    made.call(12, "hipExtModuleLaunchKernel", 130, 140)
    made.launch(12, "ext", (512, 1, 1), (64, 1, 1))
    made.op(2, "KernelExecution", 240, 250, 12, "ext")
    made.call(13, "hipGraphLaunch", 150, 170, "graphExec = 0x1 | stream = 0x2")
    made.op(3, "Task", 300, 301, 13, "gemm.kd")
    made.op(4, "Task", 302, 304, 13, "other")
    made.call(14, "hipMemcpyAsync", 180, 190)
    made.op(5, "CopyHostToDevice", 310, 320, 14)
    made.add("copyapi", api_ptr_id=14, stream="0x0", size=4096, width="", height="", kind=1, pinned=0)
    made.call(15, "hipMemset", 191, 192)
    made.op(6, "FillBuffer", 330, 335, 15)
    made.call(16, "hipMemcpy", 193, 194)
    made.op(7, "Memcpy", 340, 350, 16)
    made.add("copyapi", api_ptr_id=16, stream="0x0", size="", kind=2)
    made.call(21, "UserMarker", 90, 400, "step 1")
    made.call(22, "OpTable::writeRows", 500, 510, '{"count": 5}')
    made.add("monitor", id=1, deviceType="gpu", deviceId=0, monitorType="sclk", start=95, end=200, value="1700")
    return made


@pytest.fixture(params=[2, 3])
def file(request, tmp_path):
    return trace(request.param).write(tmp_path / "t.rpd")


def test_kernels_of_launches_and_of_graphs(file):
    """Fails when operations of type Task, which are the kernels of graphs, are no kernels."""
    tables, facts = together(rpd.parse(file))
    assert rows(tables["kernels"])[0] == {
        "kernel_id": 1, "kernel_name": "gemm", "device_id": 2, "queue_id": 5, "stream_id": 0x7F10, "process_id": 100,
        "thread_id": 101, "correlation_id": 11, "t_start_ns": 200, "t_end_ns": 233, "dur_ns": 33, "grid_x": 256,
        "grid_y": 2, "grid_z": 2, "block_x": 64, "block_y": 1, "block_z": 2, "source": "rpd", "timed": "execution"}
    assert [(row["kernel_name"], row["correlation_id"], row["dur_ns"], row["grid_x"])
            for row in tables["kernels"].to_pylist()] == [
        ("gemm", 11, 33, 256), ("ext", 12, 10, 512), ("gemm", 13, 1, None), ("other", 13, 2, None)]
    assert facts.kernels == Subtotal(4, 46)


def test_copies_and_fills(file):
    tables, _ = together(rpd.parse(file))
    assert [(row["kind"], row["bytes"], row["src_device"], row["dst_device"], row["pinned"], row["correlation_id"])
            for row in tables["copies"].to_pylist()] == [
        ("h2d", 4096, None, 2, None, 14), ("memset", None, None, 2, None, 15), ("d2h", None, 2, None, None, 16)]


def test_calls_are_named_and_have_their_arguments(file):
    tables, _ = together(rpd.parse(file))
    calls = tables["api_calls"].to_pylist()
    assert [(row["call_id"], row["name"], row["domain"], row["dur_ns"]) for row in calls if row["call_id"] > 15] == [
        (16, "hipMemcpy", "hip", 1), (21, "step 1", "marker", 310), (22, "OpTable::writeRows", "rpd", 10)]
    told = {row["call_id"]: json.loads(row["arguments"]) for row in tables["call_arguments"].to_pylist()}
    assert told == {13: {"args": "graphExec = 0x1 | stream = 0x2"}, 22: {"count": 5}}


def test_the_account(file):
    tables, facts = together(rpd.parse(file))
    assert facts.records == {"kernel": 4, "copy": 3, "other operation": 0, "call": 8, "monitor": 1}
    assert (facts.left_out, facts.problems, facts.clock) == ({}, (), "monotonic")
    assert [device.id for device in facts.devices] == [2]
    assert facts.metadata["schema_version"] in "23"
    assert rows(tables["samples"]) == [{"t_ns": 95, "name": "sclk", "value": 1700.0, "unit": "MHz", "device_id": 0}]


def test_it_is_recognised_and_gzip_too(file, tmp_path):
    zipped = tmp_path / "t.rpd.gz"
    zipped.write_bytes(gzip.compress(file.read_bytes()))
    assert registry.recognise(file) is registry.recognise(zipped) is rpd
    plain, facts = together(rpd.parse(file))
    again, same = together(rpd.parse(zipped))
    assert facts == same
    assert {name: table.to_pylist() for name, table in plain.items()} == {
        name: table.to_pylist() for name, table in again.items()}


def test_where_the_dispatch_packet_was_recorded_sizes_are_its_own(tmp_path):
    """rocprofiler-sdk's source notes work-items and all local memory. Fails when its grid is multiplied."""
    made = trace(3)
    made.string("RocprofDataSource::buffer_callback")
    tables, facts = together(rpd.parse(made.write(tmp_path / "t.rpd")))
    first = tables["kernels"].to_pylist()[0]
    assert (first["grid_x"], first["lds_bytes"], first["scratch_bytes"]) == (4, 64, 8)
    assert tables["copies"]["device_id"].null_count == 3
    assert facts.clock == "boottime"


def test_counters(tmp_path):
    made = trace(3)
    made.op(8, "KernelExecution", 9, 8, 11, "gemm.kd")
    for number, (op, value) in enumerate([(1, 5.0), (1, None), (99, 1.0), (5, 1.0), (8, 1.0)]):
        made.add("counter", id=number, op_id=op, value=value, name_id=made.string("SQ_WAVES"))
    tables, facts = together(rpd.parse(made.write(tmp_path / "t.rpd")))
    assert rows(tables["counters"]) == [{"kernel_id": 1, "counter": "SQ_WAVES", "value": 5.0}]
    assert facts.left_out == {
        "kernel: it ends before it starts": Subtotal(1, 0), "counter: it has no value": Subtotal(1, 0),
        "counter: no kernel of the tables is its operation": Subtotal(3, 0)}


def test_what_is_no_kernel_copy_or_fill_is_left_out_by_its_type(tmp_path):
    made = trace()
    made.op(8, "Marker", 400, 401, 11)
    made.op(18, "KernelExecution2", 402, 403, 11)
    made.op(9, "KernelExecution", 410, 411, None, "orphan")
    made.op(10, "KernelExecution", 412, 411, 11, "gemm")
    made.add("monitor", id=2, deviceId=0, monitorType="sclk", start=96, value="fast")
    made.add("monitor", id=3, deviceId=0, monitorType="sclk", start=None, value="5")
    tables, facts = together(rpd.parse(made.write(tmp_path / "t.rpd")))
    assert facts.kernels == Subtotal(6, 47)
    assert facts.left_out == {
        "kernel: it ends before it starts": Subtotal(1, 0),
        "other operation: Marker is no kernel, copy or fill": Subtotal(1, 0),
        "other operation: KernelExecution2 is no kernel, copy or fill": Subtotal(1, 0),
        "monitor: its value is no number": Subtotal(1, 0),
        "monitor: its start or end is missing or no integer": Subtotal(1, 0)}
    assert facts.problems == (
        "1 kernel has no call that launched them",
        "1 record of 'KernelExecution2' looks like work of a device and is missing in its table")
    assert tables["kernels"].to_pylist()[-1]["correlation_id"] is None


def test_an_operation_with_two_calls_is_one_kernel(tmp_path):
    """Fails when operations are joined to their links with a plain join."""
    made = trace()
    made.add("api_ops", id=50, api_id=12, op_id=1)
    tables, facts = together(rpd.parse(made.write(tmp_path / "t.rpd")))
    assert facts.kernels == Subtotal(4, 46)
    assert len(tables["kernels"]) == 4


def test_sizes_of_another_kernel_are_not_taken(tmp_path):
    """A call may launch a helper beside the kernel that its row names."""
    made = trace()
    made.op(8, "KernelExecution", 400, 401, 11, "helper")
    tables, _ = together(rpd.parse(made.write(tmp_path / "t.rpd")))
    assert tables["kernels"].to_pylist()[-1]["grid_x"] is None


def test_without_a_table_or_a_key_it_is_a_bad_capture(tmp_path):
    path = trace().write(tmp_path / "t.rpd")
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE x AS SELECT * FROM rocpd_op")
        connection.execute("DROP TABLE rocpd_op")
        connection.execute("ALTER TABLE x RENAME TO rocpd_op")
    with pytest.raises(BadCapture, match="no primary key"):
        list(rpd.parse(path))
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE rocpd_op")
    assert not rpd.recognises(path)
    with pytest.raises(BadCapture, match="no table rocpd_op"):
        list(rpd.parse(path))
