"""Sessions of one model become its what-if model (digital twin): work, times and roofs of its graph, runs, machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from aaco import pipeline
from aaco.analytics import costs
from aaco.analytics.costs.precision import computes_in
from aaco.analytics.explanation import Explanation
from aaco.analytics.graph import graph
from aaco.analytics.graph.executed_work import border_work, executed_work
from aaco.analytics.roofline.nodes import dtypes, time_per_inference
from aaco.analytics.what_if import roofs as known_roofs
from aaco.analytics.what_if.model import BatchMeasurement, WhatIfModel, what_if_model
from aaco.analytics.what_if.roofs import MachineRoofs
from aaco.analytics.what_if.work import Amount, ModelNode, between
from aaco.calibration import card
from aaco.calibration.card import MachineCard
from aaco.core import documents, inputs
from aaco.core.config import Settings
from aaco.core.errors import BadBundle, StorageError, UsageError
from aaco.core.providers import CPU
from aaco.core.readings import Absent
from aaco.core.session import Record, Session
from aaco.core.session import sessions as every
from aaco.runner import dimensions, model_file
from aaco.runner import inputs as fed_inputs
from aaco.tracelake import layout

GRAPH = ("graph_nodes", "graph_edges", "executed_nodes")
OF_A_TRACE = "aaco critical-path {} --what-if graph  # what a step of the trace can gain by a kind of change"
OF_A_MODEL = "name sessions of a model that aaco ran: aaco run MODEL, aaco sweep MODEL"


class Observed(Struct, frozen=True):
    """A what-if model, and its sessions by batch."""

    twin: WhatIfModel
    sessions: Mapping[int, tuple[str, ...]]
    model: str
    backend: str


def observe(sessions: Sequence[Session], settings: Settings, ran_on: str | None = None) -> Observed:
    """Return the what-if model of the model that the sessions ran. ran_on: the device, if its roofs are not those of
    the sessions' machine: a board or a machine card. Raises AacoError."""
    explanations = [pipeline.explain(session, settings) for session in sessions]
    _refuse_strangers(explanations)
    richest = max(explanations, key=lambda explanation: "executed_nodes" in explanation.tables)
    folder = next(session.folder for session in sessions if session.id == richest.session_id)
    try:
        roofs = named(ran_on) if ran_on else _own_roofs(richest, settings)
        nodes = _nodes(richest, folder, _times(explanations))
        measured = [_measured(explanation, memory)
                    for explanation, memory in zip(explanations, _memory(explanations), strict=True)]
        made = what_if_model(nodes, measured, roofs, beside=richest.record["backend_ran"] != CPU)
    except Absent as reason:
        raise UsageError(f"no prediction for {richest.record['plan']['model']}: {reason}", _step(str(reason))) from None
    by_batch: dict[int, tuple[str, ...]] = {}
    for explanation in explanations:
        by_batch[_batch(explanation)] = (*by_batch.get(_batch(explanation), ()), explanation.session_id)
    return Observed(made, by_batch, str(richest.record["plan"]["model"]), str(richest.record["backend_ran"]))


def tagged(tag: str, root: Path) -> list[Session]:
    """The complete sessions with this tag that ran the model of the newest of them on its backend, their data where its
    data lay. Raises UsageError where there is none."""
    tagged_sessions = [(session, record) for session in every(root) if (record := _readable(session))
                       and record.tag == tag and record.status == "complete" and record.plan]
    if not tagged_sessions:
        raise UsageError(f"no complete session has the tag {tag}", "aaco ls  # lists sessions and their tags")
    newest = tagged_sessions[0][1]
    return [session for session, record in tagged_sessions if record.backend_ran == newest.backend_ran
            and record.plan["model"] == newest.plan["model"] and _io(record.plan) == _io(newest.plan)]


def _io(plan: Mapping[str, Any]) -> str:
    """Return the place of inputs and outputs; the host for older sessions."""
    return str(plan.get("io", "host"))


def _readable(session: Session) -> Record | None:
    """What the session says of itself; None for one that is damaged, which may be of anything."""
    try:
        return session.record
    except (BadBundle, StorageError):
        return None


def named(text: str) -> MachineRoofs:
    """The roofs of a machine card's file, or of a board by its data sheet. Raises UsageError."""
    path = Path(text)
    if path.suffix == ".json" or path.is_file():
        return _of_card(documents.load(path, MachineCard, "machine card"), path.stem)
    try:
        return known_roofs.of_board(text)
    except Absent as reason:
        raise UsageError(str(reason), "a board, such as MI300X or H200, or the file of a machine card") from None


def _of_card(machine_card: MachineCard, name: str) -> MachineRoofs:
    """The ceilings of the card's device, where it has one, else of as many threads as any was measured with."""
    most: dict[str, tuple[int, float]] = {}
    for item in (card.for_device(machine_card) if machine_card.device else machine_card).ceilings:
        most[item.name] = max(most.get(item.name, (0, 0.0)), (item.threads, item.value))
    try:
        roofs = known_roofs.of_ceilings({name: value for name, (_, value) in most.items()},
                                        machine_card.device.name if machine_card.device else name)
        return replace(roofs, gpu=True, memory_bytes=machine_card.device.memory_bytes) if machine_card.device else roofs
    except Absent as reason:
        raise UsageError(f"{name}: {reason}", "aaco calibrate") from None


def _own_roofs(explained: Explanation, settings: Settings) -> MachineRoofs:
    """The roofs that the session's machine was measured to have: in the session, else in the cache."""
    measured = card.of(explained.machine.get("card"))
    if explained.record["backend_ran"] != CPU:
        if measured is None or measured.device is None:
            raise Absent("what its device can do is not in the session")
        return _of_card(measured, "this machine")
    if ceilings := explained.machine.get("ceilings"):
        return known_roofs.of_ceilings(ceilings)
    kept = card.load(settings.config.storage.cache_dir.expanduser(), str(explained.machine.get("id")))
    if kept is None:
        raise Absent("this machine's ceilings have not been measured (aaco calibrate)")
    return _of_card(kept, "this machine")


def _refuse_strangers(explanations: Sequence[Explanation]) -> None:
    """All sessions are complete runs of one model on one machine and backend, equal but for the batch."""
    for explanation in explanations:
        if explanation.captures or not explanation.model or not explanation.record.get("plan"):
            raise UsageError(f"session {explanation.session_id} is of no model that aaco ran",
                             OF_A_TRACE.format(explanation.session_id) if explanation.captures else OF_A_MODEL)
        if explanation.status != "complete":
            raise UsageError(f"session {explanation.session_id} is {explanation.status}",
                             "aaco ls  # lists sessions and their status")
    for what, of in (("model", lambda explanation: explanation.model.get("sha256")),
                     ("backend", lambda explanation: explanation.record["backend_ran"]),
                     ("machine", lambda explanation: explanation.machine.get("id")),
                     ("--io", lambda explanation: _io(explanation.record["plan"])),
                     ("shapes", _shapes_but_batch)):
        seen = {str(of(explanation)): explanation.session_id for explanation in explanations}
        if len(seen) > 1:
            raise UsageError(f"sessions {' and '.join(seen.values())} differ in their {what}",
                             "a what-if model needs one model, machine, backend and set of shapes")


def _shapes_but_batch(explanation: Explanation) -> dict[str, list[Any]]:
    batch = _batch(explanation)
    return {item["name"]: [None if size == batch and not at else size for at, size in enumerate(item["shape"])]
            for item in explanation.runtime.get("fed", [])}


def _batch(explanation: Explanation) -> int:
    return int(explanation.runtime.get("batch") or explanation.record["plan"]["batch"])


def _measured(explanation: Explanation, memory: float | None) -> BatchMeasurement:
    latency = explanation.readings["latency_p50_ms"]
    if latency.value is None:
        raise Absent(f"session {explanation.session_id} has no median latency: {latency.why_absent}")
    return BatchMeasurement(_batch(explanation), latency.value, latency.low, latency.high, memory,
                            explanation.readings["device_power_mean_w"].value)


def _memory(explanations: Sequence[Explanation]) -> list[float | None]:
    """What each session needed at most, by one measure: on CPUs the resident set; on a device what its own processes
    held of its memory or, if not every session reports that, what all processes used there."""
    if explanations[0].record["backend_ran"] == CPU:
        return [inputs.peak_rss_bytes(explanation.tables.get("system_events")) for explanation in explanations]
    own_peaks, device_peaks = ([explanation.readings[name].value for explanation in explanations]
                               for name in ("own_peak_vram_bytes", "peak_vram_bytes"))
    untold = any(mine is None and of_all is not None for mine, of_all in zip(own_peaks, device_peaks, strict=True))
    return device_peaks if untold else own_peaks


def _times(explanations: Sequence[Explanation]) -> dict[int, dict[str, float]]:
    """Return mean times per inference of executed nodes by batch, ns, of sessions with a profile of work times."""
    times: dict[int, dict[str, float]] = {}
    for explanation in explanations:
        if "kernels" in explanation.tables and "executed_nodes" in explanation.tables:
            try:
                window = inputs.execution_window(inputs.window(explanation.tables["kernels"],
                                                               explanation.tables["api_calls"]))
            except Absent:
                continue  # its profile times no work: the session still has its latency
            times[_batch(explanation)] = time_per_inference(window)
    return times


def _nodes(explanation: Explanation, folder: Path, times: Mapping[int, Mapping[str, float]]) -> list[ModelNode]:
    """The nodes with their work as a function of the batch: described at the session's batch and at twice it."""
    for name in GRAPH[:2]:
        if name not in explanation.tables:
            raise Absent(f"session {explanation.session_id} has no {name}: {explanation.why_no(name)}")
    batch, source = _batch(explanation), model_file.load(folder / layout.SOURCE_GRAPH, weights=False)
    shapes = {item["name"]: item["shape"] for item in explanation.runtime.get("fed", [])}
    doubled = dimensions.at_batch(fed_inputs.specs(source), shapes, 2 * batch)
    there = graph.describe(source, bind=doubled)
    here = explanation.tables["graph_nodes"], explanation.tables["graph_edges"]
    if not times:
        return _source_nodes(batch, here[0], there.nodes)
    run = explanation.tables["executed_nodes"]
    low, high = (border_work(executed_work(run, *graphs)) for graphs in (here, (there.nodes, there.edges)))
    types = dtypes(explanation.tables["kernels"], run)
    nodes = []
    for name, op_type, domain in zip(*(run[column].to_pylist() for column in ("name", "op_type", "domain")),
                                     strict=True):
        fixed = per_sample = Amount(0, 0)
        if name in low and name in high:
            fixed, per_sample = between(batch, Amount(*low[name]), 2 * batch, Amount(*high[name]))
        nodes.append(ModelNode(name, costs.family(op_type, domain or ""), types.get(name), fixed, per_sample,
                               {at: node_times[name] for at, node_times in times.items() if name in node_times}))
    return nodes


def _source_nodes(batch: int, here: pa.Table, there: pa.Table) -> list[ModelNode]:
    """The nodes of the model as it was given, where no profile says which of them were executed as one."""
    columns = ("name", "op_type", "domain", "category", "dtype", "flops", "bytes")
    later = {row["node_id"]: row for row in there.select(["node_id", "flops", "bytes"]).to_pylist()}
    nodes = []
    for row in here.select(["node_id", *columns]).to_pylist():
        after = later.get(row["node_id"], {})
        if None in (row["flops"], row["bytes"], after.get("flops"), after.get("bytes")):
            continue
        fixed, per_sample = between(batch, Amount(row["flops"], row["bytes"]), 2 * batch,
                                    Amount(after["flops"], after["bytes"]))
        dtype = computes_in(row["op_type"], row["domain"] or "", [row["dtype"]] if row["dtype"] else [])
        nodes.append(ModelNode(row["name"], row["category"], dtype, fixed, per_sample))
    return nodes


def _step(reason: str) -> str:
    if "aaco calibrate" in reason:
        return "aaco calibrate"
    return "--ran-on MI300X, or the file of a machine card" if "device" in reason else OF_A_MODEL

