"""The graph of a model, as given and as executed."""

import pyarrow as pa

from aaco.core.tables.spec import INT, NAME, TEXT, TEXTS, TableSpec

GRAPH_NODES = TableSpec("graph_nodes", "model/graph_nodes.parquet",
                        "One row per node of the model graph, subgraphs included.", {
    "node_id": (INT, "row key in graph order"),
    "name": (TEXT, "node name; made from the operator and node_id where the model gives none"),
    "op_type": (NAME, "operator"),
    "domain": (NAME, "operator set; empty for ONNX"),
    "category": (NAME, "kernel family the operator belongs to"),
    "subgraph": (TEXT, "path of the enclosing subgraph; empty for the main graph"),
    "attributes": (TEXT, "JSON of the node's attributes"),
    "inputs": (TEXTS, "input tensors"),
    "outputs": (TEXTS, "output tensors"),
    "input_shapes": (TEXT, "JSON: a shape per input, null where unknown"),
    "output_shapes": (TEXT, "JSON: a shape per output, null where unknown"),
    "dtype": (NAME, "element type of the first output"),
    "parameters": (INT, "elements of weights first used here"),
    "executions": (INT, "times it runs per inference: the trips of the loops around it; null where they are not known"),
    "flops_each": (INT, "modelled floating-point operations of one execution (a multiply-add counts 2)"),
    "bytes_each": (INT, "modelled compulsory traffic of one execution: inputs, weights and outputs once"),
    "flops": (INT, "flops_each x executions: per inference"),
    "bytes": (INT, "bytes_each x executions: per inference"),
    "why_no_cost": (TEXT, "why flops and bytes are null; null where they are not"),
    "provider": (NAME, "execution provider the runtime assigned"),
    "partition": (INT, "index of the provider partition"),
    "executed_as": (TEXT, "executed (optimised) node that computes this node; null when eliminated"),
    "fate": (NAME, "kept, fused, eliminated (by the runtime's optimiser)"),
}, never_null=("node_id", "name"))
GRAPH_EDGES = TableSpec("graph_edges", "model/graph_edges.parquet", "One row per tensor passed between two nodes.", {
    "src_node": (INT, "producing node_id; null for a model input or weight"),
    "dst_node": (INT, "consuming node_id; null for a model output"),
    "tensor": (TEXT, "tensor name"),
    "shape": (TEXT, "JSON shape; null where unknown"),
    "dtype": (NAME, "element type"),
    "bytes": (INT, "size"),
})
EXECUTED_NODES = TableSpec("executed_nodes", "model/executed_nodes.parquet",
                           "One row per node of the graph the runtime executed after optimisation.", {
    "executed_id": (INT, "row key in graph order"),
    "name": (TEXT, "node name"),
    "op_type": (NAME, "operator"),
    "domain": (NAME, "operator set"),
    "provider": (NAME, "execution provider"),
    "origin": (NAME, "original (one source node), fused (several), inserted (none)"),
    "source_nodes": (pa.list_(INT), "node_ids of the source graph it computes"),
}, never_null=("executed_id", "name", "source_nodes"))
