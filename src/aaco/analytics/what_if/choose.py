"""Which choice: those within every limit, the Pareto set among them, the best, and what each limit costs.

The choices are few, so each is examined. The far end of a choice's interval, if it has one, must keep the limit. A
choice with unknown memory or power does not surely keep a limit on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from aaco.analytics.what_if.model import Prediction

AIMS = ("throughput", "latency")


class Quantity(Struct, frozen=True):
    """Something that may be limited: how it is read from a prediction (None: not known), its unit and its sense."""

    read: Callable[[Prediction], float | None]
    unit: str
    at_most: bool = True


def _slowest(prediction: Prediction) -> float:
    latency = prediction.latency_ms
    return latency.value if latency.high is None else latency.high


def _gigabytes(size_bytes: float | None) -> float | None:
    return None if size_bytes is None else size_bytes / 1e9


LIMITS: Mapping[str, Quantity] = {
    "latency_ms": Quantity(_slowest, "ms"),
    "memory_gb": Quantity(lambda prediction: _gigabytes(prediction.memory_bytes), "GB"),
    "power_w": Quantity(lambda prediction: prediction.power_w, "W"),
    "throughput_per_s": Quantity(lambda prediction: 1000 * prediction.choice.batch / _slowest(prediction), "1/s",
                                 at_most=False),
}


class Excess(Struct, frozen=True):
    """By how much a choice misses a limit: |value / limit - 1|; infinite where the value is not known."""

    limit: str
    value: float | None
    bound: float

    @property
    def relative(self) -> float:
        """Return the excess relative to the limit: 0.1 is a tenth beyond it."""
        return math.inf if self.value is None else abs(self.value / self.bound - 1)


class ChoiceAnswer(Struct, frozen=True):
    """What the limits leave. kept: choices within all of them; pareto: those of kept that none beats in latency,
    throughput and memory; best: by the aim, None if none is kept; nearest: then the one with the least worst excess,
    with its excesses; bought: by limit, the best without that limit, None if it would be the same."""

    kept: tuple[Prediction, ...]
    pareto: tuple[Prediction, ...]
    best: Prediction | None
    nearest: Prediction | None
    excesses: tuple[Excess, ...]
    bought: Mapping[str, Prediction | None]


def answer(predictions: Sequence[Prediction], limits: Mapping[str, float], aim: str = "throughput") -> ChoiceAnswer:
    """Return the answer over all predictions, at least one. limits: by name of LIMITS; aim: one of AIMS."""
    kept = tuple(prediction for prediction in predictions if not excesses(prediction, limits))
    best = _best(kept, aim)
    nearest = None if kept else min(predictions, key=lambda prediction: _worst_excess(prediction, limits))
    bought = {}
    for name in limits:
        relaxed = _without_limit(limits, name)
        bought[name] = _best([prediction for prediction in predictions if not excesses(prediction, relaxed)], aim)
    return ChoiceAnswer(kept, pareto(kept), best, nearest, tuple(excesses(nearest, limits)) if nearest else (),
                        {name: prediction if prediction is not best else None for name, prediction in bought.items()})


def excesses(prediction: Prediction, limits: Mapping[str, float]) -> list[Excess]:
    """Return the limits that a choice does not surely keep."""
    missed = []
    for name, bound in limits.items():
        value = LIMITS[name].read(prediction)
        if value is None or (value > bound if LIMITS[name].at_most else value < bound):
            missed.append(Excess(name, value, bound))
    return missed


def pareto(predictions: Sequence[Prediction]) -> tuple[Prediction, ...]:
    """Return those that no other is at least as good as in latency, throughput and memory, and better in one of them.
    """
    return tuple(prediction for prediction in predictions
                 if not any(_dominates(rival, prediction) for rival in predictions))


def _dominates(prediction: Prediction, rival: Prediction) -> bool:
    mine, theirs = _costs(prediction), _costs(rival)
    return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))


def _costs(prediction: Prediction) -> tuple[float, ...]:
    return (prediction.latency_ms.value, -prediction.throughput_per_s,
            math.inf if prediction.memory_bytes is None else prediction.memory_bytes)


def _best(kept: Sequence[Prediction], aim: str) -> Prediction | None:
    """Return the highest throughput or the lowest latency; of equals the smaller batch."""
    def order(prediction: Prediction) -> tuple[float, int]:
        cost = -prediction.throughput_per_s if aim == "throughput" else prediction.latency_ms.value
        return cost, prediction.choice.batch

    return min(kept, key=order, default=None)


def _worst_excess(prediction: Prediction, limits: Mapping[str, float]) -> tuple[float, float]:
    """Return the worst excess and, among equals, the latency."""
    return max(excess.relative for excess in excesses(prediction, limits)), prediction.latency_ms.value


def _without_limit(limits: Mapping[str, float], name: str) -> dict[str, float]:
    return {quantity: bound for quantity, bound in limits.items() if quantity != name}
