"""The scatter of earlier comparisons on this machine, and the record of this one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from aaco.core.errors import NoBaseline
from aaco.core.readings import or_why
from aaco.governance.interleaved import duet
from aaco.governance.interleaved.duet import Unit
from aaco.governance.prior import Prior
from aaco.runner.duet import ModelSide, apart
from aaco.tracelake.history.history import LONGEST, History, Key, Sample
from aaco.workflows.duet.sides import PreparedSide

# Of sides that live in one process; of sides in processes of their own, and of commands.
METRIC, METRIC_APART, UNIT = "later_created_ratio", "later_started_ratio", "ratio"
OF_THE_DEVICE = "device_"  # before those, of the device's times
MOST_RUNS = 50  # the latest: a machine changes


def prior(store: Path, machine: str, sides: Sequence[PreparedSide], device: bool = False) -> tuple[Prior | None, str]:
    """What the controls of earlier runs of either side here say, or why nothing. Raises BadBundle, StorageError.

    device: of the device's times, not of latencies.
    """
    runs: list[tuple[int, list[float]]] = []
    try:
        with History.open(store, create=False) as history:
            keys = set(history.keys())
            for key in dict.fromkeys(_key(side, machine, sides, device) for side in sides):
                if key in keys:
                    runs += _runs(history, key)
    except NoBaseline:
        pass
    return or_why(lambda: duet.prior([values for _, values in sorted(runs)[-MOST_RUNS:]]))


def keep(store: Path, machine: str, session_id: str, sides: Sequence[PreparedSide], units: Sequence[Unit],
         device: bool = False) -> int:
    """Add this run's controls to the history; where both sides are the same thing, all its processes are. How many."""
    samples = []
    for number, unit in enumerate(units):
        if unit.kind == "change" and sides[0].same_as != sides[1].same_as:
            continue
        side = sides[unit.kind == "current control"]
        ratio = float(np.exp(duet.oriented([unit])[0]))
        samples.append(Sample(_key(side, machine, sides, device), session_id, number, ratio, UNIT, "lower_is_better",
                              time.time_ns(), unit.pairs, source="compare"))
    if not samples:
        return 0
    with History.open(store) as history:
        return history.append(samples)


def _key(side: PreparedSide, machine: str, sides: Sequence[PreparedSide], device: bool) -> Key:
    together = isinstance(side.runs, ModelSide) and not apart((sides[0].runs, sides[1].runs))
    metric = (OF_THE_DEVICE if device else "") + (METRIC if together else METRIC_APART)
    return Key(side.label[:LONGEST], metric, machine, side.config)


def _runs(history: History, key: Key) -> list[tuple[int, list[float]]]:
    """Per session its time and log ratios."""
    runs_by_session: dict[str, tuple[int, list[float]]] = {}
    for row in history.samples(key).select(["session_id", "value", "time_ns"]).to_pylist():
        runs_by_session.setdefault(row["session_id"], (row["time_ns"], []))[1].append(float(np.log(row["value"])))
    return list(runs_by_session.values())
