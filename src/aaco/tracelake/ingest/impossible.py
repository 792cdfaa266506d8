"""Impossible durations: a kernel that lasts over whole later kernels of its own queue, which runs one at a time.

ROCm's tracer writes such ends when a stalled queue hands over its time stamps late. The row stays, without its times,
so that they are in no sum and no window. It must be an exception: RARE on its queue, and FAR times as long as is usual
for its name, or, of a name with fewer than USUAL executions, as the longest of all others on the queue. Where records
span each other more often, several queues were merged, and none of them is known to be false.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.core import distinct
from aaco.core.arrays import Flags, Ints
from aaco.core.session import Session
from aaco.core.tables import KERNELS
from aaco.tracelake import queries, store

IMPOSSIBLE = "it lasts over whole later kernels of its queue"
SPANNED = 2  # kernels that it outlasts: one may outlast the next while it drains
DRAIN_NS = 5_000
FAR, USUAL = 10, 4
RARE = 0.01
QUEUE = ("capture", "device_id", "queue_id", "stream_id")
NUMBERS = ("kernel_id", *QUEUE, "t_start_ns", "t_end_ns")
TIMES = ("t_start_ns", "t_end_ns", "dur_ns")
NAME_LETTERS = 60


@dataclass(frozen=True)
class ImpossibleDurations:
    """Kernels of one capture with impossible durations: how many, their time, the longest of them, and the last end
    of all others."""

    count: int
    ns: int
    longest: str
    end_ns: int | None

    @property
    def reason(self) -> str:
        """Return why their times are left out, as captures.json names it."""
        return f"kernel: {IMPOSSIBLE} ({self.longest})"


@dataclass
class _Queue:
    """What is known of a queue. rows: of the last kernels id, start, end; suspects: ids and durations."""

    rows: Ints = field(default_factory=lambda: np.zeros((3, 0), np.int64))
    suspects: dict[int, int] = field(default_factory=dict)
    kernels: int = 0
    longest_ns: int = 0  # of the kernels that are no suspects

    def add(self, rows: Ints) -> None:
        """Take the next kernels. A kernel is judged as soon as SPANNED more are there, or never."""
        self.kernels += rows.shape[1]
        ids, start, end = held = np.append(self.rows, rows, axis=1)
        judged = max(0, len(ids) - SPANNED)
        ends_behind = np.maximum.reduce([end[at:judged + at] for at in range(1, SPANNED + 1)])
        spans = (end[:judged] > ends_behind) & (end[:judged] - start[1:judged + 1] > DRAIN_NS)
        took = (end - start)[:judged]
        self.suspects |= dict(zip(ids[:judged][spans].tolist(), took[spans].tolist(), strict=True))
        self.longest_ns = max(self.longest_ns, int(took[~spans].max(initial=0)))
        self.rows = held[:, judged:]


def take_out(session: Session) -> dict[int, ImpossibleDurations]:
    """Take the times from kernels with impossible durations; return these by capture. Raise BadBundle, StorageError."""
    impossible = _find(session)
    if not impossible:
        return {}
    ids = np.array(sorted(impossible))
    rows = pa.Table.from_batches(_rows(session, ids, ("kernel_id", "capture", "kernel_name", "dur_ns")))
    store.stream(session, KERNELS, _without_times(session, ids))
    return {capture: _of_capture(session, capture, rows.filter(pc.equal(rows["capture"], capture)))
            for capture in rows["capture"].unique().to_pylist()}


def _of_capture(session: Session, capture: int, rows: pa.Table) -> ImpossibleDurations:
    rows = rows.sort_by([("dur_ns", "descending")])
    name = "".join(letter if letter.isprintable() else "?" for letter in str(rows["kernel_name"][0])[:NAME_LETTERS])
    ends = [pc.max(batch.filter(pc.equal(batch["capture"], capture))["t_end_ns"]).as_py()
            for batch in queries.batches(session, KERNELS, ("capture", "t_end_ns"))]
    return ImpossibleDurations(rows.num_rows, pc.sum(rows["dur_ns"]).as_py(), f"{name}, {rows['dur_ns'][0]} ns",
                               max((end for end in ends if end is not None), default=None))


def _find(session: Session) -> set[int]:
    """Return the ids of the kernels with impossible durations."""
    queues: defaultdict[tuple[int, ...], _Queue] = defaultdict(_Queue)
    for batch in queries.batches(session, KERNELS, NUMBERS):
        timed = ~np.logical_or.reduce([batch[name].is_null() for name in ("device_id", "t_start_ns", "t_end_ns")])
        columns = {name: np.asarray(batch[name].fill_null(-1), np.int64)[timed] for name in NUMBERS}
        rows = np.stack([columns[name] for name in ("kernel_id", "t_start_ns", "t_end_ns")])
        keys, place = distinct.combinations(*(columns[name] for name in QUEUE))
        for number, key in enumerate(keys):
            queues[key].add(rows[:, place == number])
    rare = [queue for queue in queues.values() if 0 < len(queue.suspects) <= max(1, RARE * queue.kernels)]
    return _far(session, rare) if rare else set()


def _far(session: Session, queues: list[_Queue]) -> set[int]:
    """Return the suspects that take FAR times as long as usual."""
    ids = np.array(sorted(number for queue in queues for number in queue.suspects))
    names = pa.Table.from_batches(_rows(session, ids, ("kernel_id", "kernel_name")))
    asked = dict(zip(names["kernel_id"].to_pylist(), names["kernel_name"].to_pylist(), strict=True))
    usual = {name: _usual_ns(session, name) for name in set(asked.values())}
    return {number for queue in queues for number, took in queue.suspects.items()
            if took > FAR * (usual[asked[number]] or queue.longest_ns)}


def _usual_ns(session: Session, name: str) -> float | None:
    """Return the median duration of the kernels of a name; None of fewer than USUAL."""
    took = np.concatenate([np.asarray(batch.filter(pc.equal(batch["kernel_name"].cast(pa.string()), name))["dur_ns"]
                                      .drop_null(), np.int64)
                           for batch in queries.batches(session, KERNELS, ("kernel_name", "dur_ns"))])
    return float(np.median(took)) if len(took) >= USUAL else None


def _rows(session: Session, ids: Ints, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    for batch in queries.batches(session, KERNELS, columns):
        yield batch.filter(pa.array(_among(batch, ids)))


def _among(batch: pa.RecordBatch, ids: Ints) -> Flags:
    return np.isin(np.asarray(batch["kernel_id"]), ids)


def _without_times(session: Session, ids: Ints) -> Iterator[pa.Table]:
    """Yield the whole table, these kernels without their times."""
    for batch in queries.batches(session, KERNELS):
        table, known = pa.Table.from_batches([batch], KERNELS.schema), pa.array(~_among(batch, ids))
        for name in TIMES:
            place = table.schema.get_field_index(name)
            table = table.set_column(place, table.schema.field(place), pc.if_else(known, table[name], None))
        yield table
