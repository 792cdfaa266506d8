"""The shape of a batch sweep: gains per doubling, saturation, knee, Pareto set, and the best batch under a limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from statistics import fmean
from typing import Any

from msgspec import Struct

from aaco.core.readings import Estimate, Reading

SCHEMA_VERSION = 1
SATURATED_PCT = 10.0  # a doubling of the batch that brings less than this no longer pays
FULL_PCT = 90  # of a device's memory, from which a batch is bound by it
ROUNDING_PCT = 1e-9  # gains that agree to this are equal: throughputs are quotients of doubles


class BatchPoint(Struct, frozen=True):
    """One batch, measured: median latency of an inference with its interval's ends (None: unknown), samples per s."""

    batch: int
    latency_p50_ms: float
    low: float | None
    high: float | None
    throughput_per_s: float
    session_id: str = ""
    vram_used_bytes: int | None = None  # the most that was in use on a device of the run, by all its programs
    vram_used_pct: float | None = None  # of the memory that the fullest of them has
    rss_peak_bytes: int | None = None  # the largest resident set of a measured process

    @property
    def throughput(self) -> Estimate:
        """Return the samples per second, with an interval as wide, relatively, as that of the median latency.

        Without one where that is not known, or the latency may be 0.
        """
        if not self.low or not self.high:
            return Estimate(self.throughput_per_s)
        share = self.throughput_per_s * self.latency_p50_ms
        return Estimate(self.throughput_per_s, share / self.high, share / self.low)

    @property
    def optimal_score(self) -> float:
        """Return throughput / (latency x log2(batch + 1)), samples per s and ms."""
        return self.throughput_per_s / (self.latency_p50_ms * math.log2(self.batch + 1))

    def dominates(self, rival: BatchPoint) -> bool:
        """Return whether this point is at least as good in latency and in throughput, and better in one of them."""
        mine, others = ((point.latency_p50_ms, -point.throughput_per_s) for point in (self, rival))
        return mine != others and all(a <= b for a, b in zip(mine, others, strict=True))


class Gain(Struct, frozen=True):
    """The gain of throughput per doubling of the batch, or of another load, between two adjacent ones, in per cent.

    The interval holds every gain that both throughputs' intervals allow.
    """

    before: float
    after: float
    pct: Estimate

    @property
    def is_distinct(self) -> bool | None:
        """Return whether the gain is distinct from none: the two throughputs' intervals do not overlap. None: unknown.
        """
        return None if self.pct.low is None or self.pct.high is None else not self.pct.low <= 0 <= self.pct.high

    def overlaps(self, gain: Gain) -> bool:
        """Return whether both intervals are known and share a value."""
        mine, others = self.pct, gain.pct
        if mine.low is None or mine.high is None or others.low is None or others.high is None:
            return False
        return mine.low <= others.high and others.low <= mine.high


class BatchCurve(Struct, frozen=True, dict=True):
    """Points of different batches, smallest batch first (`curve` makes it). What they cannot show is absent."""

    points: tuple[BatchPoint, ...]
    why_no_vram: str = "not recorded"
    why_no_rss: str = "not recorded"

    @cached_property
    def gains(self) -> tuple[Gain, ...]:
        """Return the gain per doubling from each batch to the next."""
        return gains_between([(point.batch, point.throughput) for point in self.points])

    @property
    def efficiencies(self) -> tuple[float, ...]:
        """Return each batch's throughput as a share of what the smallest batch's, scaled up in proportion, would be."""
        first = self.points[0]
        return tuple(point.throughput_per_s / (first.throughput_per_s * point.batch / first.batch)
                     for point in self.points)

    @property
    def scaling_efficiency(self) -> Reading:
        """Return the mean efficiency of all batches but the smallest, which has 1 by definition."""
        if not self.gains:
            return _absent("scaling_efficiency", "one batch does not scale: it needs two", "ratio")
        return Reading("scaling_efficiency", "ratio", fmean(self.efficiencies[1:]))

    @property
    def saturation_batch(self) -> Reading:
        """Return the smallest batch after which no doubling brings 10 % more throughput."""
        if not self.gains:
            return _absent("saturation_batch", "one batch shows no gain: it needs two")
        last = self.gains[-1]
        if last.pct.value >= SATURATED_PCT:
            doubt = ", indistinguishable from none" if last.is_distinct is False else ""
            return _absent("saturation_batch", f"not reached: from {last.before:g} to {last.after:g} a doubling still "
                                               f"gains {last.pct.value:.1f} %{doubt}")
        paying = [gain.after for gain in self.gains if gain.pct.value >= SATURATED_PCT]
        return Reading("saturation_batch", "1", paying[-1] if paying else self.points[0].batch)

    @property
    def transition_batch(self) -> Reading:
        """Return the knee: the batch at which the gain per doubling drops most; the smaller one of equals."""
        return knee_of(self.gains, "transition_batch", "batch", "batches", "iterations")

    @property
    def pareto(self) -> tuple[int, ...]:
        """Return the batches that no other batch beats in both median latency and throughput."""
        return tuple(point.batch for point in self.points
                     if not any(rival.dominates(point) for rival in self.points))

    @property
    def optimal_batch(self) -> Reading:
        """Return the batch of the highest `optimal_score`. A score, not a measurement: a limit on latency says more."""
        return Reading("optimal_batch", "1", max(self.points, key=lambda point: point.optimal_score).batch)

    def best_under(self, slo_ms: float) -> Reading:
        """Return the batch of the highest throughput among those with a median latency within the limit.

        A point counts by the upper end of its interval, if it has one.
        """
        within = [point for point in self.points if _at_most(point) <= slo_ms]
        if not within:
            fastest = min(self.points, key=_at_most)
            return _absent("best_under_slo", f"no batch is surely within {slo_ms:g} ms: the median of batch "
                                             f"{fastest.batch} reaches {_at_most(fastest):.4g} ms")
        return Reading("best_under_slo", "1", max(within, key=lambda point: point.throughput_per_s).batch)

    @property
    def vram_used(self) -> Reading:
        """Return the most device memory that any batch had in use."""
        used = [point.vram_used_bytes for point in self.points if point.vram_used_bytes is not None]
        if not used:
            return _absent("vram_used_bytes", self.why_no_vram, "bytes")
        return Reading("vram_used_bytes", "bytes", max(used))

    @property
    def rss_peak(self) -> Reading:
        """Return the largest resident set of a process at any batch."""
        used = [point.rss_peak_bytes for point in self.points if point.rss_peak_bytes is not None]
        return Reading("rss_peak_bytes", "bytes", max(used)) if used else \
            _absent("rss_peak_bytes", self.why_no_rss, "bytes")

    @property
    def memory_bound_batch(self) -> Reading:
        """Return the smallest batch that has more than nine tenths of the device's memory in use."""
        shares = [(point.batch, point.vram_used_pct) for point in self.points if point.vram_used_pct is not None]
        if not shares:
            return _absent("memory_bound_batch", self.why_no_vram or "the device does not tell how much memory it has")
        full = [batch for batch, share in shares if share > FULL_PCT]
        if not full:
            batch, most = max(shares, key=lambda batch_share: batch_share[1])
            return _absent("memory_bound_batch", f"no batch fills the memory: batch {batch} uses {most:.1f} %")
        return Reading("memory_bound_batch", "1", full[0])

    @property
    def readings(self) -> tuple[Reading, ...]:
        """Return what the curve says as a whole."""
        return (self.scaling_efficiency, self.saturation_batch, self.transition_batch, self.optimal_batch,
                self.vram_used, self.rss_peak, self.memory_bound_batch)

    def document(self) -> dict[str, Any]:
        """Return the JSON form: every point with the session it came from, and every reading or why there is none."""
        gains = (None, *self.gains)
        rows = zip(self.points, gains, self.efficiencies, strict=True)
        return {"schema_version": SCHEMA_VERSION,
                "points": [_row(*row) | {"pareto": row[0].batch in self.pareto} for row in rows],
                "pareto_batches": list(self.pareto),
                **{reading.metric: described(reading) for reading in self.readings}}


def curve(points: Sequence[BatchPoint], why_no_vram: str = "not recorded",
          why_no_rss: str = "not recorded") -> BatchCurve:
    """Return the curve through points of different batches, given in any order, at least one."""
    return BatchCurve(tuple(sorted(points, key=lambda point: point.batch)), why_no_vram, why_no_rss)


def described(reading: Reading) -> dict[str, Any]:
    """Return the JSON form: the value, or why there is none."""
    return {"value": reading.value, "unit": reading.unit, "why_absent": reading.why_absent or None}


def gains_between(throughputs: Sequence[tuple[float, Estimate]]) -> tuple[Gain, ...]:
    """Return the gain per doubling from each load to the next; in the order of loads."""
    return tuple(_gain(*before, *after) for before, after in pairwise(throughputs))


def knee_of(gains: Sequence[Gain], metric: str, load: str, loads: str, more: str) -> Reading:
    """Return the load at which the gain per doubling drops most; the smaller one of equals.

    load, loads, more: what it is, several of them, and of what there must be more to know better.
    """
    if len(gains) < 2:
        return _absent(metric, f"a drop of the gain needs three {loads}, there are {len(gains) + 1}")
    before, after = max(pairwise(gains), key=lambda pair: _drop(*pair))
    if _drop(before, after) <= ROUNDING_PCT:
        return _absent(metric, "the gain per doubling never drops")
    if before.overlaps(after):
        return _absent(metric, f"the largest drop, at {load} {before.after:g}, lies within the gains' intervals: more "
                               f"{more} would narrow them")
    return Reading(metric, "1", before.after)


def _gain(before: float, old: Estimate, after: float, new: Estimate) -> Gain:
    """Return the gain by interval arithmetic: the least gain is from the highest throughput before to the lowest after.
    """
    doublings = math.log2(after / before)
    value = _per_doubling(old.value, new.value, doublings)
    if old.low is None or old.high is None or new.low is None or new.high is None:
        return Gain(before, after, Estimate(value))
    return Gain(before, after, Estimate(value, _per_doubling(old.high, new.low, doublings),
                                        _per_doubling(old.low, new.high, doublings)))


def _per_doubling(old: float, new: float, doublings: float) -> float:
    return 100 * ((new / old) ** (1 / doublings) - 1)


def _drop(before: Gain, after: Gain) -> float:
    return before.pct.value - after.pct.value


def _at_most(point: BatchPoint) -> float:
    return point.latency_p50_ms if point.high is None else point.high


def _absent(name: str, why: str, unit: str = "1") -> Reading:
    return Reading(name, unit, None, why)


def _row(point: BatchPoint, gain: Gain | None, efficiency: float) -> dict[str, Any]:
    pct = gain.pct if gain else None
    return {"batch": point.batch, "session_id": point.session_id,
            "latency_p50_ms": point.latency_p50_ms, "latency_ci_low": point.low, "latency_ci_high": point.high,
            "throughput_per_s": point.throughput_per_s, "efficiency": efficiency,
            "gain_per_doubling_pct": pct and pct.value, "gain_ci_low": pct and pct.low,
            "gain_ci_high": pct and pct.high, "gain_is_distinct": gain and gain.is_distinct,
            "optimal_score": point.optimal_score,
            "vram_used_bytes": point.vram_used_bytes, "vram_share": point.vram_used_pct and point.vram_used_pct / 100,
            "rss_peak_bytes": point.rss_peak_bytes}
