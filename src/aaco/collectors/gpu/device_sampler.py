"""The common part of the device samplers: a thread that writes every sample to a file at once.

A kill loses nothing that was sampled. Times are CLOCK_MONOTONIC. A lost device has no more rows, and the account says
since when and why.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from aaco.collectors.gpu import device_samples
from aaco.collectors.recording import RecordFormat, append
from aaco.core import files
from aaco.core.errors import StorageError

Lost = Callable[[int, int, str], None]  # device, time, why


class DeviceSampler(ABC):
    """Samples every device of one source until `stop`; writes `raw` as it goes, and finer samples to a file next to it.

    tell: called when a device is lost.
    """

    def __init__(self, source: str, form: RecordFormat, period_s: float, raw: Path) -> None:
        self.source, self.form, self.period_s, self.raw = source, form, period_s, raw
        self.finer = raw.with_name(device_samples.PREFIX + raw.name)
        self.lost: dict[int, str] = {}
        self.unread: dict[int, str] = {}  # readings of devices in an unknown format
        self.facts: dict[str, Any] = {}  # of the devices, for the account
        self.tell: Lost = lambda device, t_ns, why: None
        self._stopped, self.last = threading.Event(), False
        self._thread = threading.Thread(target=self._watch, name=f"aaco-{source}", daemon=True)
        self._failure: StorageError | None = None
        self._files: dict[Path, IO[bytes]] = {}
        self._samples, self._fresh, self._cpu_s, self._began, self._ended = 0, 0, 0.0, 0.0, 0.0
        self._before: dict[int, tuple[int, ...]] = {}

    @abstractmethod
    def rows(self) -> Sequence[tuple[int, ...]]:
        """Return one record per device, as it is now: time, device number, values. Leave out devices in `lost`."""

    def samples(self) -> Sequence[device_samples.Record]:
        """Return the finer samples since the previous call."""
        return ()

    @abstractmethod
    def close(self) -> None:
        """Release what the devices are read through."""

    def start(self) -> None:
        """Write the header and the first sample, and continue in the background. Raise StorageError."""
        with files.storage(self.raw):
            self.raw.parent.mkdir(parents=True, exist_ok=True)
            self._began = time.monotonic()
            self._write(self.raw, self.form, b"")
            self._sample()
        self._thread.start()

    def stop(self) -> None:
        """Take the last sample. Raise StorageError if the disk refused one."""
        self._stopped.set()
        self._thread.join()
        for file in self._files.values():
            file.close()
        self.close()
        if self._failure:
            raise self._failure

    def lose(self, device: int, why: str) -> None:
        """Mark a device as gone: it has no more rows."""
        if device not in self.lost:
            self.lost[device] = why
            self.tell(device, time.monotonic_ns(), why)

    @property
    def overhead(self) -> dict[str, Any]:
        """Return the sampler's overhead: CPU time of its thread, its rate, and the rate of rows with new values."""
        wall_s = self._ended - self._began
        looks = self._samples - 1
        return {"tier": self.source, "wall_s": wall_s, "cpu_s": self._cpu_s, "samples": self._samples,
                "asked_rate_hz": 1 / self.period_s, "rate_hz": looks / wall_s if wall_s else None,
                "news_rate_hz": self._fresh / len(self._before) / wall_s if wall_s and self._before else None}

    def _watch(self) -> None:
        try:
            with files.storage(self.raw):
                while not self._stopped.wait(self.period_s):
                    self._sample()
                self.last = True
                self._sample()
        except StorageError as error:
            self._failure = error

    def _sample(self) -> None:
        rows = self.rows()
        self._write(self.raw, self.form, np.array(list(rows), self.form.record).tobytes())
        for _, device, *values in rows:
            reading = tuple(values)
            self._fresh += device in self._before and self._before[device] != reading
            self._before[device] = reading
        if finer := self.samples():
            content = np.array(list(finer), device_samples.FORMAT.record).tobytes()
            self._write(self.finer, device_samples.FORMAT, content)
        self._samples += 1
        self._ended, self._cpu_s = time.monotonic(), time.thread_time()

    def _write(self, path: Path, form: RecordFormat, content: bytes) -> None:
        if path not in self._files:
            self._files[path] = path.open("wb", buffering=0)
            append(self._files[path], form.header)
        append(self._files[path], content)
