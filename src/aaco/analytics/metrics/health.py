"""One number for a quick look, from the parts that were measured, and never from nothing."""

from __future__ import annotations

from aaco.core.readings import Absent
from aaco.core.registry import metric

WEIGHTS = {"stability": 0.25, "efficiency": 0.25, "launch": 0.15, "clock": 0.15, "thermal": 0.10, "system": 0.10}
NEEDED = 0.6


@metric(unit="1", better="higher", formula="weighted mean of the measured parts, 0-100: stability 100 (1 - CV / 10 %), "
        "efficiency 100 HEU, launch 100 (1 - launch tax / 20 %), system 100 (1 - SII / 0.05); clock and thermal need "
        "telemetry of a device", source="METHODS section 1", aliases=("CHI",),
        bands=(">=90 excellent", ">=75 good", ">=50 fair", ">=25 poor", "<25 bad"))
def compute_health_index(latency_cov_pct: float | None = None, hardware_envelope_utilization: float | None = None,
                         launch_tax_pct: float | None = None, scheduler_interference: float | None = None) -> float:
    """Health of the measured run; absent when the measured parts carry less than 60 % of the weight."""
    parts = {
        "stability": None if latency_cov_pct is None else 1 - latency_cov_pct / 10,
        "efficiency": hardware_envelope_utilization,
        "launch": None if launch_tax_pct is None else 1 - launch_tax_pct / 20,
        "system": None if scheduler_interference is None else 1 - scheduler_interference / 0.05,
    }
    known = {name: min(1.0, max(0.0, value)) for name, value in parts.items() if value is not None}
    weight = sum(WEIGHTS[name] for name in known)
    if weight < NEEDED - 1e-9:
        measured = ", ".join(known) or "nothing"
        raise Absent(f"insufficient data: {measured} measured, {100 * weight:.0f} % of the weight; 60 % is needed")
    return 100 * sum(WEIGHTS[name] * value for name, value in known.items()) / weight


@metric(unit="probability", better="none", formula="posterior of the likeliest cause given the evidence",
        source="METHODS section 4", aliases=("RCPP",))
def root_cause_posterior() -> float:
    """Probability of the likeliest root cause of a regression."""
    raise Absent("the root-cause engine is not part of this version")
