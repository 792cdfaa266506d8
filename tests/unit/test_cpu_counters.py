"""Readings of planted hardware counters: no processor of CI lets a user count."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from aaco.analytics.measure import measure
from aaco.core import tables
from aaco.core.config import Analysis

MS = 1_000_000
ITERATIONS = tables.INFERENCE_ITERS.build(
    iteration=[0, 1, 0], batch=[1] * 3, phase=["warmup", "measurement", "measurement"], process=[0, 0, 1],
    t_start_ns=[0, 100 * MS, 500 * MS], t_end_ns=[100 * MS, 300 * MS, 600 * MS], latency_ms=[100.0, 200.0, 100.0])


def counted(*rows: tuple[int, str, float], tier: str = "T2") -> pa.Table:
    """(begin in ms, kind, count) of intervals of 50 ms; the process of after 400 ms is another."""
    return tables.SYSTEM_EVENTS.build(
        t_ns=[at * MS for at, *_ in rows], kind=[kind for _, kind, _ in rows], dur_ns=[50 * MS] * len(rows),
        value=[value for *_, value in rows], process_id=[7 + (at > 400) for at, *_ in rows], tier=[tier] * len(rows))


def read(events: pa.Table) -> dict[str, Any]:
    return dict(measure({"system_events": events, "inference_iters": ITERATIONS}, None, Analysis()))


def test_counters_of_the_intervals_within_the_measured_inferences() -> None:
    """Three intervals count: the warm-up's, that which reaches out, and that without instructions do not.

    Mutations: the warm-up counted; the interval that reaches out; the cycles of the interval whose instructions were
    shared; a mean of ratios.
    """
    found = read(counted(
        (0, "cycles", 9e9), (0, "instructions", 1e9), (0, "llc_misses", 5e9),
        (100, "cycles", 100), (100, "instructions", 300), (100, "llc_misses", 3),
        (200, "cycles", 900), (200, "instructions", 900), (200, "llc_misses", 0),
        (240, "cycles", 7777), (260, "cycles", 1e6), (260, "instructions", 1e9), (260, "llc_misses", 5e9),
        (520, "cycles", 1000), (520, "instructions", 800), (520, "llc_misses", 37)))
    assert found["cpu_instructions_per_cycle"].value == pytest.approx(2000 / 2000)
    assert found["cpu_llc_misses_per_1000_instructions"].value == pytest.approx(1000 * 40 / 2000)


@pytest.mark.parametrize(("events", "says"), [
    (counted((100, "watched", 1)), "counted no instructions and cycles here"),
    (counted((100, "cycles", 1), (100, "llc_misses", 1)), "counted no instructions here"),
    (counted((0, "cycles", 1), (0, "instructions", 1)), "lies within the measured inferences"),
    (counted((100, "cycles", 1), (150, "instructions", 1)), "lies within the measured inferences"),
    (counted((100, "cycles", 1), (100, "instructions", 1), tier="T3"), r"not with --ebpf (T3)")])
def test_what_was_not_counted_is_absent_with_the_reason(events, says) -> None:
    found = read(events)["cpu_instructions_per_cycle"]
    assert found.value is None and says in found.why_absent
