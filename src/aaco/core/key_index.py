"""Values by key, for columns that are appended to: sorted runs, each at least twice as long as the next."""

from __future__ import annotations

import numpy as np

from aaco.core.arrays import Ints, find_sorted

NONE = -1


class KeyIndex:
    """Integers by key, appended continuously. Costs 16 bytes per key, and sorts each key a few times."""

    def __init__(self) -> None:
        self._runs: list[tuple[Ints, Ints]] = []  # each sorted by key, each at least twice as long as the next

    def add(self, keys: Ints, values: Ints) -> None:
        """Add the values under the keys. If a key is added twice, `find` may return either value."""
        if len(keys):
            self._runs.append(_sorted(keys, values))
        while len(self._runs) > 1 and len(self._runs[-2][0]) < 2 * len(self._runs[-1][0]):
            pairs = zip(*self._runs[-2:], strict=True)
            self._runs[-2:] = [_sorted(*(np.concatenate(pair) for pair in pairs))]

    def find(self, keys: Ints) -> Ints:
        """Return the value of each key, NONE if there is none."""
        values = np.full(len(keys), NONE, np.int64)
        for run_keys, run_values in reversed(self._runs):
            missing = np.flatnonzero(values == NONE)
            if not len(missing):
                break
            at = find_sorted(run_keys, keys[missing])
            values[missing[at >= 0]] = run_values[at[at >= 0]]
        return values

    def forget(self, before: int) -> None:
        """Forget the keys of lower values."""
        kept = ((keys[values >= before], values[values >= before]) for keys, values in self._runs)
        self._runs = [run for run in kept if len(run[0])]


def _sorted(keys: Ints, values: Ints) -> tuple[Ints, Ints]:
    order = np.argsort(keys, kind="stable")
    return keys[order], values[order]
