"""What a compiler made of a model: which instruction of the device computes which of its nodes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa

SCHEMA_VERSION = 1


def document(executed: pa.Table, graph: pa.Table | None) -> dict[str, Any]:
    """The compiled program as a document, from the tables executed_nodes and graph_nodes of a compiler's log.

    A node may be computed by several instructions (a convolution and its bias), and an instruction without nodes is
    one that the compiler put in, or that it gave no names.
    """
    names = dict(zip(graph["node_id"].to_pylist(), graph["name"].to_pylist(), strict=True)) if graph else {}
    columns = (executed[column].to_pylist() for column in ("name", "op_type", "origin", "source_nodes"))
    instructions = [{"name": name, "operator": operator, "origin": origin,
                     "nodes": [names[node] for node in nodes if node in names]}
                    for name, operator, origin, nodes in zip(*columns, strict=True)]
    return {"schema_version": SCHEMA_VERSION, "provider": executed["provider"][0].as_py(),
            "instructions": instructions, "origins": dict(Counter(one["origin"] for one in instructions)),
            "nodes": len(names), "fates": dict(Counter(graph["fate"].to_pylist())) if graph else {}}
