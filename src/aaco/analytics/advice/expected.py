"""How many times faster a change usually makes a step: the structure of the step, and how such changes went elsewhere.

The time after a change is the longer of the device's chain and the host's path, each as such changes leave them
(achieved.py), times a residual. Residuals are those of recorded pairs (track_record.py); their median makes the
expected gain, and the ends of 90 % of them its interval. The host's own work between its launches, which a change of
the device leaves, is as long as before and errs by nothing. Nothing exceeds the ceiling, and a change that only takes
work away makes no step longer, whatever others did.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from aaco.analytics.advice.achieved import ChangedStep
from aaco.analytics.advice.floor import MechanismFloor, StepTime, ceiling
from aaco.analytics.advice.track_record import GainSpread, TrackRecord, predicted_ns
from aaco.core.readings import Absent

LEAST_GAIN = 1.05  # times as fast: with less expected there is nothing to advise
SHOWN_DIGITS = 2  # of a gain, after the point
NEARLY = 0.9  # of a gain
LEAST_CHANCE = 2 / 3  # of any gain: what gains nothing more often than that costs more trials than it is worth


class Expected(Struct, frozen=True):
    """How many times faster a step becomes, with the ends of a 90 % interval.

    pairs, workloads: recorded, that the interval rests on. own: whether all of them are of this kind of change; here:
    whether they are trials of this advice on this machine. samples: times as many in a step as before; then the factor
    is per sample. chance: the share of the recorded changes which, erring as they did, gain anything here; None of
    trials.
    """

    factor: float
    low: float
    high: float
    pairs: int
    workloads: int
    own: bool
    samples: float = 1.0
    here: bool = False
    chance: float | None = None

    @property
    def may_gain_nothing(self) -> bool:
        """Whether less than what is worth advice lies in the interval: of such a change no gain is promised."""
        return self.low < LEAST_GAIN

    @property
    def rarely_gains(self) -> bool:
        """Whether the chance is known, and too small for a trial."""
        return self.chance is not None and self.chance < LEAST_CHANCE


class RankedChange(Struct, frozen=True):
    """A change as ranking sees it: its ceiling and expected gain, None where unknown. effort: lower is easier.

    share_pct: of the time that it acts on; None where nothing says so. usual: what such changes gain where the host
    takes what it usually takes without a profiler, for the order of a step that was only profiled. surpasses: the name
    of a change that leaves the device no less to do.
    """

    name: str
    ceiling: float | None
    expected: Expected | None
    effort: int = 0
    share_pct: float | None = None
    usual: float | None = None
    surpasses: str = ""

    @property
    def gain(self) -> float | None:
        """The expected gain, else the most that the ceiling and the share leave (Amdahl 1967); None without any."""
        if self.expected:
            return self.expected.factor
        return min((bound for bound in (self.ceiling, self._without_its_share) if bound is not None), default=None)

    def likely_gain(self, among_usual: bool) -> float:
        """Return the gain that gives it its place: among changes with a usual gain half of a bound, as a logarithm."""
        if self.expected or not among_usual:
            return self.gain or 0.0
        return self.usual if self.usual is not None else math.sqrt(self.gain or 0.0)

    @property
    def _without_its_share(self) -> float | None:
        if self.share_pct is None:
            return None
        return math.inf if self.share_pct >= 100 else 1 / (1 - self.share_pct / 100)


def expected(step: StepTime, floor: MechanismFloor, changed: ChangedStep, mechanisms: Iterable[str],
             record: TrackRecord) -> Expected:
    """Return what a change is expected to gain.

    Raise Absent where the step was timed with a profiler, its floor is not known, or no such changes were recorded.
    """
    if not step.unprofiled:
        raise Absent("the step was not timed without a profiler, and recorded gains are of such times")
    if floor.floor_ns is None:
        raise Absent(floor.why_absent)
    spread = record.spread(mechanisms, record.habits.bound(changed, step.ns))
    predicted = predicted_ns(changed, step.ns, floor.floor_ns, record.habits)
    kept = min(predicted, record.habits.kept_ns(changed, step.ns))
    likely = _within(ceiling(step, floor), step.ns, kept, predicted - kept, spread)
    most = step.ns / max(1.0, record.habits.untouched_ns(changed))
    least = 1.0 if changed.only_less else 0.0
    usual, low = min(max(likely.factor, least), most), max(likely.low, least)
    chance = 1.0 if changed.only_less else likely.chance
    return replace(likely, factor=usual, low=min(low, usual), samples=changed.samples, chance=chance)


def _within(most: float | None, step_ns: float, kept_ns: float, changed_ns: float, spread: GainSpread) -> Expected:
    """Return what a step gains of which one part stays and the other errs by the residuals' spread, cut at the ceiling.
    """
    def gain(residual: float) -> float:
        return min(most or math.inf, step_ns / (kept_ns + changed_ns * math.exp(residual)))

    usual, low, high = (gain(residual) for residual in (spread.middle, spread.high, spread.low))
    chance = sum(gain(residual) > 1 for residual in spread.residuals) / len(spread.residuals)
    return Expected(usual, min(low, usual), max(high, usual), len(spread.residuals), spread.workloads, spread.own,
                    chance=chance)


def ranked(changes: Iterable[RankedChange], least: float = LEAST_GAIN) -> list[RankedChange]:
    """Return the changes that are worth a try, best first: by expected gain, else by what is usual, else by their
    bounds, then least effort.

    Of equal gains, as of changes that all leave the host's path as it is, the higher ceiling comes first: gains
    are equal if they are shown alike. A change comes before one that it surpasses, unless it likely gains a tenth less:
    narrow types may cost the host more than they save the device. A ceiling alone is no estimate: a change of which
    nothing else is known comes after all others.
    """
    listed = list(changes)
    among_usual = any(change.usual is not None for change in listed)
    worth = [(change.expected is None and change.usual is None and change.share_pct is None,
              -round(change.likely_gain(among_usual), SHOWN_DIGITS), -(change.ceiling or 0.0), change.effort,
              change.name, change) for change in listed if change.gain is not None and change.gain >= least]
    best_first = [change for *_, change in sorted(worth, key=lambda place: place[:-1])]
    for change in [change for change in best_first if change.surpasses]:
        at, names = best_first.index(change), [other.name for other in best_first]
        to = names.index(change.surpasses) if change.surpasses in names[:at] else at
        if change.likely_gain(among_usual) >= NEARLY * best_first[to].likely_gain(among_usual):
            best_first.insert(to, best_first.pop(at))
    return best_first
