"""Samples the energy counters of the processor's packages (RAPL): joules since it began, of all of them together."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from aaco.collectors.gpu import device_samples
from aaco.collectors.gpu.device_sampler import DeviceSampler
from aaco.collectors.host import rapl
from aaco.collectors.host.rapl import POWERCAP
from aaco.collectors.recording import RecordFormat
from aaco.core.readings import Absent, or_why

SOURCE = "rapl"
KIND = "package_energy"
FORMAT = RecordFormat("package sampler", "aaco llm --telemetry", b"AACORAPL", 1, np.dtype([("t_ns", "<i8")]))


def why_not() -> str | None:
    """Return why the counters cannot be read; None if they can."""
    return or_why(rapl.of_packages)[1] or None


class PackageSampler(DeviceSampler):
    """Samples until `stop`; it has no rows of devices. Raises Absent where there is no counter that can be read."""

    def __init__(self, period_s: float = 0.1, *, raw: Path, root: Path = POWERCAP) -> None:
        super().__init__(SOURCE, FORMAT, period_s, raw)
        self._counter = rapl.of_packages(root)
        self._reading, self._joules = self._counter.read(), 0.0

    def rows(self) -> Sequence[tuple[int, ...]]:
        """Return none: the packages are no device."""
        return ()

    def samples(self) -> Sequence[device_samples.Record]:
        """Return the energy so far; none once the counter cannot be read."""
        try:
            begin, reading, end = time.monotonic_ns(), self._counter.read(), time.monotonic_ns()
        except Absent as reason:
            self.lose(device_samples.HOST, str(reason))
            return ()
        self._joules += self._counter.joules(self._reading, reading)
        self._reading = reading
        return [((begin + end) // 2, device_samples.HOST, device_samples.CODES[KIND], self._joules)]

    def close(self) -> None:
        """Release the counters."""
        self._counter.close()
