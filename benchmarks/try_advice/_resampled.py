"""The search of `aaco try` on resampled recordings: how often it keeps what is no gain, and finds what is one.

Processes of recorded comparisons of a thing with itself stand for measurements; a planted gain is added to them. The
search is the product's own (optimize/search.py) and so are its statistics; only the clock is the recordings'.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from aaco.core.candidate import Candidate
from aaco.core.readings import Absent
from aaco.governance.interleaved import duet
from aaco.governance.interleaved.duet import Look, Unit
from aaco.optimize import gates
from aaco.optimize.gates import TimeSaved
from aaco.optimize.search import CheckStep, ConfirmStep, ScreenStep, Search, next_step
from aaco.tracelake.document_schemas.ledger import (
    ConfirmationPlanned,
    FirstLook,
    OutputsChecked,
    SearchBegun,
    SearchDecided,
    SearchOrigin,
    SearchTerms,
    TurnsMeasured,
)

OF = gates.NAMES[gates.LATENCY]
ORIGIN = SearchOrigin(model_sha256="", config_hash="", machine="", versions={})


def log_ratios(recordings: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return by workload the median log ratio of each recorded process of equal sides: (processes,)."""
    return {name: np.median(np.log(times[:, 1] / times[:, 0]), axis=1) for name, times in recordings.items()
            if times.ndim == 3}


class Measurements:
    """Processes drawn from recordings of equal sides, with a planted gain by change."""

    def __init__(self, rng: np.random.Generator, processes: np.ndarray, gains_pct: Mapping[str, float]) -> None:
        self.rng, self.processes, self.gains_pct = rng, processes, gains_pct

    def effect(self, change: str) -> float:
        """Return the log ratio that the planted gains of a change make."""
        return sum(math.log1p(-self.gains_pct.get(part, 0.0) / 100) for part in change.split(" + "))

    def draw(self, count: int, effect: float = 0.0) -> list[tuple[float, float]]:
        """Return (log ratio, order of creation) of so many processes; half of them in either order."""
        values = self.rng.choice(self.processes, count) * self.rng.choice([-1.0, 1.0], count)
        orders = self.rng.permutation(np.resize([-1.0, 1.0], count))
        return [(float(value + effect), float(order)) for value, order in zip(values, orders, strict=True)]


def run(measurements: Measurements, candidates: int, seed: int, terms: Mapping[str, Any] | None = None) -> Search:
    """Return a finished search over so many candidates, named c0, c1, ..."""
    changes = [Candidate(f"c{number}", f"candidate {number}", {f"option{number}": "1"}) for number in range(candidates)]
    lines: list[Any] = [SearchBegun(search="s", origin=ORIGIN, terms=SearchTerms(seed=seed, **(terms or {})),
                              announced_s=0.0,
                              candidates=changes, inapplicable=[])]
    while not isinstance(lines[-1], SearchDecided):
        state = Search(lines)
        lines.append(_make(measurements, state, next_step(state)))
    return Search(lines)


def _make(measurements: Measurements, state: Search, step: Any) -> Any:
    if isinstance(step, CheckStep):
        return OutputsChecked(search="s", change=step.change.name, passed=True, why="")
    if isinstance(step, ScreenStep):
        drawn = measurements.draw(state.terms.screen_processes, measurements.effect(step.change.name))
        return FirstLook(search="s", change=step.change.name, session="", log_ratios=[value for value, _ in drawn])
    if isinstance(step, ConfirmStep):
        return _confirm(measurements, state, step)
    assert isinstance(step, ConfirmationPlanned | SearchDecided)
    return step


def _confirm(measurements: Measurements, state: Search, step: ConfirmStep) -> TurnsMeasured:
    changed = measurements.draw(step.processes, measurements.effect(step.change.name))
    units = [Unit("change", value, order, state.terms.pairs) for value, order in changed]
    units += [Unit("baseline control" if number % 2 else "current control", value, order, state.terms.pairs)
              for number, (value, order) in enumerate(measurements.draw(step.processes))]
    alpha = 1 - step.level
    gain, why = TimeSaved(None, None, None, OF), ""
    try:
        judged = duet.judge(duet.fit(units), Look(step.processes, alpha), alpha, 5.0, "process", "resampled")
        if judged.low_pct is not None and judged.high_pct is not None:
            gain = TimeSaved(-judged.effect_pct, -judged.high_pct, -judged.low_pct, OF)
    except Absent as reason:
        why = str(reason)
    outcome = gates.fast_enough(gain, state.terms, why)
    return TurnsMeasured(search="s", step="again" if step.again else "confirmed", change=step.change.name, session="",
                    gain_pct=gain.percent, low_pct=gain.low, high_pct=gain.high, level=step.level,
                    processes=step.processes, guards=[], passed=outcome.passed, why=outcome.why)
