"""A kept kernel in a program that is built and run with either text."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from aaco.core import config
from aaco.core.errors import UsageError
from aaco.core.show import SILENT
from aaco.governance.verdict_document import Counts, RegressionVerdict
from aaco.optimize.kernels.acceptance import Gain
from aaco.optimize.kernels.variants import Proposal
from aaco.workflows import kernel_program
from aaco.workflows.kernel_program import KernelProgram, judge, phrase, try_in_program

ORIGINAL, KEPT = b"pause 0.4\n", b"pause 0.04\n"
BUILD = "#!/bin/sh\n! grep -q '^#error' src/kernel.cu && cut -d' ' -f2 src/kernel.cu > built\n"
ALONE = Gain(90.0, 80.0, 98.0, 0.95, 6)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A program that sleeps as long as the text says that it was built from; something was built before."""
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "src/kernel.cu").write_bytes(ORIGINAL)
    for name, text in (("build", BUILD), ("model", "#!/bin/sh\nsleep $(cat built)\n"), ("built", "0.2\n")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def tried(project: Path, monkeypatch: pytest.MonkeyPatch, kept: bytes = KEPT, build: str = "./build",
          kernel_ms: float | None = None, **launch: tuple[int, int, int]) -> kernel_program.InProgram:
    monkeypatch.setattr(kernel_program, "AS_COMPARE", replace(kernel_program.AS_COMPARE, processes=5, pairs=1,
                                                              warmup=0, controls=False))  # sleep, and a wide margin
    settings = config.resolve(overrides={"storage": {"sessions_dir": project.parent / "sessions",
                                                     "baselines_dir": project.parent / "baselines"},
                                         "analysis": {"false_alarm_pct": 20}})
    asked = KernelProgram(("./model",), (build,) if build else (), project, kernel_ms)
    source = project / "src/kernel.cu"
    kernel_program.require(source, asked)
    before = files_of(project)
    try:
        return try_in_program(source, asked, settings, 1, SILENT, ORIGINAL, Proposal("p", "test", kept, **launch),
                              ALONE)
    finally:
        assert files_of(project) == before


def files_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def test_the_kept_text_is_what_is_built_and_runs(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tried(project, monkeypatch)
    assert found.answer == "faster" and found.gain and 40 < found.gain.percent < 95, found
    assert phrase(found).startswith("faster in the program by ") and found.session_id


def test_what_fails_there_or_cannot_be_tried_is_said_so(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tried(project, monkeypatch, b"pause \n")
    assert found.answer == "fails" and "./model ended with exit code 1" in found.why
    found = tried(project, monkeypatch, block=(64, 1, 1))
    assert found.answer == "not tried" and "another launch" in found.why


def test_a_program_that_is_not_built_from_the_source_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: no text that must fail. The program that was built before runs whatever the source says."""
    monkeypatch.setattr(kernel_program.compare, "compare", lambda *_: pytest.fail("it is compared"))
    with pytest.raises(UsageError, match="no compiler takes: what runs is not built from it"):
        tried(project, monkeypatch, build="")
    with pytest.raises(UsageError, match=r"untouched source: ./no-such ended with exit code 127"):
        tried(project, monkeypatch, build="./no-such")


@pytest.mark.parametrize(("folder", "words"), [("no", "no such folder"), ("elsewhere", "is not in"),
                                               ("large", "to copy")])
def test_a_folder_that_cannot_be_the_projects_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch, folder: str,
                                                         words: str) -> None:
    (project / "elsewhere").mkdir()
    monkeypatch.setattr(kernel_program, "MOST_FILES", 3)
    with pytest.raises(UsageError, match=words):
        kernel_program.require(project / "src/kernel.cu", KernelProgram(
            ("./model",), (), project if folder == "large" else project / folder))


def verdict(effect: float, low: float, high: float, status: str, ms: float = 100.0) -> RegressionVerdict:
    return RegressionVerdict(status=status, why="so", regression=status == "regressed", severity="none",
                             recommendation="", tool_version="0", reproduce_command="", effect_pct=effect,
                             ci=(low, high), level=0.99, baseline_value=ms,
                             current_value=ms * (1 + effect / 100), n_units=Counts(baseline=8, current=8))


@pytest.mark.parametrize(("effect", "kernel_ms", "answer"), [
    ((-20, -22, -18, "improved"), None, "faster"), ((-20, -22, -18, "improved"), 90.0, "faster"),
    ((-25, -27, -23, "improved"), 20.0, "refused"), ((-99.5, -99.6, -99, "improved"), None, "refused"),
    ((-3, -8, 2, "inconclusive"), None, "not faster"), ((0.1, -0.3, 0.4, "equivalent"), 50.0, "not faster"),
    ((4, 3, 5, "regressed"), None, "slower")])
def test_a_gain_above_what_the_kernel_can_save_is_refused(effect: tuple[float, float, float, str],
                                                          kernel_ms: float | None, answer: str) -> None:
    """Mutation: any gain is believed. A kernel of 20 ms in 100 that takes 98 % less saves 19.6 % of the program."""
    found = judge(verdict(*effect), ALONE, kernel_ms)
    assert found.answer == answer, found.why
    if answer == "slower":
        assert phrase(found) == "faster alone, slower in the program: 4.0 % [3.0, 5.0] more time"
    if answer == "refused":
        assert "a fault of the measurement" in phrase(found)


def test_a_kill_leaves_the_project_as_it_was(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: the text is written into the project itself."""
    before, copies = files_of(project), project.parent / "copies"
    copies.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(copies))
    if not (child := os.fork()):
        try:
            tried(project, monkeypatch)
        finally:
            os._exit(0)
    try:
        while not list(copies.glob("*/kept/built")):
            assert os.waitpid(child, os.WNOHANG) == (0, 0)
            time.sleep(0.01)
    finally:
        os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert files_of(project) == before
