"""Many small kernels: how long dispatches take, which of them are too short to hide their launch, what the gaps are.

Counted per dispatch as a trace streams by, never from averages by name: of a kernel of 12 us on average half the
dispatches may be short.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from msgspec import Struct

from aaco.analytics.streaming.stream_ids import NONE, NameIds, grow, integers
from aaco.analytics.timeline.activity import NO_HOST
from aaco.analytics.timeline.idle import IdlePart
from aaco.analytics.timeline.trace import DeviceTrace
from aaco.core import documents
from aaco.core.arrays import Ints
from aaco.tracelake import layout

COLUMNS = ("kernel_name", "device_id", "dur_ns")
EDGES_US = (0, 1, 5, 10, 50, 100, 500, 1000, 5000)  # of the histogram; the last bucket has no end
TOP = 10
UNNAMED = "unnamed"


class Bucket(Struct, frozen=True):
    """Dispatches that took at least from_us and less than to_us (None: however long)."""

    from_us: int
    to_us: int | None
    count: int
    ns: int


class ShortKernel(Struct, frozen=True):
    """A kernel by name: its dispatches below the threshold, and all of them."""

    kernel_name: str
    count: int
    ns: int
    calls: int
    total_ns: int


@documents.document(layout.finding("launch_tax"), version=1)
class LaunchTax(Struct, frozen=True):
    """buckets sum to kernels and kernel_ns. short: of dispatches below below_ns, short_ns their time; top: the kernels
    with most of them, of `names` that have any. gaps: the devices' idle time by cause, which sums to idle_ns.
    why_no_causes: why most of it is of no known cause, where no launch is known. score: launch_tax_score
    over wall_ns, the time of the inferences of a run, else over span_ns; None if that is 0."""

    buckets: tuple[Bucket, ...]
    kernels: int
    kernel_ns: int
    below_ns: int
    short: int
    short_ns: int
    names: int
    top: tuple[ShortKernel, ...]
    span_ns: int
    idle_ns: int
    gaps: Mapping[str, IdlePart]
    score: float | None
    why_no_causes: str | None = None
    wall_ns: int | None = None


def score(short_share: float, launch_rate_hz: float) -> float:
    """Return the score: share of short dispatches (0-1) x dispatches per second / 1000."""
    return short_share * launch_rate_hz / 1000


class Durations:
    """Takes in slices of the kernels table: counts and sums by bucket, and by name of the short ones."""

    def __init__(self, below_ns: int) -> None:
        self._below_ns = below_ns
        self._names = NameIds()
        self._buckets = np.zeros((len(EDGES_US), 2), np.int64)
        self._by_name = np.zeros((0, 4), np.int64)  # short, their time, all, their time

    def feed(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Count rows with COLUMNS, in any order. Kernels of the host and those without a valid duration do not count.
        """
        length, name = integers(rows["dur_ns"]), self._names.numbers(rows["kernel_name"])
        is_counted = (integers(rows["device_id"]) != NONE) & (length >= 0)
        length, name = length[is_counted], name[is_counted] + 1
        name[name < 0] = 0  # without a name
        bucket = np.searchsorted(1000 * np.array(EDGES_US), length, side="right") - 1
        _count(self._buckets, bucket, length)
        self._by_name = grow(self._by_name, len(self._names) + 1, 0)
        short = length < self._below_ns
        _count(self._by_name[:, :2], name[short], length[short])
        _count(self._by_name[:, 2:], name, length)

    def result(self, trace: DeviceTrace, wall_ns: int | None = None) -> LaunchTax:
        """Return the answer, with the gaps that the examination of the trace found. wall_ns: of a run, of its
        inferences."""
        kernels, kernel_ns = self._buckets.sum(axis=0).tolist()
        short, short_ns = self._by_name[:, :2].sum(axis=0).tolist()
        span = trace.sum("span_ns")
        lanes = trace.idle.devices
        gaps = {cause: IdlePart(sum(lane.causes[cause].count for lane in lanes),
                                sum(lane.causes[cause].ns for lane in lanes))
                for cause in (lanes[0].causes if lanes else ())}
        wall = wall_ns or span
        rate = score(short / kernels, 1e9 * kernels / wall) if kernels and wall else None
        edges = [*EDGES_US[1:], None]
        why_not = None if trace.launches.linked else NO_HOST
        return LaunchTax(
            tuple(Bucket(begin, end, *counted) for begin, end, counted in
                  zip(EDGES_US, edges, self._buckets.tolist(), strict=True)),
            kernels, kernel_ns, self._below_ns, short, short_ns, int((self._by_name[:, 0] > 0).sum()),
            tuple(self._top()), span, sum(lane.idle_ns for lane in lanes), gaps, rate, why_not, wall_ns)

    def _top(self) -> list[ShortKernel]:
        """Return the kernels with most short dispatches."""
        order = np.lexsort((np.arange(len(self._by_name)), -self._by_name[:, 1], -self._by_name[:, 0]))[:TOP]
        names = [UNNAMED, *self._names.known]
        return [ShortKernel(names[row], *self._by_name[row].tolist()) for row in order.tolist()
                if self._by_name[row, 0]]


def _count(totals: Ints, at: Ints, length: Ints) -> None:
    """Add how many there are, and their sum, in place."""
    np.add.at(totals[:, 0], at, 1)
    np.add.at(totals[:, 1], at, length)
