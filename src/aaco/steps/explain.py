"""A session's tables become answers: readings, diagnosis, notes. One road for runs and imports.

What differs between them is which tables and documents a session holds. Only `keep` writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from aaco.analytics.advice import floors
from aaco.analytics.advice.recommend import (
    with_fallen_back,
    with_machine_gains,
    with_targets,
    with_trials,
    with_waits,
)
from aaco.analytics.attribution import wait_places
from aaco.analytics.critical_path.summary import CriticalPaths
from aaco.analytics.diagnosis import Diagnosis, diagnose
from aaco.analytics.explanation import Coverage, Explanation, cover, summarise
from aaco.analytics.fusion import fusion
from aaco.analytics.graph import partition
from aaco.analytics.kernels import fallback
from aaco.analytics.measure import cpu_budget_document
from aaco.analytics.quality import co_tenants
from aaco.analytics.timeline import trace as traces
from aaco.analytics.timeline.trace import DeviceTrace
from aaco.analytics.truth import trust
from aaco.analytics.truth.left_out import executions_left_out
from aaco.analytics.truth.trust import Trust
from aaco.analytics.workload.facts import NAME as WORKLOAD_FACTS
from aaco.analytics.workload.facts import WorkloadFacts
from aaco.collectors.gpu import device_accounts
from aaco.core import inputs
from aaco.core.advice import FactValues
from aaco.core.config import Analysis
from aaco.core.documents import decode
from aaco.core.readings import Absent, Reading
from aaco.core.session import Session
from aaco.core.tables import API_CALLS, KERNELS
from aaco.governance.verdict_document import RegressionVerdict
from aaco.report.sections import finding_views
from aaco.steps import make_findings, notes, readings
from aaco.steps.absent_files import AbsentFiles
from aaco.steps.analyzed import Analyzed
from aaco.steps.readings import SessionFacts
from aaco.steps.session_tables import tables_of
from aaco.tracelake import documents, layout, store

CUT_SHORT: dict[str, Any] = {"captures": [], "kernels_ran_on": ""}  # captures.json is written when all is read


def explain(session: Session, settings: Analysis, analyzed: Analyzed | None = None) -> Explanation:
    """Return everything there is to say about a session, as far as its evidence reaches. Raise BadBundle, BadCapture.

    analyzed: the tables, where they were just made from the evidence; everything is computed from them then. Otherwise
    the stored tables are read, and the sealed readings of an import.
    """
    tables = analyzed or tables_of(session)
    documents_by_slot, truth = _findings(session, tables.passes), documents.read(session, layout.TRACE_CHECK)
    advice_facts = _advice_facts(session, settings, documents_by_slot)
    facts = _known(session, settings, tables, documents_by_slot)
    if fused := _fusion_of_run(session, tables.on_device, facts):
        documents_by_slot["fusion"] = fused
    if cpu_budget := _cpu_budget_of_run(session, settings, tables, facts):
        documents_by_slot["cpu_budget"] = cpu_budget
    absent = AbsentFiles(session, readings.why_missing(tables, facts.paths), facts.runtime)
    measured = (None if analyzed or not session.record.is_import else readings.stored(session)) \
        or readings.compute(session, tables, facts, settings)
    return Explanation(
        session_id=session.id, folder=str(session.folder), status=session.status,
        record=session.record.model_dump(),
        model=tables.meta, runtime=facts.runtime, environment=facts.environment,
        machine=facts.environment.get("machine") or {}, tables=tables.tables, readings=measured,
        diagnosis=_diagnose(measured, advice_facts, _trust(session, truth, analyzed), documents_by_slot,
                            documents.read(session, layout.finding(floors.NAME)),
                            documents.read(session, layout.MACHINE_GAINS), _fallen_back(measured, facts)),
        summary=_summary(session, tables.tables),
        absent=dict(absent) if analyzed else absent,  # of a session that is written now: the reasons before that
        coverage=_coverage(tables.tables, facts.captures),
        verdict=documents.as_form(session, layout.VERDICT, RegressionVerdict), captures=facts.captures,
        truth=truth, capsule=documents.read(session, layout.CAPSULE),
        notes=(*_notes(session, tables, facts, settings, measured),
               *(() if analyzed else documents.damage(session, layout.BOTTLENECK))),
        trace=facts.trace,
        examined={slot: documents_by_slot[slot] for slot in finding_views.in_order(documents_by_slot)})


def _trust(session: Session, truth: Mapping[str, Any], analyzed: Analyzed | None) -> Trust:
    """What the trace check says. A session that is explained while it is written has come to the recording's end."""
    whole = analyzed is not None and session.status == "running"
    return trust.of(truth, "" if whole else trust.unfinished(session.status, session.record.failure))


def keep(session: Session, explained: Explanation) -> None:
    """Write the documents of the answers into the bundle, each atomically. Raise StorageError."""
    if explained.model:
        session.write_json(layout.MODEL_META, dict(explained.model))
    session.write_json(layout.SUMMARY, dict(explained.summary))
    session.write_json(layout.DERIVED_METRICS, explained.derived_metrics())
    session.write_json(layout.BOTTLENECK, explained.diagnosis.document())
    if not session.record.is_import:
        _keep_of_run(session, explained)


def _keep_of_run(session: Session, explained: Explanation) -> None:
    """Write what is computed of a run's tables while it is explained; an import's are written with its tables."""
    if compiled := partition.of_run(explained.tables.get("executed_nodes"), explained.tables.get("graph_nodes")):
        session.write_json(layout.MIGRAPHX_PARTITION, compiled)
    for name in ("fusion", "cpu_budget"):
        documents.replace(session, layout.finding(name), explained.examined.get(name))


def _findings(session: Session, passes: Mapping[str, Any]) -> dict[str, Any]:
    """What findings say, by their names, and how the passes of a device were joined."""
    documents_by_slot = documents.read_held(session, {slot: layout.finding(slot) for slot in finding_views.slots()})
    return documents_by_slot | ({"device_passes": passes} if passes else {})


def _advice_facts(session: Session, settings: Analysis, documents_by_slot: Mapping[str, Any]) -> FactValues | None:
    """The facts of the workload, which advice depends on: as found, else from the tables of a session that an earlier
    version wrote. None where it has neither kernels nor calls."""
    document = documents_by_slot.get(WORKLOAD_FACTS)
    if not document and any(store.holds(session, spec) for spec in (KERNELS, API_CALLS)):
        document = make_findings.document_of(session, WORKLOAD_FACTS, settings)
    return WorkloadFacts.of(document).values if document else None


def _known(session: Session, settings: Analysis, analyzed: Analyzed,
           documents_by_slot: Mapping[str, Any]) -> SessionFacts:
    captures = documents.read(session, layout.CAPTURES) or (CUT_SHORT if session.record.is_import else {})
    runtime = layout.COMMAND if session.record.planned.command else layout.ORT_CONFIG
    measured_tables = readings.in_inferences(analyzed)
    paths = documents_by_slot.get("critical_path")
    return SessionFacts(documents.read(session, layout.ENVIRONMENT), documents.read(session, runtime), captures,
                        measured_tables, _trace(session, settings, analyzed.on_device, measured_tables),
                        decode(paths, CriticalPaths) if paths is not None else None)


def _trace(session: Session, settings: Analysis, on_device: bool,
           measured_tables: Mapping[str, pa.Table]) -> DeviceTrace | None:
    """What the devices did, as the finding says; of a run that was never sealed, from its tables. None: nothing."""
    if parts := documents.read_held(session, layout.TRACE):
        return DeviceTrace.of(parts)
    if session.record.is_import or not on_device:
        return None
    return traces.of_tables(_numbered(session, measured_tables), settings)


def _numbered(session: Session, tables: Mapping[str, pa.Table]) -> Mapping[str, pa.Table]:
    """The tables with the devices' telemetry under the numbers that the kernels have; without it where those are not
    known."""
    if "gpu_events" not in tables:
        return tables
    numbered = co_tenants.as_numbered(
        tables["gpu_events"], set(tables["kernels"]["device_id"].drop_null().unique().to_pylist()),
        tables.get("samples"), device_accounts.visible(session.folder / layout.DEVICE_RAW))
    others = {name: table for name, table in tables.items() if name != "gpu_events"}
    return others if numbered is None else others | {"gpu_events": numbered}


def _fusion_of_run(session: Session, on_device: bool, facts: SessionFacts) -> dict[str, Any] | None:
    """Which nodes of a run's graph could be one; an import's operators say it in a finding."""
    if session.record.is_import:
        return None
    return fusion.of_run(facts.measured_tables, readings.ceilings_of(facts.environment, on_device) or {})


def _cpu_budget_of_run(session: Session, settings: Analysis, analyzed: Analyzed, facts: SessionFacts
                       ) -> dict[str, Any] | None:
    """Where the clean inferences of a run on CPUs spent their time; None of imports, endpoints and devices."""
    if session.record.is_import or session.record.is_endpoint or analyzed.on_device:
        return None
    return cpu_budget_document(facts.measured_tables, readings.ceilings_of(facts.environment, analyzed.on_device),
                               settings, readings.views_of_run(analyzed, facts))


def _diagnose(measured: Mapping[str, Reading], facts: FactValues | None, trust: Trust,
              documents_by_slot: Mapping[str, Any], of_step: Mapping[str, Any] | None,
              gains: Mapping[str, Any] | None, fallen_back: Sequence[str]) -> Diagnosis:
    """The diagnosis; its advice names the nodes on CPUs that it acts on, and how it fared where it was tried.

    of_step: content of floors.json; gains: of machine_gains.json. fallen_back: nodes that no device's provider took.
    """
    diagnosis = diagnose(measured, facts, trust, floors.Floors.of(of_step) if of_step else None)
    advised = with_fallen_back(diagnosis.recommendations, fallen_back)
    if cpu_budget := documents_by_slot.get("cpu_budget"):
        advised = with_targets(advised, cpu_budget)
    if waits := documents_by_slot.get(wait_places.NAME):
        advised = with_waits(advised, [place.text for place in decode(waits, wait_places.WaitPlaces).places])
    if gains:
        advised = with_machine_gains(advised, gains)
    return replace(diagnosis, recommendations=with_trials(advised, documents_by_slot.get("trials") or {}))


def _fallen_back(measured: Mapping[str, Reading], facts: SessionFacts) -> tuple[str, ...]:
    """The nodes that run on the CPU beside those of a device, where a reading says that they take time."""
    share = measured.get("cpu_node_pct")
    if share is None or not share.value or "kernels" not in facts.measured_tables:
        return ()
    return fallback.names_of(fallback.fallen_back(facts.measured_tables["kernels"]))


def _notes(session: Session, analyzed: Analyzed, facts: SessionFacts, settings: Analysis,
           measured: Mapping[str, Any]) -> Iterator[str]:
    if session.record.is_import:
        yield from notes.of_import(facts.captures, measured)
    else:
        yield from notes.of_run(session.record, analyzed.tables, facts.runtime, analyzed.meta)
    yield from notes.of_devices(session, analyzed.tables)
    yield from notes.beyond_limits(measured, settings)


def _summary(session: Session, tables: Mapping[str, pa.Table]) -> dict[str, Any]:
    """The content of inference_summary.json."""
    if session.record.is_import:
        return summarise({}, 1) | {"batch": None}
    views = {"warmup": inputs.warmup_ms, "measurement": inputs.latencies_ms}
    if session.record.planned.noise != "tag":
        views["measurement_with_noise"] = inputs.all_latencies_ms
    iterations, latencies = tables.get("inference_iters"), dict[str, Any]()
    for phase, view in views.items():
        try:
            latencies[phase] = view(iterations) if iterations is not None else []
        except Absent:
            latencies[phase] = []
    return summarise(latencies, session.record.planned.batch)


def _coverage(tables: Mapping[str, pa.Table], captures: Mapping[str, Any]) -> Coverage | None:
    """Where every kernel went; None where nothing counts kernels."""
    if not captures:
        return cover(tables.get("kernels"), tables.get("op_to_kernel_map"))
    counted = [capture for capture in captures["captures"] if capture["kernels"]]
    if not counted:
        return None
    used = [capture["tables"]["kernels"] for capture in counted if "kernels" in capture["tables"]]
    left_out: dict[str, tuple[int, int]] = {}
    for capture in counted:
        for reason, (count, ns) in executions_left_out(capture).items():
            before = left_out.get(reason, (0, 0))
            left_out[reason] = before[0] + count, before[1] + ns
    return Coverage(_total((capture["kernels"]["count"], capture["kernels"]["ns"]) for capture in counted),
                    _total((tally["rows"], tally["ns"]) for tally in used), left_out, None)


def _total(parts: Iterator[tuple[int, int]]) -> tuple[int, int]:
    listed = list(parts)
    return sum(count for count, _ in listed), sum(ns for _, ns in listed)
