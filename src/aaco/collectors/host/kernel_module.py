"""Samples of a process, and markers, by the optional kernel module of native/kmod, through /dev/aaco.

The module samples from a kernel worker. So a busy machine delays it less than the sampler of /proc, and its switches
and faults include what threads did until their end. Nothing else needs it. A row counts what happened in an interval,
which ends at `t_ns` and lasts as its `sample` row says; the run-queue wait is of the threads that live.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from aaco.collectors.host.kernel_device import ABI_VERSION, DEVICE, LABEL_BYTES, KernelModuleConnection, Stats
from aaco.collectors.recording import RecordFormat, append, begin
from aaco.core import files
from aaco.core.errors import BadCapture, Missing, StorageError
from aaco.core.tables import SYSTEM_EVENTS

TIER, CLOCK = "kmod", "monotonic"
EVENT = np.dtype([("t_ns", "<i8"), ("value", "<u8"), ("type", "<u2"), ("cpu", "<u2"), ("lost_before", "<u4"),
                  ("process_id", "<i4"), ("thread_id", "<i4"), ("label", f"S{LABEL_BYTES}")])
# Type -> kind, unit of `value`; where the unit is empty, the kind is a time, in dur_ns.
KINDS = {
    0x001: ("marker", ""), 0x100: ("sample", ""), 0x101: ("run_queue_wait", ""), 0x102: ("switch_voluntary", "count"),
    0x103: ("switch_involuntary", "count"), 0x104: ("fault_minor", "count"), 0x105: ("fault_major", "count"),
    0x200: ("fence_created", "sequence"), 0x201: ("fence_signaled", "sequence"),
}
_FORMAT = RecordFormat("kernel module", "record it again", b"AACOKMOD", ABI_VERSION, EVENT)


class KernelModuleSampler:
    """Samples a process until it ends or `stop` is called; writes `raw` as events come. Times: CLOCK_MONOTONIC."""

    def __init__(self, pid: int, period_s: float = 0.1, *, raw: Path, device: Path = DEVICE) -> None:
        self.pid, self.period_s, self.raw, self.device = pid, period_s, raw, device
        self._thread = threading.Thread(target=self._watch, name="aaco-kernel-module", daemon=True)
        self._failure: StorageError | None = None
        self._stats = Stats(0, 0, 0, 0, 0, False)
        self._cpu_s, self._began, self._ended = 0.0, 0.0, 0.0

    def start(self) -> None:
        """Write the header, and continue in the background. Raise Missing, StorageError."""
        self._connection = KernelModuleConnection(self.device)
        try:
            with _module_refusal(self.pid):
                self._connection.start(self.pid, max(1, round(1000 * self.period_s)))
            self._file = begin(self.raw, _FORMAT.header)
        except (Missing, StorageError):
            self._connection.close()
            raise
        self._began = self._ended = time.monotonic()
        self._thread.start()

    def mark(self, label: str) -> None:
        """Put a marker of at most 16 bytes in the calling thread's name.

        Raise UsageError, or Missing when it is over.
        """
        with _module_refusal(self.pid):
            self._connection.mark(label)

    def stop(self) -> pa.Table:
        """Take the last sample and return the whole table. Raise StorageError if the disk refused an event."""
        self._connection.stop()
        self._thread.join()
        self._stats = self._connection.stats()
        self._ended = time.monotonic()
        self._connection.close()
        self._file.close()
        if self._failure:
            raise self._failure
        return parse(self.raw)

    @property
    def overhead(self) -> dict[str, float | int | str | None]:
        """Return the sampler's overhead: CPU time of its reader and of the module, samples taken, events lost."""
        wall_s = self._ended - self._began
        cpu_s = self._cpu_s + self._stats.sampling_ns / 1e9
        return {"tier": TIER, "wall_s": wall_s, "cpu_s": cpu_s, "samples": self._stats.samples,
                "lost": self._stats.lost, "cpu_s_per_s": cpu_s / wall_s if wall_s else None,
                "asked_rate_hz": 1 / self.period_s, "rate_hz": self._stats.samples / wall_s if wall_s else None}

    def _watch(self) -> None:
        try:
            with files.storage(self.raw):
                while content := self._connection.read():
                    append(self._file, content)
                    self._cpu_s = time.thread_time()
        except StorageError as error:
            self._failure = error


def parse(raw: Path) -> pa.Table:
    """Return the system_events of a sampler's file, without an unfinished last event. Raise BadCapture."""
    events = _FORMAT.read(raw)
    if not np.isin(events["type"], list(KINDS)).all():
        raise BadCapture(f"{raw}: holds events of unknown types", "record it again")
    return _build_table(events)


def _build_table(events: np.ndarray) -> pa.Table:
    codes = np.array(list(KINDS))
    at = np.searchsorted(codes, events["type"])
    kinds, units = (np.array(names)[at] for names in zip(*KINDS.values(), strict=True))
    marker, counted = kinds == "marker", units != ""
    return SYSTEM_EVENTS.build(
        t_ns=events["t_ns"], kind=kinds, tier=[TIER] * len(events), clock=[CLOCK] * len(events),
        dur_ns=pa.array(events["value"].astype("i8"), mask=counted | marker),
        value=pa.array(events["value"].astype("f8"), mask=~counted), unit=pa.array(units, mask=~counted),
        process_id=events["process_id"], thread_id=pa.array(events["thread_id"], mask=events["thread_id"] < 0),
        cpu=pa.array(events["cpu"], mask=events["thread_id"] < 0), lost_before=events["lost_before"],
        detail=pa.array([label.decode("utf-8", "replace") for label in events["label"]], pa.string(), mask=~marker))


@contextmanager
def _module_refusal(pid: int) -> Iterator[None]:
    """Raise the module's refusal inside the block as Missing with its reason."""
    try:
        yield
    except OSError as error:
        raise Missing(f"{DEVICE}: process {pid}: {error.strerror}",
                      "watch a process of your own that lives, or run as root") from error
