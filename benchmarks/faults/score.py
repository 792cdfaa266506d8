"""How often the answer is right, on runs that were not learnt from: repeats, unseen models, strengths, pairs, unknowns.

Every figure comes with its 95 % interval (shares: Wilson; calibration: bootstrap over runs); calibration is the
expected calibration error over ten bins of the first answer's probability.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from aaco.analytics.root_cause.causes import SOUND, UNKNOWN
from aaco.analytics.root_cause.likelihood import Likelihoods
from aaco.analytics.root_cause.symptoms import SYMPTOMS
from benchmarks.faults.learn import Run, learn
from benchmarks.intervals import wilson

FOLDS, BINS, RESAMPLES = 4, 10, 1000
Reals = NDArray[np.float64]


class Tally(Struct):
    """Answers to runs with one right answer: first, among the first three, and how sure."""

    first: list[bool] = field(default_factory=list)
    third: list[bool] = field(default_factory=list)
    sure: list[float] = field(default_factory=list)
    wrong: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def add(self, run: Run, order: Sequence[str], sure: float, right: str) -> None:
        """One answer: all answers in order of probability, and that of the first."""
        self.first.append(order[0] == right)
        self.third.append(right in order[:3])
        self.sure.append(sure)
        if order[0] != right:
            self.wrong[run.model, run.cause, order[0]] += 1

    @property
    def ece(self) -> float:
        """Expected calibration error (Naeini et al. 2015)."""
        return calibration_error(np.array(self.sure), np.array(self.first))

    def ece_interval(self, seed: int = 0) -> tuple[float, float]:
        """95 % percentile bootstrap over runs; high rather than low, as the error of few runs is."""
        sure, first = np.array(self.sure), np.array(self.first)
        drawn = np.random.default_rng(seed).integers(len(sure), size=(RESAMPLES, len(sure)))
        low, high = np.quantile([calibration_error(sure[each], first[each]) for each in drawn], [0.025, 0.975])
        return float(low), float(high)


Figure = list[bool] | Tally  # right or wrong, for a share; answers, for their calibration error

def calibration_error(sure: Reals, right: NDArray[np.bool_]) -> float:
    """Mean over bins of the probability, weighted by runs, of |mean probability - share right|."""
    bins = np.minimum((sure * BINS).astype(int), BINS - 1)
    return float(sum(abs(sure[bins == each].sum() - right[bins == each].sum()) for each in range(BINS)) / len(sure))


def share(found: Sequence[bool]) -> str:
    """For print: the share and its interval."""
    low, high = wilson(sum(found), len(found))
    return f"{sum(found) / max(1, len(found)):.3f} [{low:.3f}, {high:.3f}] of {len(found)}"


def shown(found: Figure) -> str:
    """A figure and its interval, for print."""
    if isinstance(found, Tally):
        low, high = found.ece_interval()
        return f"{found.ece:.3f} [{low:.3f}, {high:.3f}] of {len(found.sure)}"
    return share(found)


def answers(table: Likelihoods, tested: Sequence[Run]) -> Iterator[tuple[Run, list[str], Reals]]:
    """Each run with the answers in order of probability, and their probabilities in that order."""
    if not tested:
        return
    sums = table.ratios(np.array([run.shifts for run in tested]), SYMPTOMS).sum(axis=2)
    _, chances = table.chances(sums, np.zeros(len(table.answers)))
    for run, chance in zip(tested, chances, strict=True):
        order = np.argsort(-chance, kind="stable")
        yield run, [table.answers[index] for index in order], chance[order]


def repeats(runs: Sequence[Run], seed: int = 0) -> tuple[Tally, Tally]:
    """Runs held out at random: faults, and sound runs."""
    fold = np.random.default_rng(seed).permutation(len(runs)) % FOLDS
    return _split(runs, [(lambda index, each=each: bool(fold[index] == each)) for each in range(FOLDS)])


def unseen_models(runs: Sequence[Run]) -> tuple[Tally, Tally]:
    """Each model is judged by what the others taught; causes that only it shows are left out."""
    return _split(runs, [(lambda index, model=model: runs[index].model == model)
                         for model in dict.fromkeys(run.model for run in runs)])


def unseen_strengths(runs: Sequence[Run]) -> tuple[Tally, Tally]:
    """Each strength of each fault is judged by what the others taught."""
    return _split(runs, [(lambda index, strength=strength: runs[index].strength == strength)
                         for strength in (1, 2, 3)])


def _split(runs: Sequence[Run], held: Sequence[Callable[[int], bool]]) -> tuple[Tally, Tally]:
    faults, sound = Tally(), Tally()
    for out in held:
        tested = [run for index, run in enumerate(runs) if out(index)]
        _judge(learn([run for index, run in enumerate(runs) if not out(index)]), tested, faults, sound)
    return faults, sound


def _judge(table: Likelihoods, tested: Sequence[Run], faults: Tally, sound: Tally) -> None:
    """Adds the answers to single faults and to sound runs, of causes that the table knows."""
    for run, order, chance in answers(table, [run for run in tested if run.cause in table.answers]):
        (sound if run.cause == SOUND else faults).add(run, order, float(chance[0]), run.cause)


def pairs(table: Likelihoods, both: Sequence[Run]) -> list[bool]:
    """Two faults at once: whether both are among the first three; the table learnt single faults only."""
    return [set(run.cause.split("+")) <= set(order[:3]) for run, order, _ in answers(table, both)
            if set(run.cause.split("+")) <= set(table.answers)]


def blind(taught: Sequence[Run], tested: Sequence[Run]) -> dict[str, Figure]:
    """Answers to one recording of a table that was learnt from another: counted runs of both."""
    singles, _ = _apart(taught)
    table, faults, sound = learn(singles), Tally(), Tally()
    single, both = _apart(tested)
    _judge(table, single, faults, sound)
    return {"blind: top-1": faults.first, "blind: top-3": faults.third, "blind: ECE": faults,
            "blind: no fault said where there is none": sound.first,
            "blind: two faults at once: both in the top 3": pairs(table, both),
            "blind: unknown fault recognised": unknowns(singles, single)[0]}


def _apart(runs: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """Sound runs and single faults; pairs of faults."""
    return [run for run in runs if "+" not in run.cause], [run for run in runs if "+" in run.cause]


def figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """Every figure that has a bar, of counted runs held out of learning."""
    singles, both = _apart(runs)
    found: dict[str, Figure] = {}
    for name, split in (("repeats", repeats), ("unseen model", unseen_models), ("unseen strength", unseen_strengths)):
        faults, sound = split(singles)
        found |= {f"{name}: top-1": faults.first, f"{name}: top-3": faults.third, f"{name}: ECE": faults}
        if sound.first:
            found[f"{name}: no fault said where there is none"] = sound.first
    return found | {"two faults at once: both in the top 3": pairs(learn(singles), both),
                    "unknown fault recognised": unknowns(singles, singles)[0]}


def unknowns(taught: Sequence[Run], tested: Sequence[Run]) -> tuple[list[bool], Counter[tuple[str, str, str]]]:
    """Each cause in turn is left out of all learning: whether its runs are said to be of an unknown cause."""
    found, wrong = list[bool](), Counter[tuple[str, str, str]]()
    for cause in dict.fromkeys(run.cause for run in tested if run.cause != SOUND):
        table = learn([run for run in taught if run.cause != cause])
        for run, order, _ in answers(table, [run for run in tested if run.cause == cause]):
            found.append(order[0] == UNKNOWN)
            wrong[run.model, run.cause, order[0]] += order[0] != UNKNOWN
    return found, wrong
