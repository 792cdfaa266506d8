"""Everything the reports say about one session, computed once and in one place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import wraps
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field
from msgspec.structs import replace

from aaco.analytics.diagnosis import Diagnosis
from aaco.analytics.timeline.trace import DeviceTrace
from aaco.analytics.truth.trust import Trust
from aaco.core import inputs, registry, tables
from aaco.core.documents import encode
from aaco.core.readings import Absent, Estimate, Reading
from aaco.tracelake.document_schemas.answers import (
    DerivedMetrics,
    Estimated,
    InferenceSummary,
    PhaseLatencies,
    StoredReading,
)

T = TypeVar("T")
NOT_MEASURED = "outside the measured inferences (warm-up of the profiled pass)"
NOT_TIMED = "the capture has no time for them"
STATISTICS = ("mean", "std", "p50", "p90", "p95", "p99", "min", "max", "iqr", "mad")


class Coverage(Struct, frozen=True):
    """Where every kernel of the capture went: parts sum to the file exactly, in count and ns."""

    in_file: tuple[int, int]
    used: tuple[int, int]
    dropped: Mapping[str, tuple[int, int]]
    unattributed: tuple[int, int] | None  # None where there is no graph to attribute to

    def document(self) -> dict[str, Any]:
        """For JSON: {"count", "ns"} of each part."""
        return {"in_file": _part(self.in_file), "used": _part(self.used),
                "unattributed": _part(self.unattributed) if self.unattributed else None,
                "dropped": {reason: _part(part) for reason, part in self.dropped.items()}}


class Explanation(Struct, frozen=True, eq=False, weakref=True):
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
    notes: tuple[str, ...] = ()
    captures: Mapping[str, Any] = field(default_factory=dict)  # profiler/captures.json: what an import read
    truth: Mapping[str, Any] = field(default_factory=dict)  # trace_check.json: what shows that the trace is false
    capsule: Mapping[str, Any] = field(default_factory=dict)  # capsule.json: the laboratory that it was measured in
    examined: Mapping[str, Any] = field(default_factory=dict)  # by slot what findings say
    trace: DeviceTrace | None = None  # what the devices did; None where none did anything that was recorded

    @property
    def trust(self) -> Trust:
        """What the trace check says of the recording."""
        return self.diagnosis.trust

    def rows(self, name: str) -> int:
        """Rows of a table, without reading it where it knows them."""
        counted = getattr(self.tables, "rows", None)
        return int(counted(name)) if counted else self.tables[name].num_rows

    def why_no(self, table: str) -> str:
        """Return why a table is not there, by its name."""
        return self.absent.get(tables.ALL[table].file, "not in this session")

    def derived_metrics(self) -> dict[str, Any]:
        """The content of derived_metrics.json: every metric, measured or absent with its reason."""
        readings = {name: _stored(reading) for name, reading in self.readings.items()}
        return encode(DerivedMetrics.model_validate(readings))

    def judged(self, verdict: Mapping[str, Any], files: Collection[str]) -> Explanation:
        """The same session with a verdict, whose `files` are no longer absent."""
        absent = {name: why for name, why in self.absent.items() if name not in files}
        return replace(self, verdict=verdict, absent=absent)


def once(compute: Callable[[Explanation], T]) -> Callable[[Explanation], T]:
    """Compute it for each explanation once, however many sections ask; they share the result and leave it as it is."""
    made: WeakKeyDictionary[Explanation, T] = WeakKeyDictionary()

    @wraps(compute)
    def kept(explanation: Explanation) -> T:
        if explanation not in made:
            made[explanation] = compute(explanation)
        return made[explanation]

    return kept


def cover(kernels: pa.Table | None, op_to_kernel_map: pa.Table | None) -> Coverage | None:
    """Account for every kernel of the capture, or None when there is no capture."""
    if kernels is None:
        return None
    used = inputs.measured(kernels)
    outside = kernels.filter(pc.is_null(kernels["iteration"]))
    timeless = kernels.num_rows - used.num_rows - outside.num_rows
    loose = used if op_to_kernel_map is None else _unattributed(used, op_to_kernel_map)
    reasons = {NOT_MEASURED: _size(outside)} if outside.num_rows else {}
    reasons |= {NOT_TIMED: (timeless, _size(kernels)[1] - _size(used)[1] - _size(outside)[1])} if timeless else {}
    return Coverage(_size(kernels), _size(used), reasons, _size(loose))


def summarise(latencies: Mapping[str, Any], batch: int | None) -> dict[str, Any]:
    """inference_summary.json: per phase every statistic, each with its interval or the reason it is absent.

    latencies: {"warmup": array of ms, "measurement": array of ms}; a phase without iterations is left out.
    """
    phases = {phase: _statistics(values, batch) for phase, values in latencies.items() if len(values)}
    return encode(InferenceSummary.model_validate({"unit": "ms", "batch": batch, **phases}))


def _statistics(values: Any, batch: int | None) -> PhaseLatencies:
    total_ms = float(values.sum())
    rate = 1000 * batch * len(values) / total_ms if batch and total_ms else None
    estimates: dict[str, Estimated] = {}
    for name in STATISTICS:
        function = registry.METRICS[f"latency_{name}_ms"].compute
        try:
            estimates[f"{name}_ms"] = _estimated(function(values))
        except Absent as reason:
            estimates[f"{name}_ms"] = Estimated(value=None, why_absent=str(reason))
    return PhaseLatencies(iterations=len(values), throughput_per_s=rate, **estimates)


def _estimated(estimate: float | Estimate) -> Estimated:
    if isinstance(estimate, Estimate):
        return Estimated(value=estimate.value, ci_low=estimate.low, ci_high=estimate.high)
    return Estimated(value=estimate)


def _stored(reading: Reading) -> StoredReading:
    metric = registry.METRICS[reading.metric]
    return StoredReading(
        value=reading.value, unit=reading.unit, ci_low=reading.low, ci_high=reading.high,
        why_absent=reading.why_absent or None, caveat=reading.caveat or None, method=reading.method or None,
        band=reading.band or None, bands=[str(band) for band in metric.bands], better=metric.better,
        formula=metric.formula, source=metric.source, inputs=list(metric.inputs))


def _unattributed(used: pa.Table, op_to_kernel_map: pa.Table) -> pa.Table:
    loose = op_to_kernel_map.filter(pc.is_null(op_to_kernel_map["node_id"]))["kernel_id"]
    return used.filter(pc.is_in(used["kernel_id"], loose.combine_chunks()))


def _size(kernels: pa.Table) -> tuple[int, int]:
    return kernels.num_rows, pc.sum(kernels["dur_ns"]).as_py() or 0


def _part(part: tuple[int, int]) -> dict[str, int]:
    return {"count": part[0], "ns": part[1]}
