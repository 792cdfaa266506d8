"""How far a measurement can be trusted, as one number that comes with its parts."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.quality import measurement_quality as quality
from aaco.core import inputs
from aaco.core.registry import metric

SOURCE = "docs/concepts/measuring.md"


@metric(unit="1", better="higher", formula="processes with measured inferences that count", source=SOURCE,
        bands=("<5 too few for a verdict", ">=5 enough"))
def measured_processes(inference_iters: pa.Table) -> float:
    """Fresh processes that measured: the unit of replication."""
    return float(pc.count_distinct(inputs.counted(inference_iters, "measurement")["process"]).as_py())


@metric(unit="pct", better="lower", formula="|drift| where its probability by chance is below 0.01, else 0",
        source=SOURCE)
def latency_drift_size_pct(latency_drift_pct: float, latency_drift_p: float) -> float:
    """How far the latency moved during the run, if it did."""
    return abs(latency_drift_pct) if latency_drift_p < 0.01 else 0.0


@metric(unit="1", better="higher", formula="weighted mean, 0-100, of the measured parts: "
        + ", ".join(f"{name} {part.weight:g} ({part.metric} {part.best:g} to {part.worst:g})"
                    for name, part in quality.PARTS.items()), source=SOURCE,
        bands=(">=90 excellent", ">=75 good", ">=50 fair", ">=25 poor", "<25 bad"))
def measurement_quality(
        clean_pct: float | None = None, noise_impact_pct: float | None = None, latency_cov_pct: float | None = None,
        warmup_shortfall: float | None = None, latency_drift_size_pct: float | None = None,
        latency_autocorrelation: float | None = None, latency_modes: float | None = None,
        measured_processes: float | None = None) -> float:
    """Trust in the measurement itself; absent when the measured parts carry less than 60 % of the weight."""
    return quality.score(locals())
