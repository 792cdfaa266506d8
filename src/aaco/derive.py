"""Evidence becomes answers: tables (ingest.py) -> readings -> diagnosis. Reads a bundle; only what `keep`s writes."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from aaco import device_passes, ingest, watching
from aaco.analytics import fusion, inputs, limits, neighbours, partition
from aaco.analytics import trace as tracing
from aaco.analytics.critical_path.summary import CriticalPaths
from aaco.analytics.diagnosis import diagnose
from aaco.analytics.explanation import Explanation, cover, summarise
from aaco.analytics.measure import measure
from aaco.analytics.roofline.nodes import roofs_of
from aaco.calibration import card
from aaco.collectors import device_watch
from aaco.core import tables
from aaco.core.config import Analysis
from aaco.core.readings import Absent, Reading
from aaco.core.session import Record, Session
from aaco.governance.verdict import RegressionVerdict
from aaco.ingest import NO_MODEL, NOT_REACHED, NOTHING, Ingested
from aaco.profiler import ort as ort_profile
from aaco.report import format
from aaco.runner.job import MIGRAPHX
from aaco.tracelake import documents, layout, store

HOST_ROOFS = "the ceilings that were measured are the host's; the kernels ran on a device"
NOT_COMPARED = "not compared with a baseline: aaco diff BASELINE SESSION"
OF_A_MODEL = (layout.MODEL_META, layout.ORT_CONFIG, layout.MIGRAPHX_PARTITION, layout.ROCPROF_RAW)
TOKENS = ("input_ids", "decoder_input_ids", "tokens")
LONGEST_LINE = 300
# Of a device's work.
OF_EXAMINATIONS = ("kernel_classes", "roofline", "critical_path", "launch_tax", "stacks")  # as documents


def explanation(session: Session, settings: Analysis, anew: bool = False, ingested: Ingested | None = None
                ) -> Explanation:
    """Everything there is to say about a session, as far as its evidence reaches. Raises BadBundle.

    A sealed session is read from its tables; `anew`, and any other session, from the raw captures, if they are not
    `ingested` already. What examinations found is read from their files.
    """
    known = ingested or (ingest.anew(session) if anew else ingest.tables_of(session))
    found, why_missing, meta, passes, work = known
    environment, runtime = documents.read(session, layout.ENVIRONMENT), _runtime(session)
    of_host = known.on_device and not ((environment.get("machine") or {}).get("card") or {}).get("device")
    roofs = None if of_host else _ceilings(environment)
    why = {**why_missing, **({"machine": HOST_ROOFS} if of_host and _ceilings(environment) else {})}
    inside = inputs.inside_runs(found) if passes.get("timed") else found
    trace, fused = tracing.of_tables(_beside(session, inside), settings), fusion.of_run(inside, roofs or {})
    examined = _examined(session, known) | ({"fusion": fused} if fused else {})
    paths = CriticalPaths.of(examined["critical_path"]) if "critical_path" in examined else None
    if paths and paths.why_absent:
        why_missing = why_missing | dict.fromkeys(ingest.OF_PATHS, paths.why_absent)
    written = _examined_tables(session, known)
    readings = measure({**inside, **written}, roofs, settings, why, caveats(environment, found),
                       {"trace": trace, "executed_work": work, "tokens_per_inference": _tokens(runtime),
                        "critical_paths": paths,
                        **ingest.devices(session, runtime), **device_passes.views(found, passes)})
    return Explanation(
        session_id=session.id, folder=str(session.folder), status=session.status, record=session.record.model_dump(),
        model=meta, runtime=runtime, environment=environment,
        machine=environment.get("machine") or {}, tables=found | written, readings=readings,
        diagnosis=diagnose(readings),
        summary=_summary(found, session), absent=_absent_files(session, why_missing, runtime),
        coverage=cover(found.get("kernels"), found.get("op_to_kernel_map")),
        verdict=documents.as_form(session, layout.VERDICT, RegressionVerdict),
        truth=documents.read(session, layout.TRACE_CHECK) if known.on_device else {},
        capsule=documents.read(session, layout.CAPSULE),
        notes=(*_notes(session.record, found, runtime),
               *(f"{one}." for one in device_watch.said(session.folder / layout.DEVICE_RAW, found.get("gpu_events"))),
               *_beyond(readings, settings),
               *(() if anew or ingested else documents.damage(session, layout.BOTTLENECK))), trace=trace,
        examined={name: examined[name] for name in layout.EXAMINED if name in examined})


def _examined(session: Session, known: Ingested) -> dict[str, Any]:
    """What examinations found in the devices' work, by name, and how its passes were joined."""
    passes = {"device_passes": known.passes} if known.passes else {}
    wanted = OF_EXAMINATIONS if known.on_device else ()
    return {name: found for name in wanted if (found := documents.read(session, layout.EXAMINED[name]))} | passes


def _examined_tables(session: Session, known: Ingested) -> dict[str, pa.Table]:
    """The tables that examinations of the devices' work wrote, but for those that are known already."""
    missing = [tables.ALL[name] for name in ingest.OF_DEVICE_WORK if name not in known.tables]
    return {spec.name: store.read(session, spec) for spec in missing if known.on_device and store.holds(session, spec)}


def keep_tables(session: Session, ingested: Ingested) -> None:
    """Write what examinations read into the bundle, each file atomically, and see that nothing they found before stays.
    Raises StorageError."""
    for name, table in ingested.tables.items():
        store.write(session, tables.ALL[name], table)
    documents.replace(session, layout.EXAMINED["device_passes"], ingested.passes or None)
    of_examinations = (*layout.TRACE.values(), *(layout.EXAMINED[name] for name in OF_EXAMINATIONS))
    documents.remove(session, layout.TRACE_CHECK, *of_examinations,
                     *(tables.ALL[name].file for name in ingest.OF_DEVICE_WORK))


def _beside(session: Session, found: Mapping[str, pa.Table]) -> Mapping[str, pa.Table]:
    """The tables with the devices' telemetry under the numbers that the kernels have; without it where those are not
    known."""
    if "gpu_events" not in found or "kernels" not in found:
        return found
    numbered = neighbours.as_numbered(
        found["gpu_events"], set(found["kernels"]["device_id"].drop_null().unique().to_pylist()), found.get("samples"),
        device_watch.visible(session.folder / layout.DEVICE_RAW))
    others = {name: table for name, table in found.items() if name != "gpu_events"}
    return others if numbered is None else others | {"gpu_events": numbered}


def keep(session: Session, explained: Explanation) -> None:
    """Write the documents of the answers into the bundle, each atomically. Raises StorageError."""
    if explained.model:
        session.write_json(layout.MODEL_META, dict(explained.model))
    session.write_json(layout.SUMMARY, dict(explained.summary))
    session.write_json(layout.DERIVED_METRICS, explained.derived_metrics())
    session.write_json(layout.BOTTLENECK, explained.diagnosis.document())
    if compiled := partition.of_run(explained.tables.get("executed_nodes"), explained.tables.get("graph_nodes")):
        session.write_json(layout.MIGRAPHX_PARTITION, compiled)
    documents.replace(session, layout.EXAMINED["fusion"], explained.examined.get("fusion"))


def _absent_files(session: Session, why_missing: Mapping[str, str], runtime: Mapping[str, Any]) -> dict[str, str]:
    """Why each file that the bundle cannot have, or does not have yet, is not there."""
    record = session.record
    provider = record.backend_ran or record.backend_asked or "unknown"
    refused = (runtime.get("profile") or {}).get("stages_absent")
    reasons = {
        **{tables.ALL[name].file: why for name, why in why_missing.items()},
        layout.MIGRAPHX_PARTITION: why_missing.get("executed_nodes", NOT_REACHED) if provider == MIGRAPHX
        else f"the backend is {provider}, not MIGraphX",
        layout.ROCPROF_RAW: f"no rocprof capture on {provider}; the raw capture is {layout.ORT_PROFILE}",
        **(dict.fromkeys(OF_A_MODEL, NO_MODEL) if record.planned.command else {}),
        **dict.fromkeys((layout.BASELINE_REF, layout.DIFF, layout.VERDICT), NOT_COMPARED),
        **(dict.fromkeys(layout.STAGE_GRAPHS.values(), refused) if refused else {}),
        **({} if record.plan else dict.fromkeys(layout.EXPECTED, NOTHING)),
    }
    return {name: why for name, why in reasons.items() if not (session.folder / name).exists()}


def _notes(record: Record, found: Mapping[str, pa.Table], runtime: Mapping[str, Any]) -> Iterator[str]:
    """What was run if no model was, what the kernel times are not, and what of the capture is not in them."""
    if not found and not record.plan:
        yield f"{NOTHING}."
    if argv := runtime.get("argv"):
        line = shlex.join(argv)
        yield f"command: {line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE - 1] + '…'}"
    if failed := sum(run["code"] != 0 for run in runtime.get("runs", [])):
        yield f"{failed} of {len(runtime['runs'])} runs failed (runtime/command.json says how)."
    runs = (*(runtime.get("passes") or ()), *(runtime.get("runs") or ()))
    yield from watching.said(run.get("telemetry") for run in runs)
    if record.planned.io == "device":
        yield "inputs and outputs stay in the device's memory: latencies hold no copy from or to the host."
    kernels = found.get("kernels")
    if kernels is not None and "dispatch" in pc.unique(kernels["timed"].cast(pa.string())).to_pylist():
        yield ("kernel times are the host's part of each node, as ONNX Runtime's profile has them: a GPU may work on "
               "after a node's end, and its own times are not in this capture.")
    events = (runtime.get("profile") or {}).get("events") or {}
    if others := {name: number for name, number in events.items() if name not in ort_profile.CATEGORIES}:
        counts = ", ".join(f"{number} {name}" for name, number in others.items())
        yield f"events of the ONNX Runtime profile that are not used: {counts}."


def _beyond(readings: Mapping[str, Reading], settings: Analysis) -> Iterator[str]:
    """Readings that are beyond the limits set for them."""
    for one in limits.levels(readings, settings):
        if one.level != "ok":
            name = one.reading.metric
            yield f"{name} {format.reading(one.reading)}: {one.level} from {one.limit:g} on (analysis.{name})."


def _tokens(runtime: Mapping[str, Any]) -> int | None:
    """How many token identifiers one inference is fed; None where no input holds any."""
    shapes = [one["shape"] for one in runtime.get("fed", []) if one["name"] in TOKENS]
    return math.prod(shapes[0]) or None if shapes else None


def _ceilings(environment: Mapping[str, Any]) -> dict[str, float] | None:
    found: dict[str, float] | None = (environment.get("machine") or {}).get("ceilings")
    return found


def caveats(environment: Mapping[str, Any], found: Mapping[str, pa.Table]) -> dict[str, str]:
    """What is to be known about every reading that rests on the machine's ceilings; found: the session's tables."""
    if not _ceilings(environment):
        return {}
    measured = card.of(environment["machine"].get("card"))
    doubt = measured.doubt(roofs_of(found)) if measured else "no record of how they were measured"
    return {"machine": f"roofs in doubt: {doubt}"} if doubt else {}


def _summary(found: Mapping[str, pa.Table], session: Session) -> dict[str, Any]:
    iters = found.get("inference_iters")
    latencies: dict[str, Any] = {}
    views = {"warmup": inputs.warmup_ms, "measurement": inputs.latencies_ms}
    if session.record.planned.noise != "tag":
        views["measurement_with_noise"] = inputs.all_latencies_ms
    for phase, view in views.items():
        try:
            latencies[phase] = view(iters) if iters is not None else []
        except Absent:
            latencies[phase] = []
    return summarise(latencies, session.record.planned.batch)


def _runtime(session: Session) -> dict[str, Any]:
    """The document of what ran: a command's, or ONNX Runtime's."""
    return documents.read(session, layout.COMMAND if session.record.planned.command else layout.ORT_CONFIG)
