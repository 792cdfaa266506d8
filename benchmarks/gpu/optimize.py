"""The guarded kernel optimiser on a real GPU: thirteen kernels searched, planted faults refused, planted gains kept.

What is printed between the claims is for whoever reads a run: one line for each search and each planted edit.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from aaco.optimize.kernels import acceptance
from aaco.optimize.kernels.equivalence import Trials
from aaco.optimize.kernels.search import PAIRS, KernelDecision, baseline_of
from aaco.optimize.kernels.variants import Proposal, Refused
from benchmarks.claims import Claim
from benchmarks.gpu import _device, _planted_edits
from benchmarks.gpu._optimize_cases import Case, compile_all, in_parallel, measured_gains, offers
from benchmarks.gpu._optimize_program import CASES, NATIVE, SHAPED, TESTBEDS
from benchmarks.gpu._planted_edits import PlantedEdit
from benchmarks.gpu._replays import say
from benchmarks.gpu._turns import LOCK
from benchmarks.gpu._wrong_variants import PLANTED, SHAPES, WrongVariant, of_device, of_shape, of_text
from benchmarks.intervals import exact_share

ROOT = Path(__file__).parents[2]
NAMES = tuple(CASES)
BEDS = tuple(TESTBEDS)
PLANTED_KERNELS = ("chain", "product", "gathered")
HANGS_S = 8.0  # the limit of a trial that is to hang
EQUAL_KERNELS, EQUAL_EACH = ("strided", "chain", "stencil", "root_mean_square, not unrolled"), 10
SAME_PROCESSES = 24  # of each kernel, against itself
CALIBRATIONS, PLANTED_WITHIN = 6, 0.3  # points of the gain that is planted
GAIN_CANDIDATES = 10  # that share the level
GAINS, GAIN_KERNELS = {2.5: 80.0, 5.0: 99.0, 20.0: 100.0}, ("chain", "four_chains")
GAIN_PROCESSES = 24  # of each: four confirmations
DRAWN, REDRAWN, DRAWN_EACH = 2000, 100, 200  # searches drawn from those; recordings drawn, with so many searches each
FAMILIES, FAMILY = 1000, 20
FALSE_KEEPS_PCT = 5.0
LEAST_BAD = 4
# The table of what the rules offer, alone and in pairs, for the kernels that are written badly.
# AACO_OPTIMIZE_RECORD=FILE: it is measured, in about four minutes, and copied there; nothing else is done then.
TABLE = Path(__file__).parents[1] / "results/optimize-exhaustive-h100.json"
RECORD, RECORD_PAIRS = os.environ.get("AACO_OPTIMIZE_RECORD", ""), 8
QUICK = {"NAMES": ("chain", "sum in memory"), "BEDS": ("softmax",), "EQUAL_KERNELS": ("chain",), "EQUAL_EACH": 3,
         "SAME_PROCESSES": 6, "GAIN_PROCESSES": 6, "GAIN_KERNELS": ("chain",), "LEAST_BAD": 1}


def claims(_: Path) -> Iterator[Claim]:
    """Every claim about the optimiser."""
    with tempfile.TemporaryDirectory(prefix="aaco-optimize-") as made:
        folder = Path(made)
        bad = [name for name in NAMES if CASES[name].is_bad]
        cases = [Case(folder, name) for name in (bad if RECORD else (*NAMES, *BEDS))]
        paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))  # of the programs that are captured
        os.environ[LOCK] = str(folder / "turns")
        begin = time.monotonic()
        in_parallel(lambda case: case.capture(folder / "lock"), cases)
        say(f"captures took {time.monotonic() - begin:.1f} s")
        whole = {case.name: case for case in cases if not case.error}
        yield Claim("kernels are captured and replayed exactly", f"{len(cases)}", f"{len(whole)}",
                    len(whole) == len(cases))
        own = {name: case for name, case in whole.items() if not case.testbed}
        beds = {name: case for name, case in whole.items() if case.testbed}
        parts = ((_recorded, own),) if RECORD else (
            (_planted_texts, beds), (_searched, own), (_planted, own), (_planted_beds, beds), (_equal, own),
            (_gains, own))
        for part, given in parts:
            begin = time.monotonic()
            try:
                yield from part(given)
            except Exception as error:  # noqa: BLE001  the other parts are worth having
                traceback.print_exc(file=sys.stdout)
                yield Claim(f"{part.__name__} runs to its end", "no error", f"{type(error).__name__}: {error}"[:200],
                            False)
            say(f"{part.__name__} took {time.monotonic() - begin:.1f} s")


def _recorded(cases: dict[str, Case]) -> Iterator[Claim]:
    """Measure the table, and write it."""
    tables = {case.name: gains for case, gains in measured_gains(cases.values(), RECORD_PAIRS)}
    TABLE.write_text(json.dumps({"about": _device.facts(), "kernels": tables}, indent=1) + "\n")
    shutil.copy(TABLE, RECORD)
    best = {name: max(gains.items(), key=lambda gain: gain[1]) for name, gains in tables.items() if gains}
    say(f"the best of each: {best}")
    yield Claim("kernels with a table of all choices", f"{len(cases)}", f"{len(best)}", len(best) == len(cases))


def _searched(cases: dict[str, Case]) -> Iterator[Claim]:
    """Search each kernel; measure what was kept once more; hold its gain against the best of the whole table."""
    offered = {case: offers(case.situation(case.text)) for case in cases.values()}
    compile_all(offered, offered.__getitem__)
    decisions = in_parallel(lambda turn: _search(*turn), offered.items())
    decided = sum(not decision.why.startswith("the kernel cannot") for decision, _ in decisions)
    worse = [f"{case.name} {gain:+.1f} %" for case, (decision, gain) in zip(cases.values(), decisions, strict=True)
             if decision.kept and gain <= 0]
    yield Claim("kernels are searched to a decision", f"{len(cases)}", f"{decided}", decided == len(cases))
    yield Claim("a slower kernel is kept", "0", f"{worse}", not worse)
    yield from _against_table({case.name: decision for case, decision in zip(cases.values(), decisions, strict=True)
                               if case.shape.is_bad})


def _search(case: Case, proposals: Sequence[Proposal]) -> tuple[KernelDecision, float]:
    """Return the decision about a kernel, and what it keeps gains when it is measured once more, percent."""
    begin, gain = time.monotonic(), 0.0
    try:
        decision = case.search("rules", case.text, proposals, 1)
        if decision.kept:
            again = case.trials(case.text).try_once(case.build(decision.kept), case.path, 99, PAIRS)
            gain = acceptance.screened_pct(again.pairs)
    except Exception as error:  # noqa: BLE001  the other searches are worth having
        traceback.print_exc(file=sys.stdout)
        return KernelDecision(None, f"the kernel cannot be judged: {type(error).__name__}: {error}", None, (), ()), 0.0
    table = {line.name: f"{line.gain_pct:+.1f} %" if line.gain_pct is not None else line.refused
             for line in decision.judged}
    unexamined = sorted({line.not_examined for line in decision.confirmed if line.not_examined})
    say(f"{case.name}: kept {decision.kept.name if decision.kept else 'no change'} ({decision.why}), {gain:+.1f} % "
        f"again, {time.monotonic() - begin:.0f} s; first look {table}; no sanitizer: {unexamined}")
    return decision, gain


def _against_table(decisions: dict[str, tuple[KernelDecision, float]]) -> Iterator[Claim]:
    """Hold what was kept against the best of the table, and the proposals that it took against all of the table."""
    recorded = json.loads(TABLE.read_text())["kernels"] if TABLE.is_file() else {}
    tables = {name: recorded[name] for name in decisions if recorded.get(name)}
    shares = {name: decisions[name][1] / max(gains.values()) for name, gains in tables.items()
              if max(gains.values()) >= acceptance.LEAST_GAIN_PCT}
    evaluated = {name: len(decisions[name][0].judged) / len(gains) for name, gains in tables.items()}
    say(f"share of the table's best: {shares}; of its evaluations: {evaluated}")
    reached = 100 * sum(shares.values()) / len(shares) if shares else 0.0
    yield Claim("badly written kernels with a gain in the table of all choices", f">= {LEAST_BAD}", f"{len(shares)}",
                len(shares) >= LEAST_BAD)
    yield Claim("share of the best gain of that table that is kept", ">= 80 %", f"{reached:.0f} %" if shares else
                "no gains", reached >= 80)
    most = 100 * max(evaluated.values(), default=1.0)
    yield Claim("share of its evaluations that the search takes, at most", "<= 30 %", f"{most:.0f} %", most <= 30)


def _verdict(case: Case, trials: Trials, proposal: Proposal, seed: int, other: bool = False) -> tuple[str, str]:
    """Return what refuses a proposal, and the detail; "PASSED" if nothing does. other: try it on another shape, too."""
    try:
        trials.check(case.build(proposal), [case.path, case.other] if other else [case.path], seed, 4)
    except Refused as refused:
        return refused.reason, refused.detail
    return "PASSED", ""


def _planted(cases: dict[str, Case]) -> Iterator[Claim]:
    """Wrong edits: each refused, for its reason."""
    trials = {name: case.trials(case.text, beside=True) for name, case in cases.items()}
    turns = [(cases[name], edit) for name in PLANTED_KERNELS if name in cases
             for edit in _planted_edits.wrong(cases[name].shape)]

    def verdict(turn: tuple[Case, PlantedEdit]) -> tuple[str, str]:
        case, edit = turn
        return _verdict(case, trials[case.name], Proposal(edit.name, "planted", edit.text.encode()), 5)

    verdicts = [(*turn, *found) for turn, found in zip(turns, in_parallel(verdict, turns), strict=True)]
    for case, edit, reason, detail in verdicts:
        if reason not in edit.reasons:
            say(f"planted {case.name} {edit.name}: {reason}, not {sorted(edit.reasons)}: {detail}")
    say(f"planted: {dict(Counter(reason for _, _, reason, _ in verdicts))}")
    refused = sum(reason != "PASSED" for _, _, reason, _ in verdicts)
    named = sum(reason in edit.reasons for _, edit, reason, _ in verdicts)
    yield Claim("wrong kernels are refused", f"all {len(verdicts)}", f"{refused}", refused == len(verdicts) > 0)
    yield Claim("each for its reason", f"all {len(verdicts)}", f"{named}", named == len(verdicts) > 0)

    def right(case: Case) -> bool:
        edit = next(_planted_edits.equal_speed(case.shape, 1))
        reason, detail = _verdict(case, trials[case.name], Proposal("right", "planted", edit.text.encode()), 6)
        if reason != "PASSED":
            say(f"a right edit of {case.name} is refused: {reason}: {detail}")
        return reason == "PASSED"

    passed = sum(in_parallel(right, cases.values()))
    yield Claim("right kernels pass the checks", f"all {len(cases)}", f"{passed}", passed == len(cases))


def _planted_texts(_: dict[str, Case]) -> Iterator[Claim]:
    """Wrong variants that their text gives away: each refused by the source model, without a device."""
    from aaco.optimize.kernels.edit_proof import check_edited
    from aaco.optimize.kernels.source import find_kernel

    reasons = []
    for variant in (variant for kernel in PLANTED for variant in of_text(kernel)):
        try:
            check_edited(find_kernel(variant.kernel.text.encode(), variant.kernel.name), variant.text)
            reasons.append((variant, "PASSED"))
        except Refused as refused:
            reasons.append((variant, refused.reason))
    named = sum(reason in variant.reasons for variant, reason in reasons)
    yield Claim("wrong texts are refused by the source model, each for its reason", f"all {len(reasons)}", f"{named}",
                named == len(reasons) > 0)


def _planted_beds(cases: dict[str, Case]) -> Iterator[Claim]:
    """Wrong variants of the testbeds that only a replay can tell: each refused, for one of its reasons."""
    kernels = {kernel.name: kernel for kernel in PLANTED if kernel.name in cases and kernel.path.parent == NATIVE}
    variants = [variant for name, kernel in kernels.items()
                for variant in (*of_device(kernel), *of_shape(kernel, SHAPED[name]))]
    variants.sort(key=_hangs)  # they keep the device from the others
    trials = {(name, hangs): cases[name].trials(kernel.text.encode(), beside=True, **limit)
              for name, kernel in kernels.items() for hangs, limit in ((False, {}), (True, {"limit_s": HANGS_S}))}

    def verdict(variant: WrongVariant) -> tuple[str, str]:
        case = cases[variant.kernel.name]
        return _verdict(case, trials[case.name, _hangs(variant)], Proposal(variant.name, "planted", variant.text), 7,
                        variant.reasons == SHAPES)

    verdicts = [(variant, *found) for variant, found in zip(variants, in_parallel(verdict, variants), strict=True)]
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


def _hangs(variant: WrongVariant) -> bool:
    return variant.reasons == {"hangs"}


def _equal(cases: dict[str, Case]) -> Iterator[Claim]:
    """Edits that take no other time: no change. Then many searches drawn from runs of each kernel against itself."""
    def search(case: Case) -> KernelDecision:
        edits = [Proposal(edit.name, "planted", edit.text.encode())
                 for edit in _planted_edits.equal_speed(case.shape, EQUAL_EACH)]
        return case.search("equal", case.text, edits, 2)

    chosen = [cases[name] for name in EQUAL_KERNELS if name in cases]
    kept, tried, timed = list[str](), 0, 0
    for case, decision in zip(chosen, in_parallel(search, chosen), strict=True):
        gains = [line.gain_pct for line in decision.judged if line.gain_pct is not None]
        tried, timed = tried + len(decision.judged), timed + len(gains)
        kept += [f"{case.name}: {line.name} {line.why}" for line in decision.confirmed if line.kept]
        say(f"{case.name}: {decision.why}; first look {[round(gain, 2) for gain in sorted(gains)]} %")
    planted = len(EQUAL_KERNELS) * EQUAL_EACH
    yield Claim("equal kernels that are kept", f"0 of {planted}", f"{len(kept)} of {tried} {kept}",
                not kept and timed == planted)
    trials = {case: case.trials(case.text) for case in chosen}
    turns = [(case, trials[case], process) for case in chosen for process in range(SAME_PROCESSES)]
    effects = in_parallel(lambda turn: _effect(*turn), turns)
    for number, case in enumerate(chosen):
        case.same = effects[number * SAME_PROCESSES:(number + 1) * SAME_PROCESSES]
        say(f"{case.name} against itself: {[round(100 * effect, 2) for effect in sorted(case.same)]} %")
    share = 100 * _false_keeps([case.same for case in chosen]) / FAMILIES
    yield Claim(f"{FAMILIES} searches of {FAMILY} equal kernels, drawn from {len(effects)} runs of a kernel against "
                "itself, that keep one", f"<= {FALSE_KEEPS_PCT:g} %", f"{share:.1f} %", share <= FALSE_KEEPS_PCT)


def _effect(case: Case, trials: Trials, seed: int) -> float:
    """Return the log ratio that one process measures of the kernel as it was captured."""
    plain = case.build(baseline_of(case.text))
    return -math.log(1 - acceptance.screened_pct(trials.try_once(plain, case.path, seed, PAIRS).pairs) / 100)


def _false_keeps(pools: Sequence[Sequence[float]]) -> int:
    """Return how many searches keep a kernel that is no faster. pools: of each kernel, log ratios against itself.

    A search is of one kernel. Its runs are drawn round 0: the truth, from which the mean of so few differs.
    """
    draw, kept = random.Random(3), 0
    centred = [_centred(pool) for pool in pools]
    for _ in range(FAMILIES):
        pool = draw.choice(centred)
        screened = {str(number): 100 * (1 - math.exp(-draw.choice(pool))) for number in range(FAMILY)}
        finalists = acceptance.finalists(screened) or list(screened)[:acceptance.FINALISTS]  # the product tries none
        samples = [[[(math.exp(draw.choice(pool)), 1.0)] for _ in range(acceptance.PROCESSES)] for _ in finalists]
        kept += any(acceptance.judge(processes, FAMILY, least_pct=0.0).kept for processes in samples)
    return kept


def _centred(pool: Sequence[float]) -> list[float]:
    mean = sum(pool) / len(pool)
    return [effect - mean for effect in pool]


def _gains(cases: dict[str, Case]) -> Iterator[Claim]:
    """Baselines that were slowed by a known amount: what they were must be kept, as often as it is confirmed.

    Then many searches are drawn from what those processes, and kernels against themselves, measured.
    """
    same = [effect for case in cases.values() if case.same for effect in _centred(case.same)]
    planted = [(percent, cases[name]) for percent in GAINS for name in GAIN_KERNELS]
    slowed = in_parallel(lambda turn: _slowed_by(turn[1], turn[0]), planted)
    turns = [(case, trials, process) for (_, case), (trials, _) in zip(planted, slowed, strict=True)
             for process in range(GAIN_PROCESSES)]
    effects = in_parallel(lambda turn: _effect(*turn), turns)
    pools = [effects[first:first + GAIN_PROCESSES] for first in range(0, len(effects), GAIN_PROCESSES)]
    for (percent, case), (_, found), pool in zip(planted, slowed, pools, strict=True):
        say(f"{case.name}: planted {percent:g} %, {found:.2f} % when it was set; processes "
            f"{[round(100 * (1 - math.exp(-effect)), 2) for effect in sorted(pool)]} %")
    for percent, bar in GAINS.items():
        chosen = [pool for (planted_pct, _), pool in zip(planted, pools, strict=True) if planted_pct == percent]
        groups = [pool[first:first + acceptance.PROCESSES] for pool in chosen
                  for first in range(0, len(pool), acceptance.PROCESSES)]
        kept = sum(_is_kept(group) for group in groups)
        share, low, high = _drawn_share(chosen, same)
        yield Claim(f"a gain of {percent:g} % is kept: confirmations; searches drawn from {sum(map(len, chosen))} "
                    "processes", f">= {bar:g} %", f"{kept} of {len(groups)}; {share:.1f} % [{low:.1f}, {high:.1f}]",
                    100 * kept >= bar * len(groups) and share >= bar)


def _is_kept(effects: Iterable[float]) -> bool:
    return acceptance.judge([[(math.exp(effect), 1.0)] for effect in effects], GAIN_CANDIDATES).kept


def _drawn_share(pools: Sequence[Sequence[float]], same: Sequence[float]) -> tuple[float, float, float]:
    """Return how many of the searches that are drawn keep the planted kernel, percent, with its 95 % interval.

    A search has one planted kernel among equal ones: a first look of each, the best confirmed by fresh processes, all
    drawn from what was measured. The interval is the wider of two at each end: of recordings drawn from the recording
    (bootstrap), and of the number of searches.
    """
    draw = random.Random(4)
    shares = sorted(_share([draw.choices(pool, k=len(pool)) for pool in pools], draw.choices(same, k=len(same)),
                           DRAWN_EACH, draw) for _ in range(REDRAWN))
    tail = round(0.025 * REDRAWN)
    share = _share(pools, same, DRAWN, draw)
    low, high = exact_share(round(share * DRAWN / 100), DRAWN)
    return share, min(shares[tail], 100 * low), max(shares[-1 - tail], 100 * high)


def _share(pools: Sequence[Sequence[float]], same: Sequence[float], searches: int, draw: random.Random) -> float:
    kept = 0
    for _ in range(searches):
        pool = draw.choice(pools)
        looks = {"planted": draw.choice(pool)} | {str(number): draw.choice(same)
                                                  for number in range(1, GAIN_CANDIDATES)}
        finalists = acceptance.finalists({name: 100 * (1 - math.exp(-look)) for name, look in looks.items()})
        kept += "planted" in finalists and _is_kept(draw.choices(pool, k=acceptance.PROCESSES))
    return 100 * kept / searches


def _slowed_by(case: Case, percent: float) -> tuple[Trials, float]:
    """Return trials against a kernel that was slowed so that the plain one gains this much, and what was measured."""
    plain = case.build(baseline_of(case.text))
    more, best = 2 * percent, (math.inf, 0.0)
    for _ in range(CALIBRATIONS):
        trials = case.trials(_planted_edits.slowed(case.shape, more).encode())
        measured = acceptance.screened_pct(trials.try_once(plain, case.path, 50, PAIRS).pairs)
        if abs(measured - percent) < abs(best[0] - percent):
            best, chosen = (measured, more), trials
        if abs(measured - percent) <= PLANTED_WITHIN:
            break
        more *= min(4.0, max(0.25, percent / measured)) if measured > 0.2 else 3.0
    return chosen, best[0]
