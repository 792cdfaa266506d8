"""Small inputs with records that were never timed, tables that are not there, and kinds nobody knows: import, explain,
render and check say the right figures first, or refuse in the documented form and leave nothing."""

from __future__ import annotations

import json
import shutil
import sqlite3

import pytest

from tests import third_party

RENDERED = ("terminal", "json", "markdown", "html")
# Case -> its file; kernels and ns of the tables; words of the first alarm, None where nothing speaks against it.
READ = {
    "time0-kineto": ("trace.json", 10, 500_000, "10 of 20 records (kernel) have no time"),
    "time0-rocprof-v1": ("results.csv", 19, 1_520_000, "1 of 20 records (kernel) have no time"),
    "time0-rocprofv3-end": ("56_kernel_trace.csv", 19, 1_520_000, "1 of 20 records (kernel) have no time"),
    "overflow-dur": ("trace.json", 20, 950_000, "1.60 s"),
    "attack-kineto_5898": ("latency_chase_1.trace.json", 8, 2_367_396, "it lasts longer than 104 days"),
    "attack-negative-duration": ("kernel_trace.csv", 8, 84_960, "it ends before it starts"),
    "attack-rpd_104": ("matmul_result.rpd", 29, 26_399_795, ""),
    "nsys-kernel-table-v3": ("export.sqlite", 40, 2_000_000, None),
    "nsys-nvtx-v3": ("export.sqlite", 40, 2_000_000, None),
    "ort-run-profile": ("profile.json", 3, 2_000_000, None),
    "attack-kineto_5976": ("compute_wide_conv.trace.json", 12, 4_149_653, None),
    "external-id-two-spaces": ("trace.json", 200, 10_000_000, None),
}


def read(aaco, path):
    """Import the file, render it in every form, and return its kernels, their ns, and what the check says."""
    done = aaco.inside("import", path, "--full")
    for form in RENDERED:
        assert aaco.inside("report", "--format", form).stdout or form == "html"
    query = "select count(*), coalesce(sum(dur_ns), 0) from kernels"
    ((kernels, ns),) = json.loads(aaco.inside("sql", query, "--format", "json").stdout)["rows"]
    check = aaco.inside("check", "--json", expect=(0, 3, 4)).stdout
    return kernels, ns, json.loads(check), done.stdout


def alarms(check):
    return [finding["text"] for capture in check["captures"] for finding in capture["findings"] if finding["alarms"]]


@pytest.mark.parametrize("case", READ)
def test_what_was_never_timed_is_in_no_sum_and_is_said_first(aaco, case):
    """Mutations: each rule of the accounting taken away; the finding about it a doubt."""
    name, kernels, ns, words = READ[case]
    got_kernels, got_ns, check, screen = read(aaco, third_party.cases() / case / name)
    assert (got_kernels, got_ns) == (kernels, ns)
    first = next(iter(alarms(check)), None)
    assert first is None if words is None else words in (first or "nothing is said")
    assert ("NOT TO BE TRUSTED" in screen) is (words is not None)
    assert (aaco.folder / "sessions/latest").is_symlink() and "Kernels" in screen


def test_calls_that_were_never_timed_are_named(aaco):
    path = third_party.cases() / "attack-rpd_104" / "matmul_result.rpd"
    _, _, check, _ = read(aaco, path)
    findings = [finding["text"] for capture in check["captures"] for finding in capture["findings"]]
    assert any(text.startswith("3 of ") and "records (call) have no time" in text for text in findings), findings


def test_ranges_of_a_newer_table_are_ranges(aaco):
    for case in ("nsys-nvtx-v3", "nsys-kernel-table-v3"):
        read(aaco, third_party.cases() / case / "export.sqlite")
        query = "select domain, count(*), min(name) from api_calls group by domain order by domain"
        assert json.loads(aaco.inside("sql", query, "--format", "json").stdout)["rows"] == [
            ["cuda_runtime", 40, "cudaLaunchKernel"], ["marker", 4, "step"]]


def test_operators_and_calls_that_are_numbered_apart_are_all_there(aaco):
    """Mutation: what has no operator of its number has lost it."""
    read(aaco, third_party.cases() / "external-id-two-spaces" / "trace.json")
    query = "select domain, count(*) from api_calls group by domain order by domain"
    assert json.loads(aaco.inside("sql", query, "--format", "json").stdout)["rows"] == [
        ["cpu_op", 400], ["cuda_runtime", 200]]


def test_a_kernel_a_year_from_all_others_is_in_no_window(aaco, tmp_path):
    """Mutation: a stamp that is a time of this age is one of this recording."""
    trace = json.loads((third_party.cases() / "time0-kineto" / "trace.json").read_text())
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event.get("ts", 1)]
    next(event for event in trace["traceEvents"] if event.get("cat") == "kernel")["ts"] += 365 * 86_400 * 10**6
    (tmp_path / "t.trace.json").write_text(json.dumps(trace))
    kernels, ns, check, _ = read(aaco, tmp_path / "t.trace.json")
    assert (kernels, ns) == (9, 450_000) and "no time of this age" in alarms(check)[0]


def test_no_class_comes_from_the_time_before_the_recording(aaco):
    read(aaco, third_party.cases() / "time0-kineto" / "trace.json")
    query = "select max(t_end_ns) - min(t_start_ns) from kernels"
    assert json.loads(aaco.inside("sql", query, "--format", "json").stdout)["rows"] == [[950_000]]
    assert "CPU-BOUND" not in aaco.inside("report").stdout


@pytest.mark.parametrize("name", ["root0_nsys.sqlite", "root0_r.rpd", "root0_rocpd.db", "view_nsys.sqlite",
                                  "view_r.rpd", "view_rocpd.db"])
def test_a_table_that_cannot_be_read_is_refused_by_its_name(aaco, name):
    """Mutation: passing over what is no plain table."""
    done = aaco.inside("import", third_party.cases() / "attack-rootpage0" / name, expect=2)
    assert "damaged: the table " in done.stderr and done.stderr.count("\n  try: ") == 1
    assert not [path for path in (aaco.folder / "sessions").rglob("*") if path.is_file()]


def test_a_name_whose_total_no_double_holds(aaco, tmp_path):
    """Mutation: a checked cast of the totals to doubles."""
    day, rows = 86_400 * 10**9, []
    for number in range(120):
        start = 10**15 + number * day
        rows.append(["KERNEL_DISPATCH", 4, 1, 1, 9, number + 1, 5, "k", number + 1, start, start + day - 7])
    head = ["Kind", "Agent_Id", "Queue_Id", "Stream_Id", "Thread_Id", "Dispatch_Id", "Kernel_Id", "Kernel_Name",
            "Correlation_Id", "Start_Timestamp", "End_Timestamp"]
    path = tmp_path / "7_kernel_trace.csv"
    path.write_text("\n".join(",".join(map(str, row)) for row in (head, *rows)) + "\n")
    kernels, ns, _, _ = read(aaco, path)
    assert (kernels, ns) == (120, 120 * (day - 7)) and ns > 1 << 53


def test_a_kernel_table_of_a_kind_that_nobody_knows_is_named_first(aaco, tmp_path):
    """Mutation: counting it as kernels that were left out, which makes the count of the others negative."""
    path = shutil.copyfile(third_party.cases() / "nsys-nvtx-v3" / "export.sqlite", tmp_path / "x.sqlite")
    path.chmod(0o600)
    with sqlite3.connect(path) as database:
        database.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME TO CUPTI_ACTIVITY_KIND_KERNEL_EXT")
    kernels, _, check, _ = read(aaco, path)
    texts = alarms(check)
    assert kernels == 0
    assert any("40 records of 'CUPTI_ACTIVITY_KIND_KERNEL_EXT' look like work of a device" in text for text in texts)
    assert not any("defect in aaco" in text for text in texts)
    assert any("none of their work" in text for text in texts)


@pytest.mark.parametrize("changes", [{"ph": "X\0"}, {"cat": "kernel2"}, {"ph": "i"}, {"cat": "gpu_kernel"}])
def test_a_kernel_of_an_unknown_kind_is_named_first_and_no_count_is_negative(aaco, tmp_path, changes):
    """Mutation: every kind with `kernel` in its name among the kernels that were left out."""
    trace = json.loads((third_party.cases() / "time0-kineto" / "trace.json").read_text())
    kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel" and event["ts"]]
    kernels[3].update(changes)
    (tmp_path / "t.trace.json").write_text(json.dumps(trace))
    count, _, check, _ = read(aaco, tmp_path / "t.trace.json")
    assert count == 9 and any("1 record of" in text and "looks like work of a device" in text for text in alarms(check))
    assert not any("defect in aaco" in text for text in alarms(check))


def test_rows_of_a_device_in_a_picture_of_any_tool_are_named_first(aaco, tmp_path):
    """As Ascend's trace_view has them. Mutation: reading a device's rows as calls without a word."""
    events = [{"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "Ascend Hardware"}},
              *({"ph": "X", "name": "MatMul", "pid": 7, "tid": 2, "ts": str(10 + 5 * n), "dur": 3} for n in range(9))]
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps(events))
    kernels, _, check, _ = read(aaco, path)
    texts = alarms(check)
    assert kernels == 0 and any("9 records of 'Ascend Hardware' look like work of a device" in text for text in texts)
