"""What the tokens of an endpoint on this machine cost in energy, by its devices and its processor."""

from __future__ import annotations

from aaco.analytics.llm.summary import Endpoint
from aaco.analytics.quality.energy import PackageEnergy, Power, counted_energy, measured_energy, per
from aaco.core.inputs import MeasuredSpans
from aaco.core.readings import Estimate
from aaco.core.registry import metric

SOURCE = "trapezoid rule; docs/guides/llm.md"
RAPL = "Documentation/power/powercap/powercap.rst"


@metric(unit="J", better="lower", source=SOURCE,
        formula="energy of the busy devices in the steady window / output tokens that came in it")
def device_energy_per_output_token_j(power: Power, measured_spans: MeasuredSpans, endpoint: Endpoint) -> Estimate:
    """Energy that the devices took for one token of the answers; the prompts' work is in it.

    Whole devices: what others did on them is in it, and so is what they take when idle.
    """
    return per(measured_energy(power, measured_spans), endpoint.window_tokens)


@metric(unit="W", better="none", source=RAPL,
        formula="energy that the processor's packages counted in the steady window / its length")
def package_power_mean_w(package_energy: PackageEnergy, measured_spans: MeasuredSpans) -> Estimate:
    """Mean power of the processor's packages, all together, while requests were measured."""
    return per(counted_energy(package_energy, measured_spans), measured_spans.wall_ns / 1e9)


@metric(unit="J", better="lower", source=RAPL,
        formula="energy that the processor's packages counted in the steady window / output tokens that came in it")
def package_energy_per_output_token_j(package_energy: PackageEnergy, measured_spans: MeasuredSpans,
                                      endpoint: Endpoint) -> Estimate:
    """Energy that the processor took for one token of the answers; the prompts' work and the client's are in it.

    Whole packages: what other programs did is in it, and so is what they take when idle. Memory is not, where it has
    a counter of its own.
    """
    return per(counted_energy(package_energy, measured_spans), endpoint.window_tokens)
