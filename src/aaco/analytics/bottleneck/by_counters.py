"""What limits a kernel by its counters: the ceiling that bounds it in kernel_roofline, before its shapes or its name.

Counters are often collected in runs of their own. A kernel without any is judged by those of the same name, where all
of them have the same side.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.bottleneck.costs import NO_SIDE
from aaco.analytics.bottleneck.limiters import WAITS_FOR_MEMORY, Limiter
from aaco.analytics.lanes import Ints, integers

COLUMNS = ("kernel_id", "kernel_name", "bound", "measured_bound", "region", "memory_wait_share")  # of kernel_roofline
# Local memory is neither arithmetic nor the memory whose bandwidth a session shares.
OF_BOUND = {"compute": Limiter.COMPUTE, "dram": Limiter.MEMORY, "l2": Limiter.MEMORY, "l1": Limiter.MEMORY,
            "lds": Limiter.KERNEL}
FAR = "latency_bound"  # the region below a tenth of every roof: no ceiling says what limits such a kernel
OWN_WAITS = -2  # in place of a side: far from every roof, and it waits for itself: nothing that a session shares


@dataclass(frozen=True)
class CountedSides:
    """Limiters, or OWN_WAITS, of the kernels that have a place under the roofs. kernel_id rises; of_name holds NO_SIDE
    for names whose kernels disagree."""

    kernel_id: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    side: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    names: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))
    of_name: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def of_kernels(self, kernels: pa.Table) -> Ints:
        """The limiter of each kernel, by kernel_id and kernel_name; NO_SIDE where no counter says it."""
        if not len(self.kernel_id):
            return np.full(kernels.num_rows, NO_SIDE)
        wanted = integers(kernels["kernel_id"])
        place = np.minimum(np.searchsorted(self.kernel_id, wanted), len(self.kernel_id) - 1)
        own = np.where(self.kernel_id[place] == wanted, self.side[place], NO_SIDE)
        named = integers(pc.index_in(kernels["kernel_name"].cast(pa.string()), self.names).cast(pa.int64()))
        alike = np.append(self.of_name, NO_SIDE)[np.where(named < 0, -1, named)]
        return np.where(own == NO_SIDE, alike, own)


def sides(rooflines: Iterable[pa.Table]) -> CountedSides:
    """The limiters of kernels that have a place. rooflines: pieces of kernel_roofline with COLUMNS."""
    placed = [_placed(piece) for piece in rooflines]
    placed = [piece for piece in placed if piece.num_rows]
    if not placed:
        return CountedSides()
    rows = pa.concat_tables(placed).sort_by("kernel_id")
    by_name = rows.filter(pc.is_valid(rows["kernel_name"])).group_by("kernel_name").aggregate(
        [("side", "min"), ("side", "max")])
    low, high = integers(by_name["side_min"]), integers(by_name["side_max"])
    return CountedSides(integers(rows["kernel_id"]), integers(rows["side"]), by_name["kernel_name"].combine_chunks(),
                        np.where(low == high, low, NO_SIDE))


def _placed(rows: pa.Table) -> pa.Table:
    """kernel_id, kernel_name and side of the kernels that a ceiling bounds."""
    bound = pc.coalesce(rows["measured_bound"].cast(pa.string()), rows["bound"].cast(pa.string()))
    at = pc.index_in(bound, pa.array(list(OF_BOUND)))
    side = np.append(np.array([*OF_BOUND.values()], np.int64), NO_SIDE)[np.asarray(pc.fill_null(at, -1))]
    far = np.asarray(pc.fill_null(pc.equal(rows["region"].cast(pa.string()), FAR), False), bool)
    own = np.asarray(pc.fill_null(pc.less(rows["memory_wait_share"], WAITS_FOR_MEMORY), False), bool)
    side = np.where(far & (side != NO_SIDE), np.where(own, OWN_WAITS, int(Limiter.KERNEL)), side)
    names = rows["kernel_name"].cast(pa.string())
    found = pa.table({"kernel_id": rows["kernel_id"], "kernel_name": names, "side": side})
    return found.filter(pa.array(side != NO_SIDE))
