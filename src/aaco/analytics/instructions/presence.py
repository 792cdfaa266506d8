"""What traced waves were doing over time, and how many waves there were at once."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

COURSE = 64  # parts of the time line


class WaveOccupancy(Struct, frozen=True):
    """Waves present on the compute units of the traced shader engines.

    compute_units: those that had a wave. mean_waves: per such compute unit, over the span. peak_waves: most on one.
    course: mean waves per compute unit in each of COURSE equal parts of the span. unpaired: beginnings without an end
    and ends without a beginning in the capture, which are not counted.
    """

    waves: int
    compute_units: int
    span_cycles: int
    mean_waves: float
    peak_waves: int
    course: tuple[float, ...]
    unpaired: int


def states(wave_states: pa.Table) -> dict[str, int]:
    """Return the cycles in each state, summed over the traced waves, the longest first."""
    timed = wave_states.filter(pc.is_valid(wave_states["cycles"]))
    summed = timed.group_by("state").aggregate([("cycles", "sum")])
    pairs = zip(summed["state"].to_pylist(), summed["cycles_sum"].to_pylist(), strict=True)
    return dict(sorted(((str(state), int(cycles)) for state, cycles in pairs), key=lambda pair: (-pair[1], pair[0])))


def occupancy(events: pa.Table) -> WaveOccupancy | None:
    """Return the occupancy from the table of one capture; None if no wave has both its ends."""
    places = ("shader_engine", "cu", "simd", "slot")
    timed = events.filter(pc.is_valid(events["cycle"]))
    columns = [pc.fill_null(timed[name], -1).to_numpy() for name in places]
    cycle, begins = timed["cycle"].to_numpy(), pc.fill_null(timed["begins"], False).to_numpy(zero_copy_only=False)
    order = np.lexsort((begins, cycle, *reversed(columns)))  # an end and a beginning in one cycle: first the end
    columns, cycle, begins = [column[order] for column in columns], cycle[order], begins[order]
    same = np.ones(max(len(cycle) - 1, 0), bool)
    for column in columns:
        same &= column[1:] == column[:-1]
    pair = same & begins[:-1] & ~begins[1:]
    first = np.flatnonzero(pair)
    if not len(first):
        return None
    start, end = cycle[first], cycle[first + 1]
    unit = np.unique(np.stack([column[first] for column in columns[:2]], axis=1), axis=0, return_inverse=True)[1]
    unit = unit.reshape(-1)
    units, low, high = int(unit.max()) + 1, int(start.min()), int(end.max())
    span = max(high - low, 1)
    edges = np.linspace(low, high, COURSE + 1)
    course = [np.clip(np.minimum(end, b) - np.maximum(start, a), 0, None).sum() / max(b - a, 1e-9) / units
              for a, b in pairwise(edges)]
    return WaveOccupancy(len(first), units, high - low, float((end - start).sum() / span / units),
                         _peak(unit, start, end),
                         tuple(float(value) for value in course), len(cycle) - 2 * len(first))


def _peak(unit: np.ndarray, start: np.ndarray, end: np.ndarray) -> int:
    """Return the most waves at once on one compute unit."""
    at = np.concatenate((start, end))
    change = np.concatenate((np.ones(len(start), np.int64), -np.ones(len(end), np.int64)))
    where = np.concatenate((unit, unit))
    order = np.lexsort((change, at, where))
    running = np.cumsum(change[order])  # returns to 0 at the end of each unit: all its waves end
    return int(running.max())
