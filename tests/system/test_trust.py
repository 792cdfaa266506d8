"""A trace that is not to be trusted, on every first screen: said before the class, and no class from what lacks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aaco import Observatory
from aaco.analytics.truth.trust import NOT_TRUSTED
from tests import kineto_files, third_party
from tests.system.conftest import Aaco

LAYERS = [("aten::linear", [("gemm", 30.0)]), ("aten::gelu", [("bias", 10.0), ("gelu", 20.0)])]
FALSE = {  # what must be said of each case, in its line
    "under_recorded/trace.json.gz": "180 of 200 graph launches have no record",
    "impossible_duration/trace.json.gz": "33 kernels start while the one before them",
    "overflow-dur/trace.json": "of 1600000000 ns",  # the record that cannot be, by its duration
    "merged-two-ranks/trace.json": "10 of 20 kernel launches have no record",
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
        assert "goes on still" not in text
        assert text.index(NOT_TRUSTED) < text.index("Classification") and FALSE[case] in text
        assert "Classification UNKNOWN" in text.replace("Classification: ", "Classification ")
        assert "DataLoader(" not in text and "torch.compile" not in text
    checked = in_line(aaco.inside("check").stdout)
    assert document["trust"]["line"] in checked and not document["trust"]["trusted"]
    assert document["bottleneck"]["bottleneck_class"] == "unknown" and document["bottleneck"]["abstained_because"]
    assert document["bottleneck"]["trust"] == document["trust"]


def test_one_line_on_every_screen(aaco: Aaco, tmp_path: Path):
    """All renderings, the list of kernels and Python say one sentence."""
    aaco.inside("import", third_party.cases() / "under_recorded" / "trace.json.gz", "--quiet")
    explained = Observatory({"storage": {"sessions_dir": str(aaco.folder / "sessions")}}).analyze()
    line = explained.trust.line
    assert line.startswith(NOT_TRUSTED) and not explained.trust.trusted and "larger buffers" in explained.trust.steps[0]
    for form, before in (("terminal", "Classification"), ("markdown", "Classification"), ("html", 'id="verdict"')):
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
    assert "Trace check        nothing speaks against it" in done and NOT_TRUSTED not in done
    assert NOT_TRUSTED not in aaco.inside("kernels").stderr


def test_profilers_that_started_one_after_the_other_are_a_remark(aaco: Aaco):
    aaco.inside("import", third_party.cases() / "start_skew" / "trace.json.gz", "--quiet")
    remarks = json.loads(aaco.inside("check", "--json").stdout)["captures"][0]["findings"]
    first, = (remark for remark in remarks if remark["check"] == "first_collective_waits")
    assert first["weight"] == "note" and first["ns"] == 17_456_080_000


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


def test_a_difference_of_two_devices_and_of_a_false_trace_says_so_first(aaco: Aaco, two_devices: list[str]):
    """Mutation: `_devices` compares nothing; `_trust` yields nothing."""
    text = in_line(aaco.inside("diff", *two_devices).stdout)
    assert text.index("DIFFERENT DEVICES: NVIDIA H100 80GB HBM3 before, AMD Instinct MI300X after") < text.index(
        "first to last kernel")
    assert text.index(f"{two_devices[1]}, is {NOT_TRUSTED}") < text.index("first to last kernel")
    warnings = json.loads(aaco.inside("diff", *two_devices, "--json").stdout)["warnings"]
    kept = json.loads((aaco.latest / "regress" / "diff.json").read_text())
    assert len(warnings) == 2 and kept["warnings"] == warnings
    assert json.loads(aaco.inside("diff", two_devices[0], two_devices[0], "--json").stdout)["warnings"] == []
