"""Whether a replay did what the captured launch did: a verdict from checks, each of which began with wrong memory.

Equal memory proves nothing where it was equal before. So what the kernel writes is inverted first ("poisoned"), or is
known to differ because the captured launch changed it; only that counts as proof.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from aaco.replay.documents import RegionUse

FidelityVerdict = Literal["exact", "within tolerance", "differs", "unproved"]


class ReplayCheck(Struct, frozen=True):
    """One iteration's memory against the memory after the captured launch.

    wrong_before: bytes that differed before the iteration and that the kernel had to put right. poisoned: of these, the
    bytes that were inverted. differing: by base of a region, its bytes that differ afterwards. wrong: those of them
    that the tolerance does not allow; without one all.
    """

    iteration: int
    poisoned: int
    wrong_before: int
    differing: dict[int, int]
    wrong: dict[int, int]


class Fidelity(Struct, frozen=True):
    """The verdict, and why. proved_bytes: what the checked iterations had to write, the least of them."""

    verdict: FidelityVerdict
    reason: str
    checked: int
    exact: int
    proved_bytes: int


def judge(checks: Sequence[ReplayCheck], needed: Sequence[int] = (), gaps: Sequence[str] = ()) -> Fidelity:
    """Return the verdict of the checked iterations.

    needed: those that must be among them. gaps: of other_uses() and unproved_state().
    """
    exact = sum(not any(check.differing.values()) for check in checks)
    proved = min((check.wrong_before for check in checks), default=0)

    def answer(verdict: FidelityVerdict, reason: str) -> Fidelity:
        return Fidelity(verdict, reason, len(checks), exact, proved)

    worst = max(checks, key=lambda check: sum(check.wrong.values()), default=None)
    if worst is not None and any(worst.wrong.values()):
        return answer("differs", _describe(worst.iteration, worst.wrong))
    if missing := sorted(set(needed) - {check.iteration for check in checks}):
        return answer("unproved", f"iteration {missing[0]} was not checked")
    if gaps:
        return answer("unproved", gaps[0])
    if not checks or proved == 0:
        return answer("unproved", "the launch wrote nothing that was poisoned")
    wrong = f"each with {proved:,} wrong bytes or more before"
    if exact < len(checks):
        worst = max(checks, key=lambda check: sum(check.differing.values()))
        return answer("within tolerance", f"all {len(checks)} checked iterations, {wrong}; most in "
                                          f"{_describe(worst.iteration, worst.differing)}")
    return answer("exact", f"{exact} of {len(checks)} checked iterations, {wrong}")


def _describe(iteration: int, differing: Mapping[int, int]) -> str:
    places = sorted(base for base, count in differing.items() if count)
    return (f"iteration {iteration}: {sum(differing.values()):,} bytes differ, in {len(places)} regions, the first at "
            f"{places[0]:#x}")


def unproved_state(uses: Sequence[RegionUse], checks: Sequence[ReplayCheck], changed: Collection[int]) -> list[str]:
    """Return what the last check of a replay that does not restore memory leaves open.

    The kernel has to write again, from memory that it has used before, all that the captured launch wrote. What it
    changes and depends on, a counter, cannot be inverted, so that nothing proves that the work was the same.
    changed: the bases of the regions that the captured launch changed.
    """
    if unclear := [use.base for use in uses if use.base in changed and not use.written_bytes]:
        return [f"the launch changes region {unclear[0]:#x}, but what it writes there could not be measured: without "
                "restoring, nothing proves that it did the same work again"]
    left = sum(use.written_bytes or 0 for use in uses) - min((check.poisoned for check in checks), default=0)
    if left <= 0:
        return []
    return [f"{left:,} bytes that the launch writes are state that it depends on (a counter, a sum): without "
            "restoring, nothing proves that it did the same work again"]


def other_uses(recorded: Sequence[RegionUse], measured: Sequence[RegionUse]) -> list[str]:
    """Return what a replay's launch did otherwise than the launches that the capture's roles were measured with.

    A launch that leaves out half of its work poisons only the half that it does: exact, if the output was right before.
    """
    now = {use.base: use for use in measured}
    gaps = []
    for use in recorded:
        if use.base not in now:
            if use.read or use.written != "none":
                gaps.append(f"region {use.base:#x}, which the kernel uses, is missing")
        elif None not in (use.written_bytes,
                          now[use.base].written_bytes) and use.written_bytes != now[use.base].written_bytes:
            gaps.append(f"the launch wrote {now[use.base].written_bytes:,} bytes of region {use.base:#x}, "
                          f"{use.written_bytes:,} when the capture was first replayed")
    return gaps


def may_print_time(fidelity: Fidelity) -> bool:
    """Return whether times of these iterations are times of the captured work."""
    return fidelity.verdict in ("exact", "within tolerance")
