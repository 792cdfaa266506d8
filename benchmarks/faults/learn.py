"""From labelled runs to the likelihoods the product ships: laws of symptoms, weights of groups, temperature.

Weights, temperature and the head start of `unknown` are fitted on runs whose laws were learnt from other models, so
that they are as sure as an unseen model allows; each cause in turn is also left out of the laws, and its runs are then
runs of an unknown cause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import softmax

from aaco.analytics.root_cause.causes import SOUND, UNKNOWN
from aaco.analytics.root_cause.likelihood import Law, Likelihoods
from aaco.analytics.root_cause.symptoms import SYMPTOMS
from aaco.core.statistics import mad_sigma

Reals = NDArray[np.float64]
COLUMNS = tuple((symptom.name, symptom.group) for symptom in SYMPTOMS)
GROUPS = tuple(dict.fromkeys(symptom.group for symptom in SYMPTOMS))
MEMBER = np.array([[group == mine for group in GROUPS] for _, mine in COLUMNS], float)  # symptoms x groups
FLOORS = tuple(symptom.floor for symptom in SYMPTOMS)
GAIN = 0.25  # nats that a law of its own must tell about a symptom, on the average of the cause's runs
DEGREES = 8.0  # of the laws: with fewer, a symptom that must be there and is not would hardly be missed
# The least width of a law is this part of its place, because a fault may be stronger or weaker than those planted, but
# no more than a factor of two either way.
GRADED, TWOFOLD = 0.4, 0.7
LEAST = 3  # runs to learn a cause from
RIDGE = 0.02
FIRST_WEIGHT = 0.5
UNKNOWN_SHARE = 0.3  # weight of a run whose cause was left out


class Run(Struct, frozen=True):
    """One labelled run: shifts in the order of SYMPTOMS, NaN where missing."""

    model: str
    cause: str
    strength: int
    shifts: Reals
    impact: float  # natural logarithm of the slowdown


def learn(runs: Sequence[Run], provenance: Mapping[str, Any] | None = None) -> Likelihoods:
    """Everything that is shipped, from runs of single faults and sound ones."""
    weights, bias = _weigh(_held_out(runs))
    found = laws(runs)
    return replace(found, weights=dict(zip(GROUPS, weights.round(4).tolist(), strict=True)), bias=round(bias, 4),
                   provenance=provenance or {})


def laws(runs: Sequence[Run], without: str = "") -> Likelihoods:
    """The laws of every symptom under every cause but one."""
    sound = _matrix([run for run in runs if run.cause == SOUND])
    base = {name: law for column, (name, _) in enumerate(COLUMNS) if (law := _law(sound[:, column], FLOORS[column]))}
    counts = Counter(run.cause for run in runs)
    found = {cause: _laws_of(_matrix([run for run in runs if run.cause == cause]), base)
             for cause in sorted(counts) if cause not in (SOUND, without) and counts[cause] >= LEAST}
    return Likelihoods(found, base, degrees=DEGREES, rows=dict(counts))


def _laws_of(shifts: Reals, sound: Mapping[str, Law]) -> dict[str, Law]:
    """The laws of those symptoms that the cause changes."""
    found = {}
    for column, (name, _) in enumerate(COLUMNS):
        own, values = _law(shifts[:, column], FLOORS[column]), shifts[:, column]
        if own and name in sound:
            seen = values[np.isfinite(values)]
            gain = own.log_density(seen, DEGREES) - sound[name].log_density(seen, DEGREES)
            if gain.mean() > GAIN:
                found[name] = own
    return found


def _law(values: Reals, floor: float) -> Law | None:
    """Median and the larger of two robust widths; wider the fewer the runs."""
    seen = values[np.isfinite(values)]
    if len(seen) < LEAST:
        return None
    low, high = np.quantile(seen, [0.1, 0.9])
    place = float(np.median(seen))
    width = max(mad_sigma(seen), (high - low) / 2.563) * (1 + 1 / len(seen))
    return Law(round(place, 5), round(max(floor, float(width), min(GRADED * abs(place), TWOFOLD)), 5))


def _matrix(runs: Sequence[Run]) -> Reals:
    return np.array([run.shifts for run in runs]).reshape(len(runs), len(COLUMNS))


class Judged(Struct, frozen=True):
    """Runs judged by one table: scores (runs x answers x groups), what signs rule out (runs x answers), the index of
    the right answer, and their weight."""

    scores: Reals
    ruled_out: Reals
    truth: NDArray[np.int64]
    share: float


def _held_out(runs: Sequence[Run]) -> list[Judged]:
    """Runs judged by laws that do not know their model, or not their cause."""
    found = []
    for model in dict.fromkeys(run.model for run in runs):
        table = laws([run for run in runs if run.model != model])
        found.append(_judged(table, [run for run in runs if run.model == model and run.cause in table.answers], 1.0))
    for cause in dict.fromkeys(run.cause for run in runs if run.cause != SOUND):
        left = [run for run in runs if run.cause == cause]
        found.append(_judged(laws(runs, without=cause), left, UNKNOWN_SHARE))
    return found


def _judged(table: Likelihoods, tested: Sequence[Run], share: float) -> Judged:
    truth = [table.answers.index(run.cause if run.cause in table.answers else UNKNOWN) for run in tested]
    ruled_out = table.ruled_out(_matrix(tested), SYMPTOMS, pairs=False).sum(axis=2)
    return Judged(grouped(table, _matrix(tested)), ruled_out, np.array(truth, np.int64), share)


def grouped(table: Likelihoods, shifts: Reals) -> Reals:
    """Untempered log-likelihood ratios: runs x answers x groups."""
    return np.asarray(replace(table, weights={}, temperature=1.0).tempered(shifts, SYMPTOMS, pairs=False) @ MEMBER)


def _weigh(judged: Sequence[Judged]) -> tuple[Reals, float]:
    """Exponents of the groups, each from 0 to 1, and the head start of `unknown`: of least loss over held-out runs."""
    size, whole = len(GROUPS), sum(part.share * len(part.truth) for part in judged)

    def loss(flat: Reals) -> tuple[float, Reals]:
        weights, bias = flat[:size], flat[size]
        total = RIDGE * whole * float(((weights - FIRST_WEIGHT) ** 2).sum())
        slope = np.append(2 * RIDGE * whole * (weights - FIRST_WEIGHT), 0.0)
        for part in judged:
            sums, at = part.scores @ weights + part.ruled_out, np.arange(len(part.truth))
            sums[:, -2] += bias
            chance = softmax(sums, axis=1)
            total -= part.share * float(np.log(np.maximum(chance[at, part.truth], 1e-300)).sum())
            chance[at, part.truth] -= 1
            slope[:size] += part.share * np.tensordot(chance, part.scores, 2)
            slope[size] += part.share * float(chance[:, -2].sum())
        return total, slope

    start = np.append(np.full(size, FIRST_WEIGHT), 0.0)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(0.02, 1.0)] * size + [(-8.0, 8.0)])
    return found.x[:size], float(found.x[size])
