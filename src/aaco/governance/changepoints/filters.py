"""What is no change of the code: shifts that a user accepted, and cost that only moved between sibling series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from aaco.core.arrays import Reals
from aaco.core.readings import Absent
from aaco.governance.changepoints import changes, noise, steps
from aaco.governance.changepoints.changes import Course

NEARBY = 3  # values between the changes of siblings that may be one
LEFT_OVER = 0.1  # of the cost that moved: what the sum may have changed by


class CostShift(Struct, frozen=True):
    """At `index` cost moved from the series `out` to the series `into`; their sum changed by no more than noise."""

    index: int
    out: tuple[str, ...]
    into: tuple[str, ...]
    moved: float
    sum_changed: float


def levelled(values: Sequence[float] | Reals, accepted: Sequence[int]) -> Reals:
    """Return the values with every accepted shift taken out of the mean: earlier ones moved to the present level.

    accepted: indices where a meant new level begins, in any order. The mean moves and the spread stays: each value is
    multiplied by the ratio of the levels, so its scatter in per cent is what it was. Raise Absent for values that have
    no ratios and for an index that has no value on one of its sides.
    """
    found = changes.checked(values).copy()
    cuts = sorted(set(accepted))
    if cuts and not 0 < cuts[0] <= cuts[-1] < len(found):
        raise Absent(f"accepted shifts at {cuts}: the series has values 0 to {len(found) - 1}")
    for (begin, cut), (_, end) in pairwise(steps.segments(cuts, len(found))):
        found[:cut] *= np.median(found[cut:end]) / np.median(found[begin:cut])
    return found


def cost_shifts(series: Mapping[str, Sequence[float] | Reals],
                courses: Mapping[str, Course]) -> tuple[CostShift, ...]:
    """Changes of siblings, at the same place, with costs that add up to no change.

    series: parts of one whole in one unit, value i of each measured together. Only additive costs have a sum: times,
    not rates. Raise Absent where they are not of one length.
    """
    lengths = {len(values) for values in series.values()}
    if len(lengths) > 1:
        raise Absent("the series are not of one length: their values cannot be added up")
    found: list[CostShift] = []
    for index in _places(courses):
        moves = {name: moved for name, course in courses.items() if (moved := _moved(course, index)) is not None}
        out = tuple(sorted(name for name, moved in moves.items() if moved < 0))
        into = tuple(sorted(name for name, moved in moves.items() if moved > 0))
        if not out or not into:
            continue
        total = np.sum([np.asarray(series[name], dtype=np.float64) for name in (*out, *into)], axis=0)
        left = _step(total, index, [course for name, course in courses.items() if name in moves])
        amount = sum(moves[name] for name in into)
        if abs(left) <= LEFT_OVER * min(amount, -sum(moves[name] for name in out)):
            found.append(CostShift(index, out, into, amount, left))
    return tuple(found)


def without(course: Course, shifts: Sequence[CostShift]) -> Course:
    """Return the course of a series less those of its changes that are cost shifts."""
    kept = tuple(item for item in course.changes
                 if all(abs(item.index - shift.index) > NEARBY for shift in shifts))
    return replace(course, changes=kept)


def _places(courses: Mapping[str, Course]) -> list[int]:
    """Where siblings changed, places within NEARBY of one another once."""
    found: list[int] = []
    for index in sorted(item.index for course in courses.values() for item in course.changes):
        if not found or index - found[-1] > NEARBY:
            found.append(index)
    return found


def _moved(course: Course, index: int) -> float | None:
    return next((item.after - item.before for item in course.changes if abs(item.index - index) <= NEARBY), None)


def _step(total: Reals, index: int, courses: Sequence[Course]) -> float:
    """By how much the sum's level changed there, between the changes next to it."""
    cuts = sorted(item.index for course in courses for item in course.changes if abs(item.index - index) > NEARBY)
    begin = max((cut for cut in cuts if cut < index), default=0)
    end = min((cut for cut in cuts if cut > index), default=len(total))
    aside = min(NEARBY, max(0, min(index - begin, end - index) - noise.FEWEST))  # siblings may differ by a value or two
    return float(np.median(total[index + aside:end]) - np.median(total[begin:max(begin + 1, index - aside)]))
