"""Measurements of a session or a device as points, with the names and units of monitoring systems.

Names come from OpenTelemetry's semantic conventions where one fits (hw.*, https://opentelemetry.io/docs/specs/
semconv/hardware/gpu/, experimental there), and are `aaco.*` otherwise. Units are UCUM base units without prefixes: s,
By, 1 for a share; braces count what they name. A missing measurement has no point, neither zero nor NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct, field

from aaco.analytics.explanation import Explanation
from aaco.core import labels, registry
from aaco.core.readings import Reading
from aaco.report.sections import content, kernels

KERNELS = 10  # with the most time
# Unit of a reading -> suffixes of its name, UCUM unit, factor from the reading to that unit.
UNITS: dict[str, tuple[tuple[str, ...], str, float]] = {
    "ns": (("_ns",), "s", 1e-9), "us": (("_us",), "s", 1e-6), "ms": (("_ms",), "s", 1e-3),
    "pct": (("_pct",), "1", 0.01), "ratio": (("_ratio",), "1", 1.0), "probability": ((), "1", 1.0),
    "bytes": (("_bytes",), "By", 1.0), "B/s": (("_bytes_per_s",), "By/s", 1.0),
    "GB/s": (("_gbytes_per_s",), "By/s", 1e9), "GFLOP/s": (("_gflops",), "{FLOP}/s", 1e9),
    "FLOP/s": (("_flops_per_s",), "{FLOP}/s", 1.0), "FLOP/B": ((), "{FLOP}/By", 1.0),
    "1/s": (("_per_s", "_hz"), "1/s", 1.0), "degC": (("_c",), "Cel", 1.0), "J": (("_j",), "J", 1.0),
    "W": (("_w",), "W", 1.0), "1": ((), "{count}", 1.0),
}
# Names that lose their meaning without the suffix.
WHOLE = {"operator_flops_per_s": "operator_flop_rate", "operator_bytes_per_s": "operator_traffic",
         "achieved_gflops": "achieved_flop_rate", "achieved_gbytes_per_s": "achieved_traffic"}


Kind = Literal["gauge", "counter", "updowncounter"]  # OpenTelemetry's instruments


class Point(Struct, frozen=True):
    """One value. time_ns: since 1970; None for the present moment.

    A counter never decreases while its source exists; an updowncounter is an amount that can be summed over sources.
    """

    name: str
    unit: str
    value: float
    meaning: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    kind: Kind = "gauge"
    time_ns: int | None = None


def of_session(explanation: Explanation) -> list[Point]:
    """Return the measured readings with their intervals, the bottleneck class, the verdict and the top kernels."""
    model, backend = content.heading(explanation)
    subject = {"aaco.model": model, "aaco.backend": backend}
    ended = ended_ns(explanation.record)
    points = [*_about(explanation, subject, ended), *_readings(explanation.readings, subject, ended),
              *_judged(explanation, subject, ended), *_kernels(explanation, subject, ended)]
    return [point for point in points if math.isfinite(point.value)]


def of_sessions(statuses: Mapping[str, int]) -> list[Point]:
    """Return the number of sessions by status."""
    return [Point("aaco.sessions", "{session}", count, "sessions that are kept", {"aaco.session.status": status},
                  "updowncounter")
            for status, count in sorted(statuses.items())]


def of_devices(devices: Iterable[Mapping[str, Any]]) -> list[Point]:
    """Return the present readings of devices: rows of gpu_events with `vendor` and `name`; a missing key is unknown."""
    return [point for device in devices for point in _device(device) if math.isfinite(point.value)]


def of_metric(name: str, unit: str) -> tuple[str, str, float]:
    """Return the name and unit of a metric's point, and the factor for its values."""
    suffixes, ucum, scale = UNITS[unit]
    short = WHOLE.get(name) or next((name.removesuffix(suffix) for suffix in suffixes if name.endswith(suffix)), name)
    return f"aaco.{short}", ucum, scale


def _about(explanation: Explanation, subject: Mapping[str, str], ended: int | None) -> Iterator[Point]:
    record = explanation.record
    facts = {"aaco.session.id": explanation.session_id, "aaco.session.status": explanation.status,
             "aaco.session.tag": str(record.get("tag") or ""), "aaco.version": str(record.get("tool_version") or "")}
    facts |= {f"aaco.label.{name}": text for name, text in labels.kept(explanation.environment.get("labels")).items()}
    yield Point("aaco.session.info", "{session}", 1, "the session that the other values are of",
                {**subject, **{name: value for name, value in facts.items() if value}}, time_ns=ended)
    if ended is not None:
        yield Point("aaco.session.finished_time", "s", ended / 1e9, "when the session ended, since 1970", subject,
                    time_ns=ended)


def _readings(readings: Mapping[str, Reading], subject: Mapping[str, str], ended: int | None) -> Iterator[Point]:
    for name, reading in readings.items():
        metric, unit, scale = of_metric(name, reading.unit)
        meaning = " ".join(registry.METRICS[name].meaning.split())
        for suffix, value, end in (("", reading.value, ""), (".low", reading.low, ": low end of its interval"),
                                   (".high", reading.high, ": high end of its interval")):
            if value is not None and reading.value is not None:
                yield Point(metric + suffix, unit, value * scale, meaning + end, subject, time_ns=ended)


def _judged(explanation: Explanation, subject: Mapping[str, str], ended: int | None) -> Iterator[Point]:
    label, confidence = explanation.diagnosis.label, explanation.diagnosis.confidence
    yield Point("aaco.bottleneck.info", "{class}", 1, "the class of the bottleneck; unknown where none stands",
                {**subject, "aaco.bottleneck.class": label}, time_ns=ended)
    if confidence is not None:
        yield Point("aaco.bottleneck.confidence", "1", confidence, "the calibrated probability that the class is right",
                    subject, time_ns=ended)
    if explanation.verdict:
        yield Point("aaco.verdict.info", "{verdict}", 1, "verdict of the last comparison with a baseline",
                    {**subject, "aaco.verdict.status": str(explanation.verdict["status"])}, time_ns=ended)


def _kernels(explanation: Explanation, subject: Mapping[str, str], ended: int | None) -> Iterator[Point]:
    for row in kernels.groups(explanation)[:KERNELS]:
        yield Point("aaco.kernel.time_share", "1", row["pct_of_kernel_time"] / 100, "share of the time of all kernels; "
                    f"of the {KERNELS} that took the most", {**subject, "aaco.kernel.name": row["kernel_name"]},
                    time_ns=ended)


# Column -> name, unit, factor, kind, further attributes, meaning.
_OF_DEVICES: dict[str, tuple[str, str, float, Kind, dict[str, str], str]] = {
    "gpu_util_pct": ("hw.gpu.utilization", "1", 0.01, "gauge", {}, "share of the time in which anything ran"),
    "mem_util_pct": ("aaco.gpu.memory.busy", "1", 0.01, "gauge", {}, "share of the time in which memory was accessed"),
    "vram_used_bytes": ("hw.gpu.memory.usage", "By", 1, "updowncounter", {}, "memory in use"),
    "vram_total_bytes": ("hw.gpu.memory.limit", "By", 1, "updowncounter", {}, "memory of the device"),
    "power_w": ("hw.power", "W", 1, "gauge", {"hw.type": "gpu"}, "power that the device takes"),
    "power_cap_w": ("aaco.gpu.power.limit", "W", 1, "gauge", {}, "power limit in force"),
    "energy_j": ("hw.energy", "J", 1, "counter", {"hw.type": "gpu"}, "energy that the device took"),
    "temp_c": ("hw.temperature", "Cel", 1, "gauge", {"hw.type": "gpu", "hw.sensor_location": "edge"}, "temperature"),
    "hotspot_c": ("hw.temperature", "Cel", 1, "gauge", {"hw.type": "gpu", "hw.sensor_location": "junction"},
                  "temperature"),
    "sclk_mhz": ("aaco.gpu.clock", "Hz", 1e6, "gauge", {"aaco.gpu.clock.domain": "core"}, "clock in force"),
    "mclk_mhz": ("aaco.gpu.clock", "Hz", 1e6, "gauge", {"aaco.gpu.clock.domain": "memory"}, "clock in force"),
    "processes": ("aaco.gpu.processes", "{process}", 1, "updowncounter", {}, "processes that hold the device"),
    "sclk_max_mhz": ("aaco.gpu.clock.limit", "Hz", 1e6, "gauge", {"aaco.gpu.clock.domain": "core"}, "highest clock"),
}


def _device(device: Mapping[str, Any]) -> Iterator[Point]:
    which = {"hw.id": f"{device['vendor']}:{device['device_id']}", "hw.vendor": device["vendor"]}
    which |= {"hw.name": device["name"]} if device.get("name") else {}
    for column, (name, unit, scale, kind, more, meaning) in _OF_DEVICES.items():
        if (value := device.get(column)) is not None:
            yield Point(name, unit, value * scale, meaning, {**which, **more}, kind)
    used, total = device.get("vram_used_bytes"), device.get("vram_total_bytes")
    if used is not None and total:
        yield Point("hw.gpu.memory.utilization", "1", used / total, "share of the memory in use", which)
    for reason in device.get("throttle_reasons") or ():
        yield Point("aaco.gpu.held_down", "{reason}", 1, "why the clock is held down, as the driver names it",
                    {**which, "aaco.gpu.held_down.reason": reason})


def ended_ns(record: Mapping[str, Any]) -> int | None:
    """Return when a session ended, ns since 1970; None where it did not."""
    text = record.get("finished_utc")
    return None if text is None else round(datetime.fromisoformat(text).timestamp() * 1e9)
