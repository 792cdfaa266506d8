"""Databases and rocprofv3's JSON as recorded, against plain sqlite3 and json.loads: nothing lost, 0 ns of error."""

import gzip
import json
import sqlite3
from collections import Counter

import pyarrow.compute as pc
import pytest

from aaco.profiler.capture import Subtotal
from aaco.profiler.formats import registry
from aaco.profiler.formats.rocprof_legacy import rocprof_db, rpd
from aaco.profiler.formats.rocprofv3 import rocpd, rocprofv3_json
from tests.pieces import together

pytestmark = pytest.mark.captures


def ask(path, query):
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as connection:
        return connection.execute(query).fetchall()


def columns(table, *names):
    return Counter(zip(*(table[name].to_pylist() for name in names), strict=True))


def test_rocpd(captures):
    """Fails when dispatches are joined to anything by an inner join, or grouped by name before they are summed."""
    path = captures / "rocprofv3-rocpd/gfx1201_rocm720_llamacpp_32432_results.db"
    assert registry.recognise(path) is rocpd
    tables, facts = together(rocpd.parse(path))
    tail = "_00000a10_7bc0_7bc0_a1ef_6b94d43555c0"
    ((count, ns),) = ask(path, f'SELECT count(*), sum("end" - start) FROM rocpd_kernel_dispatch{tail}')
    assert facts.kernels == Subtotal(count, ns) == Subtotal(5687, 82_887_453)
    kernels = tables["kernels"]
    assert (kernels.num_rows, pc.sum(kernels["dur_ns"]).as_py()) == (count, ns)
    raw = ask(path, "SELECT k.start, k.\"end\", s.display_name, a.type_index, k.queue_id, k.stream_id, k.grid_size_x, "
                    "k.workgroup_size_x, s.arch_vgpr_count, k.group_segment_size, e.stack_id, k.dispatch_id "
                    f"FROM rocpd_kernel_dispatch{tail} k JOIN rocpd_event{tail} e ON e.id = k.event_id "
                    f"JOIN rocpd_info_kernel_symbol{tail} s ON s.id = k.kernel_id "
                    f"JOIN rocpd_info_agent{tail} a ON a.id = k.agent_id")
    assert columns(kernels, "t_start_ns", "t_end_ns", "kernel_name", "device_id", "queue_id", "stream_id", "grid_x",
                   "block_x", "vgpr", "lds_bytes", "correlation_id", "dispatch_id") == Counter(raw)
    assert columns(kernels, "kernel_name") == Counter(ask(path, "SELECT name FROM kernels"))
    assert (facts.left_out, facts.problems) == ({}, ())
    assert sum(facts.records.values()) == sum(table.num_rows for table in tables.values())
    assert [(device.id, device.arch, device.compute_units, device.vram_bytes) for device in facts.devices] == [
        (number, "gfx1201", 64, 32_061_259_776) for number in range(4)]
    assert facts.metadata["schema_version"] == "3"


@pytest.mark.parametrize("name", ["examples/rocm-profile-data/results/matmul_result.rpd",
                                  "raptor/tests/mytrace.rpd.gz"])
def test_rpd(captures, tmp_path, name):
    """Fails when operations of type Task, the kernels of graphs, are left away: 90.9 of the second trace's 407.1 ms."""
    path = plain = captures / "rpd" / name
    if path.suffix == ".gz":
        plain = tmp_path / "plain.rpd"
        plain.write_bytes(gzip.decompress(path.read_bytes()))
    assert registry.recognise(path) is rpd
    tables, facts = together(rpd.parse(path))
    ops = ask(plain, 'SELECT o.start, o."end", t.string, d.string, x.api_id, a.pid, a.tid, o.gpuId FROM rocpd_op o '
                     "JOIN rocpd_string t ON t.id = o.opType_id JOIN rocpd_string d ON d.id = o.description_id "
                     "JOIN rocpd_api_ops x ON x.op_id = o.id JOIN rocpd_api a ON a.id = x.api_id")
    kernels = [op for op in ops if op[2] in ("KernelExecution", "Task")]
    ((count, ns),) = ask(plain, 'SELECT count(*), sum("end" - start) FROM rocpd_op WHERE description_id <> 1')
    assert facts.kernels == Subtotal(count, ns) == Subtotal(len(kernels), sum(op[1] - op[0] for op in kernels))
    assert columns(tables["kernels"], "t_start_ns", "t_end_ns", "kernel_name", "correlation_id", "process_id",
                   "thread_id", "device_id") == Counter((op[0], op[1], *op[3:]) for op in kernels)
    assert columns(tables["copies"], "t_start_ns", "t_end_ns", "correlation_id") == Counter(
        (op[0], op[1], op[4]) for op in ops if op[2] not in ("KernelExecution", "Task"))
    assert columns(tables["api_calls"], "call_id", "t_start_ns", "t_end_ns", "name") == Counter(ask(
        plain, "SELECT a.id, start, \"end\", iif(n.string = 'UserMarker' AND t.string <> '', t.string, n.string) "
               "FROM rocpd_api a JOIN rocpd_string n ON n.id = apiName_id JOIN rocpd_string t ON t.id = args_id"))
    assert pc.sum(tables["kernels"]["dur_ns"]).as_py() == ns
    assert (facts.left_out, facts.problems) == ({}, ())
    assert sum(facts.records.values()) == sum(
        table.num_rows for name, table in tables.items() if name != "call_arguments")


@pytest.mark.parametrize("name", ["llamacpp_joursbleu/results.db", "aiter/results.db",
                                  "aiter/op_tests/op_benchmarks/triton/utils/profiling_output.db"])
def test_rocprof_dispatches(captures, name):
    path = captures / "legacy-rocprof" / name
    assert registry.recognise(path) is rocprof_db
    tables, facts = together(rocprof_db.parse(path))
    ((count, ns, again),) = ask(path, "SELECT count(*), sum(EndNs - BeginNs), sum(DurationNs) FROM KERN")
    assert facts.kernels == Subtotal(count, ns) == Subtotal(count, again)
    raw = ask(path, 'SELECT BeginNs, EndNs, KernelName, "gpu-id", "queue-id", pid, tid, grd, wgr, lds, scr, arch_vgpr, '
                    "accum_vgpr, sgpr FROM KERN")
    assert columns(tables["kernels"], "t_start_ns", "t_end_ns", "kernel_name", "device_id", "queue_id", "process_id",
                   "thread_id", "grid_x", "block_x", "lds_bytes", "scratch_bytes", "vgpr", "agpr", "sgpr") == Counter(
        (*row[:2], row[2].strip('"').removesuffix(" [clone .kd]").removesuffix(".kd"), *row[3:]) for row in raw)
    assert (facts.left_out, facts.problems) == ({}, ())


def test_rocprof_activity(captures):
    path = captures / "legacy-rocprof/rocm_blogs/HIP_trace/results.db"
    tables, facts = together(rocprof_db.parse(path))
    for name, table in (("OPS", "kernels"), ("COPY", "copies"), ("HIP", "api_calls")):
        assert columns(tables[table], "t_start_ns", "dur_ns", "correlation_id", "process_id", "thread_id") == Counter(
            ask(path, f'SELECT BeginNs, EndNs - BeginNs, "Index", pid, tid FROM {name}'))
    assert sum(facts.records.values()) == 142
    named = dict(zip(*(tables["api_calls"][name].to_pylist() for name in ("correlation_id", "name")), strict=True))
    assert [named[key] for key in tables["kernels"]["correlation_id"].to_pylist()] == ["hipLaunchKernel"]
    assert [named[key] for key in tables["copies"]["correlation_id"].to_pylist()] == ["hipMemcpyWithStream"] * 6


def test_rocprofv3_json(captures):
    path = captures / "rocprofv3-json/DERIVED_first2500_908_results.json.gz"
    assert registry.recognise(path) is rocprofv3_json
    tables, facts = together(rocprofv3_json.parse(path))
    (process,) = json.loads(gzip.decompress(path.read_bytes()))["rocprofiler-sdk-tool"]
    names = {symbol["kernel_id"]: symbol["formatted_kernel_name"] for symbol in process["kernel_symbols"]}
    numbers = {agent["id"]["handle"]: agent["logical_node_type_id"] for agent in process["agents"]}
    records = process["buffer_records"]["kernel_dispatch"]
    ns = sum(record["end_timestamp"] - record["start_timestamp"] for record in records)
    assert facts.kernels == Subtotal(len(records), ns) == Subtotal(2500, 8_902_212)
    assert pc.sum(tables["kernels"]["dur_ns"]).as_py() == ns
    assert columns(tables["kernels"], "t_start_ns", "t_end_ns", "correlation_id", "thread_id", "stream_id",
                   "kernel_name", "device_id", "queue_id", "dispatch_id", "grid_x", "block_x", "lds_bytes") == Counter(
        (record["start_timestamp"], record["end_timestamp"], record["correlation_id"]["internal"], record["thread_id"],
         record["stream_id"]["handle"], names[info["kernel_id"]], numbers[info["agent_id"]["handle"]],
         info["queue_id"]["handle"], info["dispatch_id"], info["grid_size"]["x"], info["workgroup_size"]["x"],
         info["group_segment_size"]) for record in records for info in [record["dispatch_info"]])
    assert (facts.left_out, facts.problems) == ({}, ())
    assert len(facts.devices) == 8
