"""Evidence becomes probabilities: prior odds plus log-likelihood ratios, every summand of which is kept.

The explanation is the sum itself: log odds against `no_fault` = log prior odds + one number for each piece of evidence.
Missing evidence adds 0. A fact said twice is one fact (symptoms.distinct).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from aaco.analytics.root_cause.causes import SOUND, UNKNOWN, Cause, of
from aaco.analytics.root_cause.likelihood import Likelihoods
from aaco.analytics.root_cause.symptoms import BY_NAME, Evidence, distinct
from aaco.core.arrays import Reals
from aaco.core.errors import UsageError

PSEUDO_COUNT = 4.0  # confirmations that double an answer's prior odds (Dirichlet smoothing)
RANK = {"impact": 0.35, "confidence": 0.2, "ease": 0.15, "actionability": 0.3}
PLAUSIBLE = 0.05  # a cause less probable than this is not worth ranking by how easy it would be to mend


class Answer(Struct, frozen=True):
    """One answer: its probability, and the sum of logarithms that it comes from.

    parts: evidence -> log-likelihood ratio against `no_fault`; log_odds = log_prior_odds + their sum + head_start,
    which only `unknown` has.
    """

    cause: Cause
    posterior: float
    prior: float
    log_prior_odds: float
    head_start: float
    parts: Mapping[str, float]

    @property
    def log_odds(self) -> float:
        """Natural logarithm of the odds against `no_fault`."""
        return self.log_prior_odds + self.head_start + math.fsum(self.parts.values())


class Ranked(Struct, frozen=True):
    """An answer with what its rank is made of, each from 0 to 1."""

    answer: Answer
    impact: float
    score: float


class Judgement(Struct, frozen=True):
    """answers: the most probable first; a cause's probability is that it is there, alone or beside another. together:
    the likeliest pair of causes, and its probability. ranked: causes by what is worth doing first."""

    answers: tuple[Answer, ...]
    ranked: tuple[Ranked, ...]
    evidence: tuple[Evidence, ...]
    together: tuple[tuple[str, ...], float]

    @property
    def first(self) -> Answer:
        """The most probable answer."""
        return self.answers[0]


def judge(evidence: Sequence[Evidence], table: Likelihoods, confirmed: Mapping[str, int] | None = None) -> Judgement:
    """Return the posterior over all answers. confirmed: how often each answer turned out to be true before.

    Evidence of a name that is no symptom is passed over. Raise UsageError for a confirmed count below 0.
    """
    known = (item for item in distinct(evidence) if item.name in BY_NAME)
    facts = sorted(known, key=lambda item: (item.name, item.window))
    prior = priors(table.answers, confirmed or {})
    odds = np.log([prior[name] / prior[SOUND] for name in table.answers])
    shifts = np.array([[math.nan if item.shift is None else item.shift for item in facts]])
    ratios = table.ratios(shifts, [BY_NAME[item.name] for item in facts])
    each, chances = table.chances(ratios.sum(axis=2), odds)
    found = [Answer(of(name), float(chances[0][index]), prior[name], float(odds[index]),
                    table.bias / table.temperature if name == UNKNOWN else 0.0,
                    {item.name: float(ratios[0][index][column]) for column, item in enumerate(facts)})
             for index, name in enumerate(table.answers)]
    answers = tuple(sorted(found, key=lambda answer: (-answer.posterior, answer.cause.name)))
    return Judgement(answers, _ranked(answers, facts), tuple(facts), _together(table, each[0]))


def _together(table: Likelihoods, each: Reals) -> tuple[tuple[str, ...], float]:
    pairs = [(float(chance), hypothesis) for chance, hypothesis in zip(each, table.hypotheses, strict=True)
             if len(hypothesis) > 1]
    chance, hypothesis = max(pairs, default=(0.0, ()))
    return hypothesis, chance


def priors(answers: Sequence[str], confirmed: Mapping[str, int]) -> dict[str, float]:
    """Equal at first; each confirmation adds to its answer (Dirichlet with PSEUDO_COUNT for every answer)."""
    if any(count < 0 for count in confirmed.values()):
        raise UsageError("a cause cannot have been confirmed less than 0 times", "--confirm CAUSE")
    weight = {name: PSEUDO_COUNT + confirmed.get(name, 0) for name in answers}
    return {name: each / sum(weight.values()) for name, each in weight.items()}


def _ranked(answers: Sequence[Answer], facts: Sequence[Evidence]) -> tuple[Ranked, ...]:
    """Plausible causes by RANK: what each took of the time, how sure, how easy, and how far in one's own hands."""
    shift = {item.name: item.shift for item in facts if item.shift is not None}
    lost = max(0.0, 1 - math.exp(-shift.get("slowdown", 0.0)))
    found = []
    for answer in answers:
        cause = answer.cause
        if cause.name != SOUND and answer.posterior >= PLAUSIBLE:
            impact = lost * min(1.0, max(0.0, shift.get(cause.part, 1.0)))
            worth = {"impact": impact, "confidence": answer.posterior, "ease": cause.ease,
                     "actionability": cause.actionability}
            found.append(Ranked(answer, impact, sum(RANK[name] * value for name, value in worth.items())))
    return tuple(sorted(found, key=lambda one: (-one.score, one.answer.cause.name)))
