"""The readings of a session: every metric over the tables and documents that it holds.

A sealed import keeps its readings: its tables may be larger than memory. Those of a run are computed from its tables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from aaco.analytics import metrics
from aaco.analytics.bottleneck.cpu_budget import CpuRun, ThreadTimes
from aaco.analytics.bottleneck.kernel_evidence import KernelEvidence
from aaco.analytics.bottleneck.ranks import Windows
from aaco.analytics.bottleneck.unprofiled import Unprofiled
from aaco.analytics.bottleneck.work import DeviceWork
from aaco.analytics.critical_path.summary import CriticalPaths
from aaco.analytics.llm.load import PROCESS
from aaco.analytics.llm.summary import NAME, NO_WINDOW, Endpoint
from aaco.analytics.measure import measure
from aaco.analytics.roofline import summary
from aaco.analytics.roofline.nodes import roofs_of
from aaco.analytics.timeline.trace import NO_GPU, DeviceTrace
from aaco.calibration import card
from aaco.collectors.gpu import device_accounts
from aaco.core import inputs, registry
from aaco.core.config import Analysis
from aaco.core.inputs import MeasuredSpans
from aaco.core.readings import Absent, Reading
from aaco.core.session import Session
from aaco.core.tables import GPU_EVENTS, KERNELS, REQUESTS
from aaco.steps.analyzed import NOT_READ, OF_PATHS, Analyzed
from aaco.steps.device.devices_used import devices_used
from aaco.steps.session_tables import NOT_TIMED, OF_TELEMETRY
from aaco.tracelake import documents, layout, queries

HOST_ROOFS = "the ceilings that were measured are the host's; the kernels ran on a device"
RENAMED = {"launch_tax_pct": "launch_limited_pct"}  # the name that 0.1.0 sealed it under
SEALED_BEFORE = "the session was sealed by a version without this metric: aaco analyze SESSION"
NEVER_BEGAN = "imported capture: no kernel of it has a time at which it began"
SEVERAL_CLIENTS = "several captures hold requests, which may be the same ones: import each as a session of its own"
NO_DEVICE = "imported capture: it holds no work of a device"
OF_SERVER = "of this machine's devices: that the server works on them is not checked"
SUMMED = ("operators",)  # tables that do not grow with the time a trace is long
OF_DEVICES = ("trace", "device_work", "critical_paths")  # what findings about the devices' work say
OF_AN_INFERENCE = ("kernels", "api_calls")  # what a metric may read whole, where the capture knows inferences
LEVELS = ("disable", "basic", "extended", "all")  # of graph optimisation; each does more than the one before
TOKENS = ("input_ids", "decoder_input_ids", "tokens")


class SessionFacts(Struct, frozen=True):
    """What a session holds besides its tables: its documents, and what its findings say of the devices.

    measured_tables: as `in_inferences` returns them, cut once for all who read them.
    """

    environment: Mapping[str, Any]
    runtime: Mapping[str, Any]
    captures: Mapping[str, Any]
    measured_tables: Mapping[str, pa.Table]
    trace: DeviceTrace | None
    paths: CriticalPaths | None


def stored(session: Session) -> dict[str, Reading]:
    """Return the readings that were sealed with the session; empty where there are none. Raise BadBundle."""
    document = documents.read(session, layout.DERIVED_METRICS)
    if not document:
        return {}
    registry.load(metrics, "aaco.metrics")
    sealed = document | {name: document[earlier] for name, earlier in RENAMED.items() if earlier in document}
    return {name: _stored_reading(metric, sealed[name]) if name in sealed else
            Reading(name, metric.unit, None, SEALED_BEFORE) for name, metric in registry.METRICS.items()}


def compute(session: Session, analyzed: Analyzed, facts: SessionFacts, settings: Analysis) -> dict[str, Reading]:
    """Return the reading of every metric, measured or absent with its reason. Raise BadBundle."""
    if session.record.is_import:
        return _of_import(session, analyzed, facts, settings)
    if session.record.is_endpoint:
        return _of_endpoint(session, analyzed, settings)
    return _of_run(session, analyzed, facts, settings)


def _of_run(session: Session, analyzed: Analyzed, facts: SessionFacts, settings: Analysis) -> dict[str, Reading]:
    """The metrics of a run read its tables whole, and the ceilings of the machine that its kernels ran on."""
    ceilings = ceilings_of(facts.environment, analyzed.on_device)
    why = why_missing(analyzed, facts.paths)
    if ceilings is None and (facts.environment.get("machine") or {}).get("ceilings"):
        why["machine"] = HOST_ROOFS
    return measure(facts.measured_tables, ceilings, settings, why,
                   caveats(facts.environment, analyzed.tables),
                   {**views_of_run(analyzed, facts), **devices_used(session, facts.runtime)})


def views_of_run(analyzed: Analyzed, facts: SessionFacts) -> dict[str, Any]:
    """Return by name the views of a run that its analysis made."""
    return {"trace": facts.trace, "executed_work": analyzed.work, "critical_paths": facts.paths,
            "tokens_per_inference": _tokens(facts.runtime), "cpu_run": _cpu_run(facts.runtime),
            **_of_cheaper_passes(analyzed)}


def _of_import(session: Session, analyzed: Analyzed, facts: SessionFacts, settings: Analysis) -> dict[str, Reading]:
    """Kernels and calls of an import are read whole only where its capture knows inferences; else findings say it."""
    knows, watched = queries.has_values(session, KERNELS, "iteration"), session.record.planned.watched_by
    names = (*SUMMED, *(OF_AN_INFERENCE if knows else ()), *(OF_TELEMETRY if watched else ()))
    bounded = {name: analyzed.tables[name] for name in names if name in analyzed.tables}
    envelopes, why_none = summary.envelopes(documents.read(session, layout.finding("roofline")))
    why = {name: NOT_TIMED for name in OF_AN_INFERENCE if name not in bounded} | dict(analyzed.missing)
    why |= dict.fromkeys(OF_DEVICES, _why_no_work(analyzed)) | why_none
    if REQUESTS.name in analyzed.tables:
        why[NAME] = SEVERAL_CLIENTS
    views: dict[str, Any] = {
        "trace": facts.trace, "critical_paths": facts.paths, "unprofiled": unprofiled(session),
        "device_work": documents.decoded(session, DeviceWork), "windows": documents.decoded(session, Windows),
        "kernel_evidence": documents.decoded(session, KernelEvidence), **envelopes}
    endpoint = documents.decoded(session, Endpoint)
    views |= {NAME: endpoint} if endpoint else {}
    if watched:
        numbers = {device.device_id for device in facts.trace.devices} if facts.trace else ()
        views |= {"measured_spans": _at_work(facts.captures), "cuda_numbers": numbers,
                  "visible_devices": device_accounts.visible(session.folder / layout.DEVICE_RAW)}
    return measure(bounded, None, settings, why, examined=views)


def _of_endpoint(session: Session, analyzed: Analyzed, settings: Analysis) -> dict[str, Reading]:
    """What the client of an endpoint saw is in a document; of the machine that serves only telemetry is known, where it
    is this one."""
    watched = {name: analyzed.tables[name] for name in OF_TELEMETRY if name in analyzed.tables}
    why = {**analyzed.missing, NAME: NOT_READ, "measured_spans": NO_WINDOW}
    folder = session.folder / layout.DEVICE_RAW
    if why_no_packages := device_accounts.why_no_packages(folder):
        why["package_energy"] = why_no_packages
    endpoint = documents.decoded(session, Endpoint)
    views: dict[str, Any] = {"measured_spans": _steady(endpoint), "visible_devices": _devices_of_endpoint(session)}
    views |= {NAME: endpoint} if endpoint else {}
    return measure(watched, None, settings, why, {} if _is_own(session) else {GPU_EVENTS.name: OF_SERVER}, views)


def _steady(endpoint: Endpoint | None) -> MeasuredSpans | None:
    """Return the steady window of a load, in which telemetry is read; None where it has none."""
    if not endpoint or endpoint.window_s <= 0:
        return None
    begin = np.array([endpoint.window_begin_ns], np.int64)
    return MeasuredSpans(begin, begin + round(endpoint.window_s * 1e9))


def _is_own(session: Session) -> bool:
    """Return whether a decoder in a process of its own answered, and no server."""
    return str(session.record.plan.get("endpoint")).startswith(PROCESS)


def _devices_of_endpoint(session: Session) -> dict[str, Any]:
    """Return which devices a decoder saw. Those of a server are not known: its environment is its own."""
    if not _is_own(session):
        return {}
    if session.record.backend_ran == "cpu":
        return {"unused": "the decoder used no device: it ran on the CPU"}
    return device_accounts.visible(session.folder / layout.DEVICE_RAW)


def why_missing(analyzed: Analyzed, paths: CriticalPaths | None) -> dict[str, str]:
    """Return by name why tables are not there; the analysis of critical paths states it of those that it writes."""
    why_no_paths = paths.why_absent if paths else ""
    return {**analyzed.missing, **(dict.fromkeys(OF_PATHS, why_no_paths) if why_no_paths else {})}


def in_inferences(analyzed: Analyzed) -> Mapping[str, pa.Table]:
    """Return a run's tables with the device's work in the measured inferences, if it was traced apart."""
    return inputs.inside_runs(analyzed.tables) if analyzed.passes.get("timed") else analyzed.tables


def ceilings_of(environment: Mapping[str, Any], on_device: bool) -> dict[str, float] | None:
    """Return by name the measured ceilings of what the kernels ran on; None where only others, or none, were measured.
    """
    machine = environment.get("machine") or {}
    if on_device and not (machine.get("card") or {}).get("device"):
        return None
    ceilings: dict[str, float] | None = machine.get("ceilings")
    return ceilings


def caveats(environment: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> dict[str, str]:
    """Return what is to be known about every reading that rests on the machine's ceilings, by input."""
    machine = environment.get("machine") or {}
    if not machine.get("ceilings"):
        return {}
    measured = card.of(machine.get("card"))
    doubt = measured.doubt(roofs_of(tables)) if measured else "no record of how they were measured"
    return {"machine": f"unsure roofs: {doubt}"} if doubt else {}


def unprofiled(session: Session) -> Unprofiled | None:
    """Return the latency without a profiler that was given with a capture, or None. Raise BadBundle."""
    latency = documents.read(session, layout.GIVEN_LATENCY)
    if not latency:
        return None
    return Unprofiled(latency["count"], latency["median_ms"], latency["source"], latency.get("steps"),
                      latency.get("fastest_ms"))


def _of_cheaper_passes(analyzed: Analyzed) -> dict[str, Any]:
    """The clean latency, and how busy the device was, from passes that record less and so cost less."""
    if "timed" not in analyzed.passes:
        return {}
    views: dict[str, Any] = {}
    if checked := analyzed.passes.get("checked"):
        views["kernels_alone"] = inputs.KernelsAlone(checked["busy_ns"], checked["wall_ns"])
    try:
        latencies = inputs.latencies_ms(analyzed.tables["inference_iters"])
    except (Absent, KeyError):
        return views
    return views | {"unprofiled": Unprofiled.of(latencies.tolist(), "the plain pass")}


def _cpu_run(runtime: Mapping[str, Any]) -> CpuRun | None:
    """What the threads of a run's processes got of the CPUs; None where a clean pass keeps no account of it."""
    clean = [made.get("cpu") for made in runtime.get("passes") or []]
    if not clean or not all(clean):
        return None
    profiled = (runtime.get("profile") or {}).get("cpu")
    return CpuRun(tuple(ThreadTimes(**times) for times in clean if times),
                  ThreadTimes(**profiled) if profiled else None, _levels_left(runtime.get("graph_optimization")),
                  runtime.get("batch_fixed_by_model"))


def _levels_left(level: str | None) -> int | None:
    """Return how many levels of graph optimisation go further than a run's; None where it is not recorded."""
    return len(LEVELS) - 1 - LEVELS.index(level) if level in LEVELS else None


def _tokens(runtime: Mapping[str, Any]) -> int | None:
    """How many token identifiers one inference is fed; None where no input holds any."""
    shapes = [tensor["shape"] for tensor in runtime.get("fed", []) if tensor["name"] in TOKENS]
    return math.prod(shapes[0]) or None if shapes else None


def _why_no_work(analyzed: Analyzed) -> str:
    if analyzed.on_device:
        return NEVER_BEGAN
    if KERNELS.name not in analyzed.tables:
        return NO_DEVICE
    try:
        inputs.refuse_dispatches(analyzed.tables[KERNELS.name])
    except Absent as reason:
        return str(reason)
    return NO_GPU


def _at_work(captures: Mapping[str, Any]) -> MeasuredSpans | None:
    """Return the span from the first work of a device to the end of the last, in which telemetry is read."""
    tallies = [capture["tables"][name] for capture in captures["captures"] for name in ("kernels", "copies")
               if name in capture["tables"]]
    spans = [(tally["start_ns"], tally["end_ns"]) for tally in tallies
             if None not in (tally["start_ns"], tally["end_ns"])]
    starts, ends = zip(*spans, strict=True) if spans else ((), ())
    return MeasuredSpans(np.array([min(starts)]), np.array([max(ends)])) if spans else None


def _stored_reading(metric: registry.Metric, stored: Mapping[str, Any]) -> Reading:
    return Reading(metric.name, metric.unit, stored["value"], stored["why_absent"] or "", stored["ci_low"],
                   stored["ci_high"], stored["band"] or "", ", ".join(metric.inputs), stored.get("caveat") or "",
                   stored.get("method") or "")
