"""Whether a device was throttled while inferences were measured: its temperature, its power cap, its clock."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aaco.analytics.quality.co_tenants import RunDevices
from aaco.analytics.quality.energy import inside
from aaco.analytics.quality.thermal import WARM_C, throttling
from aaco.core.inputs import MeasuredSpans
from aaco.core.readings import Absent, Estimate
from aaco.core.registry import metric

SOURCE = "AACO's own definition"


@metric(unit="degC", better="lower",
        formula="highest temperature of the run's busy devices while inferences were measured",
        source=SOURCE, bands=(f"<{WARM_C:g} fine", "<85 warm", "<95 violation", ">=95 critical"))
def device_temperature_max_c(run_devices: RunDevices, measured_spans: MeasuredSpans) -> Estimate:
    """How hot the busiest device got: its edge, or its junction where the edge has no sensor."""
    busy = _busy(run_devices, measured_spans)
    sensor = "hotspot_c" if busy["temp_c"].null_count == busy.num_rows else "temp_c"
    method = "junction" if sensor == "hotspot_c" else "edge"
    return Estimate(float(_known(run_devices, measured_spans, sensor).max()), method=method)


@metric(unit="pct", better="none", formula="100 x mean power / power limit of the run's busy devices", source=SOURCE,
        bands=("<90 below the cap", "<100 near the cap", ">=100 at the cap"))
def device_power_of_cap_pct(run_devices: RunDevices, measured_spans: MeasuredSpans) -> float:
    """How near to their power limit the busy devices ran."""
    chosen = _busy(run_devices, measured_spans)
    power, cap = (chosen[name].to_numpy(zero_copy_only=False).astype(float) for name in ("power_w", "power_cap_w"))
    share = (power / cap)[~np.isnan(power / cap)]
    if not len(share):
        raise Absent("power or its limit was not recorded")
    return 100 * float(share.mean())


@metric(unit="pct", better="lower", formula="100 x standard deviation / mean of the core clock of its busy devices",
        source=SOURCE, aliases=("CIS",), bands=("<=3 steady", "<=5 varies", ">5 unstable"))
def device_clock_variation_pct(run_devices: RunDevices, measured_spans: MeasuredSpans) -> float:
    """How unsteady the clock of the busy devices was."""
    clock = _known(run_devices, measured_spans, "sclk_mhz")
    return 100 * float(clock.std()) / float(clock.mean())


@metric(unit="pct", better="lower", formula="100 x samples with a throttle reason / samples of the run's busy devices",
        source="NVML clocks event reasons", bands=("<=0 free", "<=5 seldom", ">5 throttled"))
def device_throttled_pct(run_devices: RunDevices, measured_spans: MeasuredSpans) -> float:
    """How often the driver lowered the clock, for power or for heat."""
    reasons = _busy(run_devices, measured_spans)["throttle_reasons"].drop_null().to_pylist()
    if not reasons:
        raise Absent("no reasons for the clock were recorded")
    return 100 * sum(bool(throttling(found)) for found in reasons) / len(reasons)


@metric(unit="pct", better="lower",
        formula="100 x (1 - mean core clock / highest core clock) of the run's busy devices", source=SOURCE)
def device_clock_below_max_pct(run_devices: RunDevices, measured_spans: MeasuredSpans) -> float:
    """How far the clock of the busy devices stayed below the highest that they have."""
    chosen = _busy(run_devices, measured_spans)
    clock, top = (chosen[name].to_numpy(zero_copy_only=False).astype(float) for name in ("sclk_mhz", "sclk_max_mhz"))
    share = (clock / np.where(top > 0, top, np.nan))[~np.isnan(clock / np.where(top > 0, top, np.nan))]
    if not len(share):
        raise Absent("the clock or its highest value was not recorded")
    return 100 * (1 - float(share.mean()))


def _known(run_devices: RunDevices, spans: MeasuredSpans, name: str) -> NDArray[np.float64]:
    values = _busy(run_devices, spans)[name].drop_null().to_numpy().astype(float)
    if not len(values):
        raise Absent(f"{name} was not recorded")
    return values


def _busy(run_devices: RunDevices, spans: MeasuredSpans) -> pa.Table:
    """Samples while inferences were measured, of the run's devices that did something."""
    timed = run_devices.events.filter(pc.is_valid(run_devices.events["t_ns"]))
    within = pa.array(inside(timed["t_ns"].to_numpy(), spans))
    chosen = timed.filter(pc.and_(within, pc.fill_null(pc.greater(timed["gpu_util_pct"], 0), True)))
    if not chosen.num_rows:
        raise Absent("no device was busy while inferences were measured")
    return chosen
