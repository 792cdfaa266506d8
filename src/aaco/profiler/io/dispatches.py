"""Find the kernel of a dispatch whose counters are in other rows than its times, by process, pass and number; and the
unit of its grid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from aaco.core.arrays import Ints, joined

NONE = -1
# These calls take the grid in work-items, all others in workgroups (HIP runtime API, module Execution).
GLOBAL_SIZE = ("hipExtModuleLaunchKernel", "hipHccModuleLaunchKernel")


class KeyIndex:
    """Integers by key, appended continuously. Costs 16 bytes per key, and sorts each key a few times."""

    def __init__(self) -> None:
        self._runs: list[tuple[Ints, Ints]] = []  # each sorted by key, each more than twice as long as the next

    def add(self, keys: Ints, values: Ints) -> None:
        """Add the values under the keys. If a key is added twice, `find` may return either value."""
        order = np.argsort(keys, kind="stable")
        run = keys[order], values[order]
        while self._runs and len(self._runs[-1][0]) <= 2 * len(run[0]):
            run = _merge_runs(self._runs.pop(), run)
        self._runs.append(run)

    def find(self, keys: Ints) -> Ints:
        """Return the value of each key, NONE if there is none."""
        values = np.full(len(keys), NONE, np.int64)
        for run_keys, run_values in self._runs:
            if len(run_keys):
                at = np.minimum(np.searchsorted(run_keys, keys), len(run_keys) - 1)
                values = np.where(run_keys[at] == keys, run_values[at], values)
        return values


@dataclass(frozen=True)
class CounterRows:
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


def _merge_runs(run: tuple[Ints, Ints], second_run: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    keys, values = (np.concatenate(pair) for pair in zip(run, second_run, strict=True))
    order = np.argsort(keys, kind="stable")
    return keys[order], values[order]
