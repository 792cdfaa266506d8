"""What compute_bound and memory_bound share: how near a run's executed nodes come to this machine's measured roofs."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.analytics.bottleneck.calibration import Thresholds
from aaco.core.readings import Evidence, Reading

SOURCE = "docs/concepts/roofline.md; Williams, Waterman and Patterson 2009"
MOST = 60.0  # per cent of kernel time; a clear majority
LEAST_PCT = 40.0  # of a CPU run's own time; a limit that takes less is one of several
MARGIN_PCT = 5.0  # of the same: by so much the largest part leads
QUOTA_PCT = 50.0  # of the wall: a quota that takes more is what limits the run
NOTHING_LEFT_PCT = 98.0  # of the wall taken by others: what is left is a few time slices
NEAR = 0.3  # of the measured roof; below it neither roof explains the time


def by_nodes(overhead_pct: Reading, host_limited_pct: Reading) -> bool:
    """Return whether a run was profiled by its nodes alone: no trace of the device and its launches says why it
    idles.
    """
    return overhead_pct.value is not None and host_limited_pct.value is None


def of_cpu_run(mine_pct: Reading, because: str, others: tuple[Reading, ...], contended_pct: Reading, quota_pct: Reading
               ) -> Iterator[Evidence]:
    """Evidence from the budget of a run on CPUs, over the time that others left it; none where it has no budget."""
    if mine_pct.value is None:
        return
    own = 100 - (contended_pct.value or 0.0)
    second = max(reading.value or 0.0 for reading in others)
    yield mine_pct.above(round(LEAST_PCT / 100 * own, 1), because, 0.4, essential=True)
    yield mine_pct.above(round(min(100.0, second + MARGIN_PCT / 100 * own), 1), "by a margin over every other part",
                         0.4, essential=True)
    yield contended_pct.below(NOTHING_LEFT_PCT, "others leave enough to judge the run by", 0.1, essential=True)
    if quota_pct.value is not None:
        yield quota_pct.below(QUOTA_PCT, "no quota takes most of the time", 0.1, essential=True)


def by_counters(counted_pct: Reading, overhead_pct: Reading, host_limited_pct: Reading) -> bool:
    """Return whether a capture holds counters of kernels, and neither launches nor nodes: they describe it."""
    return counted_pct.value is not None and overhead_pct.value is None and host_limited_pct.value is None


def of_counters(counted_pct: Reading, because: str) -> Iterator[Evidence]:
    """Evidence from the counters of kernels, weighted by their time."""
    yield counted_pct.above(MOST, because, 1.0, essential=True)


def of_nodes(side_pct: Reading, because: str, utilization: Reading, overhead_pct: Reading, coverage_pct: Reading
             ) -> Iterator[Evidence]:
    """Evidence from the roofline of executed nodes, of a run that this tool made."""
    yield side_pct.above(MOST, because, 0.35, essential=True)
    yield utilization.above(NEAR, "the kernels reach a fair part of the measured roof", 0.35, essential=True)
    yield utilization.below(1.05, "the roof is not beaten, which would make it the wrong roof", 0.1, essential=True)
    yield overhead_pct.below(20, "little time passes outside kernels", 0.2)
    yield coverage_pct.above(80, "the model covers most kernel time", 0.1)


def of_device(mine_pct: Reading, because: str, device_pct: Reading, host_pct: Reading, fitted: Thresholds,
              throttled_pct: Reading) -> Iterator[Evidence]:
    """Evidence from a trace of the device. fitted: thresholds of both shares."""
    device = 0.0 if device_pct.value is None else device_pct.value
    yield device_pct.above(fitted.device_pct, "the device itself is at work", 0.3, essential=True)
    yield mine_pct.above(fitted.majority_pct / 100 * device, because, 0.4, essential=True)
    yield host_pct.below(100 - fitted.device_pct, "the device seldom waits for the host", 0.2)
    yield throttled_pct.below(50, "the clock is not held down", 0.1)
