"""The measured process's own account, shared out over its iterations."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.core.arrays import Ints, Reals

AMOUNTS = ("run_queue_wait_ns", "switches_involuntary", "switches_voluntary", "faults_minor", "faults_major")
CANARIES = ("core_canary_ns", "memory_canary_ns")


def of_iterations(inference_iters: pa.Table, account: pa.Table) -> dict[str, pa.Array]:
    """Return, per iteration, what was counted while it ran and the canaries next to it; null if unknown.

    Amounts between two readings are spread evenly over the time between them.
    """
    values_by_name = {name: np.full(inference_iters.num_rows, np.nan) for name in (*AMOUNTS, *CANARIES)}
    ran_in = inference_iters["process"].to_numpy()
    start, end = (inference_iters[name].to_numpy() for name in ("t_start_ns", "t_end_ns"))
    for process in np.unique(ran_in):
        rows, readings = ran_in == process, account.filter(pc.equal(account["process"], process))
        if not readings.num_rows:
            continue
        at = readings["t_ns"].to_numpy()
        for name in AMOUNTS:
            values_by_name[name][rows] = _amounts(at, _reals(readings[name]), start[rows], end[rows])
        for name in CANARIES:
            values_by_name[name][rows] = _nearest_mean(at, _reals(readings[name]), start[rows], end[rows])
    return {name: pa.array(values, mask=np.isnan(values)) for name, values in values_by_name.items()}


def _amounts(at: Ints, amounts: Reals, start: Ints, end: Ints) -> Reals:
    """Return the amounts of the intervals that end at `at`, summed over [start, end); NaN if an interval has none."""
    missing = np.cumsum(np.isnan(amounts))  # intervals without an amount, up to and with each
    total = np.cumsum(np.nan_to_num(amounts))
    first, last = np.searchsorted(at, start, "right"), np.searchsorted(at, end, "left")  # intervals they begin, end in
    inside = (first > 0) & (last < len(at))
    last = np.minimum(last, len(at) - 1)
    is_complete = inside & (missing[last] == missing[np.maximum(first - 1, 0)])
    return np.where(is_complete, np.interp(end, at, total) - np.interp(start, at, total), np.nan)


def _nearest_mean(at: Ints, values: Reals, start: Ints, end: Ints) -> Reals:
    """Return the mean of the last known value before the start and the first after the end; of one where there is one.
    """
    is_present = ~np.isnan(values)
    at, values = at[is_present], np.append(values[is_present], np.nan)  # the added one is for places beyond either end
    before, after = np.searchsorted(at, start, "right") - 1, np.searchsorted(at, end, "left")
    pair = np.stack((values[before], values[after]))  # -1 is the added one, too
    count = (~np.isnan(pair)).sum(axis=0)
    return np.where(count > 0, np.nansum(pair, axis=0) / np.maximum(count, 1), np.nan)


def _reals(column: pa.ChunkedArray) -> Reals:
    return column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
