"""Map kernel time to graph nodes: exact if a kernel serves one node, modelled if it serves several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise, repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.costs import family
from aaco.analytics.kernels import kernel_groups
from aaco.core.tables import OP_TO_KERNEL_MAP, replaced


def label_families(kernels: pa.Table, executed_nodes: pa.Table | None) -> pa.Table:
    """Return the kernels with their family filled in. If the kernel is a graph operator, it is the operator's
    family.
    """
    domains = {} if executed_nodes is None else dict(
        zip(executed_nodes["name"].to_pylist(), executed_nodes["domain"].to_pylist(), strict=True))
    executed = kernels["executed_node"].to_pylist()
    names = kernels["kernel_name"].to_pylist()
    families = {pair: family(pair[0], domains.get(pair[1], "")) for pair in set(zip(names, executed, strict=True))}
    column = pa.array([families[pair] for pair in zip(names, executed, strict=True)], pa.string())
    return replaced(kernels, "family", column.dictionary_encode())


def map_nodes(kernels: pa.Table, executed_nodes: pa.Table, graph_nodes: pa.Table,
              methods: Sequence[str | None] | None = None,
              confidence: Sequence[float | None] | None = None) -> pa.Table:
    """Return the op_to_kernel_map table: each kernel's time shared over the source nodes of its executed node.

    methods: how the node of each kernel was found, by default `exact_symbol`. confidence: of each method that is not
    exact. A fused kernel's time is split by modelled FLOPs (bytes if no node has FLOPs). The set of nodes is as certain
    as the method, but the split is a model, so its confidence is null until calibrated.
    """
    plans = _plans(executed_nodes, graph_nodes)
    kernel_ids = kernels["kernel_id"].to_pylist()
    durations = kernels["dur_ns"].to_numpy()
    executed = kernels["executed_node"].to_pylist()
    kernel_plans = [_by(plans.get(name, _NOWHERE), method) for name, method in
                    zip(executed, methods or repeat("exact_symbol", len(executed)), strict=True)]
    probabilities = confidence or repeat(None, len(kernel_plans))
    return OP_TO_KERNEL_MAP.build(
        node_id=[node for nodes, _, _ in kernel_plans for node in nodes],
        kernel_id=np.repeat(kernel_ids, [len(nodes) for nodes, _, _ in kernel_plans]),
        method=[method for nodes, _, method in kernel_plans for _ in nodes],
        confidence=[1.0 if method in EXACT else probability if method == SEQUENCE else None
                    for (nodes, _, method), probability in zip(kernel_plans, probabilities, strict=True)
                    for _ in nodes],
        share_ns=_shares(durations, [bounds for _, bounds, _ in kernel_plans]))


def group(kernels: pa.Table, window_ns: int | None) -> pa.Table:
    """Return the kernel_groups table over these kernels, largest total first."""
    columns = kernels.select(kernel_groups.COLUMNS).unify_dictionaries().combine_chunks()
    iteration = kernels["iteration"]
    iterations = None if iteration.null_count else pc.count_distinct(iteration).as_py()
    return kernel_groups.group(columns.to_batches, window_ns, iterations)


_Plan = tuple[list[int | None], list[float], str]
EXACT = ("exact_symbol", "exact_span", "exact_sequence")
MODELLED = "modelled"
SEQUENCE = "sequence"
UNATTRIBUTED = "unattributed"
_NOWHERE: _Plan = ([None], [1.0], UNATTRIBUTED)


def _by(plan: _Plan, method: str | None) -> _Plan:
    """Return the plan of a kernel whose executed node was found by this method."""
    nodes, bounds, kind = plan
    if kind == MODELLED or plan is _NOWHERE:
        return plan
    return nodes, bounds, method or kind


def _plans(executed_nodes: pa.Table, graph_nodes: pa.Table) -> dict[str, _Plan]:
    """Return per executed node name its source nodes, the cumulative share at each, and the method."""
    cost = {name: dict(zip(graph_nodes["node_id"].to_pylist(), graph_nodes[name].to_pylist(), strict=True))
            for name in ("flops_each", "bytes_each")}
    times = Counter(node for sources in executed_nodes["source_nodes"].to_pylist() for node in sources or ())
    plans: dict[str, _Plan] = {}
    pairs = zip(executed_nodes["name"].to_pylist(), executed_nodes["source_nodes"].to_pylist(), strict=True)
    for name, sources in pairs:
        if sources:
            bounds = np.cumsum(_weights(sources, cost, times)).tolist()
            plans[name] = (sources, bounds, "exact_symbol" if len(sources) == 1 else MODELLED)
    return plans


def _weights(sources: list[int], cost: Mapping[str, Mapping[int, int | None]], times: Mapping[int, int]) -> np.ndarray:
    """Return weights by modelled FLOPs, else by bytes; else equal, less for a node that several executed nodes
    share.
    """
    for kind in ("flops_each", "bytes_each"):
        weights = np.array([cost[kind].get(node) or 0 for node in sources], float)
        if weights.sum() > 0:
            return weights / weights.sum()
    shares = np.array([1 / times[node] for node in sources])
    return shares / shares.sum()


def _shares(durations: np.ndarray, bounds: list[list[float]]) -> list[int]:
    """Return integer parts of each duration between consecutive bounds. They sum to it: its end is the last bound."""
    shares: list[int] = []
    for duration, ends in zip(durations.tolist(), bounds, strict=True):
        cuts = [0, *(min(duration, round(duration * end)) for end in ends[:-1]), duration]
        shares += [after - before for before, after in pairwise(cuts)]
    return shares
