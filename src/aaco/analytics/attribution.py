"""Kernel time traced to graph nodes: exact where a kernel serves one node, modelled where it serves several.

Time is conserved to the ns: the shares of a kernel sum to its duration, whether attributed or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from aaco.analytics.operators import family
from aaco.core.tables import KERNEL_GROUPS, OP_TO_KERNEL_MAP


def label_families(kernels: pa.Table, executed_nodes: pa.Table | None) -> pa.Table:
    """The kernels with their family filled in; where the kernel is a graph operator, the operator's family."""
    domains = _column_by_name(executed_nodes, "domain") if executed_nodes else {}
    executed = kernels["executed_node"].to_pylist()
    names = kernels["kernel_name"].to_pylist()
    known = {pair: family(pair[0], domains.get(pair[1], "")) for pair in set(zip(names, executed, strict=True))}
    column = pa.array([known[pair] for pair in zip(names, executed, strict=True)], pa.string())
    position = kernels.schema.get_field_index("family")
    return kernels.set_column(position, kernels.schema.field(position), column.dictionary_encode())


def map_nodes(kernels: pa.Table, executed_nodes: pa.Table, graph_nodes: pa.Table) -> pa.Table:
    """The op_to_kernel_map table: each kernel's time shared over the source nodes of its executed node.

    A kernel of one node is `exact_symbol`. A fused kernel's time is split by modelled FLOPs (bytes where no node has
    FLOPs): the set of nodes is exact, the split is a model, so its confidence is null until calibrated.
    """
    plans = _plans(executed_nodes, graph_nodes)
    kernel_ids = kernels["kernel_id"].to_pylist()
    durations = kernels["dur_ns"].to_numpy()
    chosen = [plans.get(name, _UNATTRIBUTED) for name in kernels["executed_node"].to_pylist()]
    return OP_TO_KERNEL_MAP.build(
        node_id=[node for nodes, _, _ in chosen for node in nodes],
        kernel_id=np.repeat(kernel_ids, [len(nodes) for nodes, _, _ in chosen]),
        method=[method for nodes, _, method in chosen for _ in nodes],
        confidence=[1.0 if method == "exact_symbol" else None for nodes, _, method in chosen for _ in nodes],
        share_ns=_shares(durations, [bounds for _, bounds, _ in chosen]))


def group(kernels: pa.Table, window_ns: int | None) -> pa.Table:
    """The kernel_groups table over the kernels given, largest total first."""
    found: Any = duckdb.sql("""
        SELECT family, kernel_name, count(*) AS calls, sum(dur_ns)::BIGINT AS total_ns, avg(dur_ns) AS mean_ns,
               quantile_cont(dur_ns, 0.5) AS p50_ns,
               CASE WHEN count(*) >= 100 THEN quantile_cont(dur_ns, 0.99) END AS p99_ns,
               min(dur_ns) AS min_ns, max(dur_ns) AS max_ns, stddev_samp(dur_ns) AS std_ns,
               100 * sum(dur_ns) / nullif(sum(sum(dur_ns)) OVER (), 0) AS pct_of_kernel_time,
               100 * sum(dur_ns) / $window AS pct_of_window
        FROM kernels GROUP BY ALL ORDER BY total_ns DESC, kernel_name""",
        params={"window": float(window_ns) if window_ns else None})
    return KERNEL_GROUPS.conform(found.to_arrow_table(), "kernel groups")


_UNATTRIBUTED: tuple[list[int | None], list[float], str] = ([None], [1.0], "unattributed")


def _plans(executed_nodes: pa.Table, graph_nodes: pa.Table) -> dict[str, tuple[list[int | None], list[float], str]]:
    """Per executed node name: its source nodes, the cumulative share at each, and the method."""
    cost = {name: dict(zip(graph_nodes["node_id"].to_pylist(), graph_nodes[name].to_pylist(), strict=True))
            for name in ("flops", "bytes")}
    plans: dict[str, tuple[list[int | None], list[float], str]] = {}
    pairs = zip(executed_nodes["name"].to_pylist(), executed_nodes["source_nodes"].to_pylist(), strict=True)
    for name, sources in pairs:
        if sources:
            bounds = np.cumsum(_weights(sources, cost)).tolist()
            plans[name] = (sources, bounds, "exact_symbol" if len(sources) == 1 else "modelled")
    return plans


def _weights(sources: list[int], cost: Mapping[str, Mapping[int, int | None]]) -> np.ndarray:
    for kind in ("flops", "bytes"):
        weights = np.array([cost[kind].get(node) or 0 for node in sources], float)
        if weights.sum() > 0:
            return weights / weights.sum()
    return np.full(len(sources), 1 / len(sources))


def _shares(durations: np.ndarray, bounds: list[list[float]]) -> list[int]:
    """Integer parts of each duration between consecutive bounds; they sum to it because its own end is the last."""
    shares: list[int] = []
    for duration, ends in zip(durations.tolist(), bounds, strict=True):
        cuts = [0, *(min(duration, round(duration * end)) for end in ends[:-1]), duration]
        shares += [after - before for before, after in pairwise(cuts)]
    return shares


def _column_by_name(table: pa.Table, column: str) -> dict[str, str]:
    return dict(zip(table["name"].to_pylist(), table[column].to_pylist(), strict=True))
