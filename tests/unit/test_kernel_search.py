"""The search for a faster kernel on a fake GPU: what it keeps, what it writes down, and how it goes on."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from aaco.core.errors import AacoError, UsageError
from aaco.optimize.kernels import applying, search, trial
from aaco.optimize.kernels.equivalence import Trials
from aaco.optimize.kernels.log import SearchFiles
from aaco.optimize.kernels.search import KernelDecision, KernelSearch, baseline_of
from aaco.optimize.kernels.trial import TrialRequest
from aaco.optimize.kernels.variants import Proposal, Refused, Variant
from aaco.replay import cuda
from aaco.tracelake.document_schemas.kernel_search import KernelOrigin
from tests.fakes import compiled_gpu, cuda_gpu, kernel_trials
from tests.fakes.kernel_trials import PARAMETERS, SCALE

pytestmark = pytest.mark.skipif(not shutil.which("clang++"), reason="not on PATH: clang++")


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return cuda_gpu.compiled_kernels(tmp_path_factory.mktemp("tools"))


def build(proposal: Proposal) -> Variant:
    try:
        return Variant(proposal, kernel_trials.code(proposal.text.decode()), "scale", None)
    except subprocess.CalledProcessError as error:
        raise Refused("does_not_compile", error.stderr.splitlines()[0]) from error


def takes(us: float) -> Proposal:
    """The kernel as it is, but for its time."""
    return Proposal(f"{us:g} us", "test", SCALE.replace("int t =", f"spent_us = {us}; int t =").encode())


WRONG = Proposal("edge", "test", SCALE.replace("t < n", "t < n - 1").encode())
BROKEN = Proposal("broken", "test", b"nonsense")


class Searches:
    """Searches over one capture, or two, in this process."""

    def __init__(self, folder: Path, tools: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.tools, self.processes = folder, tools, 0
        self.gpu = compiled_gpu.CompiledGpu(tools)
        monkeypatch.setattr(cuda, "DriverGpu", lambda vendor, number: self.gpu)
        monkeypatch.setattr(cuda, "EMPTY_PAIRS", 1)  # its clock does not tick by itself
        monkeypatch.setattr(search, "PAIRS", 2)  # every pair takes as long
        self.source = folder / "scale.cu"
        self.source.write_text(SCALE)
        self.files = SearchFiles(self.source, "scale")
        self.captures = [kernel_trials.capture(folder / "capture", self.gpu)]
        self.dies_after = 1 << 30

    def run_trial(self, path: Path, request: TrialRequest, limit_s: float) -> Iterator[dict[str, Any]]:
        lines: list[dict[str, Any]] = []
        self.processes += 1
        if self.processes > self.dies_after:
            raise KeyboardInterrupt
        self.gpu = compiled_gpu.CompiledGpu(self.tools)
        try:
            trial.main(structs.asdict(request), lambda **line: lines.append(line))
        except AacoError as error:
            lines.append({"raised": error})
        finally:
            self.gpu.close()
        for line in lines:
            if "raised" in line:
                raise line["raised"]
            yield line

    def search(self, *proposals: Proposal, budget_s: float = 600.0, seed: int = 1) -> KernelDecision:
        origin = KernelOrigin(kernel="scale", source_sha256="0", captures=[], compiler="clang", options=[],
                              device="fake", driver="1", seed=seed)
        trials = Trials(build(baseline_of(SCALE.encode())), PARAMETERS, run=self.run_trial)
        return KernelSearch(self.files, origin, trials, build, self.captures, budget_s).run(proposals)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.files.log.read_text().splitlines()]


@pytest.fixture
def searches(tmp_path: Path, tools: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> Searches:
    return Searches(tmp_path, tools, monkeypatch)


def reasons(decision: KernelDecision) -> dict[str, str | None]:
    return {line.name: line.refused for line in decision.judged}


def test_the_fastest_that_computes_the_same_is_kept(searches: Searches) -> None:
    decision = searches.search(BROKEN, WRONG, takes(12), takes(8), takes(7), baseline_of(SCALE.encode()))
    assert decision.kept == takes(7) and decision.gain
    assert decision.gain.percent == pytest.approx(30)
    assert decision.gain.level == pytest.approx(1 - 0.05 / 3)  # of those that were timed
    assert reasons(decision) == {"broken": "does_not_compile", "edge": "wrong_on_capture", "12 us": None, "8 us": None,
                                 "7 us": None, "baseline": "no_change"}
    assert [line.name for line in decision.confirmed] == ["7 us", "8 us"]
    assert searches.source.read_text() == SCALE
    assert [line["step"] for line in searches.lines()] == ["begun", *["judged"] * 6, *["confirmed"] * 2, "decided"]


def test_no_change_is_the_answer_to_slower_and_equal_kernels(searches: Searches) -> None:
    decision = searches.search(takes(12), takes(10.01), takes(9.95))
    assert decision.kept is None
    assert "none of 3 that compute the same looked faster" in decision.why


def test_a_search_that_was_cut_off_goes_on(searches: Searches) -> None:
    """Mutation: it begins again."""
    searches.dies_after = 3
    with pytest.raises(KeyboardInterrupt):
        searches.search(takes(8), takes(7), takes(6))
    assert searches.source.read_text() == SCALE
    with searches.files.log.open("a") as file:
        file.write('{"torn')  # by the kill
    searches.dies_after, before = 1 << 30, searches.processes
    decision = searches.search(takes(8), takes(7), takes(6))
    assert decision.kept == takes(6) and decision.resumed == 2
    assert searches.processes - before == 1 + 1 + 3 * 6  # the baseline, the third, the confirmations


def test_a_search_that_was_killed_leaves_the_source_and_goes_on(searches: Searches) -> None:
    """By SIGKILL, as soon as its log has a proposal."""
    process = os.fork()
    if not process:
        try:
            searches.search(takes(8), takes(7), takes(6))
        finally:
            os._exit(1)
    while not (searches.files.log.exists() and searches.files.log.read_bytes().count(b"\n") > 1):
        if os.waitpid(process, os.WNOHANG)[0]:
            pytest.fail("the search ended")
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    assert searches.source.read_text() == SCALE
    decision = searches.search(takes(8), takes(7), takes(6))
    assert decision.kept == takes(6) and decision.resumed


def test_a_search_of_another_origin_begins_again(searches: Searches) -> None:
    searches.dies_after = 3
    with pytest.raises(KeyboardInterrupt):
        searches.search(takes(8), takes(7), takes(6))
    searches.dies_after = 1 << 30
    assert searches.search(takes(8), seed=2).resumed == 0


def test_a_candidate_that_is_wrong_on_another_shape_is_refused(searches: Searches) -> None:
    searches.captures.append(kernel_trials.capture(searches.folder / "other", searches.gpu, count=200))
    only = Proposal("only 300", "test", SCALE.replace("t < n", "t < n && n == 300").encode())
    assert reasons(searches.search(only)) == {"only 300": "wrong_on_other_shape"}


def test_a_candidate_that_is_slower_on_another_shape_is_refused(searches: Searches) -> None:
    """Mutation: the other captures are not timed."""
    searches.captures.append(kernel_trials.capture(searches.folder / "other", searches.gpu, count=200))
    some = Proposal("some", "test", SCALE.replace("int t =", "spent_us = n == 300 ? 8 : 11; int t =").encode())
    decision = searches.search(some)
    assert decision.kept is None and "slower on capture other" in decision.why


def test_a_budget_that_has_no_room_tries_nothing(searches: Searches) -> None:
    assert searches.search(takes(8), budget_s=1e-6).judged == ()


def test_a_change_is_applied_once_and_only_over_what_was_measured(tmp_path: Path) -> None:
    source = tmp_path / "k.cu"
    source.write_bytes(b"\xef\xbb\xbfold\r\n")
    assert applying.apply(source, b"\xef\xbb\xbfold\r\n", b"new").read_bytes() == b"\xef\xbb\xbfold\r\n"
    assert source.read_bytes() == b"new"
    with pytest.raises(UsageError, match="changed while the search ran"):
        applying.apply(source, b"\xef\xbb\xbfold\r\n", b"newer")
    with pytest.raises(UsageError, match="is another text"):
        applying.apply(source, b"new", b"newer")
    assert source.read_bytes() == b"new"
