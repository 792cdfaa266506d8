"""profiler.rocprof_csv and rocprof_json on every recorded file, against csv, json and int: nothing lost, 0 ns of error.
"""

import json

import pyarrow.compute as pc
import pytest

from aaco.profiler.formats import registry
from aaco.profiler.formats.rocprof_legacy import rocprof_csv, rocprof_json
from aaco.profiler.io.columns import bare
from tests import csvs
from tests.pieces import together

pytestmark = pytest.mark.captures


def value(row, *names):
    return next(int(row[name]) for name in names if name in row)


def test_every_kernel_of_every_file_to_the_ns_as_its_summary_says(captures):
    """Fails when a row is dropped, or when time passes through a float."""
    files = [path for path in sorted(captures.glob("legacy-rocprof/**/*.csv")) if not path.stem.endswith("stats")]
    assert len(files) == 5
    for path in files:
        rows = csvs.rows(path)
        assert registry.recognise(path) is rocprof_csv
        tables, facts = together(rocprof_csv.parse(path))
        kernels = tables["kernels"]
        times = [(value(row, "BeginNs", "Start_Timestamp"), value(row, "EndNs", "End_Timestamp")) for row in rows]
        assert facts.records["kernel"] == facts.kernels.count == kernels.num_rows == len(rows)
        assert facts.kernels.ns == pc.sum(kernels["dur_ns"]).as_py() == sum(end - start for start, end in times)
        assert list(zip(kernels["t_start_ns"].to_pylist(), kernels["t_end_ns"].to_pylist(), strict=True)) == times
        assert facts.problems == ()
        summary = path.with_suffix(".stats.csv")
        if summary.exists():
            said = csvs.rows(summary)
            assert sum(int(row["Calls"]) for row in said) == facts.kernels.count
            assert sum(int(row["TotalDurationNs"]) for row in said) == facts.kernels.ns


def test_kernels_keep_their_names_sizes_and_places(captures):
    for path in captures.glob("legacy-rocprof/**/results*.csv"):
        if path.stem.endswith("stats"):
            continue
        rows = csvs.rows(path)
        kernels = together(rocprof_csv.parse(path))[0]["kernels"].to_pylist()
        found = [(row["kernel_name"], row["dispatch_id"], row["device_id"], row["queue_id"], row["process_id"],
                  row["thread_id"], row["grid_x"], row["block_x"], row["lds_bytes"], row["scratch_bytes"], row["vgpr"],
                  row["agpr"], row["sgpr"], row["correlation_id"]) for row in kernels]
        assert found == [(
            bare(row.get("KernelName") or row["Kernel_Name"]), value(row, "Index", "Dispatch_ID"),
            value(row, "gpu-id", "GPU_ID"), value(row, "queue-id", "Queue_ID"), value(row, "pid", "PID"),
            value(row, "tid", "TID"), value(row, "grd", "Grid_Size"), value(row, "wgr", "Workgroup_Size"),
            value(row, "lds", "LDS_Per_Workgroup"), value(row, "scr", "Scratch_Per_Workitem"),
            value(row, "arch_vgpr", "Arch_VGPR"), value(row, "accum_vgpr", "Accum_VGPR"), value(row, "sgpr", "SGPR"),
            int(row["Correlation_ID"]) if "Correlation_ID" in row else None) for row in rows]


def test_the_runs_of_rocprof_compute_are_not_taken_apart(captures):
    """Its SQ_*.csv and timestamps.csv have rocprofv2's columns, and are passes of one workload."""
    files = list(captures.glob("rocprof-compute/**/*.csv"))
    assert files and not [path for path in files if rocprof_csv.recognises(path)]


def drawn(path):
    """Complete events by the name of their row, and how many events there are in all."""
    events = json.loads(path.read_text())["traceEvents"]
    rows = {event["pid"]: event["args"]["name"] for event in events if event.get("ph") == "M"}
    found = {}
    for event in events:
        if event.get("ph") == "X":
            found.setdefault(rows[int(event["pid"])], []).append(event)
    return found, len(events)


def span(event):
    return int(event["args"]["BeginNs"]), int(event["args"]["EndNs"])


def test_every_event_of_every_json_file_to_the_ns(captures):
    """Fails when the microseconds of the events are read instead of their arguments."""
    files = [path for path in captures.glob("legacy-rocprof/**/*.json") if path.name != "trace.json"]
    assert len(files) == 4
    for path in files:
        events, count = drawn(path)
        assert registry.recognise(path) is rocprof_json
        tables, facts = together(rocprof_json.parse(path))
        assert sum(facts.records.values()) == count
        made = sum(table.num_rows for name, table in tables.items() if name != "call_arguments")
        assert made + sum(part.count for part in facts.left_out.values()) == count
        for name, rows in (("kernels", ("GPU0", "GPU1", "GPU2")), ("copies", ("COPY",)),
                           ("api_calls", ("CPU HIP API",))):
            theirs = sorted((*span(event), event["name"] if name == "api_calls" else "")
                            for row in rows for event in events.get(row, []))
            ours = tables[name].to_pylist() if name in tables else []
            assert sorted((row["t_start_ns"], row["t_end_ns"], row["name"] if name == "api_calls" else "")
                          for row in ours) == theirs
        kernels = [event for row, found in events.items() if row.startswith("GPU") for event in found]
        assert (facts.kernels.count, facts.kernels.ns) == (
            len(kernels), sum(end - start for start, end in map(span, kernels)))
        assert facts.problems == ()


def test_csv_and_json_of_one_run_hold_the_same_kernels(captures):
    for path in captures.glob("legacy-rocprof/**/results.json"):
        beside = path.with_suffix(".csv")
        if beside.exists():
            one, other = (together(parser.parse(file))[0]["kernels"].drop(["source", "dispatch_id"])
                          for parser, file in ((rocprof_json, path), (rocprof_csv, beside)))
            assert one.to_pylist() == other.to_pylist()


def test_arrows_lead_from_a_call_to_what_it_launched(captures):
    """Read off the file by eye: six copies of hipMemcpyWithStream, one kernel of hipLaunchKernel."""
    path = captures / "legacy-rocprof/rocm_blogs/HIP_trace/results.json"
    tables, facts = together(rocprof_json.parse(path))
    calls = {row["correlation_id"]: row for row in tables["api_calls"].to_pylist() if row["correlation_id"] is not None}
    copies, kernel = tables["copies"].to_pylist(), tables["kernels"].to_pylist()[0]
    assert len(calls) == 7
    assert [calls[copy["correlation_id"]]["name"] for copy in copies] == ["hipMemcpyWithStream"] * 6
    assert calls[kernel["correlation_id"]]["name"] == "hipLaunchKernel"
    assert [(copy["kind"], copy["bytes"]) for copy in copies] == [
        ("h2d", 24), ("h2d", 24), ("d2h", 8), ("d2h", 8), ("d2h", 8), ("d2h", 24)]
    assert [(copy["src_device"], copy["dst_device"], copy["stream_id"]) for copy in copies[1:3]] == [
        (None, 2, 1), (2, None, 1)]
    assert [(device.id, device.arch, device.compute_units) for device in facts.devices] == [
        (node, "gfx90a", 104) for node in range(2, 10)]
