"""What a session of ONNX Runtime ran, as far as changes depend on it: from its documents and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec import Struct, field

from aaco.analytics.costs.precision import computes_in
from aaco.analytics.explanation import Explanation
from aaco.analytics.workload.arithmetic import PRODUCTS
from aaco.core.config import Settings
from aaco.core.errors import ModelError, UsageError
from aaco.core.host import cpu_list
from aaco.core.plan import Planned
from aaco.core.tables import GRAPH_EDGES, GRAPH_NODES
from aaco.runner import dimensions, inputs, model_file, registry
from aaco.runner.dimensions import ShapeRequest
from aaco.runner.registry import ResolvedModel

AGAIN = "aaco run --model MODEL  # a session of it as it is now"
# What `aaco run` and ONNX Runtime do where nothing is set (onnxruntime_session_options_config_keys.h,
# session_options.h, cuda_provider_options.h).
DEFAULTS: Mapping[str, str] = {
    "io": "host", "graph_optimization": "all", "session.execution_mode": "sequential",
    "session.enable_mem_pattern": "true", "session.enable_cpu_mem_arena": "true",
    "session.intra_op.allow_spinning": "1", "option.enable_cuda_graph": "0", "option.use_tf32": "1",
    "option.prefer_nhwc": "0", "option.cudnn_conv_algo_search": "EXHAUSTIVE"}


class Situation(Struct, frozen=True):
    """What a session ran, as far as changes depend on it.

    settings: what its backend sets, by the names of Candidate.settings. cpus: how many its process may use, and cores:
    the physical ones among them; allowed: their numbers; machine_cores: of the machine, for ONNX Runtime has a thread
    for each where no count is set. None, or nothing, where not known. operators: the types of the model's operators, by
    how many nodes have them. product_types: the element types that its matrix products and convolutions compute in.
    graph_width: the most nodes at one depth of the graph, which could run at the same time. latency_ms: its median.
    slo_ms: what the user allows.
    """

    model: Path
    provider: str
    settings: Mapping[str, str]
    batch: int
    batch_fixed: bool
    operators: Mapping[str, int] = field(default_factory=dict)
    product_types: frozenset[str] = frozenset()
    graph_width: int | None = None
    cpus: int | None = None
    cores: int | None = None
    latency_ms: float | None = None
    slo_ms: float | None = None
    allowed: tuple[int, ...] = ()
    machine_cores: int | None = None

    @property
    def threads(self) -> int | None:
        """How many threads compute an operator: as many as are set, or one for each core of the machine."""
        return int(self.settings.get("intra_op_threads", 0)) or self.machine_cores

    def has(self, name: str, setting: str) -> bool:
        """Return whether this is so in the session, set or by ONNX Runtime's default."""
        return _plain(self.settings.get(name, DEFAULTS.get(name, ""))) == _plain(setting)


def situation_of(explanation: Explanation, settings: Settings, slo_ms: float | None = None) -> Situation:
    """Return the situation of a session. Raise UsageError for one that ran no model in ONNX Runtime, or if its model is
    not there any more.
    """
    plan = _planned(explanation)
    resolved, runtime, cpus = _model(explanation, plan, settings), explanation.runtime, _cpus(explanation)
    nodes, edges = (_rows(explanation, spec.name) for spec in (GRAPH_NODES, GRAPH_EDGES))
    latency, batch = explanation.readings.get("latency_p50_ms"), int(runtime["batch"])
    return Situation(
        model=resolved.path, provider=runtime["provider"], settings=_settings(runtime, plan),
        batch=batch, batch_fixed=not _takes(2 * batch, plan, resolved),
        operators=Counter(node["op_type"] for node in nodes), product_types=_product_types(nodes, edges),
        graph_width=graph_width(nodes, edges), cpus=cpus, cores=_cores(explanation, cpus),
        latency_ms=latency.value if latency else None, slo_ms=slo_ms,
        allowed=_allowed(explanation), machine_cores=_fact(explanation, "cpu", "cores"))


def _planned(explanation: Explanation) -> Planned:
    """Return the session's plan. Raise UsageError for one that ran no model to its end."""
    plan, session = Planned.model_validate(explanation.record["plan"]), f"session {explanation.session_id}"
    if plan.imports:
        raise UsageError(f"{session} holds captures of other tools: nothing can be tried on it", AGAIN)
    if plan.command:
        raise UsageError(f"{session} ran a command: what is tried are options of ONNX Runtime", AGAIN)
    if not explanation.runtime.get("passes"):
        raise UsageError(f"{session} timed no inference", AGAIN)
    return plan


def _model(explanation: Explanation, plan: Planned, settings: Settings) -> ResolvedModel:
    """Return the file of the session's model. Raise UsageError if it is gone, or another one now."""
    storage = settings.config.storage
    try:
        resolved = registry.resolve_model(plan.model, registry.models([storage.models_file]),
                                          storage.cache_dir.expanduser() / "models")
        now = model_file.identity(resolved.path)
    except ModelError as error:
        raise UsageError(f"the model of session {explanation.session_id} cannot be read: {error.what}",
                         "put it back, or start in the folder that its path is relative to") from error
    if now.sha256 != explanation.record["model_hash"]:
        raise UsageError(f"{resolved.path} is not what session {explanation.session_id} ran: its content is another",
                         AGAIN.replace("MODEL", plan.model))
    return resolved


def _takes(batch: int, plan: Planned, resolved: ResolvedModel) -> bool:
    """Return whether the model and its inputs allow this batch: the user's arrays have one, shapes may fix it."""
    if plan.inputs:
        return False
    specs = inputs.specs(model_file.load(resolved.path, weights=False))
    try:
        dimensions.resolve(specs, batch, [ShapeRequest("--shape", plan.shapes)])
    except UsageError:
        return False
    return True


def _settings(runtime: Mapping[str, Any], plan: Planned) -> dict[str, str]:
    """Return what the session's backend and plan set, and what the provider says of its options."""
    options = runtime["provider_options"].get(runtime["provider"], {})
    session = {"intra_op_num_threads": "intra_op_threads", "inter_op_num_threads": "inter_op_threads"}
    return {"backend": plan.backend, "batch": str(runtime["batch"]), "io": plan.io,
            "graph_optimization": runtime["graph_optimization"],
            **{f"option.{name}": str(setting) for name, setting in options.items()},
            **{session.get(name, name if "." in name else f"session.{name}"): str(setting)
               for name, setting in runtime["session_options"].items()}}


def _rows(explanation: Explanation, name: str) -> list[dict[str, Any]]:
    """Return a table's rows; none where the session has no such table."""
    table: pa.Table | None = explanation.tables.get(name)
    return [] if table is None else table.to_pylist()


def _product_types(nodes: list[dict[str, Any]], edges: list[dict[str, Any]]) -> frozenset[str]:
    """Return the element types that products compute in, as far as known."""
    kinds = {edge["tensor"]: edge["dtype"] for edge in edges}
    types = (computes_in(node["op_type"], node["domain"], [kinds.get(name) or "" for name in node["inputs"]])
             for node in nodes if node["category"] in PRODUCTS)
    return frozenset(filter(None, types))


def graph_width(nodes: list[dict[str, Any]], edges: list[dict[str, Any]]) -> int | None:
    """Return the most executed nodes at one depth; None for a graph with bodies of loops and branches, of which the
    edges do not show the order.

    Nodes are those of GRAPH_NODES, which are in the order of the graph, edges those of GRAPH_EDGES. Of several that
    the runtime fused the last sets the depth. With one node at each depth every node waits for the one before it.
    """
    if not nodes or any(node["subgraph"] for node in nodes):
        return None
    runs = {node["node_id"]: node["executed_as"] or node["name"] for node in nodes if node["fate"] != "eliminated"}
    depth, into = dict.fromkeys((node["node_id"] for node in nodes), 0), _into(edges)
    for node in sorted(depth):
        depth[node] = max((depth[source] + (source in runs and runs[source] != runs.get(node))
                           for source in into.get(node, ())), default=0)
    last = {runs[node]: depth[node] for node in sorted(runs, key=lambda node: depth[node])}
    return max(Counter(last.values()).values(), default=None)


def _into(edges: list[dict[str, Any]]) -> dict[int, list[int]]:
    """Return the nodes that each node waits for."""
    sources: dict[int, list[int]] = {}
    for edge in edges:
        if edge["src_node"] is not None and edge["dst_node"] is not None:
            sources.setdefault(edge["dst_node"], []).append(edge["src_node"])
    return sources


def _fact(explanation: Explanation, *path: str) -> Any:
    """Return a fact of env.json; None where it is absent."""
    facts: Any = explanation.environment
    for name in path:
        facts = (facts or {}).get(name)
    return facts


def _counted(explanation: Explanation) -> Iterator[int]:
    """Yield how many CPUs the processes that were timed might use."""
    yield from (made["cpu"]["cpus"] for made in explanation.runtime["passes"] if made.get("cpu"))


def _allowed(explanation: Explanation) -> tuple[int, ...]:
    """Return the numbers of the CPUs that the run might use; none where a laboratory gave it others."""
    listed = tuple(cpu_list(_fact(explanation, "process", "affinity") or ""))
    return listed if set(_counted(explanation)) <= {len(listed)} else ()


def _cpus(explanation: Explanation) -> int | None:
    """Return how many CPUs the affinity and the quota of the run left to it."""
    bound = min(_counted(explanation), default=len(_allowed(explanation)))
    quota = _fact(explanation, "cgroup", "cpus")
    return min(bound, max(1, int(quota))) if bound and quota else bound or None


def _cores(explanation: Explanation, cpus: int | None) -> int | None:
    """Return the physical cores among them: as many as CPUs where no two share one, or all of the machine's."""
    cores, threads = (_fact(explanation, "cpu", name) for name in ("cores", "threads"))
    if cpus is None or not cores or not threads:
        return None
    return min(cpus, cores) if cores == threads or len(_allowed(explanation)) == threads else None


def _plain(setting: str) -> str:
    return {"true": "1", "false": "0"}.get(setting.lower(), setting)
