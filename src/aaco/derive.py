"""Evidence becomes answers: raw captures -> tables -> readings -> diagnosis. Reads a bundle; only `keep` writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate, pairwise
from typing import Any

import pyarrow as pa

from aaco.analytics import attribution, graph, inputs, lowering
from aaco.analytics.diagnosis import diagnose
from aaco.analytics.explanation import Explanation, cover, summarise
from aaco.analytics.measure import measure
from aaco.collectors import procfs
from aaco.core import tables
from aaco.core.clocks import ClockOffsets
from aaco.core.config import Analysis
from aaco.core.readings import Absent
from aaco.core.session import Session
from aaco.profiler import ort as ort_profile
from aaco.runner import iterations, model_file
from aaco.tracelake import layout, manifest, store

NOT_PROFILED = "the run was made with --no-profile"
NOT_REACHED = "the run ended before it"
NOT_COMPARED = "not compared with a baseline: aaco diff BASELINE SESSION"
STORED = tuple(tables.ALL.values())


def explanation(session: Session, settings: Analysis, anew: bool = False) -> Explanation:
    """Everything there is to say about a session, as far as its evidence reaches. Raises BadBundle.

    A sealed session is read from its tables; `anew`, and any other session, from the raw captures.
    """
    found, why_missing, meta = _ingest(session) if anew else _tables(session)
    environment = _read(session, layout.ENVIRONMENT)
    readings = measure(found, _ceilings(environment), settings, why_missing)
    return Explanation(
        session_id=session.id, folder=str(session.folder), status=session.status, record=session.record.model_dump(),
        model=meta, runtime=_read(session, layout.ORT_CONFIG), environment=environment,
        machine=environment.get("machine") or {}, tables=found, readings=readings, diagnosis=diagnose(readings),
        summary=_summary(found, session), absent=_absent_files(session, why_missing),
        coverage=cover(found.get("kernels"), found.get("op_to_kernel_map")),
        verdict=_read(session, layout.VERDICT) or None)


def keep(session: Session, explained: Explanation) -> None:
    """Write the derived tables and documents into the bundle, each atomically. Raises StorageError."""
    for name, table in explained.tables.items():
        store.write(session, tables.ALL[name], table)
    session.write_json(layout.MODEL_META, dict(explained.model))
    session.write_json(layout.SUMMARY, dict(explained.summary))
    session.write_json(layout.DERIVED_METRICS, explained.derived_metrics())
    session.write_json(layout.BOTTLENECK, explained.diagnosis.document())


def _absent_files(session: Session, why_missing: Mapping[str, str]) -> dict[str, str]:
    """Why each file that the bundle cannot have, or does not have yet, is not there."""
    record = session.record
    provider = record.backend_ran or record.backend_asked
    reasons = {
        layout.MIGRAPHX_PARTITION: f"the backend is {provider}, not MIGraphX",
        layout.ROCPROF_RAW: f"no rocprof capture on {provider}; the raw capture is {layout.ORT_PROFILE}",
        layout.GPU_EVENTS: f"no GPU telemetry was recorded on {provider}",
        **dict.fromkeys((layout.BASELINE_REF, layout.DIFF, layout.VERDICT), NOT_COMPARED),
        **{tables.ALL[name].file: why for name, why in why_missing.items()},
    }
    return {name: why for name, why in reasons.items() if not (session.folder / name).exists()}


def _tables(session: Session) -> tuple[dict[str, pa.Table], dict[str, str], dict[str, Any]]:
    """The tables, why others are missing, and the model's facts: as stored once sealed, else from the raw captures."""
    if (session.folder / manifest.NAME).is_file():
        stored = store.read_all(session)
        reasons = session.read_json(manifest.NAME)["absent"]
        missing = {spec.name: reasons.get(spec.file, NOT_REACHED) for spec in STORED if spec.name not in stored}
        return stored, missing, _read(session, layout.MODEL_META)
    return _ingest(session)


def _ingest(session: Session) -> tuple[dict[str, pa.Table], dict[str, str], dict[str, Any]]:
    ingest = _Ingest(session)
    found, missing = ingest.run()
    return found, missing, _read(session, layout.MODEL_META) | ingest.meta


class _Ingest:
    """Raw captures -> tables. What cannot be made is left out with its reason; a damaged capture is an error."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.plan = session.record.plan
        self.runtime = _read(session, layout.ORT_CONFIG)
        self.found: dict[str, pa.Table] = {}
        self.why: dict[str, str] = {}
        self.meta: dict[str, Any] = {}

    def run(self) -> tuple[dict[str, pa.Table], dict[str, str]]:
        self._add("inference_iters", lambda: iterations.parse(self.session.folder, self.plan["batch"]))
        self._add("system_events", self._system_events)
        self._profile()
        self._graph()
        self._attribution()
        reasons = {spec.name: self.why.get(spec.name, NOT_REACHED) for spec in STORED if spec.name not in self.found}
        return self.found, reasons

    def _add(self, name: str, make: Callable[[], pa.Table]) -> None:
        try:
            table = make()
        except Absent as reason:
            self.why[name] = str(reason)
            return
        if table.num_rows:
            self.found[name] = table

    def _system_events(self) -> pa.Table:
        if not self.plan["telemetry"]:
            raise Absent("the run was made without --telemetry")
        raws = sorted((self.session.folder / layout.PROCFS_RAW).glob("procfs-*.bin"))
        if not raws:
            raise Absent(NOT_REACHED)
        return pa.concat_tables([procfs.parse(raw) for raw in raws])

    def _profile(self) -> None:
        path, facts = self.session.folder / layout.ORT_PROFILE, self.runtime.get("profile")
        if not facts or not path.is_file():
            reason = NOT_REACHED if self.plan["profile"] else NOT_PROFILED
            self.why |= dict.fromkeys(("kernels", "api_calls", "op_to_kernel_map", "kernel_groups"), reason)
            return
        origin = ClockOffsets(**self.session.record.clocks).from_realtime(facts["profiling_start_realtime_ns"])
        self.found |= ort_profile.parse(path, origin, facts["warmup"])

    def _graph(self) -> None:
        if not (self.session.folder / layout.SOURCE_GRAPH).is_file():
            return
        source = self._model(layout.SOURCE_GRAPH)
        fed = {item["name"]: item["shape"] for item in self.runtime.get("fed", [])}
        described = graph.describe(source, bind=fed)
        self.meta = described.meta
        self.found |= {"graph_nodes": described.nodes, "graph_edges": described.edges}
        stages = [name for name in layout.STAGE_GRAPHS.values() if (self.session.folder / name).is_file()]
        if not stages:
            refused = (self.runtime.get("profile") or {}).get("stages_absent")
            self.why["executed_nodes"] = refused or (NOT_REACHED if self.plan["profile"] else NOT_PROFILED)
            return
        lowered = lowering.lower(source, [self._model(name) for name in stages])
        self.found["executed_nodes"] = _with_providers(lowered.executed, self.found.get("kernels"))
        self.found["graph_nodes"] = _placed(described.nodes, lowered, self.found["executed_nodes"])

    def _attribution(self) -> None:
        if "kernels" not in self.found:
            return
        kernels = attribution.label_families(self.found["kernels"], self.found.get("executed_nodes"))
        self.found["kernels"] = kernels
        self._add("kernel_groups", self._groups)
        if "executed_nodes" in self.found:
            mapped = attribution.map_nodes(kernels, self.found["executed_nodes"], self.found["graph_nodes"])
            self.found["op_to_kernel_map"] = mapped
        else:
            self.why["op_to_kernel_map"] = self.why["executed_nodes"]

    def _groups(self) -> pa.Table:
        window = inputs.window(self.found["kernels"], self.found["api_calls"])
        return attribution.group(window.kernels, window.wall_ns)

    def _model(self, name: str) -> Any:
        return model_file.load(self.session.folder / name, weights=False)


def _with_providers(executed: pa.Table, kernels: pa.Table | None) -> pa.Table:
    """The executed nodes with the provider that the profile saw each of them run on."""
    if kernels is None:
        return executed
    seen = dict(zip(kernels["executed_node"].to_pylist(), kernels["provider"].to_pylist(), strict=True))
    return _set(executed, "provider", [seen.get(name) for name in executed["name"].to_pylist()])


def _placed(nodes: pa.Table, lowered: lowering.Lowering, executed: pa.Table) -> pa.Table:
    """The source nodes with what became of each, its provider, and the partition it lies in."""
    provider = dict(zip(executed["name"].to_pylist(), executed["provider"].to_pylist(), strict=True))
    placed = [provider.get(name) for name in lowered.executed_as]
    nodes = _set(_set(nodes, "executed_as", lowered.executed_as), "fate", lowered.fate)
    return _set(_set(nodes, "provider", placed), "partition", _partitions(placed))


def _partitions(providers: list[str | None]) -> list[int | None]:
    """Index of the run of consecutive nodes on one provider; nodes that run nowhere lie in none."""
    known = [provider for provider in providers if provider]
    index = iter(list(accumulate((before != after for before, after in pairwise(known)), initial=0)))
    return [int(next(index)) if provider else None for provider in providers]


def _set(table: pa.Table, name: str, values: list[Any]) -> pa.Table:
    position = table.schema.get_field_index(name)
    kind = table.schema.field(position).type
    plain = pa.array(values, kind.value_type if pa.types.is_dictionary(kind) else kind)
    column = plain.dictionary_encode() if pa.types.is_dictionary(kind) else plain
    return table.set_column(position, table.schema.field(position), column)


def _ceilings(environment: Mapping[str, Any]) -> dict[str, float] | None:
    found: dict[str, float] | None = (environment.get("machine") or {}).get("ceilings")
    return found


def _summary(found: Mapping[str, pa.Table], session: Session) -> dict[str, Any]:
    iters = found.get("inference_iters")
    latencies: dict[str, Any] = {}
    for phase, view in (("warmup", inputs.warmup_ms), ("measurement", inputs.latencies_ms)):
        try:
            latencies[phase] = view(iters) if iters is not None else []
        except Absent:
            latencies[phase] = []
    return summarise(latencies, session.record.plan["batch"])


def _read(session: Session, name: str) -> dict[str, Any]:
    """A document of the bundle, or an empty one when the run did not get that far."""
    return dict(session.read_json(name)) if (session.folder / name).is_file() else {}
