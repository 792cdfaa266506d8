"""How often the root cause is right: on the recordings of planted faults that the shipped likelihoods were learnt from.

Blind: the table of the first machine judges the second, which was recorded after all but the rules of signs had been
chosen. All other figures are of runs of both machines that were held out of learning. Made by
`python -m benchmarks.faults --record`, which anybody can run; machine and date are in the recordings.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.claims import Claim
from benchmarks.faults import recording, score

FOLDER = Path(__file__).parents[2] / "tests" / "captures" / "faults"
RECORDINGS = FOLDER / "h100_host.jsonl.gz", FOLDER / "h100_host_2.jsonl.gz"  # in the order of their making
BARS: Mapping[str, float] = {
    "repeats: top-1": 0.97, "repeats: top-3": 0.995, "repeats: ECE": 0.04,
    "repeats: no fault said where there is none": 0.95, "unseen model: top-1": 0.92, "unseen model: top-3": 0.99,
    "unseen strength: top-1": 0.92, "two faults at once: both in the top 3": 0.90, "unknown fault recognised": 0.80}


def claims(captures: Path) -> list[Claim]:
    """Every figure, with a bar where the methods set one."""
    first, second = (recording.labelled([path]) for path in RECORDINGS)
    found = score.blind(first, second) | score.figures([*first, *second])
    made = recording.provenance(RECORDINGS)
    where = f"{made['machines']} of: {made['machine']}, {made['date']}"
    return [Claim("planted faults were recorded on", "", where, None),
            *(_claim(name, value) for name, value in found.items())]


def _claim(name: str, value: score.Figure) -> Claim:
    bar, error = BARS.get(name), isinstance(value, score.Tally)
    figure = value.ece if isinstance(value, score.Tally) else float(np.mean(value))
    met = None if bar is None else figure <= bar if error else figure >= bar
    return Claim(name, "" if bar is None else f"{'<=' if error else '>='} {bar:g}", score.shown(value), met)
