"""How often the root cause is right: on the recording of planted faults that the shipped likelihoods were learnt from.

Every figure is of runs that were held out of learning. Made by `python -m benchmarks.faults --record`, which anybody
can run; machine and date are in the recording.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.claims import Claim
from benchmarks.faults import recording, score

RECORDING = Path(__file__).parents[2] / "tests" / "captures" / "faults" / "h100_host.jsonl.gz"
BARS: Mapping[str, float] = {
    "repeats: top-1": 0.97, "repeats: top-3": 0.995, "repeats: ECE": 0.04,
    "repeats: no fault said where there is none": 0.95, "unseen model: top-1": 0.92, "unseen model: top-3": 0.99,
    "unseen strength: top-1": 0.92, "two faults at once: both in the top 3": 0.90, "unknown fault recognised": 0.80}


def claims(captures: Path) -> list[Claim]:
    """Every figure, with a bar where the methods set one."""
    rows = recording.read(RECORDING)
    found = score.figures(recording.counted(recording.runs(rows)))
    where = next(f"{row['machine']}, {row['date']}" for row in rows if "machine" in row)
    return [Claim("planted faults were recorded on", "", where, None),
            *(_claim(name, value) for name, value in found.items())]


def _claim(name: str, value: list[bool] | float) -> Claim:
    bar, error = BARS.get(name), name.endswith("ECE")
    figure = float(np.mean(value))
    met = None if bar is None else figure <= bar if error else figure >= bar
    return Claim(name, "" if bar is None else f"{'<=' if error else '>='} {bar:g}", score.shown(value), met)
