"""How probable each symptom is under each cause: Student's t, learnt from runs with planted faults.

A t with few degrees of freedom has tails that a surprise cannot break: one symptom alone never rules a cause out. Where
a cause does not change a symptom it shares the law of sound runs, so that its log-likelihood ratio against them is
exactly nothing: healthy evidence speaks only against causes that would have made it ill.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
SOUND, UNKNOWN = "no_fault", "unknown"


@dataclass(frozen=True)
class Law:
    """Student's t with a place and a width."""

    place: float
    width: float

    def log_density(self, x: Reals, degrees: float) -> Reals:
        """Natural logarithm of the density."""
        z = (x - self.place) / self.width
        return np.asarray(_constant(degrees) - math.log(self.width)
                          - (degrees + 1) / 2 * np.log1p(z * z / degrees), dtype=np.float64)


ANYTHING = Law(0.0, 1.0)  # shifts are logarithms or shares: a factor of e either way is much


def _constant(degrees: float) -> float:
    return math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - math.log(degrees * math.pi) / 2


@dataclass(frozen=True)
class Likelihoods:
    """The laws learnt, and how much each group of symptoms is believed.

    laws: cause -> symptom -> law, only where the cause changes the symptom; sound: of runs without a fault.
    weights: group -> exponent of its ratios, at most 1, because symptoms of one group tell partly the same.
    temperature: of all of them. novelty: how much of the unknown cause's law is that anything may happen; bias: its
    head start. rows: how many runs each cause was learnt from.
    """

    laws: Mapping[str, Mapping[str, Law]]
    sound: Mapping[str, Law]
    weights: Mapping[str, float] = field(default_factory=dict)
    temperature: float = 1.0
    degrees: float = 4.0
    novelty: float = 0.2
    bias: float = 0.0
    rows: Mapping[str, int] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def answers(self) -> tuple[str, ...]:
        """All that can be answered: the causes, and that there is none, or one that nobody planted."""
        return (*self.laws, UNKNOWN, SOUND)

    def ratios(self, shifts: Reals, symptoms: Sequence[tuple[str, str]]) -> Reals:
        """Log-likelihood ratios of shifts (runs x symptoms; NaN: missing) against a sound run, tempered by group.

        symptoms: (name, group) of each column. Returns runs x answers without `no_fault` x symptoms; missing evidence,
        and a symptom that was never learnt, gives 0.
        """
        found = np.zeros((len(shifts), len(self.laws) + 1, len(symptoms)))
        for column, (name, group) in enumerate(symptoms):
            if name in self.sound:
                scale = self.weights.get(group, 1.0) / self.temperature
                found[:, :, column] = scale * self._ratios_of(name, shifts[:, column])
        return np.nan_to_num(found, nan=0.0)

    def _ratios_of(self, symptom: str, shift: Reals) -> Reals:
        """runs x answers, of one symptom."""
        sound = self.sound[symptom].log_density(shift, self.degrees)
        known = np.array([laws[symptom].log_density(shift, self.degrees) if symptom in laws else sound
                          for laws in self.laws.values()])
        # Of an unknown cause: what any of the known ones, or none, would do, mixed with a law that allows anything.
        usual = np.logaddexp.reduce([*known, sound]) - math.log(len(known) + 1)
        unknown = np.logaddexp(math.log1p(-self.novelty) + usual,
                               math.log(self.novelty) + ANYTHING.log_density(shift, self.degrees))
        return np.asarray((np.array([*known, unknown]) - sound).T)
