"""Which choice: those within every limit, the Pareto set among them, the best, and what each limit costs.

The choices are few, so every one is looked at. A choice keeps a limit by the far end of its interval where it has one;
one whose memory or power is not known does not surely keep a limit on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from aaco.analytics.twin.model import Prediction

AIMS = ("throughput", "latency")


@dataclass(frozen=True)
class Quantity:
    """Something that may be limited: how it is read from a prediction (None: not known), its unit and its sense."""

    read: Callable[[Prediction], float | None]
    unit: str
    at_most: bool = True


def _slowest(prediction: Prediction) -> float:
    latency = prediction.latency_ms
    return latency.value if latency.high is None else latency.high


LIMITS: Mapping[str, Quantity] = {
    "latency_ms": Quantity(_slowest, "ms"),
    "memory_gb": Quantity(lambda one: None if one.memory_bytes is None else one.memory_bytes / 1e9, "GB"),
    "power_w": Quantity(lambda one: one.power_w, "W"),
    "throughput_per_s": Quantity(lambda one: 1000 * one.choice.batch / _slowest(one), "1/s", at_most=False),
}


@dataclass(frozen=True)
class Excess:
    """By how much a choice misses a limit: |value / limit - 1|; infinite where the value is not known."""

    limit: str
    value: float | None
    bound: float

    @property
    def relative(self) -> float:
        """0.1 is a tenth beyond the limit."""
        return math.inf if self.value is None else abs(self.value / self.bound - 1)


@dataclass(frozen=True)
class Answer:
    """What the limits leave. kept: choices within all of them; pareto: those of kept that none beats in latency,
    throughput and memory; best: by the aim, None where none is kept; nearest: then the one whose worst excess is least,
    with its excesses; bought: by limit, the best if that one limit did not hold, None where it would be the same."""

    kept: tuple[Prediction, ...]
    pareto: tuple[Prediction, ...]
    best: Prediction | None
    nearest: Prediction | None
    excesses: tuple[Excess, ...]
    bought: Mapping[str, Prediction | None]


def answer(predictions: Sequence[Prediction], limits: Mapping[str, float], aim: str = "throughput") -> Answer:
    """The answer over all predictions, at least one. limits: by name of LIMITS; aim: one of AIMS."""
    kept = tuple(one for one in predictions if not excesses(one, limits))
    best = _best(kept, aim)
    nearest = None if kept else min(predictions, key=lambda one: _misses(one, limits))
    bought = {name: _best([one for one in predictions if not excesses(one, _but(limits, name))], aim)
              for name in limits}
    return Answer(kept, pareto(kept), best, nearest, tuple(excesses(nearest, limits)) if nearest else (),
                  {name: other if other is not best else None for name, other in bought.items()})


def excesses(prediction: Prediction, limits: Mapping[str, float]) -> list[Excess]:
    """The limits that a choice does not surely keep."""
    found = []
    for name, bound in limits.items():
        value = LIMITS[name].read(prediction)
        if value is None or (value > bound if LIMITS[name].at_most else value < bound):
            found.append(Excess(name, value, bound))
    return found


def pareto(predictions: Sequence[Prediction]) -> tuple[Prediction, ...]:
    """Those that no other is at least as good as in latency, throughput and memory, and better in one of them."""
    return tuple(one for one in predictions if not any(_dominates(other, one) for other in predictions))


def _dominates(one: Prediction, other: Prediction) -> bool:
    mine, theirs = _costs(one), _costs(other)
    return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))


def _costs(one: Prediction) -> tuple[float, ...]:
    return (one.latency_ms.value, -one.throughput_per_s,
            math.inf if one.memory_bytes is None else one.memory_bytes)


def _best(kept: Sequence[Prediction], aim: str) -> Prediction | None:
    """The highest throughput or the lowest latency; of equals the smaller batch."""
    def order(one: Prediction) -> tuple[float, int]:
        return (-one.throughput_per_s if aim == "throughput" else one.latency_ms.value), one.choice.batch

    return min(kept, key=order, default=None)


def _misses(one: Prediction, limits: Mapping[str, float]) -> tuple[float, float]:
    """The worst excess and, among equals, the latency."""
    return max(excess.relative for excess in excesses(one, limits)), one.latency_ms.value


def _but(limits: Mapping[str, float], name: str) -> dict[str, float]:
    return {other: bound for other, bound in limits.items() if other != name}
