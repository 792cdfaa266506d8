"""Traces what the kernel does to one process, its threads and its children: tier T3 of the operating-system plane.

native/bpf/scheduler.bpf.c runs at each switch, migration, interrupt and page fault, keeps exact totals and a histogram
of run-queue wait, and writes records to a ring. A thread of this process moves them to a file, so that a kill loses at
most what is in the ring; once a second it adds the totals. If the ring was full, the records say so.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from aaco.collectors.host import bpf
from aaco.collectors.host.bpf_ring import HEADER_BYTES, PERIOD_S, RECORD, BpfRing, Pump
from aaco.collectors.recording import RecordFormat, begin
from aaco.core.arrays import Structs
from aaco.core.errors import BadCapture
from aaco.core.host import Host
from aaco.core.readings import or_why
from aaco.core.tables import SYSTEM_EVENTS

TIER, CLOCK = "T3", "monotonic"
FEATURE, FAULTS = "scheduler", "faults"
RING_BYTES = 16 << 20  # 233,016 records: at 300,000 a second a busy host may keep the reader waiting for 0.78 s
SETTINGS = struct.Struct("<iII")
AGAIN = "record it again: aaco run --ebpf"
# Codes of native/bpf/record.h, in its order; after them, those of the totals that this module adds to the file.
KINDS = ("off_cpu", "switch_voluntary", "switch_involuntary", "run_queue_wait", "migration", "fault_minor",
         "fault_major", "irq", "softirq", "timer", "futex_wait", "block_io")
REASONS = ("first_run", "preempted", "futex", "block_io", "uninterruptible", "sleep")
# include/linux/interrupt.h
SOFTIRQS = ("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU")
BUCKETS = 64
_CODE = {kind: code for code, kind in enumerate(KINDS)}
_REASON = {reason: code for code, reason in enumerate(REASONS)}
_TOTAL, _BUCKET, _ACCOUNT = 200, 201, 202  # `value` says of which kind or bucket; dur_ns is the time, wait_ns the count
# Version 1 took waits by a clock of its own, from the wakeup.
_FORMAT = RecordFormat("scheduler tracer", AGAIN, b"AACOBPFS", 2, RECORD)
_COUNT_KINDS = ("fault_minor", "fault_major")


class SchedulerTotals(Struct, frozen=True):
    """The kernel's counts, independent of lost records.

    unseen: returns to a CPU that the kernel did not show to our programs; its accounting gave their time and wait when
    the thread left again. of: kind -> (count, ns). histogram: element i counts the run-queue waits of at least 2**i and
    less than 2**(i+1) ns.
    """

    emitted: int
    lost: int
    unseen: int
    of: dict[str, tuple[int, int]]
    histogram: tuple[int, ...]


class SchedulerTracer:
    """Traces a process until `stop`; writes `raw` as it goes. Times are CLOCK_MONOTONIC.

    Children that the process starts while it is traced are traced too. Each page fault gets its duration if the kernel
    allows that; otherwise faults are counted. events: whether single events are recorded, or only totals and the
    histogram. weigh: let the kernel time our programs. That costs some 80 ns each run, of all BPF programs on this
    host, and needs CAP_SYS_ADMIN.
    """

    def __init__(self, pid: int, *, raw: Path, events: bool = True, weigh: bool = False, period_s: float = PERIOD_S,
                 ring_bytes: int = RING_BYTES) -> None:
        self.pid, self.raw, self.period_s = pid, raw, period_s
        self._events, self._weigh, self._ring_bytes = events, weigh, ring_bytes
        self._overhead: dict[str, Any] = {"tier": TIER}

    def start(self) -> None:
        """Load the programs, let them run, and move records in the background. Raise Missing, StorageError."""
        began, spent = time.monotonic(), time.process_time()
        with ExitStack() as opened:
            self._features = list(self._load(opened))
            self._rings = [opened.enter_context(BpfRing(feature, self._ring_bytes)) for feature in self._features]
            file = opened.enter_context(begin(self.raw, _FORMAT.header))
            self._pump = Pump(self._rings, file, self.period_s, lambda: _pack_totals(self._totals()))
            if self._weigh:
                opened.callback(os.close, bpf.statistics())
            for feature in self._features:
                feature.attach()
            self._opened = opened.pop_all()
        self._began = time.monotonic()
        self._overhead |= {"load_s": self._began - began, "load_cpu_s": time.process_time() - spent}
        self._pump.start()

    def stop(self) -> pa.Table:
        """Remove the programs, move what is left and return the whole table. Raise StorageError."""
        with self._opened:
            runs = self.runs()
            for feature in self._features:
                feature.detach()
            wall_s = time.monotonic() - self._began
            self._pump.stop()
            totals = self._totals()
        self._overhead |= {
            "wall_s": wall_s, "cpu_s": self._pump.cpu_s, "emitted": totals.emitted, "lost": totals.lost,
            "unseen": totals.unseen, "records": sum(ring.consumed for ring in self._rings),
            "missed": sum(missed for _, _, missed in runs.values()),
            "bpf_s": sum(ns for ns, _, _ in runs.values()) / 1e9 if self._weigh else None}
        if self._pump.failure:
            raise self._pump.failure
        return parse(self.raw)

    @property
    def overhead(self) -> dict[str, Any]:
        """Return the tracer's overhead, complete after `stop`.

        load_s, load_cpu_s: bringing the programs into the kernel; cpu_s: moving records; bpf_s: inside our programs, if
        it was weighed. Records read, records that the kernel emitted, records lost because a ring was full, and runs
        missed because a program interrupted itself. unseen: see SchedulerTotals. why_no_fault_latency: null if faults
        have durations.
        """
        return dict(self._overhead)

    def runs(self) -> dict[str, tuple[int, int, int]]:
        """Return, while tracing: ns, runs and refused runs by feature/program; ns and runs are 0 unless weighed."""
        return {f"{feature.name}/{title}": run for feature in self._features for title, run in feature.runs().items()}

    def _load(self, opened: ExitStack) -> Iterator[bpf.Feature]:
        """Yield the scheduler feature and, if this kernel takes it, the one that times page faults."""
        refused = why_no_fault_latency(Host())
        self._overhead["why_no_fault_latency"] = refused
        entries = {"ring": self._ring_bytes}
        yield opened.enter_context(
            bpf.Feature(FEATURE, SETTINGS.pack(self.pid, self._events, refused is not None), entries))
        if refused is None:
            yield opened.enter_context(bpf.Feature(FAULTS, SETTINGS.pack(self.pid, self._events, 0), entries))

    def _totals(self) -> SchedulerTotals:
        per_cpu = [words for feature in self._features for words in feature.per_cpu("accounts")]
        emitted, lost, _, *counts = map(sum, zip(*per_cpu, strict=True))
        of = {kind: (counts[2 * code], counts[2 * code + 1]) for kind, code in _CODE.items()}
        return SchedulerTotals(emitted, lost, of.pop("off_cpu")[0], of, tuple(counts[2 * len(KINDS):]))


def why_not(host: Host) -> str | None:
    """Return why this tier cannot trace here; None if it can. Loads the programs for a moment: only that is proof."""
    return _why_not_loaded(FEATURE, host)


@cache
def why_no_fault_latency(host: Host) -> str | None:
    """Return why page faults cannot be timed on this host, only counted; None if they can."""
    return _why_not_loaded(FAULTS, host)


def _why_not_loaded(feature: str, host: Host) -> str | None:
    return or_why(lambda: bpf.loads(feature)(host))[1] or None


def parse(raw: Path) -> pa.Table:
    """Return the system_events of a tracer's file, in order of time, without an unfinished last record.

    Raise BadCapture. A stay off the CPU becomes a switch (dur_ns: until the thread ran again), the wait for a CPU at
    its end, and, if it was one, a futex or block-I/O wait, which ends where the wait for a CPU begins. Programs choose
    their names freely: they are data only.
    """
    records = _read_records(raw)
    events = records[records["kind"] < len(KINDS)]
    pieces = list(_split_by_kind(events))
    return pa.concat_tables(pieces).unify_dictionaries().combine_chunks().sort_by("t_ns")


def totals(raw: Path) -> SchedulerTotals:
    """Return the kernel's counts when the file was last updated. Raise BadCapture if it never was."""
    records = _read_records(raw)
    last = np.flatnonzero(records["kind"] == _ACCOUNT)
    if not len(last):
        raise BadCapture(f"{raw}: ends before its first totals", AGAIN)
    account = records[last[-1]]
    block = records[max(0, last[-1] - len(KINDS) - BUCKETS):last[-1]]
    kinds, buckets = block[block["kind"] == _TOTAL], block[block["kind"] == _BUCKET]
    if kinds["value"].tolist() != list(range(len(KINDS))) or len(buckets) != BUCKETS:
        raise BadCapture(f"{raw}: holds damaged totals", AGAIN)
    of = {KINDS[code]: (count, ns) for code, count, ns in zip(
        kinds["value"].tolist(), kinds["wait_ns"].tolist(), kinds["dur_ns"].tolist(), strict=True)}
    unseen, _ = of.pop("off_cpu")
    return SchedulerTotals(int(account["wait_ns"]), int(account["dur_ns"]), unseen, of,
                           tuple(buckets["wait_ns"].tolist()))


def _pack_totals(totals: SchedulerTotals) -> bytes:
    """Return the totals as records of the file: one per kind, one per bucket, and last the account."""
    of = {"off_cpu": (totals.unseen, 0)} | totals.of
    rows = [(_TOTAL, _CODE[kind], ns, count) for kind, (count, ns) in of.items()]
    rows += [(_BUCKET, bucket, 0, count) for bucket, count in enumerate(totals.histogram)]
    rows += [(_ACCOUNT, 0, totals.lost, totals.emitted)]
    packed = np.zeros(len(rows), RECORD)
    packed["kind"], packed["value"], packed["dur_ns"], packed["wait_ns"] = zip(*rows, strict=True)
    packed["length"] = RECORD.itemsize - HEADER_BYTES
    return packed.tobytes()


def _read_records(raw: Path) -> Structs:
    records: Structs = _FORMAT.read(raw)
    if not _is_sound(records):
        raise BadCapture(f"{raw}: holds damaged records", AGAIN)
    return records


def _is_sound(records: Structs) -> bool:
    """Return whether all are of known kinds, and no time is negative or begins before 0."""
    kind, end = records["kind"], records["t_ns"]
    event = kind < len(KINDS)
    is_defined = event | (kind == _ACCOUNT) | ((kind == _TOTAL) & (records["value"] < len(KINDS))) | (kind == _BUCKET)
    times = [records[name] for name in ("t_ns", "dur_ns", "wait_ns")]
    inside = ~event | ((times[1] <= end) & (times[2] <= end))
    return bool((is_defined & inside & (records["reason"] < len(REASONS)) & (times[0] >= 0) & (times[1] >= 0)
                 & (times[2] >= 0) & (records["length"] == RECORD.itemsize - HEADER_BYTES)).all())


def _split_by_kind(events: Structs) -> Iterator[pa.Table]:
    """Yield tables of one kind each. A loss is reported once: by the row of the record itself."""
    off = events[events["kind"] == _CODE["off_cpu"]]
    reason = off["reason"]
    first, preempted, blocked = off[reason == 0], off[reason == 1], off[reason > 1]
    yield _rows("run_queue_wait", first, first["wait_ns"], lost=True)
    yield _rows("switch_involuntary", preempted, preempted["dur_ns"], lost=True, cpu=preempted["value"],
                other_process=preempted["other"], detail=_decode_names(preempted["name"]))
    yield _rows("switch_voluntary", blocked, blocked["dur_ns"], lost=True, cpu=blocked["value"],
                other_process=blocked["other"], detail=_names_of_codes(REASONS, blocked["reason"]))
    again = off[(reason > 0) & (off["wait_ns"] > 0)]
    yield _rows("run_queue_wait", again, again["wait_ns"])
    for kind, why in (("futex_wait", "futex"), ("block_io", "block_io")):
        waited = off[reason == _REASON[why]]
        yield _rows(kind, waited, waited["dur_ns"], dur_ns=np.maximum(waited["dur_ns"] - waited["wait_ns"], 0))
    yield from _single_event_tables(events)


def _single_event_tables(events: Structs) -> Iterator[pa.Table]:
    moved = events[events["kind"] == _CODE["migration"]]
    yield _rows("migration", moved, 0, lost=True, dur_ns=_mask_untimed(moved), cpu=None, value=moved["value"],
                unit=["cpu"] * len(moved))
    for kind in _COUNT_KINDS:
        faults = events[events["kind"] == _CODE[kind]]
        yield _rows(kind, faults, faults["dur_ns"], dur_ns=_mask_untimed(faults), lost=True, value=faults["value"],
                    unit=["count"] * len(faults))
    irqs, softirqs, timers = (events[events["kind"] == _CODE[kind]] for kind in ("irq", "softirq", "timer"))
    yield _rows("irq", irqs, irqs["dur_ns"], lost=True, detail=_decode_names(irqs["name"]))
    yield _rows("softirq", softirqs, softirqs["dur_ns"], lost=True, detail=_names_of_codes(SOFTIRQS, softirqs["value"]))
    yield _rows("timer", timers, timers["dur_ns"], lost=True, detail=_names_of_codes(("local_timer",), timers["value"]))


def _rows(kind: str, records: Structs, length: Any, *, dur_ns: Any = None, lost: bool = False,
          **columns: Any) -> pa.Table:
    """Return rows that begin `length` ns before the record's time, and last as long unless dur_ns is given."""
    count = len(records)
    missing = records["lost"] if lost else np.zeros(count, np.uint32)
    optional = {"cpu": records["cpu"]} | columns
    return SYSTEM_EVENTS.build(
        t_ns=records["t_ns"] - length, dur_ns=length if dur_ns is None else dur_ns, kind=[kind] * count,
        process_id=records["process"], thread_id=records["thread"], tier=[TIER] * count, clock=[CLOCK] * count,
        lost_before=pa.array(missing.astype(np.int64), mask=missing == 0), **optional)


def _mask_untimed(records: Structs) -> pa.Array:
    """Return durations; null if none was taken."""
    return pa.array(records["dur_ns"], mask=records["dur_ns"] == 0)


def _names_of_codes(names: tuple[str, ...], codes: npt.NDArray[Any]) -> pa.Array:
    """Return names by their number; null for a number without one."""
    is_named = codes < len(names)
    indices = pa.array(np.where(is_named, codes, 0).astype(np.int32), mask=~is_named)
    return pc.dictionary_encode(pa.array(names).take(indices))


def _decode_names(column: npt.NDArray[np.bytes_]) -> pa.Array:
    """Return names that end at their first null character; null if empty."""
    unique, inverse = np.unique(column, return_inverse=True)
    names = [name.partition(b"\0")[0].decode(errors="replace") or None for name in unique.tolist()]
    return pc.dictionary_encode(pa.array(names, pa.string()).take(pa.array(inverse)))
