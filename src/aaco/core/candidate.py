"""A change that can be tried on a session, and one that cannot, with its reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

ALREADY = "already so"


@dataclass(frozen=True)
class Candidate:
    """Something to try. advice: the actions (analytics/advice) that it puts to the test.

    settings: what differs from the session, by the names that `aaco compare --option-b` takes. rewrite: the name of a
    rewrite of the model file (optimize/rewriting.py), or empty. precisions: the coarser types, by numpy's names, that
    it computes in. batch_factor: how many times the samples an inference holds.
    """

    name: str
    title: str
    settings: Mapping[str, str] = field(default_factory=dict)
    advice: tuple[str, ...] = ()
    rewrite: str = ""
    precisions: tuple[str, ...] = ()
    batch_factor: int = 1

    @property
    def lossy(self) -> bool:
        """Whether it changes the arithmetic, so that its error is stated and must be accepted."""
        return bool(self.precisions)

    def conflicts(self, other: Candidate) -> bool:
        """Return whether the two cannot be made together: both set the same thing, or both rewrite the model."""
        return bool(self.settings.keys() & other.settings.keys()) or bool(self.rewrite and other.rewrite)


@dataclass(frozen=True)
class Inapplicable:
    """A change that cannot be tried here, and why."""

    name: str
    title: str
    why: str
    advice: tuple[str, ...] = ()


def unless(change: Candidate, *reasons: tuple[bool, str]) -> Candidate | Inapplicable:
    """Return the change; or, by the first of the conditions that holds, why it cannot be tried."""
    why = next((reason for holds, reason in reasons if holds), "")
    return Inapplicable(change.name, change.title, why, change.advice) if why else change


def together(parts: Iterable[Candidate]) -> Candidate:
    """Return several changes as one. They must not conflict."""
    members = sorted(parts, key=lambda change: change.name)
    settings = {name: setting for change in members for name, setting in change.settings.items()}
    factor = max(change.batch_factor for change in members)
    return Candidate(" + ".join(change.name for change in members), "; ".join(change.title for change in members),
                  settings, tuple(dict.fromkeys(action for change in members for action in change.advice)),
                  next((change.rewrite for change in members if change.rewrite), ""),
                  tuple(kind for change in members for kind in change.precisions), factor)
