"""How the latency grows with the size of an input's dimension, such as the length of a sequence, at one batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

from msgspec import Struct

from aaco.analytics.what_if.sweep import BatchPoint
from aaco.core.readings import Estimate, Reading

SCHEMA_VERSION = 1


class SizePoint(Struct, frozen=True):
    """One size, measured: the point is that of its batch."""

    size: int
    point: BatchPoint

    @property
    def at_most_ms(self) -> float:
        """Return the upper end of the median latency's interval, where there is one, else the median."""
        return self.point.latency_p50_ms if self.point.high is None else self.point.high


class SizeCurve(Struct, frozen=True, dict=True):
    """Points of different sizes at one batch, the smallest size first (`size_curve` makes it)."""

    points: tuple[SizePoint, ...]

    @cached_property
    def growths(self) -> tuple[Estimate, ...]:
        """Return, from each size to the next, the factor by which the median latency grows per doubling of the size.

        1 is no growth, 2 in proportion to the size, 4 with its square. The interval holds every factor that both
        latencies' intervals allow.
        """
        return tuple(_growth(before, after) for before, after in pairwise(self.points))

    def largest_under(self, slo_ms: float) -> Reading:
        """Return the largest measured size with a median latency surely within the limit."""
        within = [point.size for point in self.points if point.at_most_ms <= slo_ms]
        if within:
            return Reading("largest_under_slo", "1", max(within))
        fastest = min(self.points, key=lambda point: point.at_most_ms)
        return Reading("largest_under_slo", "1", None, f"no size is surely within {slo_ms:g} ms: the median of size "
                                                       f"{fastest.size} reaches {fastest.at_most_ms:.4g} ms")

    def document(self) -> dict[str, Any]:
        """Return the JSON form: every point with the session it came from."""
        return {"schema_version": SCHEMA_VERSION,
                "points": [_row(*row) for row in zip(self.points, (None, *self.growths), strict=True)]}


def size_curve(points: Sequence[SizePoint]) -> SizeCurve:
    """Return the curve through points of different sizes, given in any order, at least one."""
    return SizeCurve(tuple(sorted(points, key=lambda point: point.size)))


def _growth(before: SizePoint, after: SizePoint) -> Estimate:
    old, new, doublings = before.point, after.point, math.log2(after.size / before.size)
    value = (new.latency_p50_ms / old.latency_p50_ms) ** (1 / doublings)
    if old.low is None or old.high is None or new.low is None or new.high is None:
        return Estimate(value)
    return Estimate(value, (new.low / old.high) ** (1 / doublings), (new.high / old.low) ** (1 / doublings))


def _row(size_point: SizePoint, growth: Estimate | None) -> dict[str, Any]:
    point = size_point.point
    return {"size": size_point.size, "session_id": point.session_id, "latency_p50_ms": point.latency_p50_ms,
            "latency_ci_low": point.low, "latency_ci_high": point.high, "throughput_per_s": point.throughput_per_s,
            "growth_per_doubling": growth and growth.value, "growth_ci_low": growth and growth.low,
            "growth_ci_high": growth and growth.high, "vram_used_bytes": point.vram_used_bytes,
            "rss_peak_bytes": point.rss_peak_bytes}
