"""Everything the reports say about one session, computed once and in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.diagnosis import Diagnosis
from aaco.core import registry
from aaco.core.readings import Absent, Estimate, Reading

SCHEMA_VERSION = 1
NOT_MEASURED = "outside the measured inferences (warm-up of the profiled pass)"
STATISTICS = ("mean", "std", "p50", "p90", "p95", "p99", "min", "max", "iqr", "mad")


@dataclass(frozen=True)
class Coverage:
    """Where every kernel of the capture went: parts sum to the file exactly, in count and ns."""

    in_file: tuple[int, int]
    used: tuple[int, int]
    dropped: Mapping[str, tuple[int, int]]
    unattributed: tuple[int, int]

    def document(self) -> dict[str, Any]:
        """For JSON: {"count", "ns"} of each part."""
        return {"in_file": _part(self.in_file), "used": _part(self.used), "unattributed": _part(self.unattributed),
                "dropped": {reason: _part(part) for reason, part in self.dropped.items()}}


@dataclass(frozen=True)
class Explanation:
    """One session explained: its record and facts, tables, readings and diagnosis."""

    session_id: str
    folder: str
    status: str
    record: Mapping[str, Any]
    model: Mapping[str, Any]  # model_meta.json
    runtime: Mapping[str, Any]  # ort_config.json
    environment: Mapping[str, Any]  # env.json
    machine: Mapping[str, Any]  # label, id, ceilings
    tables: Mapping[str, pa.Table]
    readings: Mapping[str, Reading]
    diagnosis: Diagnosis
    summary: Mapping[str, Any]  # inference_summary.json
    coverage: Coverage | None
    absent: Mapping[str, str]  # expected file -> why it is not there
    verdict: Mapping[str, Any] | None = None  # regress/verdict.json
    notes: tuple[str, ...] = field(default=())

    def derived_metrics(self) -> dict[str, Any]:
        """The content of derived_metrics.json: every metric, measured or absent with its reason."""
        return {"schema_version": SCHEMA_VERSION,
                **{name: _metric_document(reading) for name, reading in self.readings.items()}}


def cover(kernels: pa.Table | None, op_to_kernel_map: pa.Table | None) -> Coverage | None:
    """Account for every kernel of the capture, or None when there is no capture."""
    if kernels is None:
        return None
    used = kernels.filter(pc.is_valid(kernels["iteration"]))
    dropped = kernels.filter(pc.is_null(kernels["iteration"]))
    loose = used if op_to_kernel_map is None else _unattributed(used, op_to_kernel_map)
    reasons = {NOT_MEASURED: _size(dropped)} if dropped.num_rows else {}
    return Coverage(_size(kernels), _size(used), reasons, _size(loose))


def summarise(latencies: Mapping[str, Any], batch: int) -> dict[str, Any]:
    """inference_summary.json: per phase every statistic, each with its interval or the reason it is absent.

    latencies: {"warmup": array of ms, "measurement": array of ms}; a phase without iterations is left out.
    """
    phases = {phase: _statistics(values, batch) for phase, values in latencies.items() if len(values)}
    return {"schema_version": SCHEMA_VERSION, "unit": "ms", "batch": batch, **phases}


def _statistics(values: Any, batch: int) -> dict[str, Any]:
    found: dict[str, Any] = {"iterations": len(values), "throughput_per_s": 1000 * batch * len(values) / values.sum()}
    for name in STATISTICS:
        function = registry.METRICS[f"latency_{name}_ms"].compute
        try:
            found[f"{name}_ms"] = _estimate(function(values))
        except Absent as reason:
            found[f"{name}_ms"] = {"value": None, "why_absent": str(reason)}
    return found


def _estimate(found: float | Estimate) -> dict[str, float | None]:
    if isinstance(found, Estimate):
        return {"value": found.value, "ci_low": found.low, "ci_high": found.high}
    return {"value": found}


def _metric_document(reading: Reading) -> dict[str, Any]:
    metric = registry.METRICS[reading.metric]
    return {"value": reading.value, "unit": reading.unit, "ci_low": reading.low, "ci_high": reading.high,
            "why_absent": reading.why_absent or None, "band": reading.band or None,
            "bands": [str(band) for band in metric.bands], "better": metric.better, "formula": metric.formula,
            "source": metric.source, "inputs": list(metric.inputs)}


def _unattributed(used: pa.Table, op_to_kernel_map: pa.Table) -> pa.Table:
    loose = op_to_kernel_map.filter(pc.is_null(op_to_kernel_map["node_id"]))["kernel_id"]
    return used.filter(pc.is_in(used["kernel_id"], loose.combine_chunks()))


def _size(kernels: pa.Table) -> tuple[int, int]:
    return kernels.num_rows, pc.sum(kernels["dur_ns"]).as_py() or 0


def _part(part: tuple[int, int]) -> dict[str, int]:
    return {"count": part[0], "ns": part[1]}
