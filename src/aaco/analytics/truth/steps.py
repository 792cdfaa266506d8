"""Steps that are over before any of their work starts: the device's times are not those at which it ran."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from aaco.analytics.streaming.calls import CallKind
from aaco.analytics.timeline.steady_state import Marked
from aaco.analytics.truth.finding import Finding, Slice


class StepCheck:
    """Markers of steps against the start of what is launched in them."""

    def __init__(self) -> None:
        self._marked = Marked()
        self._first_kernel_ns, self._kernels = int(np.iinfo(np.int64).max), 0
        self._launches, self._late_launches = 0, 0

    def add(self, piece: Slice) -> None:
        """Note markers, launches, and the first kernel."""
        self._marked.markers(piece.calls.table)
        start = piece.kernels["t_start_ns"]
        self._first_kernel_ns = min(self._first_kernel_ns, int(start.min(initial=np.iinfo(np.int64).max)))
        self._kernels += len(start)
        launched = piece.calls["t_start_ns"][np.isin(piece.call_part, (CallKind.LAUNCH, CallKind.GRAPH))]
        self._launches += len(launched)
        self._late_launches += int((launched >= self._first_kernel_ns).sum())

    def findings(self) -> Iterator[Finding]:
        """Kernels that all start after the last step, though the steps launched them."""
        steps = self._marked.steps_before(self._first_kernel_ns)
        if steps and self._kernels and self._late_launches < self._launches:
            yield Finding("work_after_all_steps", "wrong", self._kernels, self._kernels,
                          f"all {self._kernels:,} kernels start after the last of {steps} step markers has ended: they "
                          "are not recorded when they ran, so the times of steps are unknown",
                          "record it again, and wait for the device before the profiler stops")
