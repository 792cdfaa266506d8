"""What MIGraphX made of a model: which instruction, or which compiled subgraph, computes which of its nodes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from aaco.core.documents import encode
from aaco.core.providers import MIGRAPHX
from aaco.tracelake.document_schemas.answers import CompiledInstruction, CompiledPartition


def document(executed: pa.Table, graph: pa.Table | None) -> dict[str, Any]:
    """Return the compiled program as a document, from the tables executed_nodes and graph_nodes of a compiler's log.

    A node may be computed by several instructions (a convolution and its bias), and an instruction without nodes is one
    that the compiler put in, or that it gave no names.
    """
    names = dict(zip(graph["node_id"].to_pylist(), graph["name"].to_pylist(), strict=True)) if graph else {}
    columns = (executed[column].to_pylist() for column in ("name", "op_type", "origin", "source_nodes"))
    instructions = [CompiledInstruction(name=name, operator=operator, origin=origin,
                                        nodes=[names[node] for node in nodes if node in names])
                    for name, operator, origin, nodes in zip(*columns, strict=True)]
    return encode(CompiledPartition(
        provider=executed["provider"][0].as_py(), instructions=instructions,
        origins=dict(Counter(instruction.origin for instruction in instructions)), nodes=len(names),
        fates=dict(Counter(graph["fate"].to_pylist())) if graph else {}))


def of_run(executed: pa.Table | None, graph: pa.Table | None) -> dict[str, Any] | None:
    """Return the document of a run of ONNX Runtime, with the subgraphs that MIGraphX compiled as instructions; None if
    it compiled none. Nodes of other providers are only counted among the fates."""
    if executed is None:
        return None
    mine = pc.equal(executed["provider"].cast(pa.string()), MIGRAPHX)
    compiled = executed.filter(pc.and_(mine, pc.greater(pc.list_value_length(executed["source_nodes"]), 0)))
    return document(compiled, graph) if compiled.num_rows else None
