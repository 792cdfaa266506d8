"""`aaco check` as a user runs it: a healthy trace, one that lost kernels, and the exit code a script can rely on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import csvs, kineto_files
from tests.system.conftest import Aaco

LAYERS = [("aten::linear", [("gemm", 30.0)]), ("aten::gelu", [("bias", 10.0), ("gelu", 20.0)])]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return kineto_files.write(tmp_path / "trace.json", LAYERS, steps=20)


def test_a_healthy_trace(aaco: Aaco, trace: Path):
    report = aaco.inside("import", trace, "--quiet", "--full").stdout
    assert "Trace check: nothing speaks against it" in report
    document = json.loads(aaco.inside("check", "--json", "--strict").stdout)
    assert document["trusted"] and document["captures"][0]["account"]["used"] == {"count": 60, "ns": 1_200_000}
    kept = json.loads((aaco.latest / "metrics" / "trace_check.json").read_text())
    assert kept == document


def test_a_trace_that_lost_kernels(aaco: Aaco, trace: Path):
    """Mutation: without the pairs of launches the trace is trusted."""
    document = json.loads(trace.read_text())
    kernels = [event for event in document["traceEvents"] if event["cat"] == "kernel"]
    document["traceEvents"].remove(kernels[17])
    trace.write_text(json.dumps(document))
    report = aaco.inside("import", trace, "--quiet").stdout
    assert "NOT TO BE TRUSTED" in report
    done = aaco.inside("check", "--strict", expect=4)
    assert "LOST" in done.stdout and "1 of 60 kernel launches have no record" in " ".join(done.stdout.split())


def test_kernels_that_were_counted_but_not_timed_are_not_dropped(aaco: Aaco, tmp_path: Path):
    """Mutation: without `queries.untimed` the file holds more kernels than the tables."""
    path = csvs.write(tmp_path / "results.csv", [
        ["Index", "KernelName", "gpu-id", "queue-id", "grd", "wgr", "SQ_WAVES"], [0, "a", 1, 0, 64, 64, 1],
        [1, "b", 1, 0, 64, 64, 1]])
    aaco.inside("import", path, "--quiet")
    capture, = json.loads(aaco.inside("check", "--json", "--strict").stdout)["captures"]
    assert capture["account"]["used"] == capture["account"]["in_file"] == {"count": 2, "ns": 0}
    assert [finding["check"] for finding in capture["findings"]] == ["kernels_without_times"]


def test_a_run_of_our_own_can_be_checked(recorded: Aaco):
    document = json.loads(recorded.inside("check", "--json").stdout)
    assert document["captures"][0]["file"] == "recorded by aaco"
