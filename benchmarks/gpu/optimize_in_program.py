"""The guarded kernel optimiser's whole road on a real GPU: a proposer's answer, the search, and the program itself.

A program is captured, a command proposes for its kernel, what is kept is built and run in copies of its folder, in
turns with the untouched text, and written. It takes about a minute.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from aaco.core.config import Settings
from aaco.core.errors import UsageError
from aaco.core.show import SILENT
from aaco.optimize.kernels.acceptance import Gain
from aaco.optimize.kernels.log import FOLDER
from aaco.optimize.kernels.proposers import COMMAND
from aaco.optimize.kernels.variants import Proposal
from aaco.replay.record import record
from aaco.runner import command as program
from aaco.workflows import kernel_program, optimize_kernel
from aaco.workflows.kernel_program import InProgram, KernelProgram, phrase
from aaco.workflows.optimize_kernel import OptimizeOutcome, OptimizeRequest
from benchmarks.claims import Claim
from benchmarks.gpu import _device
from benchmarks.gpu._replays import say

HERE = Path(__file__).parent
KERNEL, SOURCE = "column_sums", "sums.cu"
FILES = {SOURCE: "_sums.cu", "program.py": "_sums_program.py"}
PYTHON = sys.executable
LAUNCHES = 6000  # about 0.3 s of the kernel
PAIRS = 1  # of a block, in place of 5: the gain is large


def claims(_: Path) -> Iterator[Claim]:
    """Every claim about the road."""
    kernel_program.AS_COMPARE = replace(kernel_program.AS_COMPARE, pairs=PAIRS)
    with tempfile.TemporaryDirectory(prefix="aaco-in-program-") as made:
        folder = Path(made)
        project = folder / "project"
        project.mkdir()
        for name, source in FILES.items():
            shutil.copyfile(HERE / source, project / name)
        settings = _device.settings(calibrate=False, sessions_dir=folder / "sessions",
                                    baselines_dir=folder / "baselines")
        runs = KernelProgram((PYTHON, "program.py", "run", str(LAUNCHES)), (PYTHON, "program.py", "build"), project)
        _build(project)
        record(folder / "capture", [PYTHON, str(project / "program.py"), "run", "3"], f"^{KERNEL}$", 1)
        yield _refuses_stale(replace(runs, build=()), settings)
        untouched = _contents(project)
        yield from _of_outcome(_optimize(folder / "capture", runs, settings), untouched)


def _build(project: Path) -> None:
    built = program.run((PYTHON, str(project / "program.py"), "build"), 60.0)
    if built.code:
        raise UsageError(f"the program cannot be built: {built.last_words}")


def _optimize(capture: Path, runs: KernelProgram, settings: Settings) -> OptimizeOutcome:
    """Do what `aaco optimize --proposer --project --build --command --apply` does."""
    source = runs.project / SOURCE
    kernel_program.require(source, runs)
    request = OptimizeRequest(KERNEL, source, (capture,), seed=1, apply=True)
    propose = optimize_kernel.proposers((PYTHON, str(HERE / "_sums_proposer.py")))
    outcome = optimize_kernel.optimize(request, propose, partial(kernel_program.try_in_program, source, runs, settings,
                                                                 1, SILENT))
    for line in optimize_kernel.lines(outcome):
        say(line)
    return outcome


def _of_outcome(outcome: OptimizeOutcome, untouched: dict[str, bytes]) -> Iterator[Claim]:
    judged, kept = outcome.decision.judged, outcome.decision.kept
    answers = [line.refused or "judged" for line in judged if line.proposer == COMMAND]
    yield Claim("a command that is refused is asked again", "signature, then judged", ", then ".join(answers),
                answers == ["signature", "judged"])
    yield Claim("its kernel is kept", COMMAND, f"{kept.proposer}: {outcome.decision.why}" if kept else
                outcome.decision.why, kept is not None and kept.proposer == COMMAND)
    tried = outcome.in_program or InProgram("not tried", "nothing was kept")
    yield Claim("the program is built and run with it, in turns with the untouched text", "faster", phrase(tried),
                tried.answer == "faster")
    now = _contents(outcome.request.source.parent)
    written = {name: content for name, content in now.items() if untouched.get(name) != content}
    expected = {} if kept is None else {SOURCE: kept.text, f"{SOURCE}.orig": untouched[SOURCE]}
    yield Claim("then it is written, and no other file of the project", f"{SOURCE}, {SOURCE}.orig",
                ", ".join(sorted(written)), kept is not None and written == expected)
    yield from _of_sanitizer(outcome)


def _of_sanitizer(outcome: OptimizeOutcome) -> Iterator[Claim]:
    """A claim without a bar where no compute-sanitizer is."""
    name = "what is confirmed runs under compute-sanitizer's memcheck and racecheck"
    reasons = {line.not_examined for line in outcome.decision.confirmed}
    if shutil.which("compute-sanitizer") is None:
        yield Claim(name, "where it is on PATH", "it is not on PATH here", None)
        return
    yield Claim(name, "both tools", "; ".join(sorted(filter(None, reasons))) or "both tools", reasons == {""})


def _refuses_stale(runs: KernelProgram, settings: Settings) -> Claim:
    """A program that was built before, and is not built again, runs whatever the source says."""
    name, source = "a program that is not built from the source is refused", runs.project / SOURCE
    text = source.read_bytes()
    try:
        tried = kernel_program.try_in_program(source, runs, settings, 1, SILENT, text, Proposal("p", COMMAND, text),
                                              Gain(50.0, 40.0, 60.0, 0.95, 6))
    except UsageError as error:
        return Claim(name, "what runs is not built from it", error.what[-80:], "is not built from it" in error.what)
    return Claim(name, "what runs is not built from it", phrase(tried), False)


def _contents(folder: Path) -> dict[str, bytes]:
    """Return the files of the project, without the search's own."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != FOLDER}
