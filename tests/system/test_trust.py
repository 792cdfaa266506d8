"""A trace that is not to be trusted, on every first screen: said before the class, and no class from what lacks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from aaco import Observatory
from aaco.analytics.advice.floors import Floors
from aaco.analytics.truth.trust import NOT_TRUSTED
from tests import kineto_files, third_party
from tests.system.conftest import Aaco

LAYERS = [("aten::linear", [("gemm", 30.0)]), ("aten::gelu", [("bias", 10.0), ("gelu", 20.0)])]
FALSE = {  # what must be said of each case, in its line
    "under_recorded/trace.json.gz": "180 of 200 graph launches have no record",
    "attack-negative-duration/kernel_trace.csv": "it ends before it starts"}


def in_line(text: str) -> str:
    return " ".join(text.replace("║", " ").replace("│", " ").replace("├─", " ").split())


@pytest.mark.parametrize("case", FALSE)
def test_a_false_trace_says_so_before_a_class_that_it_does_not_have(aaco: Aaco, case: str):
    """Mutation: a summary without the line, and a diagnosis that does not ask."""
    imported = in_line(aaco.inside("import", third_party.cases() / case, "--quiet").stdout)
    summary = in_line(aaco.inside("summary").stdout)
    document = json.loads(aaco.inside("summary", "--json").stdout)
    for text in (imported, summary):
        assert "is still going on" not in text
        assert text.index(NOT_TRUSTED) < text.index("No diagnosis") and FALSE[case] in text
        assert "DataLoader(" not in text and "torch.compile" not in text and "pauses of the host" not in text
    report, checked = (in_line(aaco.inside(verb).stdout) for verb in ("report", "check"))
    assert "pauses of the host" not in report
    if case.startswith("under_recorded"):  # the other has no share of the time at all
        assert "Wall time: idle, or work that was not recorded 90.2 %" in report
        assert f"3 of 3 hold, but it is not named: {document['bottleneck']['abstained_because']}" in report
    assert document["trust"]["line"] in checked and not document["trust"]["trusted"]
    assert document["bottleneck"]["bottleneck_class"] == "unknown" and document["bottleneck"]["abstained_because"]
    assert document["bottleneck"]["trust"] == document["trust"]


@pytest.mark.parametrize(("case", "named", "kernels_ns", "classified"), [
    ("impossible_duration/trace.json.gz", "(fmha_bwd, 2.00 s)", 99_900_000, "cpu_bound"),
    ("overflow-dur/trace.json", "(fmha_bwd_hd128_bf16, 1.60 s)", 950_000, "unknown")])
def test_a_duration_that_cannot_be_is_named_first_and_left_out(aaco: Aaco, case: str, named: str, kernels_ns: int,
                                                               classified: str):
    """Mutation: `_leave_out_impossible` does nothing."""
    imported = in_line(aaco.inside("import", third_party.cases() / case, "--quiet").stdout)
    assert imported.index(named) < imported.index("No diagnosis" if classified == "unknown" else "Confidence")
    assert named in aaco.inside("kernels").stderr
    document = json.loads(aaco.inside("summary", "--json").stdout)
    assert document["bottleneck"]["bottleneck_class"] == classified
    captures = json.loads((aaco.latest / "profiler" / "captures.json").read_text())["captures"]
    assert captures[0]["tables"]["kernels"]["ns"] == kernels_ns


def test_one_line_on_every_screen(aaco: Aaco, tmp_path: Path):
    """All renderings, the list of kernels and Python say one sentence."""
    aaco.inside("import", third_party.cases() / "under_recorded" / "trace.json.gz", "--quiet")
    explained = Observatory({"storage": {"sessions_dir": str(aaco.folder / "sessions")}}).analyze()
    line = explained.trust.line
    assert line.startswith(NOT_TRUSTED) and not explained.trust.trusted and "larger buffers" in explained.trust.steps[0]
    for form, before in (("terminal", "No diagnosis"), ("markdown", "Classification"), ("html", 'id="verdict"')):
        out = tmp_path / form
        aaco.inside("report", "--format", form, "--output", out)
        text = in_line(out.read_text())
        assert text.index(line) < text.index(before), form
    report = json.loads(aaco.inside("report", "--format", "json").stdout)
    assert line in report["banners"] and report["diagnosis"]["trust"]["line"] == line
    assert line in aaco.inside("kernels").stderr
    kept = json.loads((aaco.latest / "metrics" / "bottleneck.json").read_text())
    assert kept["trust"]["line"] == line


def test_a_sound_trace_says_so_and_keeps_its_class(aaco: Aaco, tmp_path: Path):
    aaco.inside("import", kineto_files.write(tmp_path / "trace.json", LAYERS, steps=20), "--quiet")
    done = aaco.inside("summary").stdout
    assert "Trace check: nothing speaks against it" in done and NOT_TRUSTED not in done
    whole = aaco.inside("report").stdout
    assert whole.count("Trace check: nothing speaks against it") == 1 and NOT_TRUSTED not in whole
    assert whole.count("nothing speaks against it") == 1  # the box and the sections below say what is not above
    assert NOT_TRUSTED not in aaco.inside("kernels").stderr


def test_profilers_that_started_one_after_the_other_are_a_remark(aaco: Aaco):
    aaco.inside("import", third_party.cases() / "start_skew" / "trace.json.gz", "--quiet")
    remarks = json.loads(aaco.inside("check", "--json").stdout)["captures"][0]["findings"]
    first, = (remark for remark in remarks if remark["check"] == "first_collective_waits")
    assert first["weight"] == "note" and first["ns"] == 17_456_080_000
    document = json.loads(aaco.inside("summary", "--json").stdout)
    assert "the first collective of device 0 took 17.5 s" in document["trust"]["line"]
    judged = json.loads((aaco.latest / "metrics" / "windows.json").read_text())
    (window,), (rank,) = judged["captures"], judged["ranks"]
    assert window["steps"] == 64 and rank["time"]["communication_ns"] < 10_000_000
    floors = Floors.of(json.loads((aaco.latest / "metrics" / "floors.json").read_text()))
    assert floors.ceiling("overlap_communication") == pytest.approx(2.743 / 2.6)
    told = {one["action"] for one in document["bottleneck"]["not_offered"]}
    assert "overlap_communication" in told  # an engine has no option for it
    assert {"name": "waiting for a rank that had not started", "ns": 17_456_080_000} in window["outside"]


def test_rows_of_kernels_say_what_of_their_time_is_start_skew(aaco: Aaco):
    """The totals stay those of the file. Mutation: the table of kernels is not written with the waiting."""
    aaco.inside("import", third_party.cases() / "start_skew" / "trace.json.gz", "--quiet")
    waits, name = "17.5 s of it waiting for a rank that had not started", "cross_device_reduce_2stage"
    for by in ("kernel", "family"):
        table = json.loads(aaco.inside("kernels", "--json", *(["--by", "family"] if by == "family" else [])).stdout)
        rows = table["families" if by == "family" else "kernels"]
        assert [row["skew_ns"] for row in rows] == [17_456_080_000, None, None, None]
        assert rows[0]["total_ns"] == 17_465_232_000
        lines = aaco.inside("kernels", *(["--by", "family"] if by == "family" else [])).stdout.splitlines()
        assert lines[2].strip() == waits and len([line for line in lines if waits in line]) == 1
    assert f"17.6 s in all, {waits}" in in_line(aaco.inside("summary").stdout)
    terminal = in_line(aaco.inside("report").stdout)
    for row in ("moves data between devices: by its name (14.3 us)", "(99.1 % of the busy time)"):
        assert f"{row}; {waits}" in terminal
    assert f"Communication {waits}" in terminal.split("GPU TIMELINE")[1].split("IDLE BY CAUSE")[0]
    assert re.search(f"cross_device_reduce… 99.1 % █+ {waits}", terminal) and f"17.6 s in all, {waits}" in terminal
    assert f"collective 99.1 %, 17.5 s in 641 calls of 1 kernel; {waits}" in terminal
    markdown = aaco.inside("report", "--format", "markdown").stdout.replace("\\", "")
    assert re.search(rf"{name}.*: {waits}\.", markdown)
    aaco.inside("report", "--format", "html", "--output", aaco.folder / "page.html")
    assert re.search(rf'<p class="dim">.*{name}.*: {waits}\.</p>', (aaco.folder / "page.html").read_text())
    (top, *_) = json.loads(aaco.inside("report", "--format", "json").stdout)["top_kernel_groups"]
    assert top["skew_ns"] == 17_456_080_000


@pytest.mark.parametrize("first", [True, False])
def test_waiting_inside_a_collective_is_no_work(aaco: Aaco, tmp_path: Path, first: bool):
    """A rank waits 40 ms in the all-reduce of its first step, or of one in four, and nothing of the others is recorded.
    Mutation: every device judged as other findings have it."""
    layers = [("aten::linear", [("gemm", 300.0)]), ("c10d::allreduce_", [("ncclDevKernel_AllReduce_Sum_f32", 20.0)])]
    document = json.loads(kineto_files.write(tmp_path / "trace.json", layers, steps=40).read_text())
    kernels = [event for event in document["traceEvents"] if event["cat"] == "kernel"]
    for row in range(1, 80):
        if kernels[row]["name"].startswith("nccl") and (row == 1 if first else row % 8 == 3):
            kernels[row]["dur"] += 40_000
            for later in kernels[row + 1:]:
                later["ts"] += 40_000
    (tmp_path / "trace.json").write_text(json.dumps(document))
    aaco.inside("import", tmp_path / "trace.json", "--quiet")
    judged = json.loads((aaco.latest / "metrics" / "windows.json").read_text())
    (rank,) = judged["ranks"]
    assert rank["parts_ns"]["communication"] == 20_000 * (39 if first else 40)
    assert rank["straggler_ns"] == (0 if first else 10 * 40_000_000)
    line = json.loads(aaco.inside("summary", "--json").stdout)["trust"]["line"]
    assert ("not there yet" if first else "400 ms of that are waiting for other ranks") in line
    summary = in_line(aaco.inside("summary").stdout)
    assert "at most 1.07 x faster" in summary if first else "Communicate while computing" not in summary


def test_a_burst_after_all_steps_has_no_class_and_no_times_of_steps(aaco: Aaco, tmp_path: Path):
    """Mutation: `is_before` never true."""
    document = json.loads(kineto_files.write(tmp_path / "trace.json", LAYERS, steps=40).read_text())
    events = document["traceEvents"]
    late = max(event["ts"] + event["dur"] for event in events if event["cat"] == "user_annotation")
    for event in (event for event in events if event["cat"] == "kernel"):
        late, event["ts"] = late + event["dur"] + 1, late
    (tmp_path / "trace.json").write_text(json.dumps(document))
    summary = in_line(aaco.inside("import", tmp_path / "trace.json", "--quiet").stdout)
    assert "all 120 kernels start after the last of 40 step markers has ended" in summary
    assert json.loads(aaco.inside("summary", "--json").stdout)["bottleneck"]["bottleneck_class"] == "unknown"
    assert json.loads((aaco.latest / "metrics" / "steady_state.json").read_text())["steps"] == []


@pytest.fixture
def two_devices(aaco: Aaco, tmp_path: Path) -> list[str]:
    """Sessions of a sound trace of one device, and of one of another that lost a kernel."""
    sessions = []
    for name in ("NVIDIA H100 80GB HBM3", "AMD Instinct MI300X"):
        path = kineto_files.write(tmp_path / f"{name}.json", LAYERS, steps=20,
                                  deviceProperties=[{"id": 0, "name": name, "numSms": 4}])
        if "AMD" in name:
            document = json.loads(path.read_text())
            lost = [event for event in document["traceEvents"] if event["cat"] == "kernel"][17]
            document["traceEvents"].remove(lost)
            path.write_text(json.dumps(document))
        sessions.append(json.loads(aaco.inside("import", path, "--json", "--quiet").stdout)["session_id"])
    return sessions


def test_a_difference_of_two_devices_and_of_a_false_trace_says_so_first(
        aaco: Aaco, two_devices: list[str], tmp_path: Path):
    """Mutation: `_devices` compares nothing; `_trust` yields nothing."""
    text = in_line(aaco.inside("diff", *two_devices).stdout)
    assert text.index("DIFFERENT DEVICES: NVIDIA H100 80GB HBM3 before, AMD Instinct MI300X after") < text.index(
        "first to last kernel")
    assert text.index(f"{two_devices[1]}, is {NOT_TRUSTED}") < text.index("first to last kernel")
    warnings = json.loads(aaco.inside("diff", *two_devices, "--json").stdout)["warnings"]
    kept = json.loads((aaco.latest / "regress" / "diff.json").read_text())
    assert len(warnings) == 2 and kept["warnings"] == warnings
    aaco.inside("import", tmp_path / "NVIDIA H100 80GB HBM3.json", "--quiet")
    assert json.loads(aaco.inside("diff", two_devices[0], "latest", "--json").stdout)["warnings"] == []


def test_a_difference_says_what_of_it_is_waiting_for_a_rank_that_had_not_started(aaco: Aaco, tmp_path: Path):
    """Mutation: only what is not to be trusted is said."""
    layers = [("aten::linear", [("gemm", 300.0)]), ("c10d::allreduce_", [("ncclDevKernel_AllReduce_Sum_f32", 20.0)])]
    path, sessions = kineto_files.write(tmp_path / "trace.json", layers, steps=20), []
    for waits_us in (0, 5_000_000):
        document = json.loads(path.read_text())
        kernels = [event for event in document["traceEvents"] if event["cat"] == "kernel"]
        kernels[1]["dur"] += waits_us
        for event in document["traceEvents"]:
            event["ts"] += waits_us * (event["ts"] > kernels[1]["ts"])
        path.write_text(json.dumps(document))
        sessions.append(json.loads(aaco.inside("import", path, "--json", "--quiet").stdout)["session_id"])
    text = in_line(aaco.inside("diff", *sessions).stdout)
    said = f"The trace after, {sessions[1]}: the first collective of device 0 took 5.00 s"
    assert said in text and text.index(said) < text.index("first to last kernel") and "trace before" not in text
