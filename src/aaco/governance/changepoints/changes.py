"""The changes of a series' level: candidates, tested, those that came back marked, and slopes not taken for steps.

Everything is computed on logarithms, so a change is a ratio. A change point is confirmed by at least one value more
than the one that shows it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct, field

from aaco.core import statistics
from aaco.core.arrays import Reals
from aaco.core.readings import Absent
from aaco.governance.changepoints import noise, segmentation, steps
from aaco.governance.changepoints.steps import Step, Whitened

LEAST_PCT = 0.5  # no smaller change counts: the margin of equivalence
FARTHEST = 1e100  # no measurement is larger, or smaller than its inverse
AWAY = 15  # values: an excursion no longer than this that comes back was a disturbance
CAME_BACK = 1 / 3  # of the excursion: what may be left of it
STRONG = 6.0  # by how much a line must be the better explanation (Kass & Raftery 1995)
NEAR = 30  # values beside an excursion that its before and after are read from


class Change(Struct, frozen=True):
    """A change of level at `index`, the first value of the new one; levels in the values' unit.

    before, after: the medians on its two sides. change_pct: from the one to the other, with its 95 % interval.
    until: where the level came back, for an excursion; None for a level that stayed.
    """

    index: int
    before: float
    after: float
    change_pct: float
    low_pct: float
    high_pct: float
    p_value: float
    count_before: int
    count_after: int
    until: int | None = None


class Slope(Struct, frozen=True):
    """A stretch [begin, end) in which the level moved steadily rather than in steps, by `change_pct` in all."""

    begin: int
    end: int
    change_pct: float


class Course(Struct, frozen=True):
    """What a series did: changes that stayed, excursions that came back, slopes; and how its noise is.

    rho: what noise remembers from one value to the next. sigma_pct: its scale from one value to the next.
    """

    count: int
    changes: tuple[Change, ...] = ()
    excursions: tuple[Change, ...] = ()
    slopes: tuple[Slope, ...] = ()
    rho: float = 0.0
    sigma_pct: float = 0.0

    @property
    def current(self) -> int:
        """Where the present level began."""
        ends = [change.index for change in self.changes] + [slope.begin for slope in self.slopes]
        return max(ends, default=0)


class _Draft(Struct):
    """Steps on their way to being changes; `gone` are pairs that cancel."""

    white: Whitened
    kept: list[Step]
    gone: list[tuple[Step, int]] = field(default_factory=list)


def course(values: Sequence[float] | Reals, least_pct: float = LEAST_PCT, away: int = AWAY) -> Course:
    """Where the level of a series changed. values: positive, in the order of time.

    least_pct: the smallest change that counts. away: the longest excursion that counts as a disturbance. Raise Absent
    for fewer than 6 values and for any that is not a positive finite number.
    """
    return courses([values], least_pct, away)[0]


def courses(series: Sequence[Sequence[float] | Reals], least_pct: float = LEAST_PCT, away: int = AWAY) -> list[Course]:
    """Return the same of several series, in less time than one after the other. Raise Absent if any of them has none.
    """
    raws = [checked(values) for values in series]
    tamed = [noise.tamed(np.log(raw)) for raw in raws]
    spreads = [noise.difference_scale(values) for values in tamed]
    moving = [number for number, spread in enumerate(spreads) if spread > noise.FLAT]
    cuts = dict(zip(moving, segmentation.candidates_of(
        [(tamed[number], math.sqrt(2) * spreads[number]) for number in moving]), strict=True))
    return [_course(raw, tamed[number], cuts[number].tolist(), math.log1p(least_pct / 100), away) if number in cuts
            else Course(len(raw))  # constant: no change, and no noise
            for number, raw in enumerate(raws)]


def _course(raw: Reals, tamed: Reals, candidates: list[int], least: float, away: int) -> Course:
    draft = _tested(tamed, candidates, least)
    _set_apart(draft, tamed, least, away)
    slopes = _steady(draft, tamed)
    cuts = [step.index for step in draft.kept]
    changes = tuple(_change(raw, draft, step, span) for step, span in zip(draft.kept, _around(cuts, len(raw)),
                                                                          strict=True))
    return Course(len(raw), changes, tuple(_excursion(raw, draft, *pair) for pair in draft.gone), slopes,
                  draft.white.rho, 100 * draft.white.sigma)


def checked(values: Sequence[float] | Reals) -> Reals:
    """Return the values as an array. Raise Absent for fewer than 6, and for any that is not positive and finite, or
    that is so large or small (FARTHEST) that ratios of values overflow.
    """
    raw = np.asarray(values, dtype=np.float64)
    if len(raw) < noise.FEWEST:
        raise Absent(f"a change of level takes {noise.FEWEST} values to see, there are {len(raw)}")
    bad = np.flatnonzero(~((raw > 1 / FARTHEST) & (raw < FARTHEST)))
    if len(bad):
        raise Absent(f"value {bad[0]} is {raw[bad[0]]:g}: only positive finite numbers have ratios")
    return raw


def _tested(tamed: Reals, cuts: list[int], least: float) -> _Draft:
    """Twice: first liberally, then with the noise that is left when the first steps are out."""
    found: list[Step] = []
    for share, alpha in ((0.5, steps.LIBERAL), (steps.LONG_TAIL, steps.ALPHA)):
        rest = steps.residuals(tamed, [step.index for step in found])
        white = Whitened(tamed, rest, share)
        found = steps.merge(white, cuts, least, alpha)
    return _Draft(white, found)


def _set_apart(draft: _Draft, tamed: Reals, least: float, away: int) -> None:
    """Move pairs of steps with a short excursion that comes back from what is kept to what is gone."""
    number = 0
    while number + 1 < len(draft.kept):
        out, back = draft.kept[number], draft.kept[number + 1]
        begin = draft.kept[number - 1].index if number else 0
        end = draft.kept[number + 2].index if number + 2 < len(draft.kept) else len(tamed)
        if back.index - out.index <= away and came_back(tamed, (begin, out.index, back.index, end), least):
            draft.gone.append((out, back.index))
            del draft.kept[number:number + 2]
            number = max(0, number - 1)
        else:
            number += 1


def came_back(values: Reals, bounds: tuple[int, int, int, int], least: float) -> bool:
    """Return whether the level behind an excursion is the one before it: bounds are where before, it and after begin,
    end.
    """
    begin, out, back, end = bounds
    before = float(np.median(values[max(begin, out - NEAR):out]))
    after = float(np.median(values[back:min(end, back + NEAR)]))
    height = float(np.median(values[out:back])) - before
    return abs(after - before) < max(least, CAME_BACK * abs(height))


def _steady(draft: _Draft, tamed: Reals) -> tuple[Slope, ...]:
    """Runs of steps in one direction that a straight line explains better become slopes.

    Judged by the Bayesian information criterion over the stretch: a line has two parameters, k steps have 2 k + 1.
    """
    found: list[Slope] = []
    for run in _runs(draft.kept):
        cuts = [step.index for step in draft.kept]
        begin = cuts[run[0] - 1] if run[0] else 0
        end = cuts[run[-1] + 1] if run[-1] + 1 < len(cuts) else len(tamed)
        inner = [cuts[number] - begin for number in run]
        stretch = tamed[begin:end]
        place = np.arange(len(stretch))
        rise, level = np.polyfit(place, stretch, 1)
        by_line = float(((stretch - level - rise * place) ** 2).sum())
        by_steps = sum(float(((stretch[a:b] - stretch[a:b].mean()) ** 2).sum())
                       for a, b in steps.segments(inner, len(stretch)))
        count = noise.effective(len(stretch), draft.white.rho)
        exact = len(stretch) * noise.FLAT**2  # what may be left of a perfect fit
        if count * math.log((by_line + exact) / (by_steps + exact)) + STRONG < (2 * len(inner) - 1) * math.log(count):
            found.append(Slope(begin, end, 100 * math.expm1(rise * (len(stretch) - 1))))
    gone = {step.index for step in draft.kept for slope in found if slope.begin < step.index < slope.end}
    draft.kept = [step for step in draft.kept if step.index not in gone]
    return tuple(found)


def _runs(kept: list[Step]) -> list[list[int]]:
    """Numbers of neighbouring steps that go the same way."""
    found: list[list[int]] = []
    for number, step in enumerate(kept):
        if found and (step.size > 0) == (kept[number - 1].size > 0):
            found[-1].append(number)
        else:
            found.append([number])
    return found


def _around(cuts: list[int], size: int) -> list[tuple[int, int]]:
    spans = steps.segments(cuts, size)
    return [(left[0], right[1]) for left, right in pairwise(spans)]


def _excursion(raw: Reals, draft: _Draft, out: Step, back: int) -> Change:
    around = max(0, out.index - NEAR), back
    return _change(raw, draft, out, around, until=back)


def _change(raw: Reals, draft: _Draft, step: Step, span: tuple[int, int], until: int | None = None) -> Change:
    begin, end = span
    before, after = (float(np.median(part)) for part in (raw[begin:step.index], raw[step.index:end]))
    size, half = math.log(after / before), _half(draft.white, step.index - begin, end - step.index)
    return Change(step.index, before, after, statistics.percent(size), statistics.percent(size - half),
                  statistics.percent(size + half), step.p_value, step.index - begin, end - step.index, until)


def _half(white: Whitened, before: int, after: int) -> float:
    """Half of the 95 % interval of the difference of two medians of this noise."""
    spread = noise.MEAN_TO_SIGMA * white.sigma / math.sqrt(1 - white.rho**2)  # a median's efficiency is 2 / pi
    error = spread * math.sqrt(sum(1 / noise.effective(count, white.rho) for count in (before, after)))
    return statistics.t_quantile(0.975, len(white.values) - 2) * error
