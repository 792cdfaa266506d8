"""Sessions of one model become its digital twin: work from its graph, times from its runs, roofs from the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from aaco import pipeline
from aaco.analytics import graph, inputs, operators
from aaco.analytics.executed_work import border_work, executed_work
from aaco.analytics.explanation import Explanation
from aaco.analytics.operators.precision import computes_in
from aaco.analytics.roofline.nodes import dtypes, time_per_inference
from aaco.analytics.twin import roofs as known_roofs
from aaco.analytics.twin.model import Measured, Twin, twin
from aaco.analytics.twin.roofs import Roofs
from aaco.analytics.twin.work import Amount, Node, between
from aaco.calibration import card
from aaco.calibration.card import MachineCard
from aaco.core import documents
from aaco.core.config import Settings
from aaco.core.errors import BadBundle, StorageError, UsageError
from aaco.core.readings import Absent
from aaco.core.session import Record, Session
from aaco.core.session import sessions as every
from aaco.runner import dimensions, model_file
from aaco.runner import inputs as fed_inputs
from aaco.runner.job import CPU
from aaco.tracelake import layout

GRAPH = ("graph_nodes", "graph_edges", "executed_nodes")
OF_A_MODEL = "name sessions of a model that aaco ran: aaco run MODEL, aaco sweep MODEL"


@dataclass(frozen=True)
class Observed:
    """A twin, and the sessions that it was made of by batch."""

    twin: Twin
    sessions: Mapping[int, tuple[str, ...]]
    model: str
    backend: str


def observe(sessions: Sequence[Session], settings: Settings, ran_on: str | None = None) -> Observed:
    """The twin of the model that all the sessions ran. ran_on: what the device was, where its roofs are not those of
    the sessions' machine: a board or a machine card. Raises AacoError."""
    found = [pipeline.explain(session, settings) for session in sessions]
    _refuse_strangers(found)
    chosen = max(found, key=lambda one: "executed_nodes" in one.tables)
    folder = next(session.folder for session in sessions if session.id == chosen.session_id)
    try:
        roofs = named(ran_on) if ran_on else _own_roofs(chosen, settings)
        nodes = _nodes(chosen, folder, _times(found))
        measured = [_measured(one, memory) for one, memory in zip(found, _memory(found), strict=True)]
        made = twin(nodes, measured, roofs, beside=chosen.record["backend_ran"] != CPU)
    except Absent as reason:
        raise UsageError(f"no twin of {chosen.record['plan']['model']}: {reason}", _step(str(reason))) from None
    by_batch: dict[int, tuple[str, ...]] = {}
    for one in found:
        by_batch[_batch(one)] = (*by_batch.get(_batch(one), ()), one.session_id)
    return Observed(made, by_batch, str(chosen.record["plan"]["model"]), str(chosen.record["backend_ran"]))


def tagged(tag: str, root: Path) -> list[Session]:
    """The complete sessions with this tag that ran the model of the newest of them on its backend, their data where its
    data lay. Raises UsageError where there is none."""
    found = [(session, record) for session in every(root) if (record := _readable(session)) and record.tag == tag
             and record.status == "complete" and record.plan]
    if not found:
        raise UsageError(f"no complete session has the tag {tag}", "aaco ls  # lists sessions and their tags")
    newest = found[0][1]
    return [session for session, record in found if record.backend_ran == newest.backend_ran
            and record.plan["model"] == newest.plan["model"] and _io(record.plan) == _io(newest.plan)]


def _io(plan: Mapping[str, Any]) -> str:
    """Where inputs and outputs lay; of older sessions the host."""
    return str(plan.get("io", "host"))


def _readable(session: Session) -> Record | None:
    """What the session says of itself; None for one that is damaged, which may be of anything."""
    try:
        return session.record
    except (BadBundle, StorageError):
        return None


def named(text: str) -> Roofs:
    """The roofs of a machine card's file, or of a board by its data sheet. Raises UsageError."""
    path = Path(text)
    if path.suffix == ".json" or path.is_file():
        return _of_card(documents.load(path, MachineCard, "machine card"), path.stem)
    try:
        return known_roofs.of_board(text)
    except Absent as reason:
        raise UsageError(str(reason), "a board, such as MI300X or H200, or the file of a machine card") from None


def _of_card(found: MachineCard, name: str) -> Roofs:
    """The ceilings of the card's device, where it has one, else of as many threads as any was measured with."""
    most: dict[str, tuple[int, float]] = {}
    for item in (card.for_device(found) if found.device else found).ceilings:
        most[item.name] = max(most.get(item.name, (0, 0.0)), (item.threads, item.value))
    try:
        roofs = known_roofs.of_ceilings({name: value for name, (_, value) in most.items()},
                                        found.device.name if found.device else name)
        return replace(roofs, gpu=True, memory_bytes=found.device.memory_bytes) if found.device else roofs
    except Absent as reason:
        raise UsageError(f"{name}: {reason}", "aaco calibrate") from None


def _own_roofs(explained: Explanation, settings: Settings) -> Roofs:
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


def _refuse_strangers(found: Sequence[Explanation]) -> None:
    """All sessions are complete runs of one model on one machine and backend, alike but for the batch."""
    for one in found:
        if one.captures or not one.model or not one.record.get("plan"):
            raise UsageError(f"session {one.session_id} is of no model that aaco ran", OF_A_MODEL)
        if one.status != "complete":
            raise UsageError(f"session {one.session_id} is {one.status}", "aaco ls  # lists sessions and their status")
    for what, of in (("model", lambda one: one.model.get("sha256")), ("backend", lambda one: one.record["backend_ran"]),
                     ("machine", lambda one: one.machine.get("id")), ("--io", lambda one: _io(one.record["plan"])),
                     ("shapes", _shapes_but_batch)):
        seen = {str(of(one)): one.session_id for one in found}
        if len(seen) > 1:
            raise UsageError(f"sessions {' and '.join(seen.values())} differ in their {what}",
                             "a twin is of one model, on one machine, with one backend and one set of shapes")


def _shapes_but_batch(one: Explanation) -> dict[str, list[Any]]:
    batch = _batch(one)
    return {item["name"]: [None if size == batch and not at else size for at, size in enumerate(item["shape"])]
            for item in one.runtime.get("fed", [])}


def _batch(one: Explanation) -> int:
    return int(one.runtime.get("batch") or one.record["plan"]["batch"])


def _measured(one: Explanation, memory: float | None) -> Measured:
    latency = one.readings["latency_p50_ms"]
    if latency.value is None:
        raise Absent(f"session {one.session_id} has no median latency: {latency.why_absent}")
    return Measured(_batch(one), latency.value, latency.low, latency.high, memory,
                    one.readings["device_power_mean_w"].value)


def _memory(found: Sequence[Explanation]) -> list[float | None]:
    """What each session needed at most, by one measure: on CPUs the resident set; on a device what its own processes
    held of its memory or, where that is not told of every session, what was in use there, by whomever."""
    if found[0].record["backend_ran"] == CPU:
        return [inputs.peak_rss_bytes(one.tables.get("system_events")) for one in found]
    own, used = ([one.readings[name].value for one in found] for name in ("own_peak_vram_bytes", "peak_vram_bytes"))
    untold = any(mine is None and of_all is not None for mine, of_all in zip(own, used, strict=True))
    return used if untold else own


def _times(found: Sequence[Explanation]) -> dict[int, dict[str, float]]:
    """Mean times per inference of executed nodes by batch, ns, of the sessions whose profile has times of the work."""
    times: dict[int, dict[str, float]] = {}
    for one in found:
        if "kernels" in one.tables and "executed_nodes" in one.tables:
            try:
                window = inputs.execution_window(inputs.window(one.tables["kernels"], one.tables["api_calls"]))
            except Absent:
                continue  # its profile times no work: the session still has its latency
            times[_batch(one)] = time_per_inference(window)
    return times


def _nodes(one: Explanation, folder: Path, times: Mapping[int, Mapping[str, float]]) -> list[Node]:
    """The nodes with their work as a function of the batch: described at the session's batch and at twice it."""
    for name in GRAPH[:2]:
        if name not in one.tables:
            raise Absent(f"session {one.session_id} has no {name}: {one.absent.get(name, 'it is not there')}")
    batch, source = _batch(one), model_file.load(folder / layout.SOURCE_GRAPH, weights=False)
    shapes = {item["name"]: item["shape"] for item in one.runtime.get("fed", [])}
    other = dimensions.at_batch(fed_inputs.specs(source), shapes, 2 * batch)
    there = graph.describe(source, bind=other)
    here = one.tables["graph_nodes"], one.tables["graph_edges"]
    if not times:
        return _source_nodes(batch, here[0], there.nodes)
    run = one.tables["executed_nodes"]
    low, high = (border_work(executed_work(run, *graphs)) for graphs in (here, (there.nodes, there.edges)))
    types = dtypes(one.tables["kernels"], run)
    nodes = []
    for name, op_type, domain in zip(*(run[column].to_pylist() for column in ("name", "op_type", "domain")),
                                     strict=True):
        fixed = each = Amount(0, 0)
        if name in low and name in high:
            fixed, each = between(batch, Amount(*low[name]), 2 * batch, Amount(*high[name]))
        nodes.append(Node(name, operators.family(op_type, domain or ""), types.get(name), fixed, each,
                          {at: found[name] for at, found in times.items() if name in found}))
    return nodes


def _source_nodes(batch: int, here: pa.Table, there: pa.Table) -> list[Node]:
    """The nodes of the model as it was given, where no profile says which of them were executed as one."""
    columns = ("name", "op_type", "domain", "category", "dtype", "flops", "bytes")
    later = {row["node_id"]: row for row in there.select(["node_id", "flops", "bytes"]).to_pylist()}
    nodes = []
    for row in here.select(["node_id", *columns]).to_pylist():
        after = later.get(row["node_id"], {})
        if None in (row["flops"], row["bytes"], after.get("flops"), after.get("bytes")):
            continue
        fixed, each = between(batch, Amount(row["flops"], row["bytes"]), 2 * batch,
                              Amount(after["flops"], after["bytes"]))
        dtype = computes_in(row["op_type"], row["domain"] or "", [row["dtype"]] if row["dtype"] else [])
        nodes.append(Node(row["name"], row["category"], dtype, fixed, each))
    return nodes


def _step(reason: str) -> str:
    if "aaco calibrate" in reason:
        return "aaco calibrate"
    return "--ran-on MI300X, or the file of a machine card" if "device" in reason else OF_A_MODEL

