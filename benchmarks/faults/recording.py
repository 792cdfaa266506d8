"""A recording of the fault bench as labelled runs: each compared with the sound runs of its model."""

from __future__ import annotations

import gzip
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aaco.analytics.root_cause import signals
from aaco.analytics.root_cause.likelihood import SOUND
from aaco.analytics.root_cause.symptoms import Side, shifts
from benchmarks.faults.learn import COLUMNS, Run

LEAST_IMPACT = math.log(1.05)  # METHODS section 4: what slows down less does not count as a fault
NEAREST = 12  # sound runs of the same model nearest in time, which a run is compared with


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a recording, plain or gzipped."""
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    return [json.loads(line) for line in text.splitlines()]


def runs(rows: Sequence[Mapping[str, Any]]) -> list[Run]:
    """Every run with its shifts; a sound run is compared with the others."""
    graphs = {row["described"]: row for row in rows if "described" in row}
    measured = [row for row in rows if "cause" in row]
    sides = [_side(row, graphs[row["graph"]]) for row in measured]
    found = []
    for index, row in enumerate(measured):
        sound = sorted((other for other, its in enumerate(measured)
                        if its["model"] == row["model"] and its["cause"] == SOUND and other != index),
                       key=lambda other: abs(other - index))[:NEAREST]
        baseline = Side(signals.of_session([sides[other].signals for other in sound]), sides[sound[0]].source,
                        sides[sound[0]].executed, sides[sound[0]].dtypes)
        shown = shifts(baseline, sides[index])
        found.append(Run(row["model"], row["cause"], row["strength"],
                         np.array([shown.get(name, math.nan) for name, _ in COLUMNS]), shown["slowdown"]))
    return found


def counted(found: Sequence[Run]) -> list[Run]:
    """Sound runs, and those of a fault that slows its model down by 5 % or more at that strength (by their median)."""
    impacts = defaultdict[tuple[str, str, int], list[float]](list)
    for run in found:
        impacts[run.model, run.cause, run.strength].append(run.impact)
    slow = {key: float(np.median(values)) >= LEAST_IMPACT for key, values in impacts.items()}
    return [run for run in found if run.cause == SOUND
            or (slow[run.model, run.cause, run.strength] and run.impact >= LEAST_IMPACT
                and all(slow.get((run.model, part, run.strength), False) for part in run.cause.split("+")))]


def _side(row: Mapping[str, Any], graph: Mapping[str, Any]) -> Side:
    more = {"elements": float(row["elements"]), "shapes": float(row["shapes"])}
    return Side({**row["signals"], **more}, graph["source"], graph["executed"], graph["dtypes"])
