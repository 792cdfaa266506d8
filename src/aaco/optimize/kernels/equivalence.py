"""A candidate's trial from outside of its process: what it is asked, and the fixed reason of what refuses it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from aaco.calibration import child
from aaco.core.errors import AacoError
from aaco.core.readings import Absent
from aaco.core.records import as_dict
from aaco.optimize.kernels import sanitizer
from aaco.optimize.kernels.trial import STAGES, TrialRequest
from aaco.optimize.kernels.variants import Refused, Variant
from aaco.replay import capture as captures
from aaco.replay import steering
from aaco.replay.emulator_errors import NO_ANSWER, NOT_EMULATED

LIMIT_S, EMULATED_LIMIT_S = 120.0, 600.0
MOST_PROCESSES = 8  # that a trial may lose to addresses that are taken
CHECKS = tuple(stage for stage in STAGES if stage != "timed")
# What a candidate did whose process ended without an answer, by the stage that it was in.
DIED = {"bounds": "out_of_bounds"}
Pair = tuple[float, float]  # us: the baseline, the candidate
RunTrial = Callable[[Path, TrialRequest, float], Iterator[dict[str, Any]]]


class TrialResult(Struct):
    """What a trial answered. pairs: times of the baseline and the candidate. facts: what the capture's memory holds."""

    pairs: list[Pair] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


def run_process(capture: Path, request: TrialRequest, limit_s: float, module: str = "aaco.optimize.kernels.trial"
                ) -> Iterator[dict[str, Any]]:
    """Yield the lines of a trial in a process of its own. module: its main program.

    Raise as calibration.child.run() does.
    """
    with captures.open(capture) as opened:
        hosts = steering.held(opened)
    with tempfile.NamedTemporaryFile("w", prefix="aaco-trial-", suffix=".json") as file:
        json.dump(as_dict(request), file)
        file.flush()
        yield from child.run("aaco.replay.holding", [json.dumps(hosts), module, file.name], {}, limit_s, "trial",
                             request.under)


class Trials:
    """Trials of candidates against one baseline.

    parameters: the C++ types of the kernel's. reference: it in double precision, if there is such a form. limit_s: of
    each process; a candidate that hangs ends with it. emulated: launches run in an emulator, and nothing is timed.
    """

    def __init__(self, baseline: Variant, parameters: Sequence[str], any_driver: bool = False,
                 limit_s: float = LIMIT_S, run: RunTrial = run_process, reference: Variant | None = None,
                 emulated: bool = False) -> None:
        self.baseline, self._reference, self.emulated = baseline, reference, emulated
        self._known: dict[Path, dict[str, Any]] = {}  # by capture: it is read once
        self._unfit: dict[str, str] = {}  # by tool: why it cannot judge, empty if it can
        self._parameters, self._any_driver, self._limit_s, self._run = tuple(parameters), any_driver, limit_s, run

    def check(self, candidate: Variant, paths: Sequence[Path], seed: int, pairs: int) -> TrialResult:
        """Return the times of a candidate on the first capture, once it passed every check on each of them; in an
        emulator there are none.

        Raise Refused with the fixed reason.
        """
        if is_same(self.baseline, candidate):
            raise Refused("no_change", "the compiler makes the same code object of it")
        first, *others = paths
        for number, path in enumerate(others):
            try:
                self.try_once(candidate, path, seed + number + 1, 0, CHECKS)
            except Refused as refused:
                reason = "wrong_on_other_shape" if refused.reason == "wrong_on_capture" else refused.reason
                raise Refused(reason, f"{refused.detail}; capture {path.name}") from refused
        return self.try_once(candidate, first, seed, pairs, CHECKS if self.emulated else STAGES)

    def try_once(self, candidate: Variant, path: Path, seed: int, pairs: int,
                 stages: tuple[str, ...] = ("timed",), under: tuple[str, ...] = ()) -> TrialResult:
        """Return what one process answers. Raise Refused."""
        with tempfile.TemporaryDirectory(prefix="aaco-trial-") as folder:
            request = TrialRequest(str(path), self._programs(candidate, Path(folder)), self._parameters, stages,
                                   pairs=pairs, seed=seed, any_driver=self._any_driver, known=self._known.get(path),
                                   under=under)
            for left in reversed(range(MOST_PROCESSES)):
                result, stage, taken = TrialResult(), "load", False
                try:
                    for line in self._run(path, request, self._limit_s):
                        stage, taken = line.get("stage", stage), taken or "taken" in line
                        _take(result, line)
                    if result.facts:
                        self._known[path] = result.facts
                    return result
                except Refused:
                    raise
                except AacoError as error:
                    if taken and left:
                        continue
                    raise Refused(_reason(stage, error), f"{stage}: {error.what}", error.fix) from error
        raise AssertionError("unreachable")

    def examine(self, candidate: Variant, path: Path, seed: int) -> str:
        """Run a candidate once under each tool of compute-sanitizer; return why one was left out, empty if none was.

        A tool that reports the untouched kernel, too, says nothing of a candidate. Raise Refused.
        """
        for tool, (reason, _) in sanitizer.TOOLS.items():
            if tool not in self._unfit:
                self._unfit[tool] = self._why_unfit(tool, path, seed)
            if self._unfit[tool]:
                continue
            try:
                findings = self._watched(tool, candidate, path, seed)
            except Absent as why:
                raise Refused("fails", f"under {tool}, where the untouched kernel runs: {why}") from why
            if findings.count:
                raise Refused(reason, f"{tool}: {findings.count} reported, first: {findings.first}")
        return "; ".join(dict.fromkeys(filter(None, self._unfit.values())))

    def _why_unfit(self, tool: str, path: Path, seed: int) -> str:
        try:
            findings = self._watched(tool, self.baseline, path, seed)
        except Absent as why:
            return str(why)
        return f"{tool} reports the untouched kernel, too: {findings.first}" if findings.count else ""

    def _watched(self, tool: str, variant: Variant, path: Path, seed: int) -> sanitizer.SanitizerReport:
        """Return what a tool reports of one trial. Raise Absent if it does not say."""
        with tempfile.TemporaryDirectory(prefix="aaco-trial-") as folder:
            log, refusal = Path(folder, "log"), ""
            try:
                self.try_once(variant, path, seed, 0, ("captured",), sanitizer.words(tool, log))
            except Refused as refused:  # a fault ends the trial: the log says more
                refusal = str(refused.what)
            try:
                findings = sanitizer.read(tool, log)
            except Absent as why:
                raise Absent(f"{why}; {refusal}" if refusal else str(why)) from why
            if refusal and not findings.count:
                raise Absent(f"{tool}: {refusal}")
            return findings

    def _programs(self, candidate: Variant, folder: Path) -> dict[str, dict[str, Any]]:
        programs = {}
        for name, variant in (("baseline", self.baseline), ("candidate", candidate), ("reference", self._reference)):
            if variant is None:
                continue
            (folder / name).write_bytes(variant.code)
            programs[name] = {"code": str(folder / name), "entry": variant.entry, "block": variant.proposal.block,
                              "grid": variant.proposal.grid}
        return programs


def is_same(baseline: Variant, candidate: Variant) -> bool:
    """Return whether a candidate runs as the baseline does: the same code, and the same launch."""
    same_launch = (candidate.proposal.block, candidate.proposal.grid) == (baseline.proposal.block,
                                                                         baseline.proposal.grid)
    return same_launch and candidate.code == baseline.code


def _take(result: TrialResult, line: dict[str, Any]) -> None:
    if "refused" in line:
        raise Refused(line["refused"], line["detail"])
    if "pair" in line:
        result.pairs.append(tuple(line["pair"]))
    elif "facts" in line:
        result.facts = line["facts"]


def _reason(stage: str, error: AacoError) -> str:
    if NOT_EMULATED in error.what:
        return "not_judged"
    if NO_ANSWER in error.what:
        return "hangs"
    if "illegal memory access" in error.what:
        return "out_of_bounds"
    return "not_launchable" if stage == "load" else DIED.get(stage, "fails")


