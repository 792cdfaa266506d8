"""Files as other people's tools write them, through the whole program: the right value, and nothing lost unsaid.

The values are those of the cases' README files, computed there by other means.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import third_party
from tests.system.conftest import Aaco


def imported(aaco: Aaco, case: str | Path, *options: object) -> str:
    """Import a case, or a file made of one, and return what was said."""
    path = third_party.cases() / case if isinstance(case, str) else case
    done = aaco.inside("import", "--full", path, *options)
    return " ".join((done.stderr + done.stdout.replace("║", " ")).split())


def rows(aaco: Aaco, query: str) -> list[dict[str, Any]]:
    """Return the rows that a query over the latest session gives."""
    answer = json.loads(aaco.inside("sql", query, "--json").stdout)
    return [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]


def operator_ns(aaco: Aaco) -> dict[str | None, int]:
    """Return the device's time of each operator that has some, under None that of no operator."""
    table = json.loads(aaco.inside("ops", "--json").stdout)
    return {row["operator"]: row["device_ns"] for row in table["rows"] if row["device_ns"]}


def merged() -> dict[str, Any]:
    """Two ranks in one file, as SGLang merges them."""
    document: dict[str, Any] = json.loads((third_party.cases() / "merged-two-ranks" / "trace.json").read_text())
    return document


def written(tmp_path: Path, document: dict[str, Any]) -> Path:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(("case", "stream"), [("xpu-runtime", 64), ("mtia-runtime", 7)])
def test_calls_of_any_devices_runtime_launch_its_kernels(aaco: Aaco, case: str, stream: int):
    """Mutation: only the runtimes of CUDA and HIP count as runtimes."""
    imported(aaco, f"{case}/trace.json")
    assert operator_ns(aaco) == {"aten::linear": 500_000}
    assert rows(aaco, "SELECT DISTINCT stream_id s FROM kernels") == [{"s": stream}]
    checked = aaco.inside("check").stdout
    assert "linked to their launch                    10               500,000" in checked
    report = aaco.inside("report").stdout
    assert "no launch call" not in report + checked and "Launch tax" in report


def test_ranks_of_one_file_are_captures_of_their_own(aaco: Aaco):
    """Mutation: the label of the rank is no part of an id."""
    said = imported(aaco, "merged-two-ranks/trace.json")
    assert operator_ns(aaco) == {"aten::mm": 600_000, "aten::add": 400_000}
    assert rows(aaco, "SELECT rank r, count(*) n, sum(dur_ns)::BIGINT ns, count(DISTINCT kernel_name) k FROM kernels "
                "GROUP BY capture, rank ORDER BY capture") == [
        {"r": 0, "n": 10, "ns": 600_000, "k": 1}, {"r": 1, "n": 10, "ns": 400_000, "k": 1}]
    assert "TP00" in said and "TP01" in said and "NOT TO BE TRUSTED" not in said


def test_labels_of_several_axes_in_any_order_of_the_events(aaco: Aaco, tmp_path: Path):
    """A rank that only a label tells is none: TP00 is a rank of two groups. Reading it again finds the same captures.
    """
    document = merged()
    both = [event | {"pid": event["pid"].replace("]", f"-DP{group:02}]"), "ts": event["ts"] + 7 * group}
            for event in document["traceEvents"] for group in (0, 1)]
    document["traceEvents"] = sorted(both, key=lambda event: event["ts"])
    said = imported(aaco, written(tmp_path, document), "--keep")
    assert all(f"{tensor}-{group}" in said for tensor in ("TP00", "TP01") for group in ("DP00", "DP01"))
    for _ in range(2):
        assert operator_ns(aaco) == {"aten::mm": 1_200_000, "aten::add": 800_000}
        assert rows(aaco, "SELECT count(DISTINCT capture) c, count(rank) r FROM kernels") == [{"c": 4, "r": 0}]
        aaco.inside("analyze")
    captures = json.loads((aaco.latest / "profiler" / "captures.json").read_text())["captures"]
    assert len({capture["files"][0]["kept"] for capture in captures}) == 1


def test_ranks_that_trace_fusion_merged(aaco: Aaco, tmp_path: Path):
    """It adds to the process and keeps rank and process in the arguments. Mutation: the mark is not looked for."""
    events = []
    for event in merged()["traceEvents"]:
        label, process = event["pid"].split("] ")
        rank, number = int(label[-1]), int(process) if process.isdecimal() else process
        args = event.get("args", {}) | {"rank": rank, "pid_raw": number}
        events.append(event | {"pid": number + 100_000 * rank if isinstance(number, int) else number, "args": args})
    imported(aaco, written(tmp_path, {"traceEvents": events}))
    assert operator_ns(aaco) == {"aten::mm": 600_000, "aten::add": 400_000}
    assert rows(aaco, "SELECT DISTINCT rank r, device_id d, stream_id s FROM kernels ORDER BY 1") == [
        {"r": 0, "d": 0, "s": 3}, {"r": 1, "d": 0, "s": 3}]


def test_processes_that_use_the_same_ids_are_attributed_to_nobody(aaco: Aaco, tmp_path: Path):
    """Without a label nothing says of which process a kernel is. Mutation: their ids are taken for unique."""
    document = merged()
    for event in document["traceEvents"]:
        label, process = event["pid"].split("] ")
        event["pid"] = int(process) + int(label[-1]) if process.isdecimal() else process
    said = imported(aaco, written(tmp_path, document))
    assert "2 processes in this file use the same correlation ids" in said
    assert operator_ns(aaco) == {None: 1_000_000}
    assert rows(aaco, "SELECT count(correlation_id) n FROM kernels") == [{"n": 0}]


def ort_profile(name: str = "ort-gpu-kernel-events") -> list[dict[str, Any]]:
    """Return the events of a profile of ONNX Runtime."""
    events: list[dict[str, Any]] = json.loads((third_party.cases() / name / "profile.json").read_text())
    return events


def profile_of(tmp_path: Path, events: list[dict[str, Any]]) -> Path:
    path = tmp_path / "profile.json"
    path.write_text("[\n" + ",\n".join(json.dumps(event) for event in events) + "\n]\n")
    return path


def test_kernels_that_onnx_runtime_traced_on_the_gpu(aaco: Aaco):
    """Mutation: events of the category Kernel are left out."""
    said = imported(aaco, "ort-gpu-kernel-events/profile.json") + aaco.inside("check").stdout
    assert rows(aaco, "SELECT device_id d, timed t, count(*) n, sum(dur_ns)::BIGINT ns FROM kernels GROUP BY 1, 2") == [
        {"d": 0, "t": "execution", "n": 9, "ns": 8_850_000}]
    assert rows(aaco, "SELECT count(*) n, sum(dur_ns)::BIGINT ns FROM api_calls WHERE domain = 'cpu_op'") == [
        {"n": 9, "ns": 270_000}]
    assert rows(aaco, "SELECT DISTINCT grid_x g, block_x b, stream_id s FROM kernels") == [
        {"g": 64 * 256, "b": 256, "s": 0}]
    assert "host CPU" not in said and "-9" not in said


def test_nodes_of_a_gpus_provider_ran_on_no_host(aaco: Aaco, tmp_path: Path):
    """Without the GPU's kernels a node is the host's dispatch. Mutation: without a device means on the host."""
    said = imported(aaco, profile_of(tmp_path, [event for event in ort_profile() if event["cat"] != "Kernel"]))
    assert rows(aaco, "SELECT timed t, count(*) n FROM kernels GROUP BY 1") == [{"t": "dispatch", "n": 9}]
    assert "host CPU" not in said and "no kernel ran on a device" not in said
    assert "CPU" not in json.loads((aaco.latest / "profiler/captures.json").read_text())["kernels_ran_on"]
    assert "the profile times the host's dispatch" in said


def test_the_profile_of_one_run(aaco: Aaco):
    """Mutation: only a profile that begins with the loading of its model is one."""
    imported(aaco, "ort-run-profile/profile.json")
    assert rows(aaco, "SELECT source s, kernel_name k, iteration i, dur_ns ns FROM kernels ORDER BY 4 DESC") == [
        {"s": "ort", "k": name, "i": 0, "ns": ns}
        for name, ns in (("Conv", 1_200_000), ("Gemm", 700_000), ("Relu", 100_000))]
    assert rows(aaco, "SELECT count(*) n FROM api_calls WHERE name = 'model_run'") == [{"n": 1}]


def test_several_sessions_and_a_run_that_is_unfinished(aaco: Aaco, tmp_path: Path):
    """Two sessions run at once on threads of their own, and one is in a run when the profile ends."""
    events = [event | {"tid": event["tid"] + session, "ts": event["ts"] + 7 * session, "args": event["args"]}
              for event in ort_profile("ort-run-profile") for session in (0, 1)]
    cut = [event | {"ts": event["ts"] + 10_000} for event in ort_profile("ort-run-profile") if event["cat"] == "Node"]
    said = imported(aaco, profile_of(tmp_path, events + cut))
    assert rows(aaco, "SELECT iteration i, count(*) n, sum(dur_ns)::BIGINT ns FROM kernels GROUP BY 1 ORDER BY 1") == [
        {"i": 0, "n": 3, "ns": 2_000_000}, {"i": 1, "n": 3, "ns": 2_000_000}, {"i": None, "n": 3, "ns": 2_000_000}]
    assert "3 executions of nodes are in no whole run" in said


def test_a_node_around_nodes_of_its_subgraph_is_counted_once(aaco: Aaco, tmp_path: Path):
    """Whatever its name: it is written after the nodes that it is around."""
    *nodes, execute, run = ort_profile("ort-run-profile")
    around = nodes[0] | {"name": "body_kernel_time", "ts": 15, "dur": 2035} | {
        "args": nodes[0]["args"] | {"op_name": "My"}}
    imported(aaco, profile_of(tmp_path, [*nodes, around, execute, run]))
    assert rows(aaco, "SELECT count(*) n, sum(dur_ns)::BIGINT ns FROM kernels") == [{"n": 3, "ns": 2_000_000}]
    assert rows(aaco, "SELECT name FROM api_calls WHERE domain = 'cpu_op'") == [{"name": "body_kernel_time"}]


def test_amd_smi_watches(aaco: Aaco):
    """A banner, then an array a second. Mutation: only the first document of a file is read."""
    imported(aaco, "amdsmi-watch/smi.json")
    found = rows(aaco, "SELECT t_ns t, device_id d, power_w w FROM gpu_events ORDER BY t_ns, device_id")
    assert found == [{"t": (1769014607 + second) * 10**9, "d": device, "w": 300 + 10 * device + second}
                     for second in range(5) for device in (0, 1)]


@pytest.mark.parametrize(("case", "time_ns", "said"), [
    ("amdsmi-timestamp-first", 1769014607 * 10**9, ""),
    ("amdsmi-warning", None, "text beside the JSON: WARNING: User is missing the following required groups")])
def test_amd_smi_with_a_time_first_or_a_warning_before(aaco: Aaco, case: str, time_ns: int | None, said: str):
    assert said in imported(aaco, f"{case}/smi.json")
    assert rows(aaco, "SELECT t_ns t, gpu_util_pct u, power_w w FROM gpu_events") == [
        {"t": time_ns, "u": 50, "w": 300}]


def test_amd_smi_printed_an_array_twice(aaco: Aaco, tmp_path: Path):
    """Word for word it is the same sample. Cut short in the next one, the samples before it are kept."""
    text = (third_party.cases() / "amdsmi-timestamp-first" / "smi.json").read_text()
    path = tmp_path / "smi.json"
    path.write_text(f"{text}\n{text}\n{text.replace('1769014607', '1769014608')}\n{text[:200]}")
    assert "is no JSON, or cut short" in imported(aaco, path)
    assert rows(aaco, "SELECT t_ns t FROM gpu_events") == [{"t": 1769014607 * 10**9}, {"t": 1769014608 * 10**9}]


def test_counters_of_a_locale_with_decimal_commas(aaco: Aaco):
    """1.234 of k2 is a thousand, because 1.234,56 of k0 is. Mutation: a point is always decimal."""
    imported(aaco, "ncu-decimal-comma/ncu.csv")
    assert rows(aaco, "SELECT kernel_name k, dur_ns ns FROM kernels") == [
        {"k": "k0(float*)", "ns": 1_234_560}, {"k": "k1(float*)", "ns": 12_340}, {"k": "k2(float*)", "ns": 1_234_000}]
    assert rows(aaco, "SELECT value v FROM counters WHERE counter = 'dram__bytes.sum' ORDER BY kernel_id") == [
        {"v": 12_500_000}, {"v": 500_000}, {"v": 3_000_000_000}]


@pytest.mark.parametrize("texts", [("1'234.56", "12.34", "1'234"), ("1\u2019234.56", "12.34", "1\u2019234"),
                                   ("1\xa0234,56", "12,34", "1\xa0234"), ("1 234.56", "12.34", "1 234")])
def test_groups_of_other_countries(aaco: Aaco, tmp_path: Path, texts: tuple[str, str, str]):
    """Mutation: only commas group where points are decimal."""
    lines = (third_party.cases() / "ncu-decimal-comma" / "ncu.csv").read_text().splitlines(keepends=True)
    heads = (line.rstrip().rsplit('","', 3)[0] for line in lines[3:])
    lines[3:] = [f'{head}","{text}","1","2"\n' for head, text in zip(heads, texts, strict=True)]
    path = tmp_path / "ncu.csv"
    path.write_text("".join(lines))
    imported(aaco, path)
    assert [row["ns"] for row in rows(aaco, "SELECT dur_ns ns FROM kernels")] == [1_234_560, 12_340, 1_234_000]


def test_numbers_that_can_be_two_things_are_doubted_and_mixed_ones_refused(aaco: Aaco, tmp_path: Path):
    lines = (third_party.cases() / "ncu-decimal-comma" / "ncu.csv").read_text().splitlines(keepends=True)
    path = tmp_path / "ncu.csv"
    path.write_text("".join([*lines[:3], lines[-1]]))
    assert "may be a thousand times as much" in imported(aaco, path)
    path.write_text("".join(lines).replace('"12,34"', '"12.34"'))
    assert "decimal comma" in aaco.inside("import", path, expect=2).stderr


def test_what_powershell_redirected(aaco: Aaco, tmp_path: Path):
    """UTF-16 with a mark, of CSV and of JSON; of a format that is not read so the encoding is named."""
    imported(aaco, "utf16-redirect/ncu.csv")
    assert rows(aaco, "SELECT dur_ns ns FROM kernels") == [{"ns": 1_234_560}]
    trace, csv = tmp_path / "trace.json", tmp_path / "kernel_trace.csv"
    trace.write_text((third_party.cases() / "xpu-runtime" / "trace.json").read_text(), encoding="utf-16")
    imported(aaco, trace)
    assert operator_ns(aaco) == {"aten::linear": 500_000}
    csv.write_text((third_party.cases() / "time0-rocprofv3-end" / "56_kernel_trace.csv").read_text(), "utf-16")
    refused = aaco.inside("import", csv, expect=2).stderr
    assert "UTF-16" in refused and "iconv" in refused


@pytest.mark.parametrize("case", ["json-inf", "json-newline", "json-quote"])
def test_one_malformed_event(aaco: Aaco, case: str):
    """Refused with the way on; with --skip-bad the others are read, also again. Mutation: the way on is not said."""
    path = third_party.cases() / case / "trace.json"
    assert "--skip-bad" in aaco.inside("import", path, expect=2).stderr
    assert "malformed events left out: 1, bytes 8761 to" in imported(aaco, path, "--skip-bad")
    for _ in range(2):
        assert rows(aaco, "SELECT count(*) n, sum(dur_ns)::BIGINT ns, count(correlation_id) l FROM kernels") == [
            {"n": 10, "ns": 500_000, "l": 10}]
        assert "linked to their launch                    10" in aaco.inside("check").stdout
        aaco.inside("analyze")


def test_a_difference_of_ranges_that_emit_nvtx_numbered(aaco: Aaco):
    """Names carry numbers that differ in every execution. Mutation: they stay in the names."""
    ids = []
    for side in ("before", "after"):
        imported(aaco, f"nsys-emit-nvtx-diff/{side}.sqlite")
        ids.append(aaco.latest.name)
        if side == "before":
            assert operator_ns(aaco) == {"aten::mm": 1_000_000, "aten::relu": 1_000_000}
    changed = json.loads(aaco.inside("diff", *ids, "--json").stdout)
    groups = {group["context"][-1]: (group["count_before"], group["count_after"], group["delta_ns"])
              for group in changed["groups"]}
    assert groups == {
        "aten::mm": (20, 20, 200_000), "aten::relu": (20, 20, 0)}
    assert rows(aaco, "SELECT count(*) n FROM call_arguments WHERE arguments LIKE '%op_id%'") == [{"n": 40}]


def test_spans_of_devices_are_told_one_by_one(aaco: Aaco):
    """Two ranks worked at once: a sum of their spans is no time. Mutation: one span, the sum of both."""
    imported(aaco, "merged-two-ranks/trace.json")
    first = aaco.latest.name
    imported(aaco, "merged-two-ranks/trace.json")
    said = aaco.inside("diff", first, aaco.latest.name).stdout
    changed = json.loads((aaco.latest / "regress" / "diff.json").read_text())
    assert [(span["before_ns"], span["after_ns"]) for span in changed["spans"]] == [(960_000,) * 2, (940_000,) * 2]
    assert changed["span_before_ns"] is None and "1,900,000" not in said
    assert "device 0: first to last kernel 960,000" in said and "device 1: first to last kernel 940,000" in said
