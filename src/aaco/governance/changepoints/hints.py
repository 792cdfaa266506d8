"""An online watch over the residuals of a series: hints, raised value by value, and never a verdict.

All three take residuals in sigmas of a fixed baseline (`noise.baseline`), which they never learn from: limits that
followed the new values would accept any change that comes slowly enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

SLACK, DECISION = 0.5, 5.0  # CUSUM: half the shift looked for; 465 values between false hints (Montgomery, table 9.4)
WEIGHT, LIMIT = 0.1, 3.0  # EWMA: 842 values between false hints (Lucas & Saccucci 1990)
TOLERATED, THRESHOLD = 0.1, 15.0  # Page-Hinkley, in sigmas: about 500 values between false hints

Detector = Literal["cusum", "ewma", "page_hinkley"]


class Hint(Struct, frozen=True):
    """A detector's alarm at `index`: upward (the values rose) or not, and where the change may have begun."""

    detector: Detector
    index: int
    upward: bool
    since: int


def cusum(residuals: Iterable[float], slack: float = SLACK, decision: float = DECISION) -> Iterator[Hint]:
    """Two-sided cumulative sums (Page 1954), restarted after each hint; `since` is where the sum last left zero."""
    return _sums("cusum", residuals, slack, decision)


def page_hinkley(residuals: Iterable[float], tolerated: float = TOLERATED,
                 threshold: float = THRESHOLD) -> Iterator[Hint]:
    """Yield the cumulative deviation against its own extreme (Hinkley 1971), two-sided, restarted after each hint.

    Deviations are from the baseline, not from a mean that follows the values: a small tolerance and a high threshold
    then make it the test for slow drifts that CUSUM's slack swallows. `since` is the value behind the extreme.
    """
    return _sums("page_hinkley", residuals, tolerated, threshold)


def ewma(residuals: Iterable[float], weight: float = WEIGHT, limit: float = LIMIT) -> Iterator[Hint]:
    """Yield an exponentially weighted mean against limits around the baseline (Roberts 1959), one hint per excursion.

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


def _sums(detector: Detector, residuals: Iterable[float], slack: float, most: float) -> Iterator[Hint]:
    """Sums of what exceeds the slack, up and down, each never below 0: the distance from the cumulative extreme."""
    high = low = 0.0
    since_high = since_low = 0
    for index, value in enumerate(residuals):
        high, low = high + value - slack, low - value - slack
        if high <= 0:
            high, since_high = 0.0, index + 1
        if low <= 0:
            low, since_low = 0.0, index + 1
        if high > most or low > most:
            yield Hint(detector, index, high > most, since_high if high > most else since_low)
            high = low = 0.0
            since_high = since_low = index + 1
