"""Energy of devices from samples of power: the trapezoid over a time, with the limits of its error; and of the
processor's packages from their counters.

Four errors widen it. Between two samples the power may step at any moment with equal probability: the trapezoid of a
step of P watts between samples t seconds apart errs evenly within P t / 2 either way, so with a variance of (P t)^2 /
12. A sample describes a moment up to a lag ago, or a mean over it: the time is also integrated as if all samples came
that late. Sensors err by 5 % of what they read (Yang et al., Accurate and Convenient Energy Measurements for GPUs,
SC24, arXiv:2312.02741, found for NVIDIA's; assumed for AMD's, where the driver states nothing). The time is known
exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from numpy.typing import NDArray

from aaco.analytics.quality.co_tenants import RunDevices
from aaco.core.arrays import Ints, Reals
from aaco.core.inputs import MeasuredSpans
from aaco.core.readings import Absent, Estimate

SAMPLE = "device_power"  # of the samples table, in W
PACKAGES = "package_energy"  # of the samples table, in J since the recording began
FEWEST = 10
ACCURACY = 0.05
NORMAL_95 = 1.959964
# The delay of a sample, measured on an H200: instant power after 98 ms, the driver's mean after 480 ms.
LAG_NS, MEAN_LAG_NS = 100_000_000, 480_000_000
LONGEST_GAP = 5  # times the usual distance between samples
COUNTED = "counters of the packages (RAPL), whose own error is not in the interval"


class PowerCurve(Struct, frozen=True):
    """Power of one device: times in ns, rising; watts; and the delay of a sample at most, in ns."""

    at: Ints
    watts: Reals
    lag_ns: int


class Power(Struct, frozen=True):
    """The power of the run's devices that did something while inferences were measured, and where it is from."""

    curves: Mapping[int, PowerCurve]
    method: str


def of_samples(samples: pa.Table, run_devices: RunDevices, measured_spans: MeasuredSpans) -> Power:
    """Return the power from the driver's own history. Raise Absent if the history of a busy device cannot give an
    energy."""
    power_samples = samples.filter(pc.equal(samples["name"].cast(pa.string()), SAMPLE))
    curves = {device: _curve(power_samples, device, "value", LAG_NS)
              for device in busy(run_devices.events, measured_spans)}
    for device, curve in curves.items():
        _require_samples(curve, measured_spans, f"device {device}")
    return Power(curves, "the driver's history of power")


def of_events(run_devices: RunDevices, measured_spans: MeasuredSpans) -> Power:
    """Return the power from the telemetry's rows. Raise Absent if a busy device has none."""
    curves = {device: _curve(run_devices.events, device, "power_w", MEAN_LAG_NS)
              for device in busy(run_devices.events, measured_spans)}
    return Power(curves, "mean power at each look")


CHOICES: Mapping[str, tuple[Callable[..., Any], ...]] = {"power": (of_samples, of_events)}


def busy(gpu_events: pa.Table, spans: MeasuredSpans) -> list[int]:
    """Return the devices that worked within the spans, or do not report it. Raise Absent if there is none."""
    timed = gpu_events.filter(pc.and_(pc.is_valid(gpu_events["t_ns"]), pc.is_valid(gpu_events["device_id"])))
    worked = pc.fill_null(pc.greater(timed["gpu_util_pct"], 0), True)
    busy_rows = timed.filter(pc.and_(pa.array(inside(timed["t_ns"].to_numpy(), spans)), worked))
    if not busy_rows.num_rows:
        raise Absent("no device was busy while inferences were measured")
    return sorted(busy_rows["device_id"].unique().to_pylist())


def inside(at: Ints, spans: MeasuredSpans) -> NDArray[np.bool_]:
    """Return whether each time is in one of the spans."""
    is_inside = np.zeros(len(at), bool)
    for first, last in zip(spans.start, spans.end, strict=True):
        is_inside |= (at >= first) & (at <= last)
    return is_inside


def measured_energy(power: Power, spans: MeasuredSpans) -> Estimate:
    """Return the joules that the devices took within the spans. Raise Absent if the samples cannot carry it."""
    value, late, early, variance = 0.0, 0.0, 0.0, 0.0
    for device, curve in power.curves.items():
        _require_samples(curve, spans, f"device {device}")
        for first, last in zip(spans.start.tolist(), spans.end.tolist(), strict=True):
            ends = [trapezoid(curve.at - lag, curve.watts, first, last) for lag in (0, curve.lag_ns)]
            value += (ends[0] + ends[1]) / 2
            early, late = early + min(ends), late + max(ends)
            variance += _variance(curve, first, last)
    blur = NORMAL_95 * variance**0.5
    least = early * math.exp(-blur / early) if early > 0 else 0.0  # on the logarithm: energy is positive
    return Estimate(value, least * (1 - ACCURACY), (late + blur) * (1 + ACCURACY), power.method)


def trapezoid(at: Ints, watts: Reals, first: float, last: float) -> float:
    """Return the joules between two times by straight lines between the samples; the last sample holds beyond the end.
    """
    between = at[(at > first) & (at < last)]
    times = np.concatenate(([first], between, [last])).astype(float)
    return float(np.trapezoid(np.interp(times, at, watts), times)) / 1e9


class PackageEnergy(Struct, frozen=True):
    """Joules of all packages of the processor since the recording began, and when they were read, ns, rising."""

    at: Ints
    joules: Reals


def package_energy(samples: pa.Table) -> PackageEnergy:
    """Return the energy that the processor's packages counted. Raise Absent if it was not sampled or never rose."""
    rows = samples.filter(pc.equal(samples["name"].cast(pa.string()), PACKAGES))
    rows = rows.filter(pc.is_valid(rows["t_ns"])).sort_by("t_ns")
    at, joules = rows["t_ns"].to_numpy(), rows["value"].to_numpy().astype(float)
    if len(at) < 2:
        raise Absent("the energy of the processor's packages was not sampled (aaco llm --telemetry)")
    if not (np.diff(joules) >= 0).all() or joules[-1] == joules[0]:
        raise Absent("the energy counter of the processor's packages did not rise, or was set back")
    return PackageEnergy(at, joules)


def counted_energy(energy: PackageEnergy, spans: MeasuredSpans) -> Estimate:
    """Return the joules that the packages counted within the spans: a counter never falls, so that the readings around
    an end bound it. Raise Absent where it was not read before and after."""
    if spans.start.min() < energy.at[0] or spans.end.max() > energy.at[-1]:
        raise Absent("the counter of the processor's packages was not read for as long as requests were measured")
    value = least = most = 0.0
    for first, last in zip(spans.start, spans.end, strict=True):
        inner = np.searchsorted(energy.at, first, "left"), np.searchsorted(energy.at, last, "right") - 1
        outer = np.searchsorted(energy.at, first, "right") - 1, np.searchsorted(energy.at, last, "left")
        begin, end = np.interp([first, last], energy.at, energy.joules)
        value += float(end - begin)
        least += max(0.0, float(energy.joules[inner[1]] - energy.joules[inner[0]]))
        most += float(energy.joules[outer[1]] - energy.joules[outer[0]])
    return Estimate(value, least, most, COUNTED)


def per(energy: Estimate, count: float) -> Estimate:
    """Return an energy divided by what it was spent on."""
    assert energy.low is not None and energy.high is not None
    return Estimate(energy.value / count, energy.low / count, energy.high / count, energy.method)


def by_counter(gpu_events: pa.Table, device: int) -> tuple[int, int, float]:
    """Return the times of the first and last value of a device's energy counter, and the joules between.

    Raise Absent if it has none, or if it was reset.
    """
    rows = gpu_events.filter(pc.and_(pc.equal(gpu_events["device_id"], device), pc.is_valid(gpu_events["energy_j"])))
    rows = rows.filter(pc.is_valid(rows["t_ns"])).sort_by("t_ns")
    if rows.num_rows < 2:
        raise Absent(f"device {device} reported fewer than two values of an energy counter")
    joules = rows["energy_j"].to_numpy()
    if (np.diff(joules) < 0).any() or joules[-1] == joules[0]:
        raise Absent(f"the energy counter of device {device} did not rise, or was set back")
    return int(rows["t_ns"][0].as_py()), int(rows["t_ns"][-1].as_py()), float(joules[-1] - joules[0])


def _curve(table: pa.Table, device: int, column: str, lag_ns: int) -> PowerCurve:
    rows = table.filter(pc.and_(pc.equal(table["device_id"], device), pc.is_valid(table[column])))
    rows = rows.filter(pc.is_valid(rows["t_ns"])).sort_by("t_ns")
    at, watts = rows["t_ns"].to_numpy(), rows[column].to_numpy().astype(float)
    sound = np.isfinite(watts) & (watts >= 0) & np.concatenate(([True], np.diff(at) > 0))[:len(at)]
    if sound.sum() < FEWEST:
        raise Absent(f"device {device} has {int(sound.sum())} samples of power, fewer than {FEWEST}")
    return PowerCurve(at[sound], watts[sound], lag_ns)


def _require_samples(curve: PowerCurve, spans: MeasuredSpans, device: str) -> None:
    """Raise Absent unless there are enough samples within the spans, they differ, and no gap is too long."""
    held = inside(curve.at, spans)
    if held.sum() < FEWEST:
        raise Absent(f"{int(held.sum())} samples of the power of {device} while inferences were measured, fewer than "
                     f"{FEWEST}: measure for longer")
    if np.ptp(curve.watts[held]) == 0:
        raise Absent(f"the power of {device} never changed: its sensor says nothing")
    usual = float(np.median(np.diff(curve.at)))
    for first, last in zip(spans.start, spans.end, strict=True):
        near = curve.at[(curve.at > first) & (curve.at < last)]
        hole = float(np.diff(np.concatenate(([first], near, [last]))).max())
        if hole > LONGEST_GAP * max(usual, 1.0):
            raise Absent(f"the power of {device} is not known for {hole / 1e9:.2f} s of the measured time")


def _variance(curve: PowerCurve, first: int, last: int) -> float:
    """Return the variance of the trapezoid between two times, J^2, from steps of the power between its samples."""
    overlap = np.minimum(curve.at[1:], last) - np.maximum(curve.at[:-1], first)
    length = np.clip(overlap, 0, None) / 1e9
    return float((np.square(np.diff(curve.watts) * length) / 12).sum())
