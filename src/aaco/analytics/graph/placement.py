"""Where each node of the graph runs: the executed node or compiled subgraph, its provider, and the partition.

What the profile saw run comes first, ONNX Runtime's own assignment second. That is a list of parts, each
{"provider": name, "nodes": [names]}, over the graph as it was offered to the providers; a provider that compiles gets a
part per subgraph, any other a part per node.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby, zip_longest
from typing import Any

import pyarrow as pa
from msgspec import Struct

from aaco.analytics.graph.lowering import NAMELESS, Lowering
from aaco.core.tables import EXECUTED_NODES, replaced

Assignment = Sequence[Mapping[str, Any]]
Seen = Mapping[str, tuple[str, str | None]]  # executed node -> its operator and provider
NOTHING: tuple[str, None] = ("", None)
COPIES = {"MemcpyToHost", "MemcpyFromHost"}  # what ONNX Runtime puts between nodes of two providers


class Placement(Struct, frozen=True):
    """The place of every node of the source graph, by node_id; None if unknown, or for one that does not run.

    executed: the executed_nodes table, None if no capture shows what was executed.
    """

    executed: pa.Table | None
    executed_as: list[str | None]
    fate: list[str | None]
    provider: list[str | None]
    partition: list[int | None]


def seen(kernels: pa.Table | None) -> dict[str, tuple[str, str | None]]:
    """Return every executed node of the capture with its operator and provider, in order of first execution."""
    if kernels is None:
        return {}
    columns = (kernels[name].to_pylist() for name in ("executed_node", "kernel_name", "provider"))
    return {name: (operator, provider) for name, operator, provider in zip(*columns, strict=True) if name is not None}


def of_lowered(lowered: Lowering, assignment: Assignment, ran: Seen) -> Placement:
    """Return the placement where the graph that was executed is known."""
    assigned = _assigned(assignment)
    called = _called(lowered.executed, ran)
    executed_as = [called.get(name or "", name) for name in lowered.executed_as]
    names = [called.get(name, name) for name in lowered.executed["name"].to_pylist()]
    home = {name: ran.get(name, NOTHING)[1] or assigned.get(name) for name in names}
    provider = [home.get(name or "") for name in executed_as]
    executed = _set(lowered.executed, "provider", pa.array([home[name] for name in names]).dictionary_encode())
    executed = _set(executed, "name", pa.array(names, pa.string()))
    return Placement(executed, executed_as, list(lowered.fate), provider, _partitions(provider))


def _set(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return replaced(table, name, column.cast(table.schema.field(name).type))


def _called(executed: pa.Table, ran: Seen) -> dict[str, str]:
    """Return the name in the profile of executed nodes without one: OPERATOR_NUMBER, by ONNX Runtime's internal count.

    That count is not in the graph it wrote, so only what remains once is certain: one nameless node of an operator, and
    one such name that no named node has.
    """
    executed_names = set(executed["name"].to_pylist())
    nameless = [(name, operator) for name, operator in _pairs(executed, "op_type") if name.startswith(NAMELESS)]
    left = [(name, operator) for name, (operator, _) in ran.items()
            if name not in executed_names and re.fullmatch(rf"{re.escape(operator)}_\d+", name)]
    one_each = Counter(operator for _, operator in nameless), Counter(operator for _, operator in left)
    names = {operator: name for name, operator in left}
    return {name: names[operator] for name, operator in nameless if one_each[0][operator] == one_each[1][operator] == 1}


def of_subgraphs(offered: Lowering, assignment: Assignment, ran: Seen) -> Placement:
    """Return the placement where subgraphs were compiled, so that only the graph offered to the providers is known.

    offered: the lowering to that graph. Outside a subgraph, an offered node runs under its own name unless it was
    optimised further: then its operator is another one or its name is gone, and what became of it is not known.
    """
    members = _subgraphs(assignment, ran)
    home = {member: name for name, nodes in members.items() for member in nodes}
    for name, operator in _pairs(offered.executed, "op_type"):
        if name not in home and ran.get(name, NOTHING)[0] == operator:
            home[name] = name
    executed_as = [home.get(name or "") for name in offered.executed_as]
    sources: dict[str, list[int]] = {name: [] for name in ran}
    for node, executed in enumerate(executed_as):
        if executed is not None:
            sources[executed].append(node)
    assigned = _assigned(assignment)
    provider = [assigned.get(name or "") for name in offered.executed_as]
    fate = [_fate(was, len(sources[name]) if name else 0)
            for was, name in zip(offered.fate, executed_as, strict=True)]
    compiled = _parts(assignment)
    return Placement(_executed(sources, dict(_pairs(offered.executed, "domain")), ran), executed_as, fate, provider,
                     _partitions(provider, [compiled.get(name or "") for name in offered.executed_as]))


def of_names(names: Sequence[str], assignment: Assignment) -> Placement:
    """Return the placement where only the assignment is known: nodes that kept their names have a provider."""
    assigned, compiled = _assigned(assignment), _parts(assignment)
    provider = [assigned.get(name) for name in names]
    partition = _partitions(provider, [compiled.get(name) for name in names])
    return Placement(None, [None] * len(names), [None] * len(names), provider, partition)


def _subgraphs(assignment: Assignment, ran: Seen) -> dict[str, tuple[str, ...]]:
    """Return each executed node that is a compiled subgraph, with the nodes compiled into it.

    ONNX Runtime names it PROVIDER_NAME_N, N counting the model's compiled subgraphs in the order in which it assigns
    them (PlaceNode in graph_partitioner.cc), which is the order of the assignment.
    """
    named = {node for part in assignment for node in part["nodes"]}
    numbers = {name: _number(name, provider) for name, (_, provider) in ran.items() if name not in named}
    numbered = {name: number for name, number in numbers.items() if number is not None}
    parts = [part for part in assignment if part["provider"] in {ran[name][1] for name in numbered}]
    return {name: tuple(parts[number]["nodes"]) for name, number in numbered.items()
            if number < len(parts) and parts[number]["provider"] == ran[name][1]}


def _number(name: str, provider: str | None) -> int | None:
    match = re.fullmatch(rf"{re.escape(provider)}_.+_(\d+)", name) if provider else None
    return int(match[1]) if match else None


def _assigned(assignment: Assignment) -> dict[str, str]:
    """Return the provider by node name; a name that two providers have (in two branches of the graph) says nothing."""
    providers_by_node: dict[str, set[str]] = defaultdict(set)
    for part in assignment:
        for name in part["nodes"]:
            providers_by_node[name].add(part["provider"])
    return {name: several.pop() for name, several in providers_by_node.items() if name and len(several) == 1}


def _parts(assignment: Assignment) -> dict[str, int]:
    """Return the part that each node of a compiling provider is in; a provider that does not compile has one node a
    part."""
    compiling = {part["provider"] for part in assignment if len(part["nodes"]) > 1}
    return {node: number for number, part in enumerate(assignment) if part["provider"] in compiling
            for node in part["nodes"]}


def _partitions(provider: Sequence[str | None], part: Sequence[int | None] = ()) -> list[int | None]:
    """Return each node's partition: the compiled part it is in, else its run of consecutive nodes on one provider.

    Numbered in order of appearance; a node that does not run is in none and interrupts no run.
    """
    places = enumerate(zip_longest(provider, part))
    placed = [(node, (where, inside)) for node, (where, inside) in places if where]
    assigned: list[int | None] = [None] * len(provider)
    numbers: dict[tuple[int | None, int], int] = {}
    for run, ((_, inside), nodes) in enumerate(groupby(placed, key=lambda item: item[1])):
        for node, _ in nodes:
            assigned[node] = numbers.setdefault((inside, run if inside is None else 0), len(numbers))
    return assigned


def _fate(offered: str, together: int) -> str | None:
    if offered == "eliminated":
        return offered
    return ("kept" if together == 1 else "fused") if together else None


def _executed(sources: Mapping[str, list[int]], domains: Mapping[str, str], ran: Seen) -> pa.Table:
    return EXECUTED_NODES.build(
        executed_id=list(range(len(sources))), name=list(sources), op_type=[ran[name][0] for name in sources],
        domain=[domains.get(name) for name in sources], provider=[ran[name][1] for name in sources],
        origin=["fused" if len(some) > 1 else "original" if some else "inserted" if ran[name][0] in COPIES else None
                for name, some in sources.items()],
        source_nodes=list(sources.values()))


def _pairs(table: pa.Table, column: str) -> list[tuple[str, str]]:
    return list(zip(table["name"].to_pylist(), table[column].to_pylist(), strict=True))
