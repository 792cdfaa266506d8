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
from aaco.analytics.root_cause.causes import SOUND
from aaco.analytics.root_cause.symptoms import Side, shifts
from aaco.core.statistics import mad_sigma
from benchmarks.faults.learn import COLUMNS, Run

ONE_SIDED = 1.645
LEAST_IMPACT = math.log(1.05)  # what slows down less does not count as a fault
# Recordings by a sampler that did not yet say that the root group has no quota. Their hosts ran all but the planted
# quotas in the root group (tests/captures/faults/README.md), so that nothing stopped them.
IN_ROOT_GROUP = frozenset({"h100_host.jsonl.gz", "h100_host_2.jsonl.gz"})
NEAREST = 12  # sound runs of the same model nearest in time, which a run is compared with


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a recording, plain or gzipped, with what its group tells of quotas."""
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    for row in rows if path.name in IN_ROOT_GROUP else ():
        if "cpu_quota" not in row.get("cause", "cpu_quota"):
            row["signals"]["throttled_ratio"] = 0.0
    return rows


def labelled(paths: Sequence[Path]) -> list[Run]:
    """The runs that count of several recordings, each compared with the sound runs of its own machine."""
    return [run for path in paths for run in counted(runs(read(path)))]


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
    """Sound runs, and those of a fault whose impact on its model at that strength was shown.

    Shown: the median slowdown of its runs is 5 % or more, and more than so many sound runs of the model scatter by
    (one-sided, 95 %). Of those, the runs that were themselves slowed down by 5 %.
    """
    impacts = defaultdict[tuple[str, str, int], list[float]](list)
    for run in found:
        impacts[run.model, run.cause, run.strength].append(run.impact)
    spread = {model: mad_sigma(values) for (model, cause, _), values in impacts.items() if cause == SOUND}

    def shown(model: str, cause: str, strength: int) -> bool:
        values = impacts[model, cause, strength]
        return bool(values) and float(np.median(values)) >= max(
            LEAST_IMPACT, ONE_SIDED * spread[model] / math.sqrt(len(values)))

    return [run for run in found if run.cause == SOUND
            or (run.impact >= LEAST_IMPACT and shown(run.model, run.cause, run.strength)
                and all(shown(run.model, part, run.strength) for part in run.cause.split("+")))]


def provenance(paths: Sequence[Path]) -> dict[str, Any]:
    """Where and when recordings were made, one machine each, and of how many runs."""
    recorded = [read(path) for path in paths]
    heads = [next(row for row in rows if "machine" in row) for rows in recorded]
    measured = [row for rows in recorded for row in rows if "cause" in row]
    said = {name: "; ".join(dict.fromkeys(head[name] for head in heads))
            for name in ("machine", "date", "onnxruntime", "kernel")}
    return {**said, "machines": len(paths), "recordings": [path.name for path in paths],
            "recorded_runs": len(measured), "models": sorted({row["model"] for row in measured}),
            "derived": "throttled: none where no quota was planted, because those runs were in the root control group"}


def _side(row: Mapping[str, Any], graph: Mapping[str, Any]) -> Side:
    more = {"elements": float(row["elements"]), "shapes": float(row["shapes"])}
    return Side({**row["signals"], **more}, graph["source"], graph["executed"], graph["dtypes"])
