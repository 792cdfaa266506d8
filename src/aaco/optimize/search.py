"""The search for a change that pays: which step comes next, from the steps that were made. Pure.

Every candidate must compute the same, then all are screened; what a screening says decides only what is confirmed,
never what is kept. The best are confirmed with new processes at a level that all intervals of the search share
(Bonferroni), those that pass are tried together, and the best is measured once more against the untouched baseline.
Nothing is kept unless all of that agrees; the default is "no change".
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from aaco.core import statistics
from aaco.core.candidate import Candidate, together
from aaco.governance.multiplicity import shared_level
from aaco.tracelake.document_schemas.ledger import (
    ConfirmationPlanned,
    FirstLook,
    LedgerLine,
    OutputsChecked,
    SearchBegun,
    SearchDecided,
    SearchTerms,
    TurnsMeasured,
)

WORTH_FINDING_PCT = 2.0  # so large a gain is to be seen: two comparisons must both see one of 3 %
POWER = 0.8
SLACK = 1.1  # of the time that a comparison is given: processes differ by as much
ENOUGH, ROUND_S = 1.1, 10  # a budget that is proposed: times what is needed, rounded up


class CheckStep(Struct, frozen=True):
    """Load the change, run it on several inputs, compare its outputs."""

    change: Candidate


class ScreenStep(Struct, frozen=True):
    """Time the change in turns with the baseline, in few processes."""

    change: Candidate


class ConfirmStep(Struct, frozen=True):
    """Time it in turns in new processes, as planned. again: the last one, against the untouched baseline."""

    change: Candidate
    processes: int
    level: float
    again: bool = False


Step = CheckStep | ScreenStep | ConfirmationPlanned | ConfirmStep | SearchDecided


class Search:
    """The state of a search: its first line, and what the lines after it say."""

    def __init__(self, lines: Sequence[LedgerLine]) -> None:
        begun = lines[0]
        assert isinstance(begun, SearchBegun)
        self.begun, self.terms, self.name = begun, begun.terms, begun.search
        self.checked = {line.change: line for line in lines if isinstance(line, OutputsChecked)}
        self.screened = {line.change: line for line in lines if isinstance(line, FirstLook)}
        self.planned = next((line for line in lines if isinstance(line, ConfirmationPlanned)), None)
        self.confirmed = {line.change: line for line in lines if isinstance(line, TurnsMeasured)
                          and line.step == "confirmed"}
        self.again = next((line for line in lines if isinstance(line, TurnsMeasured) and line.step == "again"), None)
        self.decided = next((line for line in lines if isinstance(line, SearchDecided)), None)
        self.spent_s = sum(line.took_s for line in lines)

    @property
    def passed(self) -> list[Candidate]:
        """Return the candidates that compute the same."""
        return [change for change in self.in_order()
                if change.name in self.checked and self.checked[change.name].passed]

    def in_order(self) -> list[Candidate]:
        """Return the candidates in the order in which they are looked at, drawn by the seed."""
        drawn = list(self.begun.candidates)
        random.Random(self.terms.seed).shuffle(drawn)
        return drawn

    def change(self, name: str) -> Candidate:
        """Return the candidate of this name, or the combination."""
        return next(change for change in [*self.begun.candidates, *self.combination()] if change.name == name)

    def gain(self, name: str) -> float:
        """Return the time that a screening saved: mean over processes of the log ratio, negated; minus infinity where
        it did not run.
        """
        ratios = self.screened[name].log_ratios
        return -float(np.mean(ratios)) if ratios else -math.inf

    def gain_pct(self, name: str) -> float:
        """Return the time that a screening saved, per cent."""
        return float(100 * -np.expm1(-self.gain(name)))

    def winners(self) -> list[Candidate]:
        """Return what was confirmed, the largest gain first."""
        names = [name for name, line in self.confirmed.items() if line.passed]
        return [self.change(name) for name in sorted(names, key=lambda name: -(self.confirmed[name].gain_pct or 0.0))]

    def combination(self) -> list[Candidate]:
        """Return the confirmed single changes that do not conflict, as one change; nothing where there is but one."""
        chosen: list[Candidate] = []
        singles = [change for change in self.begun.candidates
                   if change.name in self.confirmed and self.confirmed[change.name].passed]
        for change in sorted(singles, key=lambda change: -(self.confirmed[change.name].gain_pct or 0.0)):
            if not any(change.conflicts(taken) for taken in chosen):
                chosen.append(change)
        return [together(chosen)] if len(chosen) > 1 else []

    @property
    def process_s(self) -> float:
        """Return what a process takes: the median of those that were timed, but for the first of each first look, which
        reads files and fills caches for the others; as it was expected where none was.
        """
        timed = [seconds for line in self.screened.values() for seconds in line.processes_s[1:]]
        timed += [seconds for line in self._compared for seconds in line.processes_s]
        return float(np.median(timed)) if timed else self.terms.process_s

    @property
    def left_s(self) -> float:
        """Return what is left of the budget."""
        return self.terms.budget_s - self.spent_s

    @property
    def by_device(self) -> bool:
        """Return whether the device's time fills the latency, so that gains are those of the device's time."""
        looked = [line.by_device for line in self.screened.values() if line.log_ratios]
        return bool(looked) and all(looked)

    def comparison_s(self, processes: int) -> float:
        """Return what a comparison of so many processes takes, with what comes before and after them."""
        around = [line.took_s - sum(line.processes_s) for line in self.screened.values() if line.processes_s]
        return SLACK * ((float(np.median(around)) if around else 0.0) + processes * self.process_s)

    def proof_s(self, processes: int) -> float:
        """Return what a confirmation and the last comparison take, each of so many processes and as many controls."""
        return 2 * self.comparison_s(2 * processes)

    @property
    def _compared(self) -> list[TurnsMeasured]:
        return [*self.confirmed.values(), *([self.again] if self.again else [])]


def next_step(search: Search) -> Step:
    """Return what to do next; a Decided is the end."""
    if search.decided:
        return search.decided
    if not search.planned:
        return _look(search) or _plan(search)
    return _confirm(search, search.planned) or _last(search, search.planned)


def _look(search: Search) -> Step | None:
    """Return the next candidate to check, or to time once it computes the same, as long as the budget leaves room to
    confirm one.
    """
    if search.left_s < search.comparison_s(search.terms.screen_processes) + search.proof_s(search.terms.processes):
        return None
    for change in search.in_order():
        if change.name not in search.checked:
            return CheckStep(change)
        if search.checked[change.name].passed and change.name not in search.screened:
            return ScreenStep(change)
    return None


def _plan(search: Search) -> Step:
    """Return the plan of the confirmations, or the end where nothing looked faster."""
    terms = search.terms
    faster = sorted((name for name in search.screened if search.gain(name) > 0), key=search.gain, reverse=True)
    if not faster:
        return _no_change(search, _why_none(search))
    affordable = [count for count in range(terms.processes, terms.most_processes + 1)
                  if search.proof_s(count) <= search.left_s]
    if not affordable:
        return _no_change(search, f"{search.change(faster[0]).title}: {search.gain_pct(faster[0]):.1f} % less time at "
                                  f"first sight, and no time to confirm it: {_too_short(search)}")
    level = shared_level(terms.alpha, terms.finalists + 2)  # the combination and the last comparison among them
    sigma = _spread(search)
    processes = next((count for count in affordable if _detectable_pct(count, level, sigma) <= WORTH_FINDING_PCT),
                     affordable[-1])
    return ConfirmationPlanned(search=search.name, finalists=faster[:terms.finalists], processes=processes, level=level,
                   detectable_pct=_detectable_pct(processes, level, sigma) if math.isfinite(sigma) else None)


def _why_none(search: Search) -> str:
    if search.screened:
        return f"none of {len(search.screened)} looked faster when timed in turns"
    if len(search.checked) == len(search.begun.candidates) and not search.passed:
        return "no candidate computes the same"
    return f"the budget is too short to look at a change and confirm it: {_too_short(search)}"


def _too_short(search: Search) -> str:
    """Return what a confirmation takes, what is left, and a budget that suffices."""
    needed_s = search.proof_s(search.terms.processes)
    needed_s += 0.0 if search.screened else search.comparison_s(search.terms.screen_processes)
    enough_s = ROUND_S * math.ceil(ENOUGH * (search.spent_s + needed_s) / ROUND_S)
    return f"that takes about {needed_s:.0f} s, {search.left_s:.0f} s are left: --budget {enough_s}s"


def _spread(search: Search) -> float:
    """Return the spread of one process, on the log scale, pooled over what was screened; infinite if not known."""
    samples = [line.log_ratios for line in search.screened.values() if len(line.log_ratios) > 1]
    squares = [float(np.var(sample)) * len(sample) for sample in samples]
    degrees = sum(len(sample) - 1 for sample in samples)
    return math.sqrt(sum(squares) / degrees) if degrees else math.inf


def _detectable_pct(processes: int, level: float, sigma: float) -> float:
    """Return the gain that so many processes, with as many controls, show with a chance of POWER."""
    errors = statistics.detectable(level, 2 * processes - 2, POWER)
    return 100 * -math.expm1(-errors * sigma / math.sqrt(processes))


def _confirm(search: Search, planned: ConfirmationPlanned) -> Step | None:
    """Return the next confirmation: each finalist, then those that passed together. None where the budget has no room
    for it and for the last comparison.
    """
    if search.left_s < search.proof_s(planned.processes):
        return None
    waiting = [search.change(name) for name in planned.finalists if name not in search.confirmed]
    if not waiting:
        waiting = [change for change in search.combination() if change.name not in search.confirmed]
        unchecked = [change for change in waiting if change.name not in search.checked]
        if unchecked:
            return CheckStep(unchecked[0])
        waiting = [change for change in waiting if search.checked[change.name].passed]
    return ConfirmStep(waiting[0], planned.processes, planned.level) if waiting else None


def _last(search: Search, planned: ConfirmationPlanned) -> Step:
    """Return the last comparison of the best, or the decision that it allows."""
    winners = search.winners()
    if not winners:
        return _no_change(search, _why_not_confirmed(search, planned))
    best = winners[0]
    if search.again is None:
        return ConfirmStep(best, planned.processes, planned.level, again=True)
    if not search.again.passed:
        return _no_change(search, f"{best.title}: the last comparison did not confirm it: {search.again.why}")
    return SearchDecided(search=search.name, kept=best.name, settings=dict(best.settings),
                   why=f"{best.title}: confirmed twice in fresh processes")


def _why_not_confirmed(search: Search, planned: ConfirmationPlanned) -> str:
    tried = len([name for name in planned.finalists if name in search.confirmed])
    why = f"none of {tried} that looked faster was confirmed"
    waiting = len(planned.finalists) - tried
    return f"{why}, {waiting} more would have been confirmed: {_too_short(search)}" if waiting else why


def _no_change(search: Search, why: str) -> SearchDecided:
    return SearchDecided(search=search.name, kept=None, why=why)


def comparisons_at_most(candidates: int, terms: SearchTerms) -> int:
    """Return how many confirmations a search makes at most, the combination and the last comparison among them."""
    return min(candidates, terms.finalists) + (candidates > 1) + 1


def announced_s(candidates: int, terms: SearchTerms, check_s: float) -> float:
    """Return what a search takes at most, s, within its budget; 0 where that has no room to look at a change and prove
    it, so that nothing is begun. check_s: what the check of a change takes, as the outputs of the untouched model do.
    """
    def total_s(looks: int, comparisons: int, processes: int) -> float:
        started = looks * terms.screen_processes + comparisons * 2 * processes
        return (looks + 1) * check_s + SLACK * started * terms.process_s

    totals = (total_s(looks, comparisons, processes) for looks in range(1, candidates + 1)
              for comparisons in range(2, comparisons_at_most(looks, terms) + 1)
              for processes in range(terms.processes, terms.most_processes + 1))
    begins = terms.budget_s >= total_s(1, 2, terms.processes) - 2 * check_s
    return max((total for total in totals if total <= terms.budget_s), default=terms.budget_s if begins else 0.0)
