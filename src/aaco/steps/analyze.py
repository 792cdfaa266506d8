"""Raw captures -> tables: everything that a run recorded, as far as it got."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from aaco.analytics import attribution
from aaco.analytics.graph import graph, lowering, placement
from aaco.analytics.graph.executed_work import NodeWork, executed_work
from aaco.analytics.graph.placement import Placement
from aaco.analytics.quality import co_tenants, features, sentinel
from aaco.analytics.streaming import overlap
from aaco.analytics.timeline.trace import NO_GPU
from aaco.collectors.gpu import device_watch
from aaco.collectors.host import ladder
from aaco.core import inputs, tables
from aaco.core.clocks import ClockOffsets
from aaco.core.errors import BadCapture
from aaco.core.readings import Absent, known
from aaco.core.session import Session
from aaco.core.tables import replaced
from aaco.profiler.formats.onnxruntime import ort as ort_profile
from aaco.profiler.formats.system import smi
from aaco.runner import iterations, model_file, self_accounting
from aaco.steps.analyzed import NO_MODEL, NOT_REACHED, NOTHING, OF_PATHS, Analyzed, is_on_device
from aaco.steps.device import trace_passes
from aaco.steps.device.devices_used import devices_used
from aaco.tracelake import documents, layout

NOT_PROFILED = "the run was made with --no-profile"
NOT_COUNTED = "the run was made without --pmc"
NOT_OF_A_RUN = "a run of this version records none; captures of other tools may"
NOT_EXAMINED = "nothing of it was found in what the device did"
OF_ANY_RUN = ("inference_iters", "system_events", "gpu_events", "samples", "account", "iteration_overlap",
              "iteration_features")
OF_A_PROFILE = ("kernels", "api_calls", "op_to_kernel_map", "operators", "kernel_groups")
OF_COUNTERS = ("counters", "kernel_roofline")
OF_DEVICE_WORK = ("kernel_names", "fingerprints", "kernel_roofline", *OF_PATHS)  # what findings write
OF_A_RUN = (*OF_ANY_RUN, *OF_A_PROFILE, "graph_nodes", "graph_edges", "executed_nodes")


def recompute(session: Session) -> Analyzed:
    """Return the tables of a run from its raw captures; stored tables are ignored. Raise BadBundle, BadCapture."""
    run = _RunAnalysis(session)
    made, missing = run.run()
    meta = documents.read(session, layout.MODEL_META) | run.meta
    return Analyzed(made, missing, meta, run.passes, run.work, is_on_device(made.get("kernels")))


class _RunAnalysis:
    """Raw captures -> tables. What cannot be made is left out with its reason; a damaged capture is an error, but for a
    device's: what else a run recorded is there without it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.plan = session.record.planned
        self.not_reached = NOT_REACHED if session.record.plan else NOTHING
        self.runtime = documents.read(session, layout.ORT_CONFIG)
        self.found: dict[str, pa.Table] = {}
        self.why: dict[str, str] = {}
        self.meta: dict[str, Any] = {}
        self.methods: list[str | None] | None = None  # how each kernel of a device was named
        self.executions: dict[str, int] | None = None  # of its nodes, in the inferences that they were counted in
        self.passes: dict[str, Any] = {}
        self.work: dict[str, NodeWork] = {}

    def run(self) -> tuple[dict[str, pa.Table], dict[str, str]]:
        """The tables by name, and why each of the others is absent."""
        self._add("inference_iters", lambda: iterations.parse(self.session.folder, self.plan.batch))
        self._add("system_events", self._system_events)
        self._add("gpu_events", self._gpu_events)
        self._add("samples", self._samples)
        self._add("account", self._account)
        self._add("iteration_overlap", self._overlap)
        self._add("iteration_features", self._features)
        self._judge_noise()
        if self.plan.command:
            self.why |= dict.fromkeys((name for name in tables.ALL if name not in OF_ANY_RUN), NO_MODEL)
        else:
            self._profile()
            self._graph()
            self._device()
            self._attribution()
        otherwise = {name: self.not_reached if name in OF_A_RUN else NOT_OF_A_RUN for name in tables.ALL}
        otherwise |= dict.fromkeys(("copies", *OF_DEVICE_WORK), self._why_no_work())
        otherwise |= dict.fromkeys(OF_COUNTERS, self._why_no_counters())
        return self.found, {name: why for name, why in (otherwise | self.why).items() if name not in self.found}

    def _why_no_work(self) -> str:
        """Why there are no copies of a device, and nothing that examinations of its work find."""
        if "kernels" not in self.found:
            return self.why.get("kernels", self.not_reached)
        if self.methods is not None:
            return NOT_EXAMINED
        try:
            inputs.refuse_dispatches(self.found["kernels"])
        except Absent as reason:
            return self.passes.get("why_absent", str(reason))
        return NO_GPU

    def _why_no_counters(self) -> str:
        """Why no kernel of a device has counters."""
        if self.methods is None:
            return self._why_no_work()
        counted = self.passes.get("counters") or ()
        return "; ".join(dict.fromkeys(filter(None, (execution["why_not"] for execution in counted)))) or (
            NOT_EXAMINED if counted else self.not_reached if self.plan.counters else NOT_COUNTED)

    def _add(self, name: str, make: Callable[[], pa.Table]) -> None:
        try:
            table = make()
        except Absent as reason:
            self.why[name] = str(reason)
            return
        if table.num_rows:
            self.found[name] = table

    def _system_events(self) -> pa.Table:
        folder = self.session.folder / layout.SYSTEM_RAW
        try:
            return ladder.parse(folder)
        except Absent:
            raise Absent(self._why_unwatched()) from None

    def _why_unwatched(self) -> str:
        asked = self.plan.watched_by or not self.session.record.plan
        return self.not_reached if asked else "the run was made without --telemetry"

    def _gpu_events(self) -> pa.Table:
        if not self.plan.watched_by and not (self.session.folder / layout.DEVICE_RAW).is_dir():
            raise Absent(self._why_unwatched())
        return device_watch.events(self.session.folder / layout.DEVICE_RAW, smi.gpu_events)

    def _samples(self) -> pa.Table:
        if not self.plan.watched_by:
            raise Absent(self._why_unwatched())
        return device_watch.samples(self.session.folder / layout.DEVICE_RAW)

    def _features(self) -> pa.Table:
        if "inference_iters" not in self.found:
            raise Absent(self.not_reached)
        others = (self.found.get(name) for name in ("account", "iteration_overlap", "samples"))
        return features.of_iterations(self.found["inference_iters"], self.found.get("system_events"),
                                      self._run_devices(), *others)

    def _run_devices(self) -> co_tenants.RunDevices | None:
        """None where no device was recorded, or which of them the run used is not known."""
        if "gpu_events" not in self.found:
            return None
        return known(lambda: co_tenants.run_devices(self.found["gpu_events"], self.found.get("samples"),
                                                    **devices_used(self.session, self.runtime)))

    def _overlap(self) -> pa.Table:
        for needed in ("inference_iters", "system_events"):
            if needed not in self.found:
                raise Absent(self.why.get(needed, self.not_reached))
        overlaps = overlap.of_iterations(self.found["inference_iters"], self.found["system_events"])
        if overlaps is None:
            raise Absent("only samples were recorded (T1), no single events")
        return overlaps

    def _account(self) -> pa.Table:
        account = self_accounting.parse(self.session.folder)
        if not account.num_rows:
            raise Absent("a command keeps no account of itself" if self.plan.command else self.not_reached)
        return account

    def _judge_noise(self) -> None:
        if "iteration_features" in self.found:
            self.found["inference_iters"] = sentinel.tag(
                self.found["inference_iters"], self.found["iteration_features"], self.plan.noise != "tag")

    def _profile(self) -> None:
        path, facts = self.session.folder / layout.ORT_PROFILE, self.runtime.get("profile")
        if not facts or not path.is_file():
            self.why |= dict.fromkeys(OF_A_PROFILE, self.not_reached if self.plan.profile else NOT_PROFILED)
            return
        clocks = self.session.record.clocks
        if not clocks:
            self.why |= dict.fromkeys(OF_A_PROFILE, "session.json has no clocks to place the profile in time by")
            return
        origin = ClockOffsets(**clocks).from_realtime(facts["profiling_start_realtime_ns"])
        self.found |= ort_profile.tables(path, origin, facts["warmup"])

    def _graph(self) -> None:
        if not self._has(layout.SOURCE_GRAPH):
            lost = f"{layout.SOURCE_GRAPH} is not there, though the run got beyond it"
            reason = lost if self.runtime else self.not_reached
            self.why |= dict.fromkeys(("graph_nodes", "graph_edges", "executed_nodes"), reason)
            return
        source = self._model(layout.SOURCE_GRAPH)
        fed = {item["name"]: item["shape"] for item in self.runtime.get("fed", [])}
        described = graph.describe(source, bind=fed)
        self.meta = described.meta
        placed = self._placement(source, described.nodes["name"].to_pylist())
        self.found |= {"graph_nodes": _placed(described.nodes, placed), "graph_edges": described.edges}
        if placed.executed is not None:
            self.found["executed_nodes"] = placed.executed

    def _placement(self, source: Any, names: list[str]) -> Placement:
        """Where the source nodes run, by the best evidence there is; and why executed_nodes is absent, if it is."""
        facts = self.runtime.get("profile") or {}
        assignment = facts.get("assignment") or self.runtime.get("assignment") or []
        ran = placement.seen(self.found.get("kernels"))
        if stages := [name for name in layout.STAGE_GRAPHS.values() if self._has(name)]:
            return placement.of_lowered(lowering.lower(source, [self._model(name) for name in stages]), assignment, ran)
        if self._has(layout.OFFERED_GRAPH) and ran:
            offered = lowering.lower(source, [self._model(layout.OFFERED_GRAPH)])
            return placement.of_subgraphs(offered, assignment, ran)
        reasons = filter(None, (facts.get("stages_absent"), facts.get("offered_absent")))
        self.why["executed_nodes"] = "; ".join(reasons) or (self.not_reached if self.plan.profile else NOT_PROFILED)
        return placement.of_names(names, assignment)

    def _device(self) -> None:
        """What the device did takes the place of what the host dispatched, where it was traced."""
        facts = self.runtime.get("device")
        if not facts or "kernels" not in self.found:
            return
        clocks = ClockOffsets(**self.session.record.clocks)
        try:
            device = trace_passes.read(self.session.folder, self.found, clocks, self.runtime)
        except Absent as reason:
            self.passes = {"schema_version": 1, "why_absent": str(reason)}
            return
        except BadCapture as error:
            self.passes = {"schema_version": 1, "why_absent": f"damaged: {error.what}"}
            return
        self.found |= device.tables
        self.methods, self.executions = device.methods, device.executions
        self.passes = device.account | {"plain_latency_ms": self._plain_ms()}

    def _plain_ms(self) -> float | None:
        """The median latency of the clean passes."""
        try:
            return float(np.median(inputs.latencies_ms(self.found["inference_iters"])))
        except (Absent, KeyError):
            return None

    def _attribution(self) -> None:
        if "kernels" not in self.found:
            return
        kernels = self.found["kernels"] if self.methods else attribution.label_families(
            self.found["kernels"], self.found.get("executed_nodes"))
        self.found["kernels"] = kernels
        self._add("kernel_groups", self._groups)
        if "executed_nodes" in self.found:
            nodes = self.found["graph_nodes"]
            mapped = attribution.map_nodes(kernels, self.found["executed_nodes"], nodes, self.methods)
            self.work = executed_work(self.found["executed_nodes"], nodes, self.found["graph_edges"])
            self.found["operators"], self.found["op_to_kernel_map"] = attribution.of_graph(
                kernels, mapped, self.found["executed_nodes"], nodes, self.work, self.executions, measured=True)
        else:
            self.why |= dict.fromkeys(("operators", "op_to_kernel_map"), self.why["executed_nodes"])

    def _groups(self) -> pa.Table:
        window = inputs.window(self.found["kernels"], self.found["api_calls"])
        return attribution.group(window.kernels, window.wall_ns)

    def _has(self, name: str) -> bool:
        return (self.session.folder / name).is_file()

    def _model(self, name: str) -> Any:
        return model_file.load(self.session.folder / name, weights=False)


def _placed(nodes: pa.Table, placement: Placement) -> pa.Table:
    """Return the source nodes with the fate, provider and partition of each."""
    for name in ("executed_as", "fate", "provider", "partition"):
        nodes = _set(nodes, name, getattr(placement, name))
    return nodes


def _set(table: pa.Table, name: str, values: list[Any]) -> pa.Table:
    kind = table.schema.field(name).type
    plain = pa.array(values, kind.value_type if pa.types.is_dictionary(kind) else kind)
    column = plain.dictionary_encode() if pa.types.is_dictionary(kind) else plain
    return replaced(table, name, column)
