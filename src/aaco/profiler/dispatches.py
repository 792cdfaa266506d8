"""Which kernel a dispatch is, where its counters stand in other rows than its times: by process, pass and number; and
in what its grid counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
NONE = -1
# These calls are given the grid in work-items, every other call in workgroups (HIP runtime API, module Execution).
GLOBAL_SIZE = ("hipExtModuleLaunchKernel", "hipHccModuleLaunchKernel")


class Places:
    """Integers by key, appended to all the time. Costs 16 bytes a key, and sorts each key a few times."""

    def __init__(self) -> None:
        self._runs: list[tuple[Ints, Ints]] = []  # each sorted by key, each more than twice as long as the next

    def add(self, keys: Ints, values: Ints) -> None:
        """Put the values under the keys. Of a key that is there twice, either value may be found."""
        order = np.argsort(keys, kind="stable")
        run = keys[order], values[order]
        while self._runs and len(self._runs[-1][0]) <= 2 * len(run[0]):
            run = _merged(self._runs.pop(), run)
        self._runs.append(run)

    def find(self, keys: Ints) -> Ints:
        """The value of each key, NONE where there is none."""
        found = np.full(len(keys), NONE, np.int64)
        for known, values in self._runs:
            if len(known):
                at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
                found = np.where(known[at] == keys, values[at], found)
        return found


@dataclass(frozen=True)
class Rows:
    """Rows of counters: of each the process, the replay pass (NONE: not said) and the dispatch it is of."""

    process: Ints
    replay: Ints
    dispatch: Ints


class Dispatches:
    """The kernels that dispatches are, as far as they have been read."""

    def __init__(self) -> None:
        self._traced: dict[int, Places] = {}  # by process: the kernels of a trace, whatever the pass
        self._counted: dict[tuple[int, int], Places] = {}  # by process and pass: kernels known from counters alone

    def trace(self, process: Ints, dispatch: Ints, kernels: Ints) -> None:
        """Enter the kernels of a trace."""
        for one in np.unique(process).tolist():
            mine = process == one
            self._traced.setdefault(one, Places()).add(dispatch[mine], kernels[mine])

    def forget(self) -> None:
        """Drop the kernels of the trace: it is of another run."""
        self._traced.clear()

    def kernels(self, rows: Rows, new: Callable[[int], Ints]) -> tuple[Ints, Ints]:
        """The kernel of each row, and the rows that are the first of a kernel not seen before; `new` numbers those."""
        found = np.full(len(rows.dispatch), NONE, np.int64)
        first = []
        for process, replay in sorted(set(zip(rows.process.tolist(), rows.replay.tolist(), strict=True))):
            at = np.flatnonzero((rows.process == process) & (rows.replay == replay))
            keys = rows.dispatch[at]
            traced = self._traced[process].find(keys) if process in self._traced else np.full(len(at), NONE, np.int64)
            places = self._counted.setdefault((process, replay), Places())
            known = np.where(traced >= 0, traced, places.find(keys))
            fresh, where = np.unique(keys[known < 0], return_index=True)
            places.add(fresh, new(len(fresh)))
            first.append(at[known < 0][where])
            found[at] = np.where(known >= 0, known, places.find(keys))
        return found, np.sort(np.concatenate([np.zeros(0, np.int64), *first]))


def _merged(one: tuple[Ints, Ints], other: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    keys, values = (np.concatenate(pair) for pair in zip(one, other, strict=True))
    order = np.argsort(keys, kind="stable")
    return keys[order], values[order]
