"""Which calls surely end after all Python functions called inside, by their domains and names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from aaco.core.arrays import Ints
from aaco.tracelake.ingest.calltree import Role

OF_DOMAIN = {"cpu_op": Role.HOLDS, "python": Role.HOLDS | Role.RETURNS}
C_FUNCTION = "<built-in "  # as Python names what is not written in Python; its end may be late


class CallRoles:
    """The Role of calls. domains, names: of the codes in columns `domain` and `name`."""

    def __init__(self, domains: Sequence[str], names: Sequence[str]) -> None:
        self._of_domain = np.array([*(OF_DOMAIN.get(domain, Role.ANY) for domain in domains), Role.ANY], np.int64)
        self._least = np.array([*(Role.RETURNS if name.startswith(C_FUNCTION) else ~Role.ANY for name in names),
                                ~Role.ANY], np.int64)

    def of(self, calls: pa.Table) -> Ints:
        """Return the role of each call."""
        domain, name = (_codes(calls, column) for column in ("domain", "name"))
        return self._of_domain[domain] & self._least[name]


def _codes(calls: pa.Table, column: str) -> Ints:
    """Return the codes of a column, -1 where there is none."""
    if column not in calls.schema.names:
        return np.full(calls.num_rows, -1)
    return np.asarray(calls[column].cast(pa.int64()).fill_null(-1).combine_chunks())
