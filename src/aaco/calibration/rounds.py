"""Settling of a measured ceiling: rounds over several kernels until the best sustained rate no longer rises."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from aaco.calibration.card import Ceiling, CeilingConditions
from aaco.core.errors import AacoError

Burst = Callable[[], list[float]]  # measures for a short while: the rate of each repeat, in work per second

WINDOW, TOLERANCE = 3, 0.01  # settled: the best value rose by less than 1 % over the last 3 rounds
SUSTAINED = 0.9  # a burst's rate is this quantile of its repeats, so that a single lucky one does not set a roof
UNKNOWN = CeilingConditions(cpu_mhz_before=None, cpu_mhz_after=None, load_average=None, others_cpu_pct=None)


def settled(best: Sequence[float], window: int = WINDOW, tolerance: float = TOLERANCE) -> bool:
    """Return whether the running best of the rounds (higher is better) rose by less than `tolerance` in the last
    `window`.
    """
    if len(best) <= window:
        return False
    before, now = max(best[:-window]), max(best)
    return now - before < tolerance * now


class RateSeries(Struct, frozen=True):
    """Rates from rounds over several kernels: the best sustained rate of each, and the repeats of the fastest."""

    best: Mapping[str, float]
    repeats: Sequence[float]
    converged: bool

    @property
    def winner(self) -> str:
        """Return the kernel that sets the roof."""
        return max(self.best, key=lambda name: self.best[name])


def repeat(kernels: Mapping[str, Burst], budget_s: float) -> RateSeries:
    """Return rounds over all kernels, in order, until the best rate has settled or the budget is spent (at least one).
    """
    deadline = time.perf_counter() + budget_s
    rounds: list[dict[str, list[float]]] = []
    while True:
        rounds.append({name: burst() for name, burst in kernels.items()})
        series = of(rounds)
        if series.converged or time.perf_counter() >= deadline:
            return series


def of(rounds: Sequence[Mapping[str, list[float]]], window: int = WINDOW) -> RateSeries:
    """Return the series of all rounds (at least one; repeats by kernel).

    window: rounds in which the best rate must have settled.
    """
    best = {name: max(sustained(rates[name]) for rates in rounds) for name in rounds[0]}
    winner = max(best, key=lambda name: best[name])
    converged = settled([max(map(sustained, rates.values())) for rates in rounds], window)
    return RateSeries(best, [rate for rates in rounds for rate in rates[winner]], converged)


def less(series: RateSeries, seconds: float) -> RateSeries:
    """Return the rates without `seconds` of the time of each. Raise AacoError if nothing of the fastest is left."""
    if 1 / max(series.repeats) <= seconds:
        raise AacoError(f"{series.winner} took no longer than what is to be taken off it")
    return RateSeries({name: 1 / (1 / best - seconds) for name, best in series.best.items()},
                      [1 / (1 / repeated - seconds) for repeated in series.repeats], series.converged)


def sustained(rates: Sequence[float]) -> float:
    """Return the rate of a burst, from the rates of its repeats."""
    return float(np.quantile(rates, SUSTAINED))


def ranking(series: RateSeries, unit: float = 1e9) -> str:
    """Return the kernels and their rates in a unit, the fastest first."""
    ordered = sorted(series.best.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {rate / unit:.1f}" for name, rate in ordered)


def rate(name: str, unit: str, threads: int, series: RateSeries, how: str,
         conditions: CeilingConditions = UNKNOWN) -> Ceiling:
    """Return the ceiling of a series; higher is better."""
    return Ceiling(name=name, value=max(series.best.values()), unit=unit, low=float(np.quantile(series.repeats, 0.1)),
                   high=max(series.repeats), samples=len(series.repeats), converged=series.converged, how=how,
                   threads=threads, conditions=conditions)


def cost(ceiling: Ceiling) -> Ceiling:
    """Return a rate per second as nanoseconds each: the highest rate is the lowest cost."""
    return ceiling.model_copy(update={"value": 1e9 / ceiling.value, "low": 1e9 / ceiling.high,
                                      "high": 1e9 / ceiling.low})
