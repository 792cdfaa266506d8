"""The longest iterations of a session, each with what the operating system and telemetry recorded around it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from aaco.analytics.explanation import Explanation
from aaco.analytics.quality.spikes import spikes as find_spikes
from aaco.report import format
from aaco.report.sections import spikes

MOST = 12
FENCE = 1.5  # interquartile ranges above the upper quartile, Tukey's fence as in outliers_iqr_pct
UNWATCHED = "no telemetry was recorded (aaco run --telemetry)"
QUIET = "no event was recorded that explains it"


class Outlier(Struct, frozen=True):
    """An iteration beyond the fence of its session: turn counts the process's iterations, warm-up included.

    why: what explains it; explained says whether anything does.
    """

    process: int
    iteration: int
    turn: int
    latency_ms: float
    excess_ms: float
    why: str
    explained: bool

    @property
    def spot(self) -> str:
        """Which iteration it is."""
        return spikes.spot(self.iteration, self.process)


def outliers(explanation: Explanation) -> list[Outlier]:
    """Measured iterations above the fence, the longest first, at most MOST of them."""
    table = explanation.tables.get("inference_iters")
    if table is None:
        return []
    table = table.sort_by([("process", "ascending"), ("t_start_ns", "ascending")])
    measured = np.asarray(pc.equal(table["phase"].cast(pa.string()), "measurement"))
    latency, process = np.asarray(table["latency_ms"]), np.asarray(pc.fill_null(table["process"], 0))
    if measured.sum() < 4:
        return []
    low, middle, high = np.quantile(latency[measured], [0.25, 0.5, 0.75])
    beyond = np.flatnonzero(measured & (latency > high + FENCE * (high - low)))
    known = _spikes(explanation)
    found = []
    for row in beyond[np.argsort(-latency[beyond], kind="stable")][:MOST].tolist():
        one = table.slice(row, 1).to_pylist()[0]
        why = known.get((int(process[row]), one["iteration"])) or _why(one)
        turn = row - int(np.searchsorted(process, process[row]))
        found.append(Outlier(int(process[row]), one["iteration"], turn, float(latency[row]),
                             float(latency[row] - middle), why or (QUIET if one["clean"] is not None else UNWATCHED),
                             bool(why)))
    return found


def _spikes(explanation: Explanation) -> dict[tuple[int, int], str]:
    """What differs around the spikes, by process and iteration; those that nothing explains are left out."""
    table = explanation.tables.get("iteration_features")
    found = find_spikes(table, explanation.tables.get("system_events")) if table is not None else []
    told = {(one.process, one.iteration): spikes.because(one) for one in found}
    return {place: why for place, why in told.items() if why}


def _why(one: dict[str, object]) -> str:
    """What made the iteration not clean, and the time it cost by estimate."""
    reasons, impact = one["noise_reasons"], one["noise_impact_pct"]
    if not isinstance(reasons, list) or not reasons:
        return ""
    cost = f", estimated to cost {impact:.1f} % of it" if isinstance(impact, float) else ""
    return f"{format.cut('; '.join(map(str, reasons)), 200)}{cost}"
