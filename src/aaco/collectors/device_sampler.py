"""What the samplers of devices share: a thread that writes every sample to a file at once.

A kill loses nothing that was sampled. Times are CLOCK_MONOTONIC.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from aaco.collectors.recording import Format, append
from aaco.core import files
from aaco.core.errors import StorageError


class Sampler(ABC):
    """Samples every device of one source until `stop`; `raw` is written as it goes."""

    def __init__(self, source: str, form: Format, period_s: float, raw: Path) -> None:
        self.source, self.form, self.period_s, self.raw = source, form, period_s, raw
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"aaco-{source}", daemon=True)
        self._failure: StorageError | None = None
        self._samples, self._cpu_s, self._began, self._ended = 0, 0.0, 0.0, 0.0

    @abstractmethod
    def rows(self) -> Sequence[tuple[int, ...]]:
        """One record per device, as it is now."""

    @abstractmethod
    def table(self) -> pa.Table:
        """The gpu_events of the file so far."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what the devices are read through."""

    def start(self) -> None:
        """Write the header and the first sample, and go on in the background. Raises StorageError."""
        with files.storage(self.raw):
            self.raw.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.raw.open("wb", buffering=0)
            append(self._file, self.form.header)
            self._began = time.monotonic()
            self._sample()
        self._thread.start()

    def stop(self) -> pa.Table:
        """Return the whole table. Raises StorageError if the disk refused a sample."""
        self._stopped.set()
        self._thread.join()
        self._file.close()
        self.close()
        if self._failure:
            raise self._failure
        return self.table()

    @property
    def overhead(self) -> dict[str, float | int | str | None]:
        """The sampler's own weight: CPU time of its thread, and the rate it reached."""
        wall_s = self._ended - self._began
        return {"tier": self.source, "wall_s": wall_s, "cpu_s": self._cpu_s, "samples": self._samples,
                "asked_rate_hz": 1 / self.period_s, "rate_hz": (self._samples - 1) / wall_s if wall_s else None}

    def _watch(self) -> None:
        try:
            with files.storage(self.raw):
                while not self._stopped.wait(self.period_s):
                    self._sample()
                self._sample()
        except StorageError as error:
            self._failure = error

    def _sample(self) -> None:
        append(self._file, np.array(self.rows(), self.form.record).tobytes())
        self._samples += 1
        self._ended, self._cpu_s = time.monotonic(), time.thread_time()
