"""Impossible durations: a kernel or copy that lasts over whole later work of its own queue, which does one at a time.

ROCm's tracer writes such ends when a stalled queue hands over its time stamps late. The row stays, without its times,
so that they are in no sum and no window. It must be an exception: RARE on its queue, and FAR times as long as is usual
for its name, or, of a name with fewer than USUAL executions, as the longest of all others on the queue. Where records
span each other more often, several queues were merged, and none of them is known to be false. Copies without a stream
or queue are judged by nothing: a device copies both ways at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from aaco.core import distinct
from aaco.core.arrays import Flags, Ints
from aaco.core.session import Session
from aaco.core.tables import COPIES, KERNELS, TableSpec
from aaco.core.words import in_time
from aaco.tracelake import queries, store

IMPOSSIBLE = "it lasts over whole later work of its queue"
SPANNED = 2  # pieces of work that it outlasts: one may outlast the next while it drains
DRAIN_NS = 5_000
FAR, USUAL = 10, 4
RARE = 0.01
QUEUE = ("capture", "device_id", "queue_id", "stream_id")
TIMES = ("t_start_ns", "t_end_ns", "dur_ns")
NAME_LETTERS = 60


class _Kind(Struct, frozen=True):
    """A table of work. key, name: its columns of numbers and names. word: what a row is called."""

    spec: TableSpec
    key: str
    name: str
    word: str


KINDS = (_Kind(KERNELS, "kernel_id", "kernel_name", "kernel"), _Kind(COPIES, "copy_id", "kind", "copy"))


class ImpossibleDurations(Struct, frozen=True):
    """Rows of one table and capture with impossible durations: how many, their time, the longest of them, and the last
    end of all others."""

    table: str
    capture: int
    word: str
    count: int
    ns: int
    longest: str
    end_ns: int | None

    @property
    def reason(self) -> str:
        """Return why their times are left out, as captures.json names it."""
        return f"{self.word}: {IMPOSSIBLE} ({self.longest})"


class _Queue(Struct):
    """What is known of a queue. rows: of the last work kind, id, start, end; suspects: durations by kind and id."""

    rows: Ints = field(default_factory=lambda: np.zeros((4, 0), np.int64))
    suspects: dict[tuple[int, int], int] = field(default_factory=dict)
    work: int = 0
    longest_ns: int = 0  # of the work that is no suspect

    def add(self, rows: Ints) -> None:
        """Take the next work. A row is judged as soon as SPANNED more are there, or never."""
        self.work += rows.shape[1]
        kind, ids, start, end = held = np.append(self.rows, rows, axis=1)
        judged = max(0, len(ids) - SPANNED)
        ends_behind = np.maximum.reduce([end[at:judged + at] for at in range(1, SPANNED + 1)])
        spans = (end[:judged] > ends_behind) & (end[:judged] - start[1:judged + 1] > DRAIN_NS)
        took = (end - start)[:judged]
        suspects = zip(kind[:judged][spans].tolist(), ids[:judged][spans].tolist(), strict=True)
        self.suspects |= dict(zip(suspects, took[spans].tolist(), strict=True))
        self.longest_ns = max(self.longest_ns, int(took[~spans].max(initial=0)))
        self.rows = held[:, judged:]


def take_out(session: Session) -> Iterator[ImpossibleDurations]:
    """Take the times from work with impossible durations; yield what it was by table and capture. Raise BadBundle,
    StorageError."""
    impossible = _find(session)
    for number, kind in enumerate(KINDS):
        ids = np.array(sorted(row for of, row in impossible if of == number), np.int64)
        if not len(ids):
            continue
        rows = pa.Table.from_batches(_rows(session, kind, ids, (kind.key, "capture", kind.name, "dur_ns")))
        store.stream(session, kind.spec, _without_times(session, kind, ids))
        for capture in rows["capture"].unique().to_pylist():
            yield _of_capture(session, kind, capture, rows.filter(pc.equal(rows["capture"], capture)))


def _of_capture(session: Session, kind: _Kind, capture: int, rows: pa.Table) -> ImpossibleDurations:
    rows = rows.sort_by([("dur_ns", "descending")])
    name = "".join(letter if letter.isprintable() else "?" for letter in str(rows[kind.name][0])[:NAME_LETTERS])
    ends = [pc.max(batch.filter(pc.equal(batch["capture"], capture))["t_end_ns"]).as_py()
            for batch in queries.batches(session, kind.spec, ("capture", "t_end_ns"))]
    return ImpossibleDurations(kind.spec.name, capture, kind.word, rows.num_rows, pc.sum(rows["dur_ns"]).as_py(),
                               f"{name}, {in_time(rows['dur_ns'][0].as_py())}",
                               max((end for end in ends if end is not None), default=None))


def _find(session: Session) -> set[tuple[int, int]]:
    """Return the kind, its place in KINDS, and id of what has an impossible duration."""
    queues: defaultdict[tuple[int, ...], _Queue] = defaultdict(_Queue)
    columns = {kind.spec.name: (kind.key, *QUEUE, "t_start_ns", "t_end_ns") for kind in KINDS}
    for piece in queries.slices(session, columns):
        parts = [_timed(number, piece.tables[kind.spec.name]) for number, kind in enumerate(KINDS)]
        work = np.concatenate(parts, axis=1)
        work = work[:, np.argsort(work[2], kind="stable")]
        keys, place = distinct.combinations(*work[4:])
        for number, key in enumerate(keys):
            queues[key].add(work[:4, place == number])
    rare = [queue for queue in queues.values() if 0 < len(queue.suspects) <= max(1, RARE * queue.work)]
    return _far(session, rare) if rare else set()


def _timed(number: int, table: pa.Table) -> Ints:
    """Return the rows that can be judged, in columns: kind, id, start, end and QUEUE; -1 where something is unknown."""
    key, *_ = table.column_names
    columns = [np.asarray(table[name].fill_null(-1), np.int64) for name in (key, "t_start_ns", "t_end_ns", *QUEUE)]
    rows = np.stack([np.full(table.num_rows, number), *columns])
    timed = (rows[2] != -1) & (rows[3] != -1) & (rows[5] != -1)
    if KINDS[number].spec is COPIES:
        timed &= (rows[6] != -1) | (rows[7] != -1)
    return rows[:, timed]


def _far(session: Session, queues: list[_Queue]) -> set[tuple[int, int]]:
    """Return the suspects that take FAR times as long as usual."""
    impossible: set[tuple[int, int]] = set()
    for number, kind in enumerate(KINDS):
        ids = np.array(sorted(row for queue in queues for of, row in queue.suspects if of == number), np.int64)
        if not len(ids):
            continue
        names = pa.Table.from_batches(_rows(session, kind, ids, (kind.key, kind.name)))
        asked = dict(zip(names[kind.key].to_pylist(), names[kind.name].to_pylist(), strict=True))
        usual = {name: _usual_ns(session, kind, name) for name in set(asked.values())}
        impossible |= {(of, row) for queue in queues for (of, row), took in queue.suspects.items()
                  if of == number and took > FAR * (usual[asked[row]] or queue.longest_ns)}
    return impossible


def _usual_ns(session: Session, kind: _Kind, name: str) -> float | None:
    """Return the median duration of the rows of a name; None of fewer than USUAL."""
    took = np.concatenate([np.asarray(batch.filter(pc.equal(batch[kind.name].cast(pa.string()), name))["dur_ns"]
                                      .drop_null(), np.int64)
                           for batch in queries.batches(session, kind.spec, (kind.name, "dur_ns"))])
    return float(np.median(took)) if len(took) >= USUAL else None


def _rows(session: Session, kind: _Kind, ids: Ints, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    for batch in queries.batches(session, kind.spec, columns):
        yield batch.filter(pa.array(_among(batch, kind, ids)))


def _among(batch: pa.RecordBatch, kind: _Kind, ids: Ints) -> Flags:
    return np.isin(np.asarray(batch[kind.key]), ids)


def _without_times(session: Session, kind: _Kind, ids: Ints) -> Iterator[pa.Table]:
    """Yield the whole table, these rows without their times."""
    for batch in queries.batches(session, kind.spec):
        table, timed = pa.Table.from_batches([batch], kind.spec.schema), pa.array(~_among(batch, kind, ids))
        for name in TIMES:
            place = table.schema.get_field_index(name)
            table = table.set_column(place, table.schema.field(place), pc.if_else(timed, table[name], None))
        yield table
