"""Every context switch and page fault of a process, by perf_event_open(2): tier T2 of the operating-system plane.

The kernel writes a record whenever a watched thread leaves or enters a CPU (attr.context_switch), and at each page
fault (sample_period 1). Users may watch their own processes so up to kernel.perf_event_paranoid 2: no root, no tracefs,
no BPF. A record does not contain the next thread (T3 has it), nor how long a thread that woke up waited for its CPU (T3
and T1 have it).

A thread empties the rings of the CPUs into `raw`. A record that meets a full ring is lost; the kernel counts it, and
the count is in the file at the place of the loss.
"""

from __future__ import annotations

import errno
import os
import select
import threading
import time
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aaco.collectors.host.perf_event import COUNTERS, FIX, NOT_OF_THE_KERNEL, open_event
from aaco.collectors.host.perf_ring import COUNTED, IN, INVOLUNTARY, KINDS, LOST, RECORD, RING_BYTES, WATCHED, PerfRing
from aaco.collectors.recording import RecordFormat, append, begin
from aaco.core import files
from aaco.core.arrays import Ints, Structs
from aaco.core.errors import BadCapture, Missing, StorageError
from aaco.core.host import Host
from aaco.core.tables import SYSTEM_EVENTS

TIER, CLOCK = "T2", "monotonic"
AGAIN = "aaco run --telemetry"
_FORMAT = RecordFormat("switch recorder", AGAIN, b"AACOPERF", 1, RECORD)


class PerfSwitchSampler:
    """Records a process and all that it starts, until `stop`; writes `raw` as it goes. Times are CLOCK_MONOTONIC.

    period_s: how long a record waits at most until it is in the file; a ring a quarter full is emptied at once.
    """

    def __init__(self, pid: int, period_s: float = 0.05, *, raw: Path, host: Host | None = None,
                 ring_bytes: int = RING_BYTES) -> None:
        self.pid, self.period_s, self.raw, self.host = pid, period_s, raw, host or Host()
        self.absent: dict[str, str] = {}  # signal -> why it is not recorded
        self._rings = [PerfRing(cpu, ring_bytes) for cpu in sorted(_online_cpus(self.host))]
        self._counters: dict[str, list[int]] = {}
        self._counts: dict[str, Ints] = {}
        self._thread = threading.Thread(target=self._watch, name="aaco-perf", daemon=True)
        self._failure: StorageError | None = None
        self._records = self._lost = self._began_ns = self._until_ns = 0
        self._cpu_s = 0.0
        self._opened = ExitStack()

    def start(self) -> None:
        """Begin to record. Raise Missing if the kernel refuses, StorageError if the disk does."""
        with ExitStack() as opened:
            opened.callback(self._close)
            try:
                self._open_all()
                self._stopping, self._stop = os.pipe()
            except OSError as error:
                fix = "ulimit -n 65536" if error.errno == errno.EMFILE else FIX
                raise Missing(f"perf_event_open: {error.strerror}", fix) from error
            opened.callback(os.close, self._stopping)
            opened.callback(os.close, self._stop)
            self._file = opened.enter_context(begin(self.raw, _FORMAT.header))
            self._thread.start()
            opened.callback(self._end)
            self._opened = opened.pop_all()

    def stop(self) -> pa.Table:
        """Empty the rings a last time and return the whole table. Raise StorageError if the disk refused any of it."""
        self._opened.close()
        if self._failure:
            raise self._failure
        return parse(self.raw)

    def _end(self) -> None:
        os.write(self._stop, b"x")
        self._thread.join()

    @property
    def overhead(self) -> dict[str, Any]:
        """Return the reader's CPU time (the kernel's part is in the target's), its records, and its losses."""
        wall_s = (self._until_ns - self._began_ns) / 1e9
        return {"tier": TIER, "wall_s": wall_s, "cpu_s": self._cpu_s,
                "cpu_s_per_s": self._cpu_s / wall_s if wall_s else None, "records": self._records, "lost": self._lost,
                "ring_bytes": self._rings[0].size, "absent": self.absent}

    def _open_all(self) -> None:
        """Watch all threads, including those born during the loop, until no pass finds a new one."""
        seen: set[int] = set()
        self._began_ns = self._until_ns = time.monotonic_ns()
        while new := _list_threads(self.pid, self.host) - seen:
            for thread in new:
                with suppress(ProcessLookupError):  # it has ended
                    for ring in self._rings:
                        ring.watch(thread)
                    self._open_counters(thread)
            seen |= new
        if any(ring.without_kernel for ring in self._rings):
            self.absent["faults of the kernel's part"] = NOT_OF_THE_KERNEL

    def _open_counters(self, thread: int) -> None:
        """Open hardware counters, if the processor gives this machine any."""
        for name, event in COUNTERS.items():
            if name not in self.absent:
                try:
                    handle, _ = open_event(event, thread)
                except OSError as error:
                    self.absent[name] = f"perf_event_open: {error.strerror}: no such counter on this processor"
                else:
                    self._counters.setdefault(name, []).append(handle)

    def _watch(self) -> None:
        try:
            with files.storage(self.raw):
                while self._wait():
                    self._drain()
                self._drain()
                self._append_lost()
        except StorageError as error:
            self._failure = error
        self._cpu_s = time.thread_time()

    def _wait(self) -> bool:
        """Wait until the period is over or a ring fills up. Return False on a request to stop."""
        poll = select.poll()
        poll.register(self._stopping, select.POLLIN)
        for ring in self._rings:
            if ring.handles:
                poll.register(ring.handles[0], select.POLLIN)
        ready = [handle for handle, _ in poll.poll(self.period_s * 1000)]
        if ready and self._stopping not in ready:
            time.sleep(0.001)  # once its threads have ended, a descriptor is always ready
        return self._stopping not in ready

    def _drain(self) -> None:
        now = time.monotonic_ns()
        pieces = [ring.take() for ring in self._rings] + [self._interval_rows(now)]
        append(self._file, np.concatenate(pieces).tobytes())
        self._records += sum(map(len, pieces))
        self._lost += sum(int(piece["value"][piece["kind"] == LOST].sum()) for piece in pieces)
        self._until_ns = now

    def _interval_rows(self, now: int) -> Structs:
        """Return rows for the watched interval until now, and its counts."""
        rows: list[tuple[int, ...]] = [(self._until_ns, now - self._until_ns, -1, self.pid, -1, -1, WATCHED)]
        for name, handles in self._counters.items():
            count = np.sum([np.frombuffer(os.read(handle, 32), "<i8", 3) for handle in handles], axis=0)
            grown = count - self._counts.get(name, np.zeros(3, np.int64))
            self._counts[name] = count
            if grown[1] == grown[2]:  # enabled as long as running: the counter was not shared with others
                rows.append((self._until_ns, now - self._until_ns, int(grown[0]), self.pid, -1, -1, KINDS.index(name)))
        return np.array(rows, RECORD)

    def _append_lost(self) -> None:
        """Append the losses at the end, which no record reports."""
        rows = [(self._until_ns, -1, ring.untold(), self.pid, -1, ring.cpu, LOST) for ring in self._rings]
        append(self._file, np.array([row for row in rows if row[2]], RECORD).tobytes())
        self._lost += sum(row[2] for row in rows)

    def _close(self) -> None:
        for ring in self._rings:
            ring.close()
        for handle in chain(*self._counters.values()):
            os.close(handle)


def _list_threads(pid: int, host: Host) -> set[int]:
    try:
        return {int(path.name) for path in (host.proc / str(pid) / "task").iterdir()}
    except OSError:
        return set()


def _online_cpus(host: Host) -> set[int]:
    """Return the CPUs that threads may run on."""
    text = (host.cpus / "online").read_text()
    ends = [part.partition("-") for part in text.strip().split(",")]
    return {cpu for first, _, last in ends for cpu in range(int(first), int(last or first) + 1)}


def parse(raw: Path) -> pa.Table:
    """Return the system_events of a recording, without an unfinished last record. Raise BadCapture.

    A switch lasts until its thread is seen on a CPU again. Its dur_ns is null if that was not seen, or records were
    lost in between. A thread that enters another CPU than the one it left has migrated.
    """
    records = _FORMAT.read(raw)
    if (records["kind"] >= len(KINDS)).any():
        raise BadCapture(f"{raw}: holds records of unknown kinds", AGAIN)
    return _build_table(records)


def _build_table(records: Structs) -> pa.Table:
    switches = records[records["kind"] <= INVOLUNTARY]
    gone, moved = _pair_switches(switches, _find_losses(records))
    others = records[(records["kind"] > INVOLUNTARY) & (records["kind"] != WATCHED)]
    rows = np.concatenate((_merge_watched(records[records["kind"] == WATCHED]), gone, moved, others))
    rows = rows[np.argsort(rows["t_ns"], kind="stable")]
    names = np.where(rows["kind"] == IN, "migration", np.array(KINDS)[rows["kind"]])
    counted = np.isin(rows["kind"], [LOST, IN]) | (rows["kind"] >= COUNTED)
    nulls = {name: pa.array(rows[name].astype(np.int64), mask=rows[name] == -1)
             for name in ("dur_ns", "thread_id", "cpu")}
    units = np.where(rows["kind"] == IN, "cpu", np.where(counted, "count", ""))
    lost = rows["kind"] == LOST
    return SYSTEM_EVENTS.build(
        t_ns=rows["t_ns"], kind=names, process_id=rows["process_id"].astype(np.int64), tier=[TIER] * len(rows),
        clock=[CLOCK] * len(rows), value=pa.array(rows["value"].astype(float), mask=~counted),
        unit=pa.array(units, mask=~counted), lost_before=pa.array(rows["value"], mask=~lost), **nulls)


def _merge_watched(watched: Structs) -> Structs:
    """Return all the intervals of watching as one: they follow each other."""
    if not len(watched):
        return watched
    whole = watched[:1].copy()
    whole["dur_ns"] = watched["t_ns"][-1] + watched["dur_ns"][-1] - watched["t_ns"][0]
    return whole


def _find_losses(records: Structs) -> list[tuple[Ints, Ints]]:
    """Return, by CPU, when records were lost: (begins, ends), each from the last record before to the one that reports
    it.
    """
    spans = []
    for cpu in np.unique(records["cpu"][records["kind"] == LOST]):
        rows = records[records["cpu"] == cpu]
        at = np.flatnonzero(rows["kind"] == LOST)
        before = np.where(at > 0, rows["t_ns"][np.maximum(at - 1, 0)], np.iinfo(np.int64).min)
        spans.append((np.maximum.accumulate(before), np.maximum.accumulate(rows["t_ns"][at])))
    return spans


def _pair_switches(switches: Structs, losses: list[tuple[Ints, Ints]]) -> tuple[Structs, Structs]:
    """Return each time off a CPU, and each arrival on another CPU than before (kind IN; value: the CPU arrived on).

    A thread met while the events were opened is recorded twice: records that repeat the one before are left out.
    """
    rows = switches[np.lexsort((switches["t_ns"], switches["thread_id"]))]
    same = np.zeros(len(rows), bool)
    same[1:] = (rows["thread_id"][1:] == rows["thread_id"][:-1])
    entered = rows["kind"] == IN
    repeats = same.copy()
    repeats[1:] &= entered[1:] == entered[:-1]
    rows, same, entered = rows[~repeats], same[~repeats], entered[~repeats]
    back = np.zeros(len(rows), bool)
    back[:-1] = same[1:] & ~entered[:-1]
    gone, at = rows[~entered].copy(), np.flatnonzero(back)
    until = np.full(len(rows), -1, np.int64)
    until[at] = rows["t_ns"][at + 1]
    for begins, ends in losses:
        until[at[_overlaps(rows["t_ns"][at], rows["t_ns"][at + 1], begins, ends)]] = -1
    until = until[~entered]
    gone["dur_ns"] = np.where(until >= 0, until - gone["t_ns"], -1)
    moved = rows[at + 1][rows["cpu"][at + 1] != rows["cpu"][at]]
    moved["value"] = moved["cpu"]
    return gone, moved


def _overlaps(begin: Ints, end: Ints, begins: Ints, ends: Ints) -> NDArray[np.bool_]:
    """Return, for each interval, whether any of the disjoint spans, which are in order, reaches into it."""
    return np.searchsorted(begins, end, "right") > np.searchsorted(ends, begin, "left")
