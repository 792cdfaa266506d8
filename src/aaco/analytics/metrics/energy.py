"""What the inferences cost in energy, by the power that devices reported while they were measured."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.quality.co_tenants import RunDevices
from aaco.analytics.quality.energy import Power, busy, by_counter, measured_energy, per, trapezoid
from aaco.core.inputs import MeasuredSpans
from aaco.core.readings import Absent, Estimate
from aaco.core.registry import metric

SOURCE = "trapezoid rule; arXiv:2312.02741 for the sensors' accuracy"


@metric(unit="W", better="none",
        formula="energy of the run's busy devices / measured time, from the first inference to the last", source=SOURCE)
def device_power_mean_w(power: Power, measured_spans: MeasuredSpans) -> Estimate:
    """Mean power of the devices that worked, together, while inferences were measured."""
    return per(measured_energy(power, measured_spans), measured_spans.wall_ns / 1e9)


@metric(unit="J", better="lower",
        formula="energy of the run's busy devices over the measured time / inferences made in it", source=SOURCE)
def energy_per_inference_j(power: Power, measured_spans: MeasuredSpans, inference_iters: pa.Table) -> Estimate:
    """Energy that the devices took for one inference, a whole batch, and for the pause between two of them.

    Whole devices: what others did on them is in it, and so is what they take when idle.
    """
    return per(measured_energy(power, measured_spans), _made(inference_iters))


@metric(unit="J", better="lower", formula="energy of the run's busy devices over the measured time / tokens fed in it",
        source=SOURCE)
def energy_per_token_j(power: Power, measured_spans: MeasuredSpans, inference_iters: pa.Table,
                       tokens_per_inference: int) -> Estimate:
    """The same for one of the identifiers that the input of an inference holds."""
    return per(measured_energy(power, measured_spans), _made(inference_iters) * tokens_per_inference)


@metric(unit="pct", better="none", formula="100 x energy by samples of power / energy by the device's own counter",
        source=SOURCE, bands=("<95 samples read low", "<=105 agree", ">105 samples read high"))
def energy_of_counter_pct(power: Power, run_devices: RunDevices, measured_spans: MeasuredSpans) -> Estimate:
    """Whether samples of power add up to the device's energy counter, over the time that both cover."""
    sampled, counted = 0.0, 0.0
    for device in busy(run_devices.events, measured_spans):
        curve, (first, last, joules) = power.curves[device], by_counter(run_devices.events, device)
        if first < curve.at[0] - curve.lag_ns or last > curve.at[-1] + curve.lag_ns:
            raise Absent(f"the power of device {device} was not sampled for as long as its counter was read")
        ends = [trapezoid(curve.at - lag, curve.watts, first, last) for lag in (0, curve.lag_ns)]
        sampled, counted = sampled + float(np.mean(ends)), counted + joules
    return Estimate(100 * sampled / counted, method=power.method)


def _made(inference_iters: pa.Table) -> int:
    """Return every inference of the measured time, also those that statistics leave out: they took their energy too."""
    return int(pc.sum(pc.equal(inference_iters["phase"].cast(pa.string()), "measurement")).as_py() or 0)

