"""A counter that is zero on every kernel was not counted: a known fault of several of AMD's GPUs and drivers.

Nsight Compute says of what it did not count that it is not there, so a zero of its metrics is one. Their names have two
underscores after the unit (Nsight Compute documentation, Metrics Structure); no counter of AMD's does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.truth.finding import Finding
from aaco.core.words import plural

OF_NSIGHT = "__"


def dead_counters(batches: Iterable[pa.RecordBatch]) -> Iterator[Finding]:
    """One finding over the batches of the `counters` table: the counters that are zero everywhere."""
    seen: dict[str, list[float]] = {}
    for batch in batches:
        table = pa.Table.from_batches([batch]).select(["counter", "value"])
        sums = table.append_column("size", pc.abs(table["value"])).group_by("counter").aggregate(
            [("size", "max"), ("value", "count")])
        for name, most, count in zip(*(sums[column].to_pylist() for column in ("counter", "size_max", "value_count")),
                                     strict=True):
            if OF_NSIGHT not in name:
                row = seen.setdefault(name, [0.0, 0])
                row[0], row[1] = max(row[0], most or 0.0), row[1] + count
    dead = sorted(name for name, (most, count) in seen.items() if count and not most)
    if dead:
        named = ", ".join(dead[:5]) + (f" and {len(dead) - 5} more" if len(dead) > 5 else "")
        yield Finding("counters_all_zero", "doubt", len(dead), len(seen),
                      f"{len(dead):,} of {plural(len(seen), 'counter')} zero on every kernel: {named}; readings of "
                      "them are absent where all of their block is zero",
                      "a counter of work that was not done is rightly zero; else update the driver")


