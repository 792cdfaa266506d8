"""What the sentinel says of the measured inferences as a whole."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.core.arrays import Reals
from aaco.core.readings import Absent
from aaco.core.registry import metric

SOURCE = "docs/concepts/measuring.md"
CLASSES = ("<1 negligible", "<5 low", "<10 moderate", "<25 high", ">=25 severe")


@metric(unit="pct", better="higher", formula="100 x clean inferences / measured inferences with telemetry",
        source=SOURCE, bands=(">=95 clean", ">=80 disturbed", "<80 contaminated"))
def clean_pct(inference_iters: pa.Table) -> float:
    """Inferences that no recorded interference made 5 % slower or more."""
    return 100 * float(pc.mean(_watched(inference_iters)["clean"].cast(pa.float64())).as_py())


@metric(unit="pct", better="lower", formula="100 x (sum of latencies / sum of latencies without the cost of recorded "
        "interference - 1), over the inferences that the statistics rest on", source=SOURCE, bands=CLASSES)
def noise_impact_pct(inference_iters: pa.Table) -> float:
    """How much longer the inferences took for the interference that was recorded, by the sentinel's estimate."""
    latency, undisturbed = _with_and_without(inference_iters)
    return 100 * (float(latency.sum()) / float(undisturbed.sum()) - 1)


@metric(unit="pct", better="lower", formula="100 x (median latency / median of latencies without the cost of recorded "
        "interference - 1), over the inferences that the statistics rest on", source=SOURCE, bands=CLASSES)
def noise_on_median_pct(inference_iters: pa.Table) -> float:
    """How much recorded interference moved the median: what a verdict, which compares medians, may be wrong by."""
    latency, undisturbed = _with_and_without(inference_iters)
    return 100 * (float(np.median(latency)) / float(np.median(undisturbed)) - 1)


@metric(unit="1", better="lower", formula="mean over measured inferences of 0.7 x largest + 0.3 x mean of the signals' "
        "scores; a score is cost / 10 %, at most 1", source="AACO's own definition",
        bands=("<=0.5 keep", ">0.5 discard"))
def contamination(inference_iters: pa.Table) -> float:
    """AACO's score of interference. Cleanliness is decided by cost (clean_pct), not by this."""
    return float(pc.mean(_watched(inference_iters)["contamination"]).as_py())


def _with_and_without(inference_iters: pa.Table) -> tuple[Reals, Reals]:
    """Latencies of what counts and was watched, and the same without what interference cost them."""
    chosen = _watched(inference_iters)
    chosen = chosen.filter(pc.fill_null(chosen["counted"], True))
    if not chosen.num_rows:
        raise Absent("no inference with telemetry is clean")
    latency, impact = (chosen[name].to_numpy() for name in ("latency_ms", "noise_impact_pct"))
    return latency, latency / (1 + impact / 100)


def _watched(inference_iters: pa.Table) -> pa.Table:
    measured = pc.equal(inference_iters["phase"].cast(pa.string()), "measurement")
    chosen = inference_iters.filter(pc.and_(measured, pc.is_valid(inference_iters["clean"])))
    if not chosen.num_rows:
        raise Absent("no telemetry of the measured inferences (aaco run --telemetry)")
    return chosen
