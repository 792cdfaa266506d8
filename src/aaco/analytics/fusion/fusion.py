"""Executed nodes that could have been one kernel: the tensors between them are written and read again needlessly.

What can be one kernel follows the rules that compilers fuse by (Chen et al., TVM, 2018, section 3): element-wise nodes
with each other; with a reduction, normalisation or softmax before or after them; after a product or convolution if only
they read its result; and attention, two products with a softmax between. Nodes are only joined if nothing outside would
have to run between them, on one provider and in one body.

The bytes saved are the tensors between the joined nodes: each read is saved, and the write if no other node reads it.
The time saved is at most these bytes over the bandwidth, and never more than the nodes take themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from msgspec import Struct, field

from aaco.analytics.costs import family
from aaco.analytics.roofline.nodes import BANDWIDTH, time_per_inference
from aaco.core import inputs
from aaco.core.documents import encode
from aaco.core.readings import Absent
from aaco.tracelake.document_schemas.answers import Fusible, Fusion

LIGHT = frozenset({"elementwise", "softmax", "norm", "reduction"})
HEAVY = frozenset({"gemm", "conv"})
BY_CHANNEL = frozenset({"BatchNormalization"})  # in inference a factor and an addend per channel
ROWS = frozenset({"softmax", "norm"})
MOST_EXAMPLES = 3
MEASURED = "this machine's measured bandwidth"
# The first pattern with all marks among a group's families and operators names it.
PATTERNS: tuple[tuple[str, frozenset[str]], ...] = (
    ("attention", frozenset({"gemm", "softmax"})),
    ("conv + batch norm", frozenset({"conv", "BatchNormalization"})),
    ("conv + epilogue", frozenset({"conv"})),
    ("product + gelu", frozenset({"gemm", "Erf"})),
    ("product + gelu", frozenset({"gemm", "Gelu"})),
    ("product + epilogue", frozenset({"gemm"})),
    ("residual + norm", frozenset({"norm", "Add"})),
    ("norm + neighbours", frozenset({"norm"})),
    ("norm written out", frozenset({"reduction", "Sqrt"})),
    ("norm written out", frozenset({"reduction", "Pow"})),
    ("softmax + neighbours", frozenset({"softmax"})),
    ("reduce + neighbours", frozenset({"reduction"})),
    ("gelu written out", frozenset({"Erf"})),
    ("gelu written out", frozenset({"Tanh", "Pow"})),
    ("element by element", frozenset()),
)


class FusionStep(Struct):
    """One executed node. own_ns: its mean time in an inference, None where it is not known."""

    name: str
    op_type: str
    family: str
    place: tuple[Any, ...]  # provider and body
    own_ns: float | None
    reads: list[Tensor] = field(default_factory=list)
    makes: list[Tensor] = field(default_factory=list)


class Tensor(Struct):
    """What one step hands to others. bytes are those of an inference; leaves: whether it is a result of the model."""

    maker: int
    bytes: int
    readers: set[int] = field(default_factory=set)
    leaves: bool = False


class Opportunity(Struct, frozen=True):
    """Steps that could be one kernel: in graph order, the bytes between them, their own time, and at most how much of
    it would be saved."""

    pattern: str
    steps: tuple[str, ...]
    op_types: tuple[str, ...]
    saved_bytes: int
    own_ns: float | None
    saved_ns: float | None


def opportunities(steps: list[FusionStep], bandwidth: float | None) -> list[Opportunity]:
    """Return what could be joined, most time saved first (most bytes, where times or the bandwidth, bytes/s, are not
    known)."""
    groups = _Groups(steps)
    groups.join(LIGHT, LIGHT, _few_rows)
    groups.join_attention()
    groups.join(HEAVY, frozenset({"elementwise"}), _only_reader)
    possible = [_opportunity(steps, members, bandwidth) for members in groups.found()]
    return sorted((fusion for fusion in possible if fusion.saved_bytes),
                  key=lambda fusion: (-(fusion.saved_ns or 0), -fusion.saved_bytes))


def document(possible: Iterable[Opportunity], total_ns: float | None, bandwidth: float | None, basis: str
             ) -> dict[str, Any]:
    """Return the JSON form: equal ones as one, with how often they occur. basis: what the bandwidth is."""
    alike: dict[tuple[Any, ...], list[Opportunity]] = defaultdict(list)
    for opportunity in possible:
        alike[opportunity.pattern, opportunity.op_types].append(opportunity)
    rows = [_row(same, total_ns) for same in alike.values()]
    rows.sort(key=lambda row: (-(row.saved_ns_at_most or 0), -row.saved_bytes))
    return encode(Fusion(bandwidth_bytes_per_s=bandwidth, basis=basis, opportunities=rows))


def of_run(session_tables: Mapping[str, pa.Table], ceilings: Mapping[str, float]) -> dict[str, Any] | None:
    """Return the document of a run's tables; None without the graph that was executed, or where nothing could be
    joined."""
    names = ("executed_nodes", "graph_nodes", "graph_edges")
    if not all(name in session_tables for name in names):
        return None
    own_ns = _times(session_tables)
    executed_nodes, graph_nodes, graph_edges = (session_tables[name] for name in names)
    steps = steps_of(executed_nodes, graph_nodes, graph_edges, own_ns)
    bandwidth = ceilings.get(BANDWIDTH)
    made = opportunities(steps, bandwidth)
    basis = MEASURED if bandwidth else "this machine's bandwidth has not been measured (aaco calibrate)"
    return document(made, sum(own_ns.values()) or None, bandwidth, basis) if made else None


def _times(session_tables: Mapping[str, pa.Table]) -> dict[str, float]:
    """Return the time of each executed node, if the capture timed the work itself; else nothing."""
    try:
        window = inputs.window(session_tables["kernels"], session_tables["api_calls"])
        return time_per_inference(inputs.execution_window(window))
    except (Absent, KeyError):
        return {}


def steps_of(executed_nodes: pa.Table, graph_nodes: pa.Table, graph_edges: pa.Table, own_ns: Mapping[str, float]
             ) -> list[FusionStep]:
    """Return the executed graph, as far as the source graph shows it: what a runtime inserted is passed over."""
    source = {row["node_id"]: row for row in graph_nodes.select(["node_id", "subgraph", "executions"]).to_pylist()}
    steps, owner = [], {}
    for number, row in enumerate(executed_nodes.select(["name", "op_type", "domain", "provider", "source_nodes"]
                                                       ).to_pylist()):
        bodies = {source[node]["subgraph"] for node in row["source_nodes"] or () if node in source}
        op_type = row["op_type"] or ""
        kind = "elementwise" if op_type in BY_CHANNEL else family(op_type, row["domain"] or "")
        steps.append(FusionStep(row["name"], op_type, kind,
                                (row["provider"], *sorted(bodies, key=str)), own_ns.get(row["name"])))
        owner.update(dict.fromkeys(row["source_nodes"] or (), number))
    _connect(steps, owner, source, graph_edges)
    return steps


def _connect(steps: list[FusionStep], owner: Mapping[int, int], source: Mapping[int, Mapping[str, Any]],
             graph_edges: pa.Table) -> None:
    """Add the tensors between steps; one from a maker that was optimised away comes from what that read first."""
    columns = [graph_edges[name].to_pylist() for name in ("src_node", "dst_node", "tensor", "bytes")]
    edges = [edge for edge in zip(*columns, strict=True) if edge[0] is not None]
    before = {target: (maker, tensor) for maker, target, tensor, _ in reversed(edges)}
    tensors: dict[tuple[int, str], Tensor] = {}
    for maker, target, tensor, size in edges:
        seen = {maker}
        while maker not in owner and maker in before and before[maker][0] not in seen:
            maker, tensor = before[maker]
            seen.add(maker)
        reader = owner.get(target) if target is not None else None
        if maker not in owner or (target is not None and reader is None) or reader == owner[maker]:
            continue
        times = source[maker]["executions"] or 1 if maker in source else 1
        read_tensor = tensors.setdefault((maker, tensor), Tensor(owner[maker], (size or 0) * times))
        read_tensor.leaves |= target is None
        if reader is not None:
            read_tensor.readers.add(reader)
    for made in tensors.values():
        steps[made.maker].makes.append(made)
        for reader in made.readers:
            steps[reader].reads.append(made)


class _Groups:
    """Steps that are joined so far; each step begins as a group of its own."""

    def __init__(self, steps: list[FusionStep]) -> None:
        self.steps = steps
        self.of = list(range(len(steps)))
        self.members: dict[int, set[int]] = {number: {number} for number in self.of}
        self.rank = _ranks(steps)

    def found(self) -> Iterator[list[int]]:
        """Yield the groups of several steps, in the order in which they run."""
        for members in self.members.values():
            if len(members) > 1:
                yield sorted(members, key=lambda step: self.rank[step])

    def join(self, first: frozenset[str], second: frozenset[str], allowed: Any) -> None:
        """Join the makers of these families with the readers of those, where the rule allows it."""
        for maker in sorted(range(len(self.steps)), key=lambda step: self.rank[step]):
            for tensor in self.steps[maker].makes if self.steps[maker].family in first else ():
                for reader in sorted(tensor.readers, key=lambda step: self.rank[step]):
                    here, there = self.of[maker], self.of[reader]
                    if (here != there and self.steps[reader].family in second
                            and self.steps[maker].place == self.steps[reader].place
                            and allowed(self, tensor, here, there) and not self._between(here, there)):
                        self._merge(here, there)

    def join_attention(self) -> None:
        """Join a softmax and its surroundings with the products before and after it."""
        for softmax in [number for number, step in enumerate(self.steps) if step.family == "softmax"]:
            inner = self.of[softmax]
            makers = {tensor.maker for member in self.members[inner] for tensor in self.steps[member].reads}
            readers = {reader for member in self.members[inner] for tensor in self.steps[member].makes
                       for reader in tensor.readers}
            ends = [next((number for number in sorted(some) if self.steps[number].family == "gemm"
                          and self.steps[number].place == self.steps[softmax].place and self.of[number] != inner), None)
                    for some in (makers, readers)]
            if None in ends or ends[0] == ends[1]:
                continue
            scores, values = (number for number in ends if number is not None)
            if not self._between(self.of[scores], self.of[softmax]):
                self._merge(self.of[scores], self.of[softmax])
                if not self._between(self.of[softmax], self.of[values]):
                    self._merge(self.of[softmax], self.of[values])

    def families(self, group: int) -> list[str]:
        """Return the families of a group's steps."""
        return [self.steps[member].family for member in self.members[group]]

    def _merge(self, here: int, there: int) -> None:
        for member in self.members[there]:
            self.of[member] = here
        self.members[here] |= self.members.pop(there)

    def _between(self, here: int, there: int) -> bool:
        """Return whether another group would have to run after the one and before the other."""
        last = max(self.rank[step] for step in self.members[there])
        ahead = list({self.of[reader] for reader in self._readers(here)} - {here, there})
        seen = {here, *ahead}
        while ahead:
            for group in {self.of[reader] for reader in self._readers(ahead.pop())} - seen:
                if group == there:
                    return True
                seen.add(group)
                if min(self.rank[step] for step in self.members[group]) < last:
                    ahead.append(group)
        return False

    def _readers(self, group: int) -> Iterator[int]:
        return (reader for step in self.members[group] for tensor in self.steps[step].makes
                for reader in tensor.readers)


def _few_rows(groups: _Groups, tensor: Tensor, here: int, there: int) -> bool:
    """Return whether both groups have one norm or softmax in all: a second would need the whole row of the first."""
    return sum(family in ROWS for group in (here, there) for family in groups.families(group)) <= 1


def _only_reader(groups: _Groups, tensor: Tensor, here: int, there: int) -> bool:
    """Return whether only element-wise steps follow a product, which alone read its result, and no second product."""
    whole = set(groups.families(there))
    return (whole <= {"elementwise"} and len(groups.members[here]) == 1
            and all(groups.of[reader] == there for reader in tensor.readers) and not tensor.leaves)


def _opportunity(steps: list[FusionStep], members: list[int], bandwidth: float | None) -> Opportunity:
    inside = set(members)
    saved = 0
    for member in members:
        for tensor in steps[member].makes:
            within = len(tensor.readers & inside)
            saved += tensor.bytes * (within + (within > 0 and tensor.readers <= inside and not tensor.leaves))
    times = [time for member in members if (time := steps[member].own_ns) is not None]
    own_ns = sum(times) if len(times) == len(members) else None
    least = None if own_ns is None or not bandwidth else min(own_ns, 1e9 * saved / bandwidth)
    ops = tuple(steps[member].op_type for member in members)
    marks = set(ops) | {steps[member].family for member in members}
    pattern = next(name for name, required in PATTERNS if required <= marks)
    return Opportunity(pattern, tuple(steps[member].name for member in members), ops, saved, own_ns, least)


def _row(same: list[Opportunity], total_ns: float | None) -> Fusible:
    own_ns = None if any(fusion.own_ns is None for fusion in same) else sum(fusion.own_ns or 0.0 for fusion in same)
    saved = None if any(fusion.saved_ns is None for fusion in same) else sum(fusion.saved_ns or 0.0 for fusion in same)
    return Fusible(pattern=same[0].pattern, op_types=list(same[0].op_types), times=len(same),
                   saved_bytes=sum(fusion.saved_bytes for fusion in same), own_ns=own_ns, saved_ns_at_most=saved,
                   saved_share_at_most=saved / total_ns if saved is not None and total_ns else None,
                   examples=[list(fusion.steps) for fusion in same[:MOST_EXAMPLES]])


def _ranks(steps: list[FusionStep]) -> list[int]:
    """Return the steps' places in an order in which each comes after what it reads; a cycle's steps come last."""
    waits = [len({tensor.maker for tensor in step.reads}) for step in steps]
    ready = [number for number, count in enumerate(waits) if not count][::-1]
    rank = [len(steps)] * len(steps)
    place = 0
    while ready:
        step = ready.pop()
        rank[step], place = place, place + 1
        for reader in sorted({reader for tensor in steps[step].makes for reader in tensor.readers}, reverse=True):
            waits[reader] -= 1
            if not waits[reader]:
                ready.append(reader)
    return rank
