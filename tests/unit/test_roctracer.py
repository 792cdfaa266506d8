"""profiler.roctracer line by line, each line with an answer planted in it."""

import json

import pytest

from aaco.core.errors import BadCapture
from aaco.profiler.capture import Subtotal
from aaco.profiler.formats.rocprof_legacy import roctracer
from tests.pieces import rows, together


def parse(tmp_path, *lines, name="t.txt"):
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    assert roctracer.recognises(path)
    return together(roctracer.parse(path))


@pytest.mark.parametrize("line, name, arguments, correlation", [
    ("10:20 33:34 hipMalloc(ptr=0x7f, size=4) :505", "hipMalloc", {"args": "ptr=0x7f, size=4"}, 505),
    ("10:20 33:34 hipMalloc(ptr=0x7f, size=4)", "hipMalloc", {"args": "ptr=0x7f, size=4"}, None),
    ("10:20 33:34 hsa_init() = 0 :6", "hsa_init", {"result": "0"}, 6),
    ("10:20 33:34 hsa_init() = 0", "hsa_init", {"result": "0"}, None),
    ("10:20 33:34 hipLaunchKernel(args=0x7f, stream=0) kernel=void k<f(2)>(float*, int) :7", "hipLaunchKernel",
     {"args": "args=0x7f, stream=0", "kernel": "void k<f(2)>(float*, int)"}, 7),
    ("10:20 33:34 hsa_executable_get_symbol(<executable>, ", "hsa_executable_get_symbol", {"args": "<executable>, "},
     None),
])
def test_a_call(tmp_path, line, name, arguments, correlation):
    tables, facts = parse(tmp_path, line)
    call, = rows(tables["api_calls"])
    assert call == {"call_id": 0, "name": name, "domain": name[:3], "process_id": 33, "thread_id": 34, "t_start_ns": 10,
                    "t_end_ns": 20, "dur_ns": 10, **({"correlation_id": correlation} if correlation else {})}
    assert json.loads(rows(tables["call_arguments"])[0]["arguments"]) == arguments
    assert facts.kernels is None


def test_work_of_a_device(tmp_path):
    """Broken by: reading `device:queue` as process and thread."""
    tables, facts = parse(
        tmp_path, "10:20 2:1 void k<1, 2>(float*):7:33", "30:40 2:1 CopyHostToDevice:8:33", "50:60 async-copy:0:33",
        "70:80 async-copy9", "90:93 2:1 Marker:9:33", "91:94 2:1 hipMemcpyAsync(dst) :99")
    assert rows(tables["kernels"]) == [{
        "kernel_id": 0, "kernel_name": "void k<1, 2>(float*)", "device_id": 2, "queue_id": 1, "process_id": 33,
        "t_start_ns": 10, "t_end_ns": 20, "dur_ns": 10, "correlation_id": 7, "source": "roctracer",
        "timed": "execution"}]
    assert [(row["kind"], row.get("dst_device"), row.get("process_id"), row.get("correlation_id"))
            for row in rows(tables["copies"])] == [("h2d", 2, 33, 8), ("unknown", None, 33, None),
                                                   ("unknown", None, None, None)]
    part = facts.left_out["barrier: it orders the queue and is no kernel"]
    assert (part.count, part.ns) == (1, 3)
    assert facts.kernels.count == 1 and facts.kernels.ns == 10


def test_records_by_name_and_detail(tmp_path):
    tables, facts = parse(
        tmp_path, "\thipFree\tcorrelation_id(5) time_ns(10:20) process_id(33) thread_id(34)",
        "\tKernelExecution\tcorrelation_id(6) time_ns(30:45) device_id(1) queue_id(2)",
        "\tCopyDeviceToHost\tcorrelation_id(7) time_ns(50:60) device_id(1) queue_id(2) bytes(0x40)",
        "\t:hipMemcpy\t: correlation_id(8) time_ns(70:80)", "\tEXT_API\tcorrelation_id(9) time_ns(0:0) external_id(33)",
        "<hipFree id(6)\tcorrelation_id(5) on-enter pid(33) tid(34)>", "PASSED!")
    assert [(row["name"], row["correlation_id"], row.get("process_id")) for row in rows(tables["api_calls"])] == [
        ("hipFree", 5, 33), ("hipMemcpy", 8, None)]
    assert [(row["kernel_name"], row["dur_ns"], row["correlation_id"]) for row in rows(tables["kernels"])] == [
        ("KernelExecution", 15, 6)]
    assert [(row["kind"], row["bytes"], row["src_device"]) for row in rows(tables["copies"])] == [("d2h", 64, 1)]
    assert {reason.split(":")[0]: part.count for reason, part in facts.left_out.items()} == {
        "record": 1, "callback": 1, "line": 1}


def test_ranges_nest_by_thread_and_pair_by_number(tmp_path):
    tables, facts = parse(
        tmp_path, '10 33:34 1:0:"outer"', '20 33:34 1:0:"inner, "quoted""', '25 33:35 3:7:"range"', '30 33:34 2:0:""',
        '40 33:34 2:0:""', '45 33:34 0:0:"mark"', '50 33:34 4:7:""', '60 33:34 4:8:""', '70 33:34 1:0:"open"')
    assert [(row["name"], row["t_start_ns"], row["dur_ns"]) for row in rows(tables["api_calls"])] == [
        ('inner, "quoted"', 20, 10), ("outer", 10, 30), ("mark", 45, 0), ("range", 25, 25)]
    assert {reason: part.count for reason, part in facts.left_out.items()} == {
        "range end: the range is a row with its begin": 3, "range end: of a range that never began": 1,
        "call: a range that is never ended": 1}
    assert sum(facts.records.values()) == 9


def test_the_files_of_rocprofs_folder_are_one_capture(tmp_path):
    (tmp_path / "hcc_ops_trace.txt").write_text("30:40 2:1 k:7:33\n")
    (tmp_path / "hsa_api_trace.txt").write_text("nothing\n")
    path = tmp_path / "hip_api_trace.txt"
    path.write_text("10:20 33:34 hipLaunchKernel(x) :7\n")
    assert [each.name for each in roctracer.members(path)] == ["hcc_ops_trace.txt", "hip_api_trace.txt"]
    tables, _ = together(roctracer.parse(path))
    assert rows(tables["kernels"])[0]["correlation_id"] == rows(tables["api_calls"])[0]["correlation_id"] == 7


def test_two_processes_do_not_share_correlation_ids(tmp_path):
    tables, _ = parse(tmp_path, "10:20 33:34 hipFree(x) :7", "10:20 44:45 hipFree(x) :7", "30:40 2:1 k:7:44")
    one, other = (row["correlation_id"] for row in rows(tables["api_calls"]))
    assert (one, other) == (7, 7 + (1 << 48)) and rows(tables["kernels"])[0]["correlation_id"] == other


def test_what_was_never_timed_is_left_out_and_said(tmp_path):
    tables, facts = parse(tmp_path, "20:10 2:1 k:7:33", "0:0 2:1 k:7:33", "70:90 2:1 k:7:33",
                          f"{1 << 62}:{1 << 62} 2:1 k:7:33")
    assert tables["kernels"]["dur_ns"].to_pylist() == [20] and facts.kernels == Subtotal(4, 20)
    assert facts.left_out == {"kernel: it ends before it starts": Subtotal(1, 0),
                              "kernel: it was never timed: its start or end is 0": Subtotal(1, 0),
                              "kernel: its start or end is no time of this age": Subtotal(1, 0)}


def test_an_endless_line_is_not_held(tmp_path, monkeypatch):
    monkeypatch.setattr(roctracer, "LONGEST_LINE_BYTES", 100)
    tables, facts = parse(tmp_path, "10:20 2:1 k:7:33", "x" * 5000, "30:40 2:1 k:8:33")
    assert tables["kernels"].num_rows == 2
    assert facts.left_out["line: no record of the tracer"].count == 1


def test_other_text_is_refused(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("PASSED!\n12:30 lunch\n")
    assert not roctracer.recognises(path)
    with pytest.raises(BadCapture, match="no line of it is a record of roctracer"):
        list(roctracer.parse(path))
