"""How long each rank takes for a judged step by itself, from windows.json or from the part of it that this needs.

A rank's own time is that of its window without what it waits for a late rank; per step where the steps of all ranks are
counted, else of the whole window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from msgspec import Struct

from aaco.core.errors import BadBundle

STRAGGLER = "straggler"  # the part of a budget in which a rank only waits for the late one
ALONE = "no collective operation has several participants in the captures"
VERSION = 1  # of windows.json


def own_times_ns(steps: Sequence[int], budgets_ns: Sequence[Mapping[str, int]]) -> list[float]:
    """Return the own time of each rank. steps: of its window; budgets_ns: parts that sum to the window."""
    per = steps if all(steps) else [1] * len(steps)
    return [(sum(parts.values()) - parts.get(STRAGGLER, 0)) / count
            for parts, count in zip(budgets_ns, per, strict=True)]


class TimedRank(Struct, frozen=True):
    """A device of a capture, and the number of its rank; None where that is not known."""

    capture: int | None
    device_id: int
    rank: int | None = None


class CaptureSteps(Struct, frozen=True):
    """How many judged steps a capture has; 0: they are not counted."""

    capture: int | None
    steps: int


class LateRank(Struct, frozen=True):
    """Which of these ranks is late (None: none is, for the reason why_none), and the share of time that it costs."""

    ranks: tuple[TimedRank, ...]
    late: int | None
    share_pct: float | None
    why_none: str


class RankTimes(Struct, frozen=True):
    """What windows.json says of the times of ranks. budgets_ns: by rank."""

    captures: tuple[CaptureSteps, ...]
    ranks: tuple[TimedRank, ...]
    budgets_ns: tuple[Mapping[str, int], ...]
    stragglers: LateRank | None = None

    @classmethod
    def of(cls, document: Any, where: str) -> Self:
        """Return the times in the content of windows.json. Raise BadBundle."""
        import msgspec

        try:
            times = msgspec.convert(document, cls)
            wrong = times._problem(document.get("schema_version"))
        except msgspec.ValidationError as error:
            wrong = str(error)
        if wrong:
            raise BadBundle(f"{where}: not the windows of a session: {wrong}", "aaco analyze SESSION")
        return times

    def _problem(self, version: object) -> str:
        """Return what is wrong with the document that these are of; empty where nothing is."""
        if version != VERSION:
            return f"version {version}; this version of aaco reads {VERSION}"
        if len(self.budgets_ns) != len(self.ranks):
            return f"{len(self.budgets_ns)} budgets of {len(self.ranks)} ranks"
        if not {rank.capture for rank in self.ranks} <= {capture.capture for capture in self.captures}:
            return "a rank of no capture"
        if self.stragglers and self.stragglers.late is not None and self.straggler is None:
            return "a straggler that is no rank"
        return ""

    @property
    def own_ns(self) -> list[float]:
        """Return the own time of each rank."""
        steps = {capture.capture: capture.steps for capture in self.captures}
        return own_times_ns([steps[rank.capture] for rank in self.ranks], self.budgets_ns)

    @property
    def are_of_one_job(self) -> bool:
        """Return whether the ranks are known to have run together: in one capture, or by their numbers."""
        return len(self.captures) == 1 or len({rank.rank for rank in self.ranks} - {None}) == len(self.ranks)

    @property
    def straggler(self) -> int | None:
        """Return the index of the rank that the others wait for throughout; None if none is named."""
        waits = self.stragglers
        if waits is None or waits.late is None or not 0 <= waits.late < len(waits.ranks):
            return None
        late = waits.ranks[waits.late]
        return next((index for index, rank in enumerate(self.ranks)
                     if (rank.capture, rank.device_id) == (late.capture, late.device_id)), None)
