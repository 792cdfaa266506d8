"""What trials of a change gained on this machine: kept with the history of measurements, and what it lets one expect.

A trial's value is the time after the change as a share of the time before it, so changes of several models are
comparable. One model counts once, by its last trial.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from statistics import median

from aaco.analytics.advice.track_record import LEVEL, prediction_interval
from aaco.core.candidate import Candidate
from aaco.core.config import Settings
from aaco.core.errors import NoBaseline
from aaco.optimize.search import Search
from aaco.tracelake.document_schemas.ledger import TurnsMeasured
from aaco.tracelake.history.history import LONGEST, History, Key, Sample

METRIC, UNIT = "tried.", "ratio"  # before the name of a change
FEWEST = 3  # models that a change was tried on, before anything is expected of it


def keep(settings: Settings, state: Search, trial: TurnsMeasured) -> None:
    """Add a confirmation to the history, whether it was kept or not. Raise BadBundle, StorageError."""
    if trial.gain_pct is None or trial.gain_pct >= 100:
        return
    origin = state.begun.origin
    key = Key(origin.model_sha256[:LONGEST], f"{METRIC}{trial.change}"[:LONGEST], origin.machine, origin.config_hash)
    sample = Sample(key, trial.session, 0, 1 - trial.gain_pct / 100, UNIT, "lower_is_better", time.time_ns(),
                    trial.processes * state.terms.pairs, source="try")
    with History.open(settings.config.storage.baselines_dir) as history:
        history.append([sample])


def expected(settings: Settings, machine: str, changes: Sequence[Candidate]) -> dict[str, str]:
    """Return by change what its trials on this machine let one expect of it, in words, or why nothing."""
    ratios = _ratios(settings, machine)
    return {change.name: _words(list(ratios.get(change.name, {}).values())) for change in changes}


def _words(ratios: Sequence[float]) -> str:
    if len(ratios) < FEWEST:
        return f"not known: tried on {len(ratios)} other models on this machine, {FEWEST} are needed"
    logs = [math.log(ratio) for ratio in ratios]
    low, high = prediction_interval(logs)
    gains = [100 * -math.expm1(value) for value in (median(logs), high, low)]
    return (f"{gains[0]:.1f} % less time ({gains[1]:.1f} to {gains[2]:.1f} in {LEVEL * 10:.0f} of 10, "
            f"by {len(ratios)} models tried on this machine)")


def _ratios(settings: Settings, machine: str) -> dict[str, dict[str, float]]:
    """Return by change and model the ratio that its last trial on this machine measured."""
    by_change: dict[str, dict[str, float]] = {}
    try:
        with History.open(settings.config.storage.baselines_dir, create=False) as history:
            for key in [*history.keys()]:
                if key.metric.startswith(METRIC) and key.machine == machine:
                    last = history.samples(key)["value"][-1].as_py()
                    by_change.setdefault(key.metric.removeprefix(METRIC), {})[key.benchmark] = last
    except NoBaseline:
        pass
    return by_change
