"""What compute-sanitizer reports refuses a candidate: a stand-in on PATH that writes its log as the manual has it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aaco.optimize.kernels.equivalence import Trials
from aaco.optimize.kernels.search import baseline_of
from aaco.optimize.kernels.trial import TrialRequest
from aaco.optimize.kernels.variants import Refused, Variant

HEAD = "========= COMPUTE-SANITIZER\n"
CLEAN = {"memcheck": HEAD + "========= ERROR SUMMARY: 0 errors\n",
         "racecheck": HEAD + "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"}
INVALID = HEAD + """========= Invalid __global__ write of size 4 bytes
=========     at scale+0x90
=========     by thread (31,0,0) in block (9,0,0)
=========     Address 0x7f0000000400 is out of bounds
=========
========= ERROR SUMMARY: 2 errors
"""
RACE = HEAD + """========= Error: Race reported between Write access at scale+0x120
=========     and Read access at scale+0x160 [508 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
# Takes the options that the manual names, runs the command, and writes the log that is kept for it.
STAND_IN = """#!/bin/sh
while [ "$1" != -- ] && [ "${{1#--}}" != "$1" ]; do
    case $1 in
        --tool) tool=$2;; --log-file) log=$2;; --target-processes) [ "$2" = all ] || exit 2;;
        --report-api-errors) [ "$2" = no ] && [ "$tool" = memcheck ] || exit 2;; *) exit 2;;
    esac
    shift 2
done
name=$("$@") || exit 1
cp "{folder}/$tool-$name" "$log"
"""


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the stand-in, with a log of a clean run by tool and program."""
    program = tmp_path / "compute-sanitizer"
    program.write_text(STAND_IN.format(folder=tmp_path))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for tool, text in CLEAN.items():
        for name in ("baseline", "candidate"):
            (tmp_path / f"{tool}-{name}").write_text(text)
    return tmp_path


def variant(name: str) -> Variant:
    return Variant(baseline_of(name.encode()), name.encode(), "scale", None)


def examine(fails: str = "") -> str:
    """Why the candidate was not examined. fails: whose trial ends with a fault."""
    def run(capture: Path, request: TrialRequest, limit_s: float) -> Iterator[dict[str, Any]]:
        assert request.stages == ("captured",)
        name = Path(request.programs["candidate"]["code"]).read_text()
        subprocess.run([*request.under, "echo", name], check=True)
        yield {"stage": "captured"}
        if name == fails:
            yield {"refused": "fails", "detail": "unspecified launch failure"}
        yield {"done": True}

    return Trials(variant("baseline"), (), run=run).examine(variant("candidate"), Path("capture"), 1)


def test_a_candidate_without_findings_passes_both_tools(logs: Path) -> None:
    assert examine() == ""


@pytest.mark.parametrize(("log", "text", "fails", "reason", "words"), [
    ("memcheck-candidate", INVALID, "", "out_of_bounds", "2 reported, first: Invalid __global__ write of size 4"),
    ("memcheck-candidate", INVALID, "candidate", "out_of_bounds", "2 reported, first: Invalid __global__ write"),
    ("memcheck-candidate", CLEAN["memcheck"], "candidate", "fails", "memcheck: fails: unspecified launch failure"),
    ("racecheck-candidate", RACE, "", "shared_memory_race", "1 reported, first: Error: Race reported between"),
    ("racecheck-candidate", HEAD, "", "fails", "where the untouched kernel runs: compute-sanitizer wrote no summary")])
def test_what_is_reported_of_a_candidate_refuses_it(logs: Path, log: str, text: str, fails: str, reason: str,
                                                    words: str) -> None:
    """Mutation: nothing that is reported counts. A fault that ends the trial does not hide the log."""
    (logs / log).write_text(text)
    with pytest.raises(Refused, match=words) as refused:
        examine(fails)
    assert refused.value.reason == reason


def test_a_tool_that_cannot_judge_is_left_out_with_its_reason(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (logs / "memcheck-baseline").write_text(INVALID)
    assert examine() == "memcheck reports the untouched kernel, too: Invalid __global__ write of size 4 bytes"
    (logs / "racecheck-baseline").write_text(HEAD + "========= Error: Target application terminated before start\n")
    assert "; compute-sanitizer wrote no summary: " in examine()
    monkeypatch.setenv("PATH", str(logs / "empty"))
    assert examine() == "compute-sanitizer is not on PATH"
