"""One rank is late to collective operations, and the others wait for it."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.core.readings import Evidence, Reading
from aaco.core.registry import rule

LEAST_PCT = 5.0  # of a rank's wall


@rule(label="straggler", kind="condition", source="docs/concepts/diagnosis.md", advice=(
    "compare what the late rank does before the collective with the other ranks: their time budgets",
    "give the ranks equal work: shards of equal size, the same data loading, no logging or saving on one rank alone"))
def straggler(straggler_wait_pct: Reading) -> Iterator[Evidence]:
    """Ranks spend much of their time waiting for one that is late throughout."""
    yield straggler_wait_pct.above(LEAST_PCT, "time in which ranks only wait for the late one", essential=True)
