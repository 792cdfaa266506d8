"""An online watch over the residuals of a series: hints, raised value by value, and never a verdict.

All three take residuals in sigmas of a fixed baseline (`noise.baseline`), which they never learn from: limits that
followed the new values would accept any change that comes slowly enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from aaco.governance.series.noise import Reals

SLACK, DECISION = 0.5, 5.0  # CUSUM: half the shift looked for; 465 values between false hints (Montgomery, table 9.4)
WEIGHT, LIMIT = 0.1, 3.0  # EWMA: 842 values between false hints (Lucas & Saccucci 1990)
TOLERATED, THRESHOLD = 0.5, 10.0  # Page-Hinkley, in sigmas

Detector = Literal["cusum", "ewma", "page_hinkley"]


@dataclass(frozen=True)
class Hint:
    """A detector's alarm at `index`: upward (the values rose) or not, and where the change may have begun."""

    detector: Detector
    index: int
    upward: bool
    since: int


def cusum(residuals: Sequence[float] | Reals, slack: float = SLACK, decision: float = DECISION) -> Iterator[Hint]:
    """Two-sided cumulative sums (Page 1954), begun anew after each hint; `since` is where the sum last left zero."""
    high = low = 0.0
    since_high = since_low = 0
    for index, value in enumerate(residuals):
        high, low = high + value - slack, low - value - slack
        if high <= 0:
            high, since_high = 0.0, index + 1
        if low <= 0:
            low, since_low = 0.0, index + 1
        if high > decision or low > decision:
            yield Hint("cusum", index, high > decision, since_high if high > decision else since_low)
            high = low = 0.0
            since_high = since_low = index + 1


def ewma(residuals: Sequence[float] | Reals, weight: float = WEIGHT, limit: float = LIMIT) -> Iterator[Hint]:
    """An exponentially weighted mean against limits around the baseline (Roberts 1959), one hint per excursion.

    The limits are those of a mean begun at the baseline `index + 1` values ago: narrow at first, as its variance is.
    `since` is where the mean was last on the baseline's other side.
    """
    mean, kept, outside, since = 0.0, 1.0, False, 0
    for index, value in enumerate(residuals):
        was, mean = mean, weight * value + (1 - weight) * mean
        if (was > 0) != (mean > 0):
            since = index
        kept *= (1 - weight) ** 2
        beyond = mean**2 > limit**2 * weight / (2 - weight) * (1 - kept)
        if beyond and not outside:
            yield Hint("ewma", index, mean > 0, since)
        outside = beyond


def page_hinkley(residuals: Sequence[float] | Reals, tolerated: float = TOLERATED,
                 threshold: float = THRESHOLD) -> Iterator[Hint]:
    """Cumulative deviation from the mean so far, against its own extreme (Hinkley 1971), two-sided, begun anew.

    `since` is the value behind that extreme.
    """
    count, mean = 0, 0.0
    sums, ends, begun = [0.0, 0.0], [0.0, 0.0], [0, 0]
    for index, value in enumerate(residuals):
        count += 1
        mean += (value - mean) / count
        for side, sign in ((0, 1), (1, -1)):
            sums[side] += sign * (value - mean) - tolerated
            if sums[side] <= ends[side]:
                ends[side], begun[side] = sums[side], index + 1
        for side, upward in ((0, True), (1, False)):
            if sums[side] - ends[side] > threshold:
                yield Hint("page_hinkley", index, upward, begun[side])
                count, mean, sums, ends, begun = 0, 0.0, [0.0, 0.0], [0.0, 0.0], [index + 1, index + 1]
                break
