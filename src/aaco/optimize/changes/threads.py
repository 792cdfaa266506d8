"""How many threads compute an operator: as many as there are CPUs, physical cores, half of them, or one."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.core.candidate import ALREADY, Candidate, Inapplicable, unless
from aaco.core.providers import CPU
from aaco.optimize.situation import Situation


def changes(situation: Situation) -> Iterator[Candidate | Inapplicable]:
    """Yield a change for each count, or why it is not there to try."""
    for count in _counts(situation):
        yield unless(Candidate(f"threads_{count}", f"Compute an operator in {count} thread{'s' if count > 1 else ''}",
                            {"intra_op_threads": str(count)}, _advice(situation)),
                     (situation.provider != CPU, f"{situation.provider} does not compute in these threads"),
                     (situation.threads == count, ALREADY))
    if situation.cpus is None:
        yield Inapplicable("threads", "Compute an operator in more threads",
                           "how many CPUs the run may use is not known", ("fit_threads", "compare_threads"))


def _counts(situation: Situation) -> list[int]:
    """Return the counts to try, the most first."""
    cores = situation.cores or situation.cpus or 1
    return sorted({situation.cpus or 1, cores, max(1, cores // 2), 1}, reverse=True)


def _advice(situation: Situation) -> tuple[str, ...]:
    """Return what a count puts to the test: that they fit, where there are more threads than CPUs now."""
    now, cpus = situation.threads, situation.cpus
    if now is None or cpus is None:
        return "fit_threads", "compare_threads"
    return ("fit_threads",) if cpus < now else ("compare_threads",)
