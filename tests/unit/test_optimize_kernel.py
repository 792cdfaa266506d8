"""`aaco optimize --kernel` from its arguments to its answer, on a GPU that is tests/fakes/compiled_gpu.py."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from aaco.calibration import child
from aaco.cli import app
from aaco.core.errors import AacoError, UsageError
from aaco.optimize.kernels import compiling, equivalence, search, trial
from aaco.optimize.kernels.compiling import Toolchain
from aaco.optimize.kernels.variants import Proposal, Variant
from aaco.replay import child as replay_child
from aaco.replay import cuda
from aaco.workflows import optimize_kernel
from aaco.workflows.duet import compare as duet
from aaco.workflows.duet.compare import DuetSide
from tests.fakes import compiled_gpu, cuda_gpu, kernel_trials
from tests.fakes.kernel_trials import SCALE

pytestmark = pytest.mark.skipif(not shutil.which("clang++"), reason="not on PATH: clang++")


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return cuda_gpu.compiled_kernels(tmp_path_factory.mktemp("tools"))


class Optimiser:
    """The command, whose processes are this one, and whose compiler is clang++."""

    def __init__(self, folder: Path, tools: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.tools, self.monkeypatch = folder, tools, monkeypatch
        self.gpu = compiled_gpu.CompiledGpu(tools)
        self.source = folder / "scale.cu"
        self.source.write_text(SCALE)
        self.capture = kernel_trials.capture(folder / "capture", self.gpu)
        monkeypatch.setattr(cuda, "DriverGpu", lambda vendor, number: self.gpu)
        monkeypatch.setattr(cuda, "EMPTY_PAIRS", 1)  # its clock does not tick by itself
        monkeypatch.setattr(child, "run", self._run)
        monkeypatch.setattr(compiling, "choose", lambda source, arch: Toolchain("host", "clang++", arch, (), folder))
        monkeypatch.setattr(compiling, "compile_proposal", self._compile)
        monkeypatch.setattr(search, "PAIRS", 2)  # every pair takes as long

    def _run(self, module: str, arguments: list[str], *_: Any) -> Iterator[dict[str, Any]]:
        lines: list[dict[str, Any]] = []
        self.gpu = compiled_gpu.CompiledGpu(self.tools)
        main = trial.main if arguments[1] == trial.__name__ else replay_child.main
        try:
            main(json.loads(Path(arguments[2]).read_text()), lambda **line: lines.append(line))
        finally:
            self.gpu.close()
        yield from lines

    def _compile(self, proposal: Proposal, chain: Toolchain, symbol: str, name: str) -> Variant:
        return Variant(proposal, kernel_trials.code(proposal.text.decode()), "scale", None)

    def offer(self, *texts: str) -> None:
        """Propose these texts, and nothing else."""
        proposals = [Proposal(f"text {number}", "test", text.encode()) for number, text in enumerate(texts)]
        self.monkeypatch.setattr(optimize_kernel, "proposers", lambda command: lambda *_: proposals)

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, ["optimize", "--kernel", "scale", "--source", str(self.source), "--capture",
                                        str(self.capture), "--seed", "1", *arguments])


@pytest.fixture
def optimiser(tmp_path: Path, tools: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> Optimiser:
    return Optimiser(tmp_path, tools, monkeypatch)


FASTER = SCALE.replace("int t =", "spent_us = 8; int t =")


def test_a_faster_text_is_shown_as_a_diff_and_written_on_demand(optimiser: Optimiser) -> None:
    optimiser.offer(SCALE.replace("t < n", "t < n - 1"), FASTER)
    found = optimiser.run()
    assert found.exit_code == 0, found.output
    assert "scale: keep text 1: 20.0 % [20.0, 20.0] less time, of 6 processes; faster alone, not tried in the program" \
        in found.output
    assert "+       spent_us = 8;" in found.output and "text 0: wrong_on_capture" in found.output
    assert optimiser.source.read_text() == SCALE
    document = json.loads(optimiser.run("--apply", "--json").stdout)
    assert document["kept"] == "text 1" and document["applied"] and document["no_reference"] is None
    assert optimiser.source.read_text() == FASTER
    assert Path(document["original"]).read_text() == SCALE


def test_what_is_not_faster_in_the_program_is_not_written(optimiser: Optimiser, monkeypatch: pytest.MonkeyPatch
                                                          ) -> None:
    """The program is really built and run with both texts; what its comparison says is given."""
    optimiser.offer(FASTER)
    model = optimiser.folder / "model"
    model.write_text("#!/bin/sh\n! grep '^#error' scale.cu\n")
    model.chmod(0o755)
    ran = []

    def compare(*sides: DuetSide) -> SimpleNamespace:
        ran.extend(Path(side.command[2], "scale.cu").read_text() for side in sides[:2])
        verdict = SimpleNamespace(effect_pct=effect, ci=(effect - 1, effect + 1), n_units=SimpleNamespace(current=8),
                                  level=0.99, baseline_value=100.0, status=status, why="so")
        return SimpleNamespace(verdict=verdict, session=SimpleNamespace(id="s"))

    monkeypatch.setattr(duet, "compare", compare)
    effect, status = 0.1, "equivalent"
    found = optimiser.run("--apply", "--command", "./model")
    assert found.exit_code == 0, found.output
    assert "faster alone, not in the program: -0.1 % [-1.1, 0.9] less time there; so" in found.output
    assert "not written: it is not faster in the program" in found.output
    assert ran == [SCALE, FASTER] and optimiser.source.read_text() == SCALE
    effect, status = -10.0, "improved"
    document = json.loads(optimiser.run("--apply", "--command", "./model", "--json").stdout)
    assert document["in_program"] == "faster in the program by 10.0 % [9.0, 11.0]"
    assert document["program"]["answer"] == "faster" and document["applied"]
    assert optimiser.source.read_text() == FASTER


COMMAND = """#!/bin/sh
cat > {asked}
cat <<'END'
{answer}
END
"""


def asks(optimiser: Optimiser, answer: str) -> str:
    """A proposer that prints this."""
    path = optimiser.folder / "ask"
    path.write_text(COMMAND.format(asked=optimiser.folder / "asked", answer=answer))
    path.chmod(0o755)
    return str(path)


def test_a_command_proposes_and_only_its_text_of_the_kernel_is_taken(optimiser: Optimiser) -> None:
    document = json.loads(optimiser.run("--proposer", asks(optimiser, FASTER.strip()), "--json").stdout)
    assert document["kept"] == "ask's patch"
    assert json.loads((optimiser.folder / "asked").read_text())["name"] == "scale"
    hostile = asks(optimiser, FASTER.replace("const float *a", "float *a").strip())
    document = json.loads(optimiser.run("--proposer", hostile, "--json").stdout)
    assert document["kept"] is None
    assert [row["refused"] for row in document["tried"] if row["proposer"] == "command"] == ["signature"] * 3


def test_no_change_is_an_answer_with_what_was_tried(optimiser: Optimiser) -> None:
    optimiser.offer(SCALE, SCALE.replace("t < n", "t < n - 1"))
    document = json.loads(optimiser.run("--apply", "--json").stdout)
    assert document["kept"] is None and not document["applied"] and document["diff"] == ""
    assert [row["refused"] for row in document["tried"]] == ["no_change", "wrong_on_capture"]
    assert optimiser.source.read_text() == SCALE


def test_a_source_that_is_read_only_or_without_the_kernel_is_refused(optimiser: Optimiser,
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    optimiser.offer(FASTER)
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with pytest.raises(UsageError, match="read-only"):
        raise optimiser.run("--apply").exception or AssertionError
    optimiser.source.write_text(SCALE.replace("scale", "other"))
    with pytest.raises(UsageError, match="scale"):
        raise optimiser.run().exception or AssertionError


def test_the_guide_names_every_reason_and_the_product_has_no_other() -> None:
    package = Path(equivalence.__file__).parent
    text = "".join((package / f"{name}.py").read_text() for name in ("trial", "equivalence", "search"))
    raised = {reason for call in re.findall(r"(?:Refused|_Refusal|_checked)\([^()]*(?:\([^()]*\)[^()]*)*", text)
              for reason in re.findall(r'"([a-z]+_[a-z_]+)"', call)}
    # Everything that refuses a candidate, but for what its text and its compiler do.
    reasons = {
        "no_change", "same_code", "nothing_to_compare", "inputs_cannot_change", "bounds_not_checked",
        "baseline_not_repeatable", "wrong_on_capture", "wrong_on_other_shape", "wrong_on_inputs", "not_repeatable",
        "out_of_bounds", "late_work", "less_exact", "wrong_when_timed", "faster_than_roof", "fails", "hangs",
        "not_launchable", "shared_memory_race", "not_judged"}
    assert raised <= reasons
    guide = (Path(__file__).parents[2] / "docs/guides/optimize-kernels.md").read_text()
    assert set(re.findall(r"`([a-z_]+)`", guide)) >= reasons


def test_a_text_that_was_changed_while_the_search_ran_is_left_alone(optimiser: Optimiser) -> None:
    def propose(*_: object) -> Iterator[Proposal]:
        optimiser.source.write_text(SCALE + "\n// mine\n")
        yield Proposal("faster", "test", FASTER.encode())

    optimiser.monkeypatch.setattr(optimize_kernel, "proposers", lambda command: propose)
    with pytest.raises(AacoError, match="changed while the search ran"):
        raise optimiser.run("--apply").exception or AssertionError
    assert optimiser.source.read_text() == SCALE + "\n// mine\n"
