"""What each process of a comparison cost: how long it took, from its start to its end, and the energy of that time.

The counters count all that their hardware does. A process that holds both sides says nothing of either; a control holds
one of them twice, so controls show what either side costs, with the loading of the model.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from aaco.collectors.gpu import energy_counters
from aaco.collectors.host import rapl
from aaco.collectors.host.rapl import EnergyCounter
from aaco.core.providers import ON_CUDA
from aaco.core.readings import Absent
from aaco.runner.duet import ModelSide
from aaco.runner.pairs import DuetPlan
from aaco.tracelake.document_schemas.evidence import DuetCost
from aaco.workflows.duet.sides import PreparedSide


class Meter:
    """Notes what each process costs. counted: of which hardware, empty where no counter is read; why_not: then why."""

    def __init__(self, both: Sequence[PreparedSide], energy: bool) -> None:
        self.costs: list[DuetCost] = []
        self.counted, self.why_not, self._counter = "", "", None
        try:
            self._counter = _counter(both) if energy else None
            self.counted = self._counter.what if self._counter else ""
        except Absent as reason:
            self.why_not = str(reason)

    @contextmanager
    def process(self, planned: DuetPlan) -> Iterator[None]:
        """Note what a process costs that runs to its end during the block."""
        began, before = time.monotonic(), self._read()
        yield
        took_s, after = time.monotonic() - began, self._read()
        joules = self._counter.joules(before, after) if self._counter and before and after else None
        self.costs.append(DuetCost(process=planned.process, kind=planned.kind, took_s=took_s, energy_j=joules))

    def close(self) -> None:
        """Let the counter go."""
        if self._counter:
            self._counter.close()

    def _read(self) -> tuple[int, ...] | None:
        """Return the counter's values; None where it cannot be read, or not any more."""
        try:
            return self._counter.read() if self._counter else None
        except Absent as reason:
            self.counted, self.why_not = "", str(reason)
            return None


def _counter(both: Sequence[PreparedSide]) -> EnergyCounter:
    """Return the counter of the hardware that works for both sides. Raise Absent."""
    if all(side.on_host for side in both):
        return rapl.of_packages()
    numbers = {_device(side) for side in both}
    if None in numbers or len(numbers) > 1:
        raise Absent("the sides run on other devices than one of NVIDIA's")
    return energy_counters.of_device(int(numbers.pop() or 0))


def _device(side: PreparedSide) -> str | None:
    """Return CUDA's number of the device of a side; None for another provider."""
    if side.facts["provider"] not in ON_CUDA or not isinstance(side.runs, ModelSide):
        return None
    return side.runs.workload.backend.provider_options.get("device_id", "0")
