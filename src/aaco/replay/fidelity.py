"""Whether a replay did what the captured launch did: a verdict from checks, each of which began with wrong memory.

Equal memory proves nothing where it was equal before. So what the kernel writes is inverted first ("poisoned"), or is
known to differ because the captured launch changed it; only that counts as proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from aaco.replay.documents import RegionUse

FidelityVerdict = Literal["exact", "within tolerance", "differs", "unproved"]


@dataclass(frozen=True)
class ReplayCheck:
    """One iteration's memory against the memory after the captured launch.

    wrong_before: bytes that differed before the iteration and that the kernel had to put right. poisoned: of these, the
    bytes that were inverted. differing: by base of a region, its bytes that differ afterwards.
    """

    iteration: int
    poisoned: int
    wrong_before: int
    differing: dict[int, int]


@dataclass(frozen=True)
class Fidelity:
    """The verdict, and why. proved_bytes: what the checked iterations had to write, the least of them."""

    verdict: FidelityVerdict
    reason: str
    checked: int
    exact: int
    proved_bytes: int


def judge(checks: Sequence[ReplayCheck], needed: Sequence[int] = (), doubts: Sequence[str] = ()) -> Fidelity:
    """Return the verdict of the checked iterations. needed: those that must be among them. doubts: of other_uses()."""
    exact = sum(not any(check.differing.values()) for check in checks)
    proved = min((check.wrong_before for check in checks), default=0)

    def answer(verdict: FidelityVerdict, reason: str) -> Fidelity:
        return Fidelity(verdict, reason, len(checks), exact, proved)

    worst = max(checks, key=lambda check: sum(check.differing.values()), default=None)
    if worst is not None and any(worst.differing.values()):
        places = sorted(base for base, count in worst.differing.items() if count)
        return answer("differs", f"iteration {worst.iteration}: {sum(worst.differing.values()):,} bytes differ, in "
                                 f"{len(places)} regions, the first at {places[0]:#x}")
    if missing := sorted(set(needed) - {check.iteration for check in checks}):
        return answer("unproved", f"iteration {missing[0]} was not checked")
    if doubts:
        return answer("unproved", doubts[0])
    if not checks or proved == 0:
        return answer("unproved", "the launch wrote nothing that was poisoned")
    return answer("exact",
                  f"{exact} of {len(checks)} checked iterations, each with {proved:,} wrong bytes or more before")


def other_uses(recorded: Sequence[RegionUse], measured: Sequence[RegionUse]) -> list[str]:
    """Return what a replay's launch did otherwise than the launches that the capture's roles were measured with.

    A launch that leaves out half of its work poisons only the half that it does: exact, if the output held the answer.
    """
    now = {use.base: use for use in measured}
    doubts = []
    for use in recorded:
        if use.base not in now:
            if use.read or use.written != "none":
                doubts.append(f"region {use.base:#x}, which the kernel uses, is missing")
        elif None not in (use.written_bytes,
                          now[use.base].written_bytes) and use.written_bytes != now[use.base].written_bytes:
            doubts.append(f"the launch wrote {now[use.base].written_bytes:,} bytes of region {use.base:#x}, "
                          f"{use.written_bytes:,} when the capture was first replayed")
    return doubts


def may_print_time(fidelity: Fidelity) -> bool:
    """Return whether times of these iterations are times of the captured work."""
    return fidelity.verdict in ("exact", "within tolerance")
