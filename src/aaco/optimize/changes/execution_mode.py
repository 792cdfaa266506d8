"""Operators of several branches at the same time, in threads of their own, or one after the other."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.core.candidate import ALREADY, Candidate, Inapplicable, unless
from aaco.core.providers import CPU
from aaco.optimize.situation import Situation

MODE, COUNT = "session.execution_mode", "inter_op_threads"
MOST = 4  # operators at the same time: each takes threads of its own for its work


def changes(situation: Situation) -> Iterator[Candidate | Inapplicable]:
    """Yield a change for each count of operators, and the way back, or why it is not there to try."""
    sequential = situation.has(MODE, "sequential")
    yield unless(Candidate("sequential", "Run one operator after the other", {MODE: "sequential"},
                           ("compare_threads",)),
                 (sequential, ALREADY))
    for count in range(2, max(2, min(situation.graph_width or 0, situation.cpus or 2, MOST)) + 1):
        yield unless(Candidate(f"parallel_{count}", f"Run up to {count} operators at the same time",
                            {MODE: "parallel", COUNT: str(count)}, ("compare_threads",)),
                     (situation.provider != CPU, f"{situation.provider} has its own order of operators"),
                     (not sequential and situation.has(COUNT, str(count)), ALREADY),
                     (situation.graph_width is None, "which nodes could run at the same time is not known"),
                     (situation.graph_width == 1, "every node waits for the one before it"),
                     (situation.cpus == 1, "the run may use one CPU"))
