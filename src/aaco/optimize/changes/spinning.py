"""Whether the threads of a pool look for work, or sleep, between two operators."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.core.candidate import ALREADY, Candidate, Inapplicable, unless
from aaco.optimize.situation import Situation

SETTING = "session.intra_op.allow_spinning"


def changes(situation: Situation) -> Iterator[Candidate | Inapplicable]:
    """Yield the change, or why it is not there to try."""
    yield unless(Candidate("no_spinning", "Let threads sleep between operators in place of spinning", {SETTING: "0"},
                        ("compare_threads",)),
                 (situation.has(SETTING, "0"), ALREADY),
                 (situation.threads == 1, "one thread has no pool that could spin"))
