"""How probable each symptom is under each cause: Student's t, fitted to runs with planted faults.

A t with few degrees of freedom has heavy tails: no single symptom rules a cause out. Where a cause does not change a
symptom, it has the same law as undisturbed runs, so its log-likelihood ratio is exactly zero: a normal symptom counts
only against causes that would have changed it.

Causes also have signs by definition (causes.SIGNS). A cause is ruled out if its own sign was recorded and did not move,
however well the rest fits; so is a cause that does not move a sign that moved far. Then something else is there, and
if no known cause explains it, the answer is `unknown`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from msgspec import Struct, field

from aaco.analytics.root_cause.causes import FALLING, SIGNS, SOUND, UNKNOWN, of
from aaco.analytics.root_cause.symptoms import Symptom
from aaco.core.arrays import Reals
from aaco.core.errors import BadBundle

SCHEMA_VERSION = 1
WHOLE = "slowdown"  # the symptom that parts are parts of
MOVED = 0.5  # widths of sound runs: a sign that moved less has not moved
# Widths of sound runs: a sign that moved further needs a cause that moves it. In 623 runs of the first recording,
# judged by laws of other models, no sign that the true cause leaves alone moved further than 5.4.
FAR = 6.0
RULED_OUT = -math.log(1e4)  # a log-likelihood ratio; not infinite, as a counter may be broken
PAIR_ODDS = 1 / 300  # of a second, given cause being there as well: one run in twenty has two of some fifteen


class Law(Struct, frozen=True):
    """Student's t with a place and a width."""

    place: float
    width: float

    def log_density(self, x: Reals, degrees: float) -> Reals:
        """Natural logarithm of the density."""
        z = (x - self.place) / self.width
        return np.asarray(_constant(degrees) - math.log(self.width)
                          - (degrees + 1) / 2 * np.log1p(z * z / degrees), dtype=np.float64)


_SIGNS = frozenset(sign for signs in SIGNS.values() for sign in signs)
ANYTHING = Law(0.0, 1.0)  # shifts are logarithms or shares: a factor of e either way is much


def _constant(degrees: float) -> float:
    return math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - math.log(degrees * math.pi) / 2


class Likelihoods(Struct, frozen=True):
    """The estimated laws, and how much each group of symptoms is believed.

    laws: cause -> symptom -> law, only where the cause changes the symptom; sound: of runs without a fault.
    weights: group -> exponent of its ratios, at most 1, because symptoms of one group tell partly the same.
    temperature: of all of them. novelty: how much of the unknown cause's law is that anything may happen; bias: its
    head start. rows: how many runs each cause was estimated from.
    """

    laws: Mapping[str, Mapping[str, Law]]
    sound: Mapping[str, Law]
    weights: Mapping[str, float] = field(default_factory=dict)
    temperature: float = 1.0
    degrees: float = 8.0
    novelty: float = 0.2
    bias: float = 0.0
    rows: Mapping[str, int] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def answers(self) -> tuple[str, ...]:
        """All that can be answered: the causes, and that there is none, or one that was never planted."""
        return (*self.laws, UNKNOWN, SOUND)

    @property
    def hypotheses(self) -> tuple[tuple[str, ...], ...]:
        """Each answer alone, in their order, then every pair of causes of different kinds at once: two of one kind
        cannot be told from one of them that is stronger."""
        return (*((answer,) for answer in self.answers), *self._pairs)

    @property
    def _pairs(self) -> list[tuple[str, str]]:
        return [(one, two) for one, two in combinations(self.laws, 2) if of(one).kind != of(two).kind]

    def ratios(self, shifts: Reals, symptoms: Sequence[Symptom], pairs: bool = True) -> Reals:
        """Log-likelihood ratios of shifts (runs x symptoms; NaN: missing) against a sound run, tempered by group, and
        what signs rule out.

        Return runs x hypotheses (without pairs: x answers) x symptoms; missing evidence, and a symptom that was never
        learnt, gives 0.
        """
        return self.tempered(shifts, symptoms, pairs) + self.ruled_out(shifts, symptoms, pairs)

    def tempered(self, shifts: Reals, symptoms: Sequence[Symptom], pairs: bool = True) -> Reals:
        """Return what the laws say of `ratios`."""
        count = len(self.hypotheses) if pairs else len(self.answers)
        found = np.zeros((len(shifts), count, len(symptoms)))
        for column, symptom in enumerate(symptoms):
            seen = np.isfinite(shifts[:, column])
            if symptom.name in self.sound and seen.any():
                scale = self.weights.get(symptom.group, 1.0) / self.temperature
                found[seen, :, column] = scale * self._of(symptom, shifts[seen, column], pairs)
        return found

    def ruled_out(self, shifts: Reals, symptoms: Sequence[Symptom], pairs: bool = True) -> Reals:
        """RULED_OUT where a hypothesis's own sign did not move, or it does not explain one that moved far; else 0.

        Of `unknown` and `no_fault` nothing must be seen: what speaks against them are only the laws.
        """
        hypotheses = self.hypotheses[:None if pairs else len(self.answers)]
        found = np.zeros((len(shifts), len(hypotheses), len(symptoms)))
        for column, symptom in enumerate(symptoms):
            if symptom.name in _SIGNS and symptom.name in self.sound:
                moved = shifts[:, column] / self.sound[symptom.name].width * (-1 if symptom.name in FALLING else 1)
                still, far = moved < MOVED, moved > FAR  # neither where it is missing
                for index, causes in enumerate(hypotheses):
                    needed = any(symptom.name in SIGNS.get(cause, ()) for cause in causes)
                    explained = needed or any(symptom.name in self.laws.get(cause, {symptom.name}) for cause in causes)
                    found[:, index, column] = (still & needed) | (far & (not explained))
        return RULED_OUT / self.temperature * found

    def chances(self, sums: Reals, log_prior_odds: Reals) -> tuple[Reals, Reals]:
        """Probabilities of the hypotheses, and of the answers: a cause's is that it is there, alone or with another.

        sums: runs x hypotheses, of `ratios`; log_prior_odds: of each answer against `no_fault`.
        """
        among = self.membership
        prior = among @ log_prior_odds + np.where(among.sum(axis=1) > 1, math.log(PAIR_ODDS), 0.0)
        prior[len(self.laws)] += self.bias / self.temperature
        odds = sums + prior[:sums.shape[1]]
        each = np.exp(odds - odds.max(axis=1, keepdims=True))
        each /= each.sum(axis=1, keepdims=True)
        return each, each @ among[:sums.shape[1]]

    @property
    def membership(self) -> Reals:
        """hypotheses x answers: 1 where the answer is part of the hypothesis."""
        return np.array([[float(answer in each) for answer in self.answers] for each in self.hypotheses])

    def _of(self, symptom: Symptom, shift: Reals, pairs: bool) -> Reals:
        """runs x hypotheses, of one symptom."""
        law, sound = self.sound[symptom.name], self.sound[symptom.name].log_density(shift, self.degrees)
        own = {cause: laws.get(symptom.name) for cause, laws in self.laws.items()}
        each = {cause: mine.log_density(shift, self.degrees) if mine else sound for cause, mine in own.items()}
        known = list(each.values())
        # Of an unknown cause: what any of the known ones, or none, would do, mixed with a law that allows anything.
        usual = np.logaddexp.reduce([*known, sound]) - math.log(len(known) + 1)
        unknown = np.logaddexp(math.log1p(-self.novelty) + usual,
                               math.log(self.novelty) + ANYTHING.log_density(shift, self.degrees))
        both = [self._together(symptom, law, (own[one], own[two]), (each[one], each[two]), shift)
                for one, two in self._pairs] if pairs else []
        return np.asarray((np.array([*known, unknown, sound, *both]) - sound).T)

    def _together(self, symptom: Symptom, sound: Law, own: tuple[Law | None, Law | None],
                  known: tuple[Reals, Reals], shift: Reals) -> Reals:
        """Log density of a symptom under two causes: a whole adds up, parts of a whole lie between, else either's."""
        if own == (None, None):
            return known[0]
        one, two = (each or sound for each in own)
        if symptom.name == WHOLE:
            width = math.hypot(one.width, two.width)
            return Law(one.place + two.place, width).log_density(shift, self.degrees)
        if symptom.shared:
            width = max(abs(one.place - two.place) / 2, one.width, two.width)
            return Law((one.place + two.place) / 2, width).log_density(shift, self.degrees)
        if None in own:
            return known[0] if own[0] else known[1]
        return np.asarray(np.logaddexp(*known) - math.log(2))

    def document(self) -> dict[str, Any]:
        """For JSON; `from_document` gives the same back."""
        return {"schema_version": SCHEMA_VERSION, "provenance": dict(self.provenance), "rows": dict(self.rows),
                "degrees": self.degrees, "novelty": self.novelty, "temperature": self.temperature, "bias": self.bias,
                "weights": dict(self.weights), "sound": _pairs(self.sound),
                "laws": {cause: _pairs(laws) for cause, laws in self.laws.items()}}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Likelihoods:
        """Raise BadBundle where it is none, or of a later version."""
        try:
            if document["schema_version"] > SCHEMA_VERSION:
                raise BadBundle(f"likelihoods of format {document['schema_version']}", "upgrade aaco")
            found = cls({cause: _laws(laws) for cause, laws in document["laws"].items()}, _laws(document["sound"]),
                        **{name: document[name] for name in ("weights", "temperature", "degrees", "novelty", "bias",
                                                             "rows", "provenance")})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadBundle(f"no likelihoods: {error!r}", "python -m benchmarks.faults --train FILE --into TABLE"
                            ) from error
        widths = [law.width for laws in (found.sound, *found.laws.values()) for law in laws.values()]
        if not all(math.isfinite(value) and value > 0 for value in (found.temperature, found.degrees, *widths)):
            raise BadBundle("likelihoods with a width, temperature or degrees that are not above 0",
                            "python -m benchmarks.faults --train FILE --into TABLE")
        return found


def _pairs(laws: Mapping[str, Law]) -> dict[str, list[float]]:
    return {name: [law.place, law.width] for name, law in laws.items()}


def _laws(pairs: Mapping[str, Sequence[float]]) -> dict[str, Law]:
    return {name: Law(float(place), float(width)) for name, (place, width) in pairs.items()}
