"""An imported session's answers: from what the import wrote, a piece of a table at a time, never a whole one.

The counterpart of derive.py, which answers for what this tool ran itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from aaco.analytics import metrics
from aaco.analytics.bottleneck.budget import Unprofiled
from aaco.analytics.bottleneck.work import DeviceWork
from aaco.analytics.critical_path.summary import CriticalPaths
from aaco.analytics.diagnosis import diagnose
from aaco.analytics.explanation import Coverage, Explanation, summarise
from aaco.analytics.inputs import Spans
from aaco.analytics.measure import measure
from aaco.analytics.roofline import summary
from aaco.analytics.trace import NO_GPU, Trace
from aaco.analytics.truth.account import executions_left_out
from aaco.core import registry, tables
from aaco.core.config import Analysis
from aaco.core.readings import Reading
from aaco.core.session import Session
from aaco.core.tables import KERNELS
from aaco.governance.verdict import RegressionVerdict
from aaco.tracelake import documents, layout, queries
from aaco.tracelake.queries import Tables

NOT_TIMED = "imported capture: no iterations were timed"
NOT_IN_IT = "imported capture: it does not hold this"
NOT_THIS_HOST = "imported capture: the machine it was recorded on is not known to this one"
ELSEWHERE = "imported capture: it is referenced, not kept; profiler/captures.json says where it is"
KEPT = f"imported capture: its files are in {layout.RAW}, without the credentials that were in them"
NOTHING_TO_PLOT = "imported capture: it has no kernels to plot"
SEALED_BEFORE = "the session was sealed by a version without this metric: aaco analyze SESSION"
NEVER_BEGAN = "imported capture: no kernel of it has a time at which it began"
NO_DEVICE = "imported capture: it holds no work of a device"
NOT_WATCHED = "the program was traced without --telemetry"
NO_CLOCK = "nothing was recorded beside the program, or the trace is on no clock of this host to place it by"
NOT_COMPARED = "not compared with another session: aaco diff OTHER SESSION"
CUT_SHORT: dict[str, Any] = {"captures": [], "kernels_ran_on": ""}  # captures.json is written when all is read
OF_TELEMETRY = ("gpu_events", "samples", "system_events")
MOST_PROBLEMS = 6  # of captures that a report begins with
SUMMED = ("operators",)  # tables that do not grow with the time a trace is long
OF_DEVICES = ("trace", "device_work", "critical_paths")  # what examinations of the devices' work find
OF_AN_INFERENCE = ("kernels", "api_calls")  # what a metric may read whole, where the capture knows inferences


def is_imported(session: Session) -> bool:
    """Whether the session holds captures of other tools."""
    return "imports" in session.record.plan


def explanation(session: Session, settings: Analysis, anew: bool = False) -> Explanation:
    """Everything there is to say about an imported session. Raises BadBundle.

    Readings are those that were sealed with it; `anew`, and where there are none, they are computed.
    """
    captures, found = documents.read(session, layout.CAPTURES) or CUT_SHORT, Tables(session)
    missing = {name: _why(session, name) for name in tables.ALL if name not in found}
    stored = {} if anew else documents.read(session, layout.DERIVED_METRICS)
    trace = _trace(session)
    readings = _stored(stored) if stored else _measured(session, found, settings, missing, trace, captures)
    return Explanation(
        session_id=session.id, folder=str(session.folder), status=session.status, record=session.record.model_dump(),
        model={}, runtime={}, environment={}, machine={}, tables=found, readings=readings,
        diagnosis=diagnose(readings), summary=summarise({}, 1) | {"batch": None},
        absent=_absent_files(session, missing), coverage=_coverage(captures),
        verdict=documents.as_form(session, layout.VERDICT, RegressionVerdict), captures=captures,
        truth=documents.read(session, layout.TRACE_CHECK),
        notes=(*_notes(captures), *_watched(session, found),
               *(() if anew else documents.damage(session, layout.BOTTLENECK))),
        examined={name: known for name, file in layout.EXAMINED.items() if (known := documents.read(session, file))},
        trace=trace)


def keep(session: Session, explained: Explanation) -> None:
    """Write the documents of the answers, each atomically. Raises StorageError."""
    session.write_json(layout.SUMMARY, dict(explained.summary))
    session.write_json(layout.DERIVED_METRICS, explained.derived_metrics())
    session.write_json(layout.BOTTLENECK, explained.diagnosis.document())


def _trace(session: Session) -> Trace | None:
    """What an examination of the trace found; None where it found nothing, or was never made."""
    found = {name: documents.read(session, file) for name, file in layout.TRACE.items()}
    return Trace.of({name: document for name, document in found.items() if document}) if any(found.values()) else None


def _why(session: Session, table: str) -> str:
    """Why the session lacks a table."""
    if table in OF_TELEMETRY and "traced" in session.record.plan:
        return NO_CLOCK if session.record.planned.watched_by else NOT_WATCHED
    return NOT_TIMED if table == "inference_iters" else NOT_IN_IT


def _measured(session: Session, found: Tables, settings: Analysis, missing: Mapping[str, str],
              trace: Trace | None, captures: Mapping[str, Any]) -> dict[str, Reading]:
    """Every metric's reading. Kernels and calls are read whole only for a capture that knows its inferences."""
    knows, watched = queries.has_values(session, KERNELS, "iteration"), session.record.planned.watched_by
    wanted = (*SUMMED, *(OF_AN_INFERENCE if knows else ()), *(OF_TELEMETRY if watched else ()))
    given = {name: found[name] for name in wanted if name in found}
    why = {name: NOT_TIMED for name in OF_AN_INFERENCE if name not in given} | dict(missing)
    why |= dict.fromkeys(OF_DEVICES, NO_GPU if KERNELS.name in found else NO_DEVICE)
    if queries.has_values(session, KERNELS, "device_id"):
        why |= dict.fromkeys(OF_DEVICES, NEVER_BEGAN)
    envelopes, why_none = summary.envelopes(documents.read(session, layout.EXAMINED["roofline"]))
    examined = {"trace": trace, "device_work": _work(session), "unprofiled": unprofiled(session),
                "critical_paths": _paths(session), "measured_spans": _at_work(captures) if watched else None,
                **(_devices(session, trace) if watched else {}), **envelopes}
    why |= why_none
    return measure(given, None, settings, why, examined=examined)


def _devices(session: Session, trace: Trace | None) -> dict[str, Any]:
    """Which devices the traced program saw, and those that its kernels ran on."""
    from aaco.collectors import device_watch  # loaded where some were recorded

    return {"visible_devices": device_watch.visible(session.folder / layout.DEVICE_RAW),
            "cuda_numbers": {device.device_id for device in trace.devices} if trace else ()}


def _at_work(captures: Mapping[str, Any]) -> Spans | None:
    """From the first work of a device to the end of the last: what was recorded beside the program is read there."""
    tallies = [one["tables"][name] for one in captures["captures"] for name in ("kernels", "copies")
               if name in one["tables"]]
    known = [(one["start_ns"], one["end_ns"]) for one in tallies if None not in (one["start_ns"], one["end_ns"])]
    starts, ends = zip(*known, strict=True) if known else ((), ())
    return Spans(np.array([min(starts)]), np.array([max(ends)])) if known else None


def _work(session: Session) -> DeviceWork | None:
    """What the devices' time went to; None where no examination said so."""
    document = documents.read(session, layout.EXAMINED["device_work"])
    return DeviceWork.of(document) if document else None


def _paths(session: Session) -> CriticalPaths | None:
    """What bounded the wall time; None where no examination said so."""
    document = documents.read(session, layout.EXAMINED["critical_path"])
    return CriticalPaths.of(document) if document else None


def unprofiled(session: Session) -> Unprofiled | None:
    """The latency without a profiler that was given with the capture."""
    given = documents.read(session, layout.GIVEN_LATENCY)
    return Unprofiled(given["count"], given["median_ms"], given["source"]) if given else None


def _stored(document: Mapping[str, Any]) -> dict[str, Reading]:
    registry.load(metrics, "aaco.metrics")
    return {name: _reading(metric, document[name]) if name in document else
            Reading(name, metric.unit, None, SEALED_BEFORE) for name, metric in registry.METRICS.items()}


def _reading(metric: registry.Metric, found: Mapping[str, Any]) -> Reading:
    return Reading(metric.name, metric.unit, found["value"], found["why_absent"] or "", found["ci_low"],
                   found["ci_high"], found["band"] or "", ", ".join(metric.inputs), found.get("caveat") or "",
                   found.get("method") or "")


def _coverage(captures: Mapping[str, Any]) -> Coverage | None:
    """Where every kernel of the captures went; None where no capture counts its kernels."""
    counted = [one for one in captures.get("captures", []) if one["kernels"]]
    if not counted:
        return None
    in_file = _sum(one["kernels"] for one in counted)
    used = _sum({"count": one["tables"]["kernels"]["rows"], "ns": one["tables"]["kernels"]["ns"]}
                for one in counted if "kernels" in one["tables"])
    left_out: dict[str, tuple[int, int]] = {}
    for one in counted:
        for reason, (count, ns) in executions_left_out(one).items():
            before = left_out.get(reason, (0, 0))
            left_out[reason] = before[0] + count, before[1] + ns
    return Coverage(in_file, used, left_out, None)


def _sum(parts: Any) -> tuple[int, int]:
    listed = list(parts)
    return sum(part["count"] for part in listed), sum(part["ns"] for part in listed)


def _watched(session: Session, found: Tables) -> Iterator[str]:
    """By what the devices were recorded beside a traced program, and what was lost."""
    if session.record.planned.watched_by:
        from aaco.collectors import device_watch  # loaded where some were recorded

        told = device_watch.said(session.folder / layout.DEVICE_RAW, found.get("gpu_events"))
        yield from (f"{one}." for one in told)


def _notes(captures: Mapping[str, Any]) -> list[str]:
    """What a reader must know of the captures before any number."""
    listed = captures.get("captures", [])
    notes = [f"capture {one['index']}: {problem}" if len(listed) > 1 else problem
             for one in listed for problem in one["problems"]]
    if len(notes) > MOST_PROBLEMS:
        notes[MOST_PROBLEMS:] = [f"{len(notes) - MOST_PROBLEMS} more problems of captures: {layout.CAPTURES}."]
    notes[:0] = captures.get("notes", [])
    if left := captures.get("unrecognised"):
        notes.append(f"{left} files beside the captures were not recognised ({layout.CAPTURES} names them).")
    for name, count in captures.get("references_to_nothing", {}).items():
        notes.append(f"{count} rows of {name} refer to a row that the capture does not have.")
    return notes


def _absent_files(session: Session, missing: Mapping[str, str]) -> dict[str, str]:
    reasons = {
        **dict.fromkeys((layout.ENVIRONMENT,), NOT_THIS_HOST),
        **dict.fromkeys((layout.MODEL_META, layout.ORT_CONFIG, layout.MIGRAPHX_PARTITION), NOT_IN_IT),
        layout.PLOTS: NOTHING_TO_PLOT,
        layout.ROCPROF_RAW: KEPT if (session.folder / layout.RAW).is_dir() else ELSEWHERE,
        **dict.fromkeys((layout.BASELINE_REF, layout.DIFF, layout.VERDICT), NOT_COMPARED),
        **{tables.ALL[name].file: why for name, why in missing.items()},
    }
    return {name: why for name, why in reasons.items() if not (session.folder / name).exists()}
