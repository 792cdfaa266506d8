"""The guarded kernel optimiser on a real GPU: twelve kernels searched, planted faults refused, planted gains kept.

What is printed between the claims is for whoever reads a run: one line for each search and each planted edit.
"""

from __future__ import annotations

import math
import os
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from aaco.calibration.device_compilers import CompileError
from aaco.optimize.kernels import acceptance, widening
from aaco.optimize.kernels.equivalence import Pair, Trials
from aaco.optimize.kernels.log import SearchFiles
from aaco.optimize.kernels.search import PAIRS, KernelDecision, KernelSearch, baseline_of
from aaco.optimize.kernels.variants import Proposal, Refused, Variant
from aaco.replay import capture as captures
from aaco.replay.engine import ReplayRequest
from aaco.replay.record import record
from aaco.replay.run import replay
from aaco.tracelake.document_schemas.kernel_search import KernelOrigin
from benchmarks.claims import Claim
from benchmarks.gpu import _planted_edits
from benchmarks.gpu._kernels import compiled
from benchmarks.gpu._optimize_program import CASES, NATIVE, PARAMETERS, TESTBEDS, Shape, testbed_code
from benchmarks.gpu._planted_edits import PlantedEdit
from benchmarks.gpu._replays import say
from benchmarks.gpu._wrong_variants import PLANTED, WrongVariant, of_device

PROGRAM = Path(__file__).with_name("_optimize_program.py")
ROOT = Path(__file__).parents[2]
NAMES = tuple(CASES)
BEDS = tuple(TESTBEDS)
WORKERS = 12
PLANTED_KERNELS = ("strided", "chain", "product", "gathered", "row_softmax", "root_mean_square")
EQUAL_KERNELS, EQUAL_EACH = ("strided", "chain", "gathered", "polynomial"), 10
CALIBRATED_PCT = 40.0  # more work, to learn what it costs
GAINS, GAIN_SEARCHES, GAIN_KERNELS = {2.5: 80.0, 5.0: 99.0, 20.0: 100.0}, 4, ("chain", "four_chains")
FAMILIES, FAMILY = 1000, 20
FALSE_KEEPS_PCT = 5.0
BUDGET_S = 600.0
LIMIT_S = 20.0
QUICK = {"NAMES": ("chain", "strided"), "BEDS": ("softmax",), "EQUAL_KERNELS": ("chain",), "EQUAL_EACH": 3,
         "GAIN_SEARCHES": 1, "GAIN_KERNELS": ("chain",)}


class Case:
    """A captured kernel, and its builds."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self.error = name, ""
        self.testbed = name in TESTBEDS
        self.shape = Shape(name, 0, 0, 0, 0) if self.testbed else CASES[name]
        self.folder = folder / name.replace(" ", "_").replace(",", "")
        self.folder.mkdir()
        self.path = self.folder / "capture"
        self.aa: list[list[Pair]] = []

    def capture(self, lock: Path) -> None:
        """Capture its first launch, and measure its regions' roles."""
        try:
            record(self.path, [sys.executable, str(PROGRAM), self.name, str(lock)], f"^{self.shape.kernel}$", 1)
            with captures.open(self.path) as opened:
                self.arch = opened.document.captured_from.isa
            result = replay(self.path, ReplayRequest(iterations=2))
            say(f"captured {self.name}: {result.fidelity.verdict}, {result.median_us} us")
            if result.fidelity.verdict != "exact":
                self.error = result.fidelity.reason
        except Exception as error:  # noqa: BLE001  a claim counts those that could not be captured
            self.error = f"{type(error).__name__}: {error}"
            say(f"NOT captured {self.name}: {self.error}")

    def build(self, proposal: Proposal) -> Variant:
        """Return the variant of a proposal."""
        if not self.testbed:
            return Variant(proposal, compiled(proposal.text.decode(), self.arch), self.shape.kernel, None)
        try:
            return Variant(proposal, testbed_code(self.name, proposal.text, self.arch), self.name, None)
        except CompileError as error:
            raise Refused("compile_error", str(error)) from error

    def trials(self, text: str) -> Trials:
        """Return trials against this text as the baseline."""
        whole = widening.with_headers(text.encode(), {"testbed.h": (NATIVE / "testbed.h").read_bytes()}.get)
        wide = self.build(Proposal("double precision", "none", widening.double_text(whole)))
        return Trials(self.build(baseline_of(text.encode())), self.parameters, limit_s=LIMIT_S, reference=wide)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Return the C++ types of the kernel's parameters."""
        if not self.testbed:
            return PARAMETERS
        kinds = {"floats": "float *", "indices": "const long long *", "int": "int", "float": "float"}
        return tuple(kinds[kind] for kind, _ in TESTBEDS[self.name].arguments)

    def search(self, name: str, baseline: str, edits: Sequence[tuple[str, str]], seed: int) -> KernelDecision:
        """Search among edits, against this text."""
        folder = self.folder / name
        folder.mkdir()
        origin = KernelOrigin(kernel=self.shape.kernel, source_sha256="0" * 64, captures=[], compiler="NVRTC",
                              options=[], device="", driver="", seed=seed)
        search = KernelSearch(SearchFiles(folder / "kernel.cu", self.shape.kernel), origin, self.trials(baseline),
                              self.build, [self.path], BUDGET_S)
        return search.run([Proposal(edit, name, text.encode()) for edit, text in edits])


def claims(_: Path) -> Iterator[Claim]:
    """Every claim about the optimiser."""
    with tempfile.TemporaryDirectory(prefix="aaco-optimize-") as made:
        folder = Path(made)
        cases = [Case(folder, name) for name in (*NAMES, *BEDS)]
        paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))  # of the programs that are captured
        begin = time.monotonic()
        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(lambda case: case.capture(folder / "lock"), cases))
        say(f"captures took {time.monotonic() - begin:.1f} s")
        whole = {case.name: case for case in cases if not case.error}
        yield Claim("kernels are captured and replayed exactly", f"{len(cases)}", f"{len(whole)}",
                    len(whole) == len(cases))
        own = {name: case for name, case in whole.items() if not case.testbed}
        beds = {name: case for name, case in whole.items() if case.testbed}
        for part, given in ((_searched, own), (_planted, own), (_planted_beds, beds), (_equal, own), (_gains, own)):
            begin = time.monotonic()
            try:
                yield from part(given)
            except Exception as error:  # noqa: BLE001  the other parts are worth having
                traceback.print_exc(file=sys.stdout)
                yield Claim(f"{part.__name__} runs to its end", "no error", f"{type(error).__name__}: {error}"[:200],
                            False)
            say(f"{part.__name__} took {time.monotonic() - begin:.1f} s")


def _searched(cases: dict[str, Case]) -> Iterator[Claim]:
    """Search each kernel over unroll pragmas; then measure what was kept once more."""
    worse, shares, decided = [], [], 0
    for case in cases.values():
        text = _planted_edits.kernel_text(case.shape)
        decision = case.search("unroll", text, list(_planted_edits.unrolled(case.shape)), 1)
        decided += not decision.why.startswith("the kernel cannot")
        table = {line.name: f"{line.gain_pct:+.1f} %" if line.gain_pct is not None else line.refused
                 for line in decision.judged}
        say(f"{case.name}: kept {decision.kept.name if decision.kept else 'no change'} ({decision.why}); first look "
            f"{table}")
        timed = [line.gain_pct for line in decision.judged if line.gain_pct is not None]
        best = max([0.0, *timed])
        if not decision.kept:
            if best >= acceptance.LEAST_GAIN_PCT:
                shares.append(0.0)
            continue
        again = case.trials(text).try_once(case.build(decision.kept), case.path, 99, PAIRS)
        found = acceptance.screened_pct(again.pairs)
        shares.append(found / best)
        if found <= 0:
            worse.append(f"{case.name} {found:+.1f} %")
    yield Claim("kernels are searched to a decision", f"{len(cases)}", f"{decided}", decided == len(cases))
    yield Claim("a slower kernel is kept", "0", f"{worse}", not worse)
    yield Claim("share of the best gain of the whole table that is kept", ">= 80 %",
                f"{100 * sum(shares) / len(shares):.0f} % of {len(shares)} kernels" if shares else "no gains",
                sum(shares) >= 0.8 * len(shares))


def _planted(cases: dict[str, Case]) -> Iterator[Claim]:
    """Wrong edits: each refused, for its reason."""
    def verdict(case: Case, trials: Trials, edit: PlantedEdit) -> tuple[str, str]:
        try:
            trials.check(case.build(Proposal(edit.name, "planted", edit.text.encode())), [case.path], 5, 4)
        except Refused as refused:
            return refused.reason, refused.detail
        return "PASSED", ""

    turns = []
    with ThreadPoolExecutor(WORKERS) as pool:
        for case in (case for case in cases.values() if case.name in PLANTED_KERNELS):
            trials = case.trials(_planted_edits.kernel_text(case.shape))
            turns += [(case, edit, pool.submit(verdict, case, trials, edit))
                      for edit in _planted_edits.wrong(case.shape)]
        verdicts = [(case, edit, *turn.result()) for case, edit, turn in turns]
    for case, edit, reason, detail in verdicts:
        if reason not in edit.reasons:
            say(f"planted {case.name} {edit.name}: {reason}, not {sorted(edit.reasons)}: {detail}")
    say(f"planted: {dict(Counter(reason for _, _, reason, _ in verdicts))}")
    refused = sum(reason != "PASSED" for _, _, reason, _ in verdicts)
    named = sum(reason in edit.reasons for _, edit, reason, _ in verdicts)
    yield Claim("wrong kernels are refused", f"all {len(verdicts)}", f"{refused}", refused == len(verdicts) > 0)
    yield Claim("each for its reason", f"all {len(verdicts)}", f"{named}", named == len(verdicts) > 0)
    right = []
    for case in cases.values():
        try:
            case.trials(_planted_edits.kernel_text(case.shape)).check(
                case.build(Proposal("right", "planted", next(_planted_edits.equal_speed(case.shape, 1)).text.encode())),
                [case.path], 6, 4)
            right.append(case.name)
        except Refused as refusal:
            say(f"a right edit of {case.name} is refused: {refusal}")
    yield Claim("right kernels pass the checks", f"all {len(cases)}", f"{len(right)}", len(right) == len(cases))


def _planted_beds(cases: dict[str, Case]) -> Iterator[Claim]:
    """Wrong variants of the testbeds that only a replay can tell: each refused, for one of its reasons."""
    def verdict(case: Case, trials: Trials, variant: WrongVariant) -> tuple[str, str]:
        try:
            trials.check(case.build(Proposal(variant.name, "planted", variant.text)), [case.path], 7, 4)
        except Refused as refused:
            return refused.reason, refused.detail
        return "PASSED", ""

    kernels = {kernel.name: kernel for kernel in PLANTED if kernel.name in cases and kernel.path.parent == NATIVE}
    variants = [variant for kernel in kernels.values() for variant in of_device(kernel)]
    variants.sort(key=lambda variant: variant.reasons == {"hangs"})  # they keep the device from the others
    with ThreadPoolExecutor(WORKERS) as pool:
        trials = {name: cases[name].trials(kernel.text) for name, kernel in kernels.items()}
        turns = [(variant, pool.submit(verdict, cases[variant.kernel.name], trials[variant.kernel.name], variant))
                 for variant in variants]
        verdicts = [(variant, *turn.result()) for variant, turn in turns]
    for variant, reason, detail in verdicts:
        if reason not in variant.reasons:
            say(f"planted {variant.kernel.name} {variant.kind}, {variant.name}: {reason}, not "
                f"{sorted(variant.reasons)}: {detail}")
    refused = sum(reason != "PASSED" for _, reason, _ in verdicts)
    named = sum(reason in variant.reasons for variant, reason, _ in verdicts)
    yield Claim("wrong variants of testbeds are refused", f"all {len(verdicts)}", f"{refused}",
                refused == len(verdicts) > 0)
    yield Claim("each of them for one of its reasons", f"all {len(verdicts)}", f"{named}",
                named == len(verdicts) > 0)


def _equal(cases: dict[str, Case]) -> Iterator[Claim]:
    """Edits that take no other time: no change; then many searches drawn from what those trials measured."""
    kept, tried, effects = [], 0, []
    for name in EQUAL_KERNELS:
        case = cases[name]
        text = _planted_edits.kernel_text(case.shape)
        edits = [(edit.name, edit.text) for edit in _planted_edits.equal_speed(case.shape, EQUAL_EACH)]
        decision = case.search("equal", text, edits, 2)
        tried += len(decision.judged)
        kept += [f"{name}: {line.name} {line.why}" for line in decision.confirmed if line.kept]
        gains = [line.gain_pct for line in decision.judged if line.gain_pct is not None]
        effects += [math.log(1 / (1 - gain / 100)) for gain in gains]
        say(f"{name}: {decision.why}; first look from {min(gains):+.2f} to {max(gains):+.2f} %")
    planted = len(EQUAL_KERNELS) * EQUAL_EACH
    yield Claim("equal kernels that are kept", f"0 of {planted}", f"{len(kept)} of {tried} {kept}",
                not kept and len(effects) == planted)
    share = 100 * _false_keeps(effects) / FAMILIES
    yield Claim(f"{FAMILIES} searches of {FAMILY} equal kernels, drawn from these, that keep one",
                f"<= {FALSE_KEEPS_PCT:g} %", f"{share:.1f} %", share <= FALSE_KEEPS_PCT)


def _false_keeps(effects: Sequence[float]) -> int:
    """Return how many searches keep a kernel that is no faster. effects: of processes, log ratios, here about 0."""
    draw, mean, kept = random.Random(3), sum(effects) / len(effects), 0
    pool = [effect - mean for effect in effects]
    for _ in range(FAMILIES):
        screened = {str(number): 100 * (1 - math.exp(-draw.choice(pool))) for number in range(FAMILY)}
        finalists = acceptance.finalists(screened) or list(screened)[:acceptance.FINALISTS]  # the product tries none
        samples = [[[(math.exp(draw.choice(pool)), 1.0)] for _ in range(acceptance.PROCESSES)] for _ in finalists]
        kept += any(acceptance.judge(processes, FAMILY, least_pct=0.0).kept for processes in samples)
    return kept


def _gains(cases: dict[str, Case]) -> Iterator[Claim]:
    """Baselines that were slowed by a known amount: the search must keep what it was."""
    work = {name: _percent_of_work(cases[name]) for name in GAIN_KERNELS}
    for percent, bar in GAINS.items():
        kept, found = 0, []
        slower = 100 * percent / (100 - percent)  # by how much, for the gain to be that
        for number in range(GAIN_SEARCHES):
            case = cases[GAIN_KERNELS[number % len(GAIN_KERNELS)]]
            edits = [(edit.name, edit.text) for edit in _planted_edits.equal_speed(case.shape, number + 1)][-1:]
            text = _planted_edits.slowed(case.shape, slower * work[case.name])
            decision = case.search(f"gain {percent} {number}", text, edits, 10 + number)
            kept += decision.kept is not None
            found.append(decision.gain.percent if decision.gain else math.nan)
            say(f"slowed {case.name} by {slower:.1f} %: {decision.why}")
        yield Claim(f"a gain of {percent:g} % is kept", f">= {bar:g} %", f"{kept} of {GAIN_SEARCHES}, "
                    f"{[round(gain, 1) for gain in found]} %", 100 * kept >= bar * GAIN_SEARCHES)


def _percent_of_work(case: Case) -> float:
    """Return how many per cent of more work of _planted_edits.slowed() make a kernel 1 % slower, by one trial."""
    plain = case.build(baseline_of(_planted_edits.kernel_text(case.shape).encode()))
    slowed = case.trials(_planted_edits.slowed(case.shape, CALIBRATED_PCT))
    pairs = slowed.try_once(plain, case.path, 50, PAIRS).pairs
    slower = 100 * (median(baseline / candidate for baseline, candidate in pairs) - 1)
    say(f"{case.name}: {CALIBRATED_PCT:g} % more work make it {slower:.1f} % slower")
    return CALIBRATED_PCT / slower
