"""What trials gained on this machine: kept with the history of measurements, and what that makes likely.

A trial's value is the time after the change as a share of the time before it, so changes of several models are
comparable. It is kept by the change and by each advice that the change tests. One model counts once, by its last trial.
The residuals that AACO is shipped with stay as they are.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from statistics import median

from aaco.analytics.advice.machine_gain import MachineGain
from aaco.analytics.advice.track_record import LEVEL, prediction_interval
from aaco.core.candidate import Candidate
from aaco.core.config import Settings
from aaco.core.errors import NoBaseline
from aaco.optimize.search import Search
from aaco.tracelake.document_schemas.ledger import TurnsMeasured
from aaco.tracelake.history.history import LONGEST, History, Key, Sample

OF_CHANGE, OF_ADVICE, UNIT = "tried.", "advised.", "ratio"  # before the name of a change, of an advice
FEWEST = 3  # models that a change was tried on, before anything is expected of it


def keep(settings: Settings, state: Search, trial: TurnsMeasured) -> None:
    """Add a confirmation to the history, whether it was kept or not. Raise BadBundle, StorageError."""
    if trial.gain_pct is None or trial.gain_pct >= 100:
        return
    origin = state.begun.origin
    single = [change for change in state.begun.candidates if change.name == trial.change]
    metrics = [OF_CHANGE + trial.change, *(OF_ADVICE + advice for change in single for advice in change.advice)]
    keys = [Key(origin.model_sha256[:LONGEST], metric[:LONGEST], origin.machine, origin.config_hash)
            for metric in metrics]
    with History.open(settings.config.storage.baselines_dir) as history:
        history.append([Sample(key, trial.session, 0, 1 - trial.gain_pct / 100, UNIT, "lower_is_better", time.time_ns(),
                               trial.processes * state.terms.pairs, source="try") for key in keys])


def expected(settings: Settings, machine: str, changes: Sequence[Candidate]) -> dict[str, str]:
    """Return by change what its trials on this machine let one expect of it, in words, or why nothing."""
    ratios = _ratios(settings, machine, OF_CHANGE)
    return {change.name: _words(list(ratios.get(change.name, {}).values())) for change in changes}


def of_advice(settings: Settings, machine: str) -> dict[str, MachineGain]:
    """Return by advice what its trials on this machine make likely, of those that FEWEST models were tried with."""
    by_advice = _ratios(settings, machine, OF_ADVICE)
    return {advice: _gain(list(ratios.values())) for advice, ratios in by_advice.items() if len(ratios) >= FEWEST}


def _gain(ratios: Sequence[float]) -> MachineGain:
    logs = [-math.log(ratio) for ratio in ratios]
    low, high = prediction_interval(logs)
    return MachineGain(math.exp(median(logs)), math.exp(low), math.exp(high), len(ratios))


def _words(ratios: Sequence[float]) -> str:
    if len(ratios) < FEWEST:
        return f"not known: tried on {len(ratios)} other models on this machine, {FEWEST} are needed"
    gain = _gain(ratios)
    usual, low, high = (100 * (1 - 1 / factor) for factor in (gain.factor, gain.low, gain.high))
    return (f"{usual:.1f} % less time ({low:.1f} to {high:.1f} in {LEVEL * 10:.0f} of 10, "
            f"by {gain.models} models tried on this machine)")


def _ratios(settings: Settings, machine: str, kind: str) -> dict[str, dict[str, float]]:
    """Return by change or advice, and by model, the ratio that its last trial on this machine measured."""
    by_name: dict[str, dict[str, float]] = {}
    try:
        with History.open(settings.config.storage.baselines_dir, create=False) as history:
            for key in [*history.keys()]:
                if key.metric.startswith(kind) and key.machine == machine:
                    last = history.samples(key)["value"][-1].as_py()
                    by_name.setdefault(key.metric.removeprefix(kind), {})[key.benchmark] = last
    except NoBaseline:
        pass
    return by_name
