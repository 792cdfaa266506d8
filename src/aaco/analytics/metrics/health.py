"""One number for a quick look, from the parts that were measured, and never from nothing."""

from __future__ import annotations

from aaco.analytics.quality import health
from aaco.core.readings import Absent, Estimate
from aaco.core.registry import metric


@metric(unit="1", better="higher", formula="weighted mean, 0-100, of the measured parts: "
        + ", ".join(f"{name} {part.weight:g} ({part.metric} {part.best:g} to {part.worst:g})"
                    for name, part in health.PARTS.items()), source="AACO's own definition", aliases=("CHI",),
        bands=(">=90 excellent", ">=75 good", ">=50 fair", ">=25 poor", "<25 bad"))
def compute_health_index(
        latency_cov_pct: float | None = None, hardware_envelope_utilization: float | None = None,
        launch_tax_pct: float | None = None, device_clock_variation_pct: float | None = None,
        device_temperature_max_c: float | None = None, scheduler_interference: float | None = None) -> Estimate:
    """Health of the measured run; absent when the measured parts carry less than 60 % of the weight."""
    return health.index(locals())


@metric(unit="probability", better="none", formula="posterior of the likeliest cause given the evidence",
        source="AACO's own definition", aliases=("RCPP",))
def root_cause_posterior() -> float:
    """Probability of the likeliest root cause of a regression."""
    raise Absent("it is of a change, not of one session: aaco root-cause SESSION --baseline BASELINE")
