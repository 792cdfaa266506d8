"""What the devices' time went to by what limits it, in one pass over a session's tables."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from aaco.analytics.bottleneck import by_counters, costs
from aaco.analytics.bottleneck.limiters import Limiter
from aaco.analytics.bottleneck.work import COLUMNS, DeviceWork, Working
from aaco.analytics.devices.ceilings import Ceilings, Identity, theoretical
from aaco.analytics.lanes import Ints, integers
from aaco.core.config import Analysis
from aaco.core.session import Session
from aaco.core.tables import COPIES, KERNEL_ROOFLINE, KERNELS, OP_TO_KERNEL_MAP, OPERATORS
from aaco.tracelake import documents, layout, queries, store

_MAPPED = ("kernel_id", "operator_id")
FILE = layout.EXAMINED["device_work"]


def examine(session: Session, settings: Analysis) -> None:
    """Write device_work.json. Raises BadBundle, StorageError."""
    found = find(session)
    documents.replace(session, FILE, found.document() if found else None)


def find(session: Session) -> DeviceWork | None:
    """What the devices' time went to; None where the session holds no work of a device. Raises BadBundle."""
    if not any(queries.has_values(session, spec, "device_id") for spec in (KERNELS, COPIES)):
        return None
    working, sides = Working(), _Sides(session)
    rooflines = queries.batches(session, KERNEL_ROOFLINE, by_counters.COLUMNS)
    counted = by_counters.sides(pa.Table.from_batches([batch]) for batch in rooflines)
    for piece in queries.slices(session, COLUMNS):
        kernels, copies, calls = (piece.tables[name] for name in COLUMNS)
        working.feed(kernels, copies, calls, sides.of(kernels), counted.of_kernels(kernels))
    return working.result()


class _Sides:
    """The side of the roofline that each kernel's operator is on; reads the map of kernels forward by kernel_id."""

    def __init__(self, session: Session) -> None:
        self._known = _operators(session)
        self._batches = queries.batches(session, OP_TO_KERNEL_MAP, _MAPPED)
        self._held = OP_TO_KERNEL_MAP.build().select(_MAPPED)

    def of(self, kernels: pa.Table) -> Ints:
        """Of these kernels, which come in the order of their ids; costs.NO_SIDE where nothing is known."""
        kernel_id = integers(kernels["kernel_id"])
        if not self._known or not len(kernel_id):
            return np.full(len(kernel_id), costs.NO_SIDE)
        last = int(kernel_id.max())
        while not self._held.num_rows or integers(self._held["kernel_id"])[-1] < last:
            batch = next(self._batches, None)
            if batch is None:
                break
            self._held = pa.concat_tables([self._held, pa.Table.from_batches([batch])]).sort_by("kernel_id")
        found = costs.of_kernels(costs.operator_ids(self._held, kernel_id), self._known)
        rest = np.searchsorted(integers(self._held["kernel_id"]), last, side="right")
        self._held = self._held.slice(int(rest))
        return found


def _operators(session: Session) -> dict[int, Limiter]:
    """The operators whose shapes tell their side."""
    if not store.holds(session, OPERATORS) or not store.holds(session, OP_TO_KERNEL_MAP):
        return {}
    ceilings, found = ceilings_of(session), dict[int, Limiter]()
    for batch in queries.batches(session, OPERATORS, costs.COLUMNS):
        found |= costs.sides(pa.Table.from_batches([batch]), ceilings)
    return found


def ceilings_of(session: Session) -> Ceilings | None:
    """What the devices of the captures can do at most, where they are all of one kind."""
    captures = documents.read(session, layout.CAPTURES).get("captures", [])
    kinds = {(device["arch"], device["compute_units"], device["name"], device["vram_bytes"])
             for one in captures for device in one["devices"]}
    return theoretical(Identity(*next(iter(kinds)))) if len(kinds) == 1 else None
