"""Kernel time traced to graph nodes: exact where a kernel serves one node, modelled where it serves several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise, repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics import kernel_groups
from aaco.analytics.operators import family
from aaco.core.tables import OP_TO_KERNEL_MAP, replaced


def label_families(kernels: pa.Table, executed_nodes: pa.Table | None) -> pa.Table:
    """The kernels with their family filled in; where the kernel is a graph operator, the operator's family."""
    domains = _column_by_name(executed_nodes, "domain") if executed_nodes else {}
    executed = kernels["executed_node"].to_pylist()
    names = kernels["kernel_name"].to_pylist()
    known = {pair: family(pair[0], domains.get(pair[1], "")) for pair in set(zip(names, executed, strict=True))}
    column = pa.array([known[pair] for pair in zip(names, executed, strict=True)], pa.string())
    return replaced(kernels, "family", column.dictionary_encode())


def map_nodes(kernels: pa.Table, executed_nodes: pa.Table, graph_nodes: pa.Table,
              methods: Sequence[str | None] | None = None,
              confidence: Sequence[float | None] | None = None) -> pa.Table:
    """The op_to_kernel_map table: each kernel's time shared over the source nodes of its executed node.

    A kernel of one node is found by the method given for it, by default `exact_symbol`, with the confidence given for
    it where the method is not exact. A fused kernel's time is split
    by modelled FLOPs (bytes where no node has FLOPs): the set of nodes is as certain as the method, the split is a
    model, so its confidence is null until calibrated.
    """
    plans = _plans(executed_nodes, graph_nodes)
    kernel_ids = kernels["kernel_id"].to_pylist()
    durations = kernels["dur_ns"].to_numpy()
    executed = kernels["executed_node"].to_pylist()
    chosen = [_by(plans.get(name, _NOWHERE), method) for name, method in
              zip(executed, methods or repeat("exact_symbol", len(executed)), strict=True)]
    return OP_TO_KERNEL_MAP.build(
        node_id=[node for nodes, _, _ in chosen for node in nodes],
        kernel_id=np.repeat(kernel_ids, [len(nodes) for nodes, _, _ in chosen]),
        method=[method for nodes, _, method in chosen for _ in nodes],
        confidence=[1.0 if method in EXACT else given if method == SEQUENCE else None for (nodes, _, method), given
                    in zip(chosen, confidence or repeat(None, len(chosen)), strict=True) for _ in nodes],
        share_ns=_shares(durations, [bounds for _, bounds, _ in chosen]))


def group(kernels: pa.Table, window_ns: int | None) -> pa.Table:
    """The kernel_groups table over the kernels given, largest total first."""
    whole = kernels.select(kernel_groups.COLUMNS).unify_dictionaries().combine_chunks()
    iteration = kernels["iteration"]
    iterations = None if iteration.null_count else pc.count_distinct(iteration).as_py()
    return kernel_groups.group(whole.to_batches, window_ns, iterations)


_Plan = tuple[list[int | None], list[float], str]
EXACT = ("exact_symbol", "exact_span", "exact_sequence")
MODELLED = "modelled"
SEQUENCE = "sequence"
UNATTRIBUTED = "unattributed"
_NOWHERE: _Plan = ([None], [1.0], UNATTRIBUTED)


def _by(plan: _Plan, method: str | None) -> _Plan:
    """The plan of a kernel whose executed node was found by a method."""
    nodes, bounds, kind = plan
    if kind == MODELLED or plan is _NOWHERE:
        return plan
    return nodes, bounds, method or kind


def _plans(executed_nodes: pa.Table, graph_nodes: pa.Table) -> dict[str, _Plan]:
    """Per executed node name: its source nodes, the cumulative share at each, and the method."""
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
    """By modelled FLOPs, else bytes; else alike, less for a node that several executed nodes have a part of."""
    for kind in ("flops_each", "bytes_each"):
        weights = np.array([cost[kind].get(node) or 0 for node in sources], float)
        if weights.sum() > 0:
            return weights / weights.sum()
    shares = np.array([1 / times[node] for node in sources])
    return shares / shares.sum()


def _shares(durations: np.ndarray, bounds: list[list[float]]) -> list[int]:
    """Integer parts of each duration between consecutive bounds; they sum to it because its own end is the last."""
    shares: list[int] = []
    for duration, ends in zip(durations.tolist(), bounds, strict=True):
        cuts = [0, *(min(duration, round(duration * end)) for end in ends[:-1]), duration]
        shares += [after - before for before, after in pairwise(cuts)]
    return shares


def _column_by_name(table: pa.Table, column: str) -> dict[str, str]:
    return dict(zip(table["name"].to_pylist(), table[column].to_pylist(), strict=True))
