"""What each executed node computes and moves: FLOPs of its source nodes, bytes of the tensors that cross its border.

A fused node moves a tensor that enters it once, however many of its source nodes read it, and one that leaves it once;
what is made and read inside stays there (Williams, Waterman and Patterson 2009 count the traffic beyond the caches). A
view is the tensor that it views. A source node that reads a part of a tensor (Gather) moves only that part.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from msgspec import Struct, field

SHARED = "which part of its source nodes it computes is not known"
CONTROL = "control"  # reads and returns what its bodies do
_Tensor = tuple[int | None, str]  # maker, name


class NodeWork(Struct, frozen=True):
    """Of one execution, None where it is not known (why_absent if the graph says why). executions: in one inference."""

    flops: int | None
    bytes: int | None
    executions: int | None
    why_absent: str | None = None


class _Moved(Struct):
    """One source node's bytes, by tensor; remaining: of results that nothing reads."""

    reads: dict[_Tensor, int] = field(default_factory=dict)
    writes: dict[_Tensor, int] = field(default_factory=dict)
    remaining: int = 0


def border_work(executed_work: Mapping[str, NodeWork]) -> dict[str, tuple[int, int]]:
    """Return FLOPs and border bytes per inference of each executed node with all source nodes modelled."""
    return {name: (work.flops * work.executions, work.bytes * work.executions) for name, work in executed_work.items()
            if work.flops is not None and work.bytes is not None and work.executions is not None}


def executed_work(executed_nodes: pa.Table, graph_nodes: pa.Table, graph_edges: pa.Table) -> dict[str, NodeWork]:
    """Return the work of each executed node that has source nodes, by its name."""
    nodes = {row["node_id"]: row for row in graph_nodes.select(
        ["node_id", "op_type", "category", "flops_each", "bytes_each", "executions", "why_no_cost"]).to_pylist()}
    inside = {name: sources for name, sources in zip(executed_nodes["name"].to_pylist(), executed_nodes[
        "source_nodes"].to_pylist(), strict=True) if sources}
    tensors = _Tensors(nodes, graph_edges)
    owners: dict[int, int] = defaultdict(int)
    for sources in inside.values():
        for node in sources:
            owners[node] += 1
    return {name: _work([nodes[node] for node in sources], any(owners[node] > 1 for node in sources), tensors)
            for name, sources in inside.items()}


def _work(sources: list[Mapping[str, Any]], shared: bool, tensors: _Tensors) -> NodeWork:
    times = [node["executions"] for node in sources]
    executions = None if None in times else max(times)
    unknown = next((node for node in sources if None in (node["flops_each"], node["bytes_each"])), None)
    if shared:
        return NodeWork(None, None, executions, SHARED)
    if unknown:
        return NodeWork(None, None, executions, unknown["why_no_cost"])
    flops, moved = sum(node["flops_each"] for node in sources), tensors.crossing({node["node_id"] for node in sources})
    return NodeWork(flops, moved, executions)


class _Tensors:
    """The maker and readers of each tensor, views seen through, and what each node moves of it."""

    def __init__(self, nodes: Mapping[int, Mapping[str, Any]], graph_edges: pa.Table) -> None:
        self.nodes = nodes
        self.size: dict[_Tensor, int] = {}
        self.readers: dict[_Tensor, list[int | None]] = defaultdict(list)
        self.taken: dict[int, list[_Tensor]] = defaultdict(list)
        self.made: dict[int, list[_Tensor]] = defaultdict(list)
        columns = (graph_edges[name].to_pylist() for name in ("src_node", "tensor", "bytes", "dst_node"))
        for maker, name, size, reader in zip(*columns, strict=True):
            tensor = (maker, name)
            if tensor not in self.size and maker is not None:
                self.made[maker].append(tensor)
            self.size[tensor] = size or 0
            self.readers[tensor].append(reader)
            if reader is not None:
                self.taken[reader].append(tensor)
        self.moved = {node: self._moved(node, row["bytes_each"] or 0) for node, row in nodes.items()}
        self.views: dict[_Tensor, list[_Tensor]] = defaultdict(list)
        for tensor in self.size:
            if (seen := self._viewed(tensor)) is not None:
                self.views[seen].append(tensor)

    def crossing(self, inside: set[int]) -> int:
        """Return the bytes that these nodes, run as one, move; a single node moves all that is its own."""
        if len(inside) == 1:
            return sum(self.nodes[node]["bytes_each"] for node in inside)
        entering: dict[_Tensor, int] = {}
        total = 0
        for node in inside:
            moved = self.moved[node]
            for tensor, part in moved.reads.items():
                origin = self._origin(tensor)
                if origin[0] not in inside:
                    entering[origin] = max(part, entering.get(origin, 0))
            total += moved.remaining
            total += sum(part for tensor, part in moved.writes.items() if self._leaves(tensor, inside))
        return total + sum(entering.values())

    def _moved(self, node: int, total: int) -> _Moved:
        """Return the bytes by tensor: results whole; of its inputs the smallest first, so that the largest is read in
        part."""
        moved = _Moved()
        for tensor in self.made[node]:
            moved.writes[tensor] = min(total, self.size[tensor])
            total -= moved.writes[tensor]
        for tensor in sorted(dict.fromkeys(self.taken[node]), key=lambda read: self.size[read]):
            moved.reads[tensor] = min(total, self.size[tensor])
            total -= moved.reads[tensor]
        moved.remaining = total
        return moved

    def _viewed(self, tensor: _Tensor) -> _Tensor | None:
        """Return what a tensor is a view of: its maker moves nothing, and reads as many bytes first."""
        maker = tensor[0]
        if maker is None or not self._is_free(maker) or not self.taken[maker]:
            return None
        first = self.taken[maker][0]
        return first if self.size[first] == self.size[tensor] else None

    def _is_free(self, node: int) -> bool:
        row = self.nodes.get(node)
        return row is not None and row["bytes_each"] == 0 and row["category"] != CONTROL

    def _origin(self, tensor: _Tensor) -> _Tensor:
        """Return the tensor that this one is a view of, of however many views."""
        while (seen := self._viewed(tensor)) is not None:
            tensor = seen
        return tensor

    def _leaves(self, tensor: _Tensor, inside: set[int]) -> bool:
        """Return whether a node that is not inside, or the model's user, reads it, perhaps through views."""
        seen = [tensor]
        for view in seen:  # grows: views of views, of which a graph may have more than calls can nest
            if any(reader not in inside and self._needs(reader, view) for reader in self.readers[view]):
                return True
            seen += self.views[view]
        return False

    def _needs(self, reader: int | None, tensor: _Tensor) -> bool:
        """Return whether the reader needs the values: not to view it, nor to ask for its shape."""
        row = self.nodes.get(reader) if reader is not None else None
        if row is None or row["bytes_each"] is None or row["category"] == CONTROL:
            return True
        return not self.size[tensor] or self.moved[row["node_id"]].reads[tensor] > 0
