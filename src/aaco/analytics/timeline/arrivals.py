"""When each participant of a collective operation arrives, and how long it waits for the last one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from msgspec import Struct

from aaco.analytics.streaming.stream_ids import integers
from aaco.analytics.timeline.collectives import BETWEEN_TWO, COLUMNS, CollectiveKernels, last_of
from aaco.core.arrays import Ints


class Arrivals(Struct, frozen=True):
    """The kernels of collectives that several devices take part in, sends and receives left out: one row each.

    operation: number of the shared operation, index of `names`. own_start: on the device's own clock; start, end: on
    one clock for all. wait: ns from its own start to that of the last participant, within its own duration. late: the
    device that starts last. clock_ns: how far the captures' clocks may differ; shifted: whether they were aligned
    by the operations' ends.
    """

    kernel_id: Ints
    device: Ints
    operation: Ints
    own_start: Ints
    start: Ints
    end: Ints
    wait: Ints
    late: Ints
    names: tuple[str, ...]
    clock_ns: int
    shifted: bool


def arrivals(table: pa.Table, kernel_id: Ints, start: Ints, end: Ints, device: Ints,
             devices: Sequence[tuple[int, ...]]) -> Arrivals | None:
    """Return the waits of all participants; None if no operation has several participants.

    table: the collectives table; the other columns: its kernels that ran, in any order. devices: (capture, device) by
    number.
    """
    ids = integers(table["kernel_id"])
    order = np.argsort(ids, kind="stable")
    rows = order[np.searchsorted(ids[order], kernel_id)] if len(kernel_id) else np.zeros(0, np.int64)
    if not len(rows):
        return None
    kernels = CollectiveKernels(table.select(COLUMNS).take(pa.array(rows)), start, end, device)
    arrived = _of_kernels(kernels, devices, kernel_id)
    return arrived if len(arrived.kernel_id) else None


def _of_kernels(kernels: CollectiveKernels, devices: Sequence[tuple[int, ...]], kernel_id: Ints) -> Arrivals:
    capture = np.array([key[0] for key in devices], np.int64)[kernels.device]
    start, end, clock_ns = kernels.start, kernels.end, kernels.end_difference_ns(capture)
    fits = kernels.fits(capture)
    for capture_id, fit in fits.items():
        start, end = (np.where(capture == capture_id, fit.to_reference(times), times) for times in (start, end))
    if fits:
        clock_ns = max(fit.worst_ns for fit in fits.values())
    index, operation = kernels.operation_index, kernels.operation[kernels.first]
    wait = np.minimum(np.maximum.reduceat(start, kernels.first)[index] - start, kernels.end - kernels.start)
    late = kernels.device[last_of(start, index, kernels.first)]
    pair = [number for number, name in enumerate(kernels.names) if name in BETWEEN_TWO]
    shared = (np.bincount(index, minlength=len(kernels.first)) > 1) & ~np.isin(operation, pair)
    rows = np.flatnonzero(shared[index])
    return Arrivals(kernel_id[kernels.order][rows], kernels.device[rows], index[rows], kernels.start[rows],
                    start[rows], end[rows], np.maximum(wait[rows], 0), late[index[rows]],
                    tuple(kernels.name(int(number)) for number in operation), clock_ns, bool(fits))
