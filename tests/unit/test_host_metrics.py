"""Readings of the host by planted samples, their levels, and the memory of each phase."""

from __future__ import annotations

import pyarrow as pa
import pytest

from aaco.analytics.limits import levels
from aaco.analytics.measure import measure
from aaco.core import tables
from aaco.core.config import Analysis, resolve
from aaco.core.errors import UsageError

MS = 1_000_000
AMOUNTS = {"host_switches": 2_000, "host_interrupts": 300, "host_softirqs": 100, "host_fault_major": 5,
           "psi_cpu": 30_000, "psi_memory": 4_000, "psi_io": 5_000, "switch_voluntary": 10, "switch_involuntary": 10}


def samples(*moments: int, **amounts: float) -> pa.Table:
    """Samples 100 ms apart, each with these amounts, and 8 ms of run-queue wait."""
    rows = [(at, kind, None, value) for at in moments for kind, value in amounts.items()]
    rows += [(at, "sample", 100 * MS, 3.0) for at in moments] + [(at, "run_queue_wait", 8 * MS, None) for at in moments]
    at, kind, length, value = zip(*sorted(rows, key=lambda row: row[0]), strict=True)
    return tables.SYSTEM_EVENTS.build(t_ns=[one * MS for one in at], kind=kind, dur_ns=length, value=value,
                                      tier=["T1"] * len(at))


def iterations(*rows: tuple[int, str, int, int]) -> pa.Table:
    """(process, phase, start, end), times in ms."""
    process, phase, start, end = zip(*rows, strict=True)
    return tables.INFERENCE_ITERS.build(
        iteration=range(len(rows)), batch=[1] * len(rows), phase=phase, process=process,
        t_start_ns=[one * MS for one in start], t_end_ns=[one * MS for one in end],
        latency_ms=[float(e - s) for s, e in zip(start, end, strict=True)])


def test_rates_and_pressure_of_the_measured_time() -> None:
    """Mutations: microseconds taken for nanoseconds; the sample before the first inference counted."""
    found = measure({"system_events": samples(100, 200, 300, **AMOUNTS),
                     "inference_iters": iterations((0, "measurement", 100, 320))}, None, Analysis())
    expected = {"host_switches_per_s": 20_000, "host_interrupts_per_s": 3_000, "host_softirqs_per_s": 1_000,
                "host_major_faults_per_s": 50, "pressure_cpu_pct": 30, "pressure_memory_pct": 4,
                "pressure_io_pct": 5, "wait_per_switch_ms": 0.4}
    assert {name: found[name].value for name in expected} == pytest.approx(expected)
    judged = {one.reading.metric: one.level for one in levels(found, Analysis())}
    assert judged == {name: "bad" if name in ("host_switches_per_s", "pressure_cpu_pct") else "ok" for name in expected}
    assert [one.level for one in levels(found, Analysis())][:2] == ["bad", "bad"]
    stricter = Analysis(pressure_io_pct=(4.0, 6.0), host_switches_per_s=(20_000.5, 30_000.0))
    judged = {one.reading.metric: (one.level, one.limit) for one in levels(found, stricter)}
    assert judged["pressure_io_pct"] == ("warning", 4.0)
    assert judged["host_switches_per_s"] == ("ok", 20_000.5)


def test_a_hot_processor_and_a_low_clock_have_levels() -> None:
    """Three throttlings in 0.2 s, the clock at 60 % of its highest; a kernel that tells neither is no cool one.

    Mutations: only the cores' counter; the share of the highest clock in place of what it lacks; 0 where not counted.
    """
    hot = {"throttle_core": 1, "throttle_package": 0.5, "cpu_frequency": 1800, "cpu_frequency_max": 3000}
    table = iterations((0, "measurement", 100, 320))
    found = measure({"system_events": samples(100, 200, 300, **hot), "inference_iters": table}, None, Analysis())
    assert found["cpu_throttles_per_s"].value == pytest.approx(15)
    assert found["cpu_clock_below_max_pct"].value == pytest.approx(40)
    judged = {one.reading.metric: one.level for one in levels(found, Analysis())}
    assert (judged["cpu_throttles_per_s"], judged["cpu_clock_below_max_pct"]) == ("bad", "warning")
    found = measure({"system_events": samples(100, 200, 300), "inference_iters": table}, None, Analysis())
    assert "counts no thermal throttling" in found["cpu_throttles_per_s"].why_absent
    assert "tells no CPU clock" in found["cpu_clock_below_max_pct"].why_absent


def test_what_was_not_sampled_has_no_level() -> None:
    found = measure({"system_events": samples(100, 200), "inference_iters": iterations((0, "measurement", 100, 220))},
                    None, Analysis())
    assert "no host_switches was sampled" in found["host_switches_per_s"].why_absent
    assert levels(found, Analysis()) == []


def test_limits_come_from_the_settings_and_must_rise() -> None:
    changed = resolve(overrides={"analysis": {"pressure_cpu_pct": [1, 2]}}, environment={})
    assert changed.config.analysis.pressure_cpu_pct == (1.0, 2.0)
    for wrong in ([2, 1], [1], [0, 1]):
        with pytest.raises(UsageError, match="pressure_cpu_pct"):
            resolve(overrides={"analysis": {"pressure_cpu_pct": wrong}}, environment={})


def memory(*rows: tuple[int, float, float]) -> pa.Table:
    """(ms, rss, high-water mark) in MB."""
    found = [(at, kind, value * 1e6) for at, now, mark in rows for kind, value in (("rss", now), ("rss_peak", mark))]
    at, kind, value = zip(*found, strict=True)
    return tables.SYSTEM_EVENTS.build(t_ns=[one * MS for one in at], kind=kind, value=value, tier=["T1"] * len(at))


def test_peak_memory_of_each_phase() -> None:
    """Loading peaks at 90 between two samples. The second process needs more to load, less to measure.

    Mutations: an earlier phase's mark taken for a later one's; marks of another process compared; samples alone.
    """
    events = memory((10, 20, 20), (50, 40, 90), (150, 50, 90), (250, 60, 90), (280, 55, 90),
                    (410, 30, 95), (550, 35, 95))
    table = iterations((0, "warmup", 100, 190), (0, "measurement", 200, 300), (1, "measurement", 500, 600))
    found = measure({"system_events": events, "inference_iters": table}, None, Analysis())
    seen = {name: (found[f"{name}_peak_rss_bytes"].value, found[f"{name}_peak_rss_bytes"].method[:7])
            for name in ("load", "warmup", "measured")}
    assert seen == {"load": (95e6, "high-wa"), "warmup": (50e6, "largest"), "measured": (60e6, "largest")}
    grown = memory((50, 40, 90), (250, 60, 120), (280, 55, 120))
    found = measure({"system_events": grown, "inference_iters": table}, None, Analysis())
    assert found["measured_peak_rss_bytes"].value == 120e6
    assert "not sampled" in found["warmup_peak_rss_bytes"].why_absent
