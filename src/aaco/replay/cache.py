"""In which state of the caches a program launched a kernel: that in which a replay takes as long."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from aaco.replay.engine import CacheMode

AGREES_PCT = 3.0


class CacheAgreement(Struct, frozen=True):
    """The mode with the time nearest to the program's, and the difference, in percent of the program's."""

    mode: CacheMode
    difference_pct: float

    @property
    def agrees(self) -> bool:
        """Return whether the state of the caches explains the time."""
        return abs(self.difference_pct) <= AGREES_PCT


def nearest(application_us: float, by_mode: Mapping[CacheMode, float]) -> CacheAgreement:
    """Return the mode that is nearest. by_mode: a replay's median time in each; at least one."""
    differences = {mode: 100 * (time_us / application_us - 1) for mode, time_us in by_mode.items()}
    mode = min(differences, key=lambda mode: abs(differences[mode]))
    return CacheAgreement(mode, differences[mode])


def agreement_line(agreement: CacheAgreement) -> str:
    """Return it as text."""
    if agreement.agrees:
        return f"the application ran it {agreement.mode}: {agreement.difference_pct:+.1f} %"
    return f"no state of the caches explains the application's time: nearest is " \
           f"{agreement.mode}, {agreement.difference_pct:+.1f} %"
