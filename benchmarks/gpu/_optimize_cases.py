"""A kernel that benchmarks.gpu.optimize captured: how its proposals are compiled, offered, tried and searched.

Proposals are those of the product's rules, and they are compiled on the product's road, by NVRTC. Each text is compiled
once in a run.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from aaco.optimize.kernels import compiling, widening
from aaco.optimize.kernels.compiling import Toolchain
from aaco.optimize.kernels.edits import rule_proposals
from aaco.optimize.kernels.equivalence import LIMIT_S, Trials, run_process
from aaco.optimize.kernels.log import SearchFiles, key_of
from aaco.optimize.kernels.search import KernelDecision, KernelSearch, baseline_of
from aaco.optimize.kernels.situation import KernelSituation, read_situation
from aaco.optimize.kernels.source import find_kernel
from aaco.optimize.kernels.variants import Proposal, Refused, Variant
from aaco.profiler.formats.code_object import cubin, elf
from aaco.replay import capture as captures
from aaco.replay.engine import ReplayRequest
from aaco.replay.record import record
from aaco.replay.run import replay
from aaco.tracelake.document_schemas.kernel_search import KernelOrigin
from benchmarks.gpu._optimize_program import CASES, LESS, NATIVE, PARAMETERS, TESTBEDS, Shape
from benchmarks.gpu._planted_edits import kernel_text
from benchmarks.gpu._replays import say
from benchmarks.gpu._turns import run_in_turn

PROGRAM = Path(__file__).with_name("_optimize_program.py")
WORKERS = 14  # processes at once
BUDGET_S = 600.0
BESIDE_S = 20.0  # the limit of a trial whose times are not looked at
Given, Made = TypeVar("Given"), TypeVar("Made")


class Case:
    """A captured kernel, and its builds. other: a capture of a testbed with another shape.

    same: log ratios of it against itself, by process.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self.error = name, ""
        self.testbed = name in TESTBEDS
        self.shape = Shape(name, 0, 0, 0, 0) if self.testbed else CASES[name]
        self.folder = folder / re.sub(r"\W+", "_", name)
        self.folder.mkdir()
        self.path, self.other = self.folder / "capture", self.folder / "other"
        self.same: list[float] = []

    def capture(self, lock: Path) -> None:
        """Capture a launch, of a testbed with another shape too, and measure the regions' roles."""
        try:
            self._capture(self.name, self.path, lock)
            if self.testbed:
                self._capture(self.name + LESS, self.other, lock)
        except Exception as error:  # noqa: BLE001  a claim counts those that could not be captured
            self.error = f"{type(error).__name__}: {error}"
            say(f"NOT captured {self.name}: {self.error}")

    def _capture(self, name: str, path: Path, lock: Path) -> None:
        record(path, [sys.executable, str(PROGRAM), name, str(lock)], f"^{self.shape.kernel}$", 1)
        with captures.open(path) as opened:
            self.arch = opened.document.captured_from.isa
        result = replay(path, ReplayRequest(iterations=2))
        say(f"captured {name}: {result.fidelity.verdict}, {result.median_us} us")
        if result.fidelity.verdict != "exact":
            self.error = f"{name}: {result.fidelity.reason}"

    @property
    def parameters(self) -> tuple[str, ...]:
        """Return the C++ types of the kernel's parameters."""
        if not self.testbed:
            return PARAMETERS
        kinds = {"floats": "float *", "indices": "const long long *", "int": "int", "float": "float"}
        return tuple(kinds[kind] for kind, _ in TESTBEDS[self.name].arguments)

    @property
    def text(self) -> bytes:
        """Return the source of its kernel, as it was captured."""
        path = NATIVE / f"{self.name}.hip.cpp"
        return path.read_bytes() if self.testbed else kernel_text(self.shape).encode()

    def build(self, proposal: Proposal) -> Variant:
        """Return the variant of a proposal. Raise Refused."""
        file = f"{self.name}.hip.cpp" if self.testbed else "kernel.cu"
        chain = Toolchain("NVRTC", "", self.arch, (*compiling.DEFAULT, f"-I{NATIVE}"), NATIVE)
        return replace(_compiled(chain, proposal.text, proposal.options, self.shape.kernel, file), proposal=proposal)

    def trials(self, text: bytes, beside: bool = False, limit_s: float = BESIDE_S) -> Trials:
        """Return trials against this text as the baseline. beside: with others at once, so that no time counts."""
        whole = widening.with_headers(text, {"testbed.h": (NATIVE / "testbed.h").read_bytes()}.get)
        wide = self.build(Proposal("double precision", "none", widening.double_text(whole)))
        run = run_process if beside else run_in_turn
        return Trials(self.build(baseline_of(text)), self.parameters, limit_s=limit_s if beside else LIMIT_S, run=run,
                      reference=wide)

    def situation(self, text: bytes) -> KernelSituation:
        """Return what the rules may rely on with this text."""
        with captures.open(self.path) as opened:
            return read_situation(find_kernel(text, self.shape.kernel), opened.document, opened.roles,
                                  compiling.DEFAULT)

    def search(self, name: str, baseline: bytes, offers: Sequence[Proposal], seed: int) -> KernelDecision:
        """Search among proposals, against this text."""
        folder = self.folder / re.sub(r"\W+", "_", name)
        folder.mkdir()
        origin = KernelOrigin(kernel=self.shape.kernel, source_sha256="0" * 64, captures=[], compiler="NVRTC",
                              options=[], device="", driver="", seed=seed)
        search = KernelSearch(SearchFiles(folder / "kernel.cu", self.shape.kernel), origin, self.trials(baseline),
                              self.build, [self.path], BUDGET_S)
        return search.run(offers)


def offers(situation: KernelSituation) -> list[Proposal]:
    """Return what every rule offers, each edit alone."""
    return [offer for offer in rule_proposals(situation) if isinstance(offer, Proposal)]


def combinations(situation: KernelSituation) -> list[Proposal]:
    """Return each edit of the rules alone, and each with one more: what the rules offer once the first was made."""
    found: dict[str, Proposal] = {}
    for first in offers(situation):
        found.setdefault(_same(first, situation), first)
        kernel = find_kernel(first.text, situation.kernel.name.decode())
        after = replace(situation, kernel=kernel, options=(*situation.options, *first.options),
                        blocks=(first.block or situation.block,), grid=first.grid or situation.grid)
        for second in offers(after):
            both = Proposal(f"{first.name}; {second.name}", "rules", second.text, (*first.options, *second.options),
                            second.block or first.block, second.grid or first.grid)
            found.setdefault(_same(both, situation), both)
    found.pop(_same(baseline_of(situation.kernel.text), situation), None)
    return list(found.values())


def _same(proposal: Proposal, situation: KernelSituation) -> str:
    """Return what tells a proposal from others, whatever the order of its options; the captured launch is none."""
    captured = proposal.block == situation.block
    return key_of(replace(proposal, options=tuple(sorted(proposal.options)), block=None if captured else proposal.block,
                          grid=None if captured else proposal.grid))


def instructions(variant: Variant) -> tuple[object, ...]:
    """Return what decides the speed of a cubin: its instructions, its registers, and the launch."""
    path = Path("variant.cubin")
    _, sections = elf.read_sections(path, variant.code, cubin.CUDA, "NVIDIA GPUs", "")
    texts = [elf.content(path, variant.code, section) for section in sections if section.name.startswith(cubin.TEXT)]
    return (*texts, variant.resources, variant.proposal.block, variant.proposal.grid)


def compile_all(cases: Iterable[Case], proposals: Callable[[Case], Iterable[Proposal]]) -> None:
    """Compile the proposals of all cases at once, on every core; those that do not compile are refused later."""
    def compile_one(turn: tuple[Case, Proposal]) -> None:
        with suppress(Refused):
            turn[0].build(turn[1])

    turns = ((case, proposal) for case in cases for proposal in proposals(case))
    in_parallel(compile_one, turns, os.cpu_count() or 1)


def in_parallel(work: Callable[[Given], Made], given: Iterable[Given], workers: int = WORKERS) -> list[Made]:
    """Return what the work makes of each, in order."""
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, given))


@cache
def _compiled(chain: Toolchain, text: bytes, options: tuple[str, ...], symbol: str, file: str) -> Variant:
    return compiling.compile_proposal(Proposal("", "", text, options), chain, symbol, file)


def measured_gains(cases: Iterable[Case], pairs: int) -> Iterator[tuple[Case, dict[str, float]]]:
    """Yield the gain of every combination of each case, percent; those that do not compute the same have none.

    What has the same instructions and the same launch is measured once.
    """
    from aaco.optimize.kernels import acceptance

    tables = {case: combinations(case.situation(case.text)) for case in cases}
    compile_all(tables, tables.__getitem__)
    turns: dict[tuple[object, ...], tuple[Case, Trials, Variant]] = {}
    keys: dict[Case, dict[str, tuple[object, ...]]] = {}
    for case, proposals in tables.items():
        trials, keys[case] = case.trials(case.text), {}
        for proposal in proposals:
            try:
                variant = case.build(proposal)
            except Refused as refused:
                say(f"{case.name} {proposal.name}: {refused}")
                continue
            keys[case][proposal.name] = (case.name, *instructions(variant))
            turns.setdefault(keys[case][proposal.name], (case, trials, variant))

    def gain(turn: tuple[Case, Trials, Variant]) -> float | None:
        case, trials, variant = turn
        try:
            return round(acceptance.screened_pct(trials.try_once(variant, case.path, 60, pairs).pairs), 2)
        except Refused as refused:
            say(f"{case.name} {variant.proposal.name}: {refused}")
            return None

    gains = dict(zip(turns, in_parallel(gain, turns.values()), strict=True))
    say(f"{len(gains)} kernels of other instructions or launch were timed")
    for case, names in keys.items():
        table = {name: gains[key] for name, key in names.items()}
        yield case, {name: percent for name, percent in table.items() if percent is not None}
