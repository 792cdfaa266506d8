"""Find the kernel of a dispatch that has its counters in other rows than its times, by process, pass and number; and
the unit of its grid.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from aaco.core.arrays import Ints, joined
from aaco.core.key_index import NONE, KeyIndex

# These calls take the grid in work-items, all others in workgroups (HIP runtime API, module Execution).
GLOBAL_SIZE = ("hipExtModuleLaunchKernel", "hipHccModuleLaunchKernel")


class CounterRows(Struct, frozen=True):
    """Rows of counters: process, replay pass (NONE if not stated) and dispatch of each."""

    process: Ints
    replay: Ints
    dispatch: Ints


class Dispatches:
    """The kernels of the dispatches read so far."""

    def __init__(self) -> None:
        self._traced: dict[int, KeyIndex] = {}  # by process: the kernels of a trace, of any pass
        self._counted: dict[tuple[int, int], KeyIndex] = {}  # by process and pass: kernels known only from counters

    def trace(self, process: Ints, dispatch: Ints, kernels: Ints) -> None:
        """Add the kernels of a trace."""
        for pid in np.unique(process).tolist():
            is_of_pid = process == pid
            self._traced.setdefault(pid, KeyIndex()).add(dispatch[is_of_pid], kernels[is_of_pid])

    def forget(self) -> None:
        """Drop the kernels of the trace: it is of another run."""
        self._traced.clear()

    def kernels(self, rows: CounterRows, number_new: Callable[[int], Ints]) -> tuple[Ints, Ints]:
        """Return the kernel of each row, and the rows that are the first of a new kernel; `number_new` numbers those.
        """
        kernels = np.full(len(rows.dispatch), NONE, np.int64)
        first = []
        for process, replay in sorted(set(zip(rows.process.tolist(), rows.replay.tolist(), strict=True))):
            at = np.flatnonzero((rows.process == process) & (rows.replay == replay))
            keys = rows.dispatch[at]
            traced = self._traced[process].find(keys) if process in self._traced else np.full(len(at), NONE, np.int64)
            places = self._counted.setdefault((process, replay), KeyIndex())
            kernels_before = np.where(traced >= 0, traced, places.find(keys))
            new_keys, first_places = np.unique(keys[kernels_before < 0], return_index=True)
            places.add(new_keys, number_new(len(new_keys)))
            first.append(at[kernels_before < 0][first_places])
            kernels[at] = np.where(kernels_before >= 0, kernels_before, places.find(keys))
        return kernels, np.sort(joined(first))
