"""What the shape of a model's graph allows: its longest path, and the tensors that must be alive at once.

Nodes run one at a time in the graph's own order, a control-flow node after its bodies; the order only matters for
memory. A loop's iterations follow one another, so a node inside it counts as often as it runs. Tensors are those that
nodes make: the model's inputs, weights and constants are in memory anyway.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa
from msgspec import Struct

from aaco.core.inputs import Window
from aaco.core.readings import Absent

CYCLE = "the graph has a cycle"
CONSTANT, CONTROL, VIEW = "Constant", "control", "copy"
_READ = ["node_id", "name", "op_type", "category", "subgraph", "inputs", "outputs", "bytes_each"]


class LongestChain(Struct, frozen=True):
    """The longest chain of nodes by their weights, and the sum of the weights of all nodes."""

    nodes: tuple[int, ...]
    length: float
    total: float

    @property
    def parallelism(self) -> float:
        """Return how many nodes could run at once, on average, if only data dependencies limited them."""
        return self.total / self.length


class PeakMemory(Struct, frozen=True):
    """The most bytes of tensors that are alive at once. unknown: tensors of unknown size, which count nothing."""

    peak_bytes: int
    unknown: int


def node_times(op_to_kernel_map: pa.Table, window: Window) -> dict[int, float]:
    """Return the mean time of each graph node in one inference, ns, as it was attributed."""
    ours = set(window.kernels["kernel_id"].to_pylist())
    columns = (op_to_kernel_map[name].to_pylist() for name in ("node_id", "kernel_id", "share_ns"))
    bound_by_node: dict[int, float] = defaultdict(float)
    for node, kernel, share in zip(*columns, strict=True):
        if node is not None and kernel in ours:
            bound_by_node[node] += share / window.inferences
    if not bound_by_node:
        raise Absent("no kernel time is attributed to a node")
    return dict(bound_by_node)


def graph_path(node_times: Mapping[int, float], graph_nodes: pa.Table, graph_edges: pa.Table) -> LongestChain:
    """Return the longest path through the graph by the nodes' measured times. Raise Absent for a graph with a cycle."""
    return longest(graph_nodes["node_id"].to_pylist(), _pairs(graph_edges), node_times)


def longest(nodes: Sequence[int], edges: Sequence[tuple[int, int]], weight: Mapping[int, float]) -> LongestChain:
    """Return the heaviest chain of nodes. Of equal ones that with the earlier nodes. Raise Absent for a graph with a
    cycle."""
    before: dict[int, list[int]] = defaultdict(list)
    for source, target in edges:
        before[target].append(source)
    reach: dict[int, tuple[float, int | None]] = {}
    for node in order(nodes, edges):
        length, last = max(((reach[predecessor][0], -predecessor) for predecessor in before[node]), default=(0.0, None))
        reach[node] = (length + weight.get(node, 0.0), None if last is None else -last)
    at: int | None = max(reach, key=lambda node: (reach[node][0], -node), default=None)
    if at is None:
        raise Absent("the graph has no nodes")
    length, chain = reach[at][0], []
    while at is not None:
        chain.append(at)
        at = reach[at][1]
    return LongestChain(tuple(reversed(chain)), length, sum(weight.get(node, 0.0) for node in nodes))


def order(nodes: Sequence[int], edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the nodes in an order that has every source before its targets, else by number. Raise Absent for a cycle.
    """
    after: dict[int, list[int]] = defaultdict(list)
    waits = dict.fromkeys(nodes, 0)
    for source, target in edges:
        if source in waits and target in waits:
            after[source].append(target)
            waits[target] += 1
    ready = [node for node, count in waits.items() if not count]
    heapq.heapify(ready)
    ordered = []
    while ready:
        node = heapq.heappop(ready)
        ordered.append(node)
        for target in after[node]:
            waits[target] -= 1
            if not waits[target]:
                heapq.heappush(ready, target)
    if len(ordered) < len(waits):
        raise Absent(CYCLE)
    return ordered


def graph_memory(graph_nodes: pa.Table, graph_edges: pa.Table) -> PeakMemory:
    """Return the peak of live tensors over one inference. Raise Absent for a graph with a cycle.

    A tensor is alive while the node runs that makes it, and until the last node that reads it has run; one that leaves
    the model until the end; one read in a loop until the loop ends. A view (Reshape and its like) is no tensor of its
    own, but keeps that which it shows alive. A result that nothing reads counts nothing.
    """
    rows = {row["node_id"]: row for row in graph_nodes.select(_READ).to_pylist()}
    if any(row["outputs"] is None or row["inputs"] is None or row["subgraph"] is None for row in rows.values()):
        raise Absent("the table of nodes does not say what they read and make")
    place = {node: step for step, node in enumerate(order(list(rows), _pairs(graph_edges)))}
    # A body renames its inputs; the control-flow node reads them under their own names.
    columns = (graph_edges[name].to_pylist() for name in ("src_node", "dst_node", "tensor", "bytes"))
    uses = [use for use in zip(*columns, strict=True) if use[0] in rows and use[2] in rows[use[0]]["outputs"]
            and (use[1] is None or use[1] in rows)]
    shown = _shown(rows, uses)
    controls = {_inside(row["subgraph"], row["name"]): node for node, row in rows.items()
                if row["category"] == CONTROL}
    last: dict[tuple[int, str], int] = {}
    size: dict[tuple[int, str], int | None] = {}
    for source, target, tensor, count in uses:
        root = _root((source, tensor), shown)
        if root is None or rows[root[0]]["op_type"] == CONSTANT:
            continue
        end = len(rows) if target is None else place[_until(root[0], target, rows, controls)]
        last[root] = max(last.get(root, 0), end)
        if root == (source, tensor):
            size[root] = count
    change: dict[int, int] = defaultdict(int)
    for root, end in last.items():
        change[place[root[0]]] += size.get(root) or 0
        change[end + 1] -= size.get(root) or 0
    levels = accumulate(change[step] for step in sorted(change))
    return PeakMemory(max(levels, default=0), sum(size.get(root) is None for root in last))


def _shown(rows: Mapping[int, Mapping[str, Any]], uses: Sequence[tuple[Any, ...]]) -> dict[int, tuple[int, str] | None]:
    """Return the tensor that each view shows, None if that is an input or a weight."""
    views = {node: row["inputs"][0] for node, row in rows.items()
             if row["category"] == VIEW and row["bytes_each"] == 0 and row["inputs"]}
    source_of_view: dict[int, tuple[int, str] | None] = dict.fromkeys(views)
    for source, target, tensor, _ in uses:
        if target in views and views[target] == tensor:
            source_of_view[target] = (source, tensor)
    return source_of_view


def _root(tensor: tuple[int, str], shown: Mapping[int, tuple[int, str] | None]) -> tuple[int, str] | None:
    """Return the tensor that this one is a view of, itself if it is none; None for a view of an input or a weight."""
    source: tuple[int, str] | None = tensor
    while source is not None and source[0] in shown:
        source = shown[source[0]]
    return source


def _until(source: int, target: int, rows: Mapping[int, Mapping[str, Any]], controls: Mapping[str, int]) -> int:
    """Return the node after which the target no longer needs a tensor of the source: of a body that the source is not
    in, the outermost control-flow node around it."""
    mine, its = _inside(rows[source]["subgraph"]), _inside(rows[target]["subgraph"])
    if mine == its:
        return target
    around = [prefix for prefix in controls if its.startswith(prefix) and len(prefix) > len(mine)]
    return controls[min(around, key=len)] if around else target


def _inside(*path: str) -> str:
    """Return the beginning of the paths of everything in here."""
    return f"{'/'.join(path)}/".lstrip("/")


def _pairs(graph_edges: pa.Table) -> list[tuple[int, int]]:
    ends = zip(graph_edges["src_node"].to_pylist(), graph_edges["dst_node"].to_pylist(), strict=True)
    return list({(source, target): None for source, target in ends if source is not None and target is not None})


VIEWS = {view.__name__: view for view in (node_times, graph_path, graph_memory)}
