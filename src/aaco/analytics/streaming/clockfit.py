"""One clock in terms of another: offset and linear drift from moments that both recorded, and how well that fits.

Crystals of computers differ by up to some tens of ppm and drift little within a run (Ridoux & Veitch 2010), so a line
is the model; what it leaves over is reported, because it bounds every comparison across the clocks.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from aaco.core.arrays import Ints
from aaco.core.readings import Absent

SKEW_NS = 100_000  # clocks that disagree by more are several
LEAST_SPAN_NS = 1_000_000_000  # over less, a microsecond of noise looks like 1 ppm of drift: only the offset is fitted
MAD_TO_SIGMA = 1.4826
OUTLIER = 5.0  # of these sigmas: a moment that one side recorded late, not noise


class ClockFit(Struct, frozen=True):
    """reference = other + offset_ns + drift_ppm / 1e6 x (other - origin_ns), from `moments` common moments.

    residual_ns: spread around the line (1.4826 x median absolute residual); worst_ns: the farthest of the moments used;
    left_out: moments more than OUTLIER sigmas off. skew_ns: difference of the clocks at the last moment if only the
    first is matched.
    """

    origin_ns: int
    offset_ns: int
    drift_ppm: float
    residual_ns: float
    worst_ns: int
    skew_ns: int
    moments: int
    left_out: int

    def to_reference(self, other_ns: Ints) -> Ints:
        """Return the times of the other clock on the reference clock, in whole ns."""
        return moved(other_ns, self.origin_ns, self.offset_ns, self.drift_ppm)


def moved(times_ns: Ints, origin_ns: int, offset_ns: int, drift_ppm: float) -> Ints:
    """Return the times of one clock on another, by a fit's line, in whole ns."""
    since = np.asarray(times_ns, np.int64) - origin_ns
    return times_ns + offset_ns + np.rint(since * (drift_ppm / 1e6)).astype(np.int64)


def fit(reference_ns: Ints, other_ns: Ints) -> ClockFit:
    """Return the line through common moments: the times of one event on both clocks. Raise Absent if there are none.

    Robust: the slope is the median of the slopes between distant moments (Theil 1950, on moments paired half the sample
    apart, as Sen's full set is quadratic), the offset a median; then least squares over the moments near the line.
    """
    reference_ns, other_ns = np.asarray(reference_ns, np.int64), np.asarray(other_ns, np.int64)
    if not len(reference_ns):
        raise Absent("the clocks have no moment in common")
    order = np.argsort(other_ns, kind="stable")
    reference_ns, other_ns = reference_ns[order], other_ns[order]
    origin = int(other_ns[0])
    since = (other_ns - origin).astype(np.float64)
    ahead = reference_ns - other_ns  # whole ns; small numbers from here on
    base = int(np.median(ahead))
    remainder = (ahead - base).astype(np.float64)
    slope = _theil(since, remainder)
    offset = float(np.median(remainder - slope * since))
    near = _near(remainder - slope * since - offset)
    if since[near].max(initial=0) >= LEAST_SPAN_NS and near.sum() > 2:
        slope, offset = np.polyfit(since[near], remainder[near], 1)
    left = np.abs(remainder - slope * since - offset)
    return ClockFit(origin, base + round(offset), 1e6 * float(slope), MAD_TO_SIGMA * float(np.median(left[near])),
                    round(float(left[near].max())), int(np.abs(ahead[near] - ahead[near][0]).max()), int(near.sum()),
                    int((~near).sum()))


def _theil(since: NDArray[np.float64], remainder: NDArray[np.float64]) -> float:
    half = len(since) // 2
    if len(since) < 2 or since[-1] < LEAST_SPAN_NS:
        return 0.0
    run, rise = since[half:2 * half] - since[:half], remainder[half:2 * half] - remainder[:half]
    return float(np.median(rise[run > 0] / run[run > 0])) if (run > 0).any() else 0.0


def _near(residual: NDArray[np.float64]) -> NDArray[np.bool_]:
    sigma = MAD_TO_SIGMA * float(np.median(np.abs(residual)))
    return np.asarray(np.abs(residual) <= max(OUTLIER * sigma, 1.0))
