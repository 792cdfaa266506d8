"""profiler.roctracer on the golden traces of roctracer's own tests, against a split of each line by hand."""

from collections import Counter

import pytest

from aaco.profiler.formats.rocprof_legacy import roctracer
from tests.pieces import together

pytestmark = pytest.mark.captures


def spans(path):
    """Begin and end of every line that has them, by plain string handling: what a person would read off it."""
    found = []
    for line in path.read_text(errors="replace").splitlines():
        if "time_ns(" in line and "EXT_API" not in line:
            found.append(line.split("time_ns(")[1].split(")")[0])
        elif line[:1].isdigit() and ":" in line.split(" ")[0]:
            found.append(line.split(" ")[0])
    return Counter(tuple(int(time) for time in span.split(":")) for span in found)


def test_every_line_with_times_is_a_row_to_the_ns_and_every_line_is_accounted_for(captures):
    files = sorted(captures.glob("legacy-rocprof/roctracer_golden/*.txt"))
    ours = [path for path in files if roctracer.recognises(path)]
    assert [path.name for path in files if path not in ours] == [
        "MatrixTranspose_ctest_trace.txt", "MatrixTranspose_kfd_trace.txt", "hsa_codeobj_trace.txt",
        "tests_trace_cmp_levels.txt"]  # no line of which has a time
    for path in ours:
        tables, facts = together(roctracer.parse(path))
        rows = [row for name, table in tables.items() if name != "call_arguments" for row in table.to_pylist()]
        timed = Counter((row["t_start_ns"], row["t_end_ns"]) for row in rows if row.get("domain") != "marker")
        assert timed == spans(path), path.name
        lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
        assert sum(facts.records.values()) == len(lines)
        assert len(rows) + sum(part.count for part in facts.left_out.values()) == len(lines)
        assert not facts.problems


def test_work_whose_record_names_no_process_is_linked_too(captures):
    tables, _ = together(roctracer.parse(
        captures / "legacy-rocprof/roctracer_golden/MatrixTranspose_hipaact_test_trace.txt"))
    calls = {row["correlation_id"]: row["name"] for row in tables["api_calls"].to_pylist()}
    assert {calls[row["correlation_id"]] for row in tables["kernels"].to_pylist()} == {"hipLaunchKernel"}
    assert {calls[row["correlation_id"]] for row in tables["copies"].to_pylist()} == {"hipMemcpy"}


def test_kernels_copies_and_calls_are_linked(captures):
    """Read off the file by eye: 100 transposes, each of a copy in, a launch and a copy out."""
    tables, facts = together(roctracer.parse(
        captures / "legacy-rocprof/roctracer_golden/MatrixTranspose_sys_trace.txt"))
    calls = {row["correlation_id"]: row["name"] for row in tables["api_calls"].to_pylist()}
    assert [calls[row["correlation_id"]] for row in tables["kernels"].to_pylist()] == ["hipLaunchKernel"] * 100
    assert {calls[row["correlation_id"]] for row in tables["copies"].to_pylist()} == {"hipMemcpy"}
    assert Counter(tables["copies"]["kind"].to_pylist()) == {"h2d": 100, "d2h": 100}
    assert set(tables["kernels"]["kernel_name"].to_pylist()) == {"matrixTranspose(float*, float*, int)"}
    assert set(tables["kernels"]["device_id"].to_pylist()) == {2}
    markers = Counter(row["name"] for row in tables["api_calls"].to_pylist() if row["domain"] == "marker")
    assert markers == {"before hipLaunchKernel": 100, "after hipLaunchKernel": 100, "hipLaunchKernel": 100,
                       "hipLaunchKernel range": 100, "hipMemcpy": 100}
    assert facts.kernels.count == 100
