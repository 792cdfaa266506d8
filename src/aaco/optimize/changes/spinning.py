"""Whether the threads of a pool look for work, or sleep, between two operators."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.optimize.change import Change, Inapplicable, Situation

SETTING = "session.intra_op.allow_spinning"
NAME, TITLE = "no_spinning", "Let threads sleep between operators in place of spinning"


def changes(situation: Situation) -> Iterator[Change | Inapplicable]:
    """Yield the change, or why it is not there to try."""
    if situation.settings.get(SETTING) == "0":
        yield Inapplicable(NAME, TITLE, "already so")
    elif situation.settings.get("intra_op_threads") == "1":
        yield Inapplicable(NAME, TITLE, "one thread has no pool that could spin")
    else:
        yield Change(NAME, TITLE, {SETTING: "0"}, ("compare_threads",))
