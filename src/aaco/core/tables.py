"""The tables a session may hold: the contract between writers and readers, alike for every vendor.

Units live in column names (`_ns`, `_bytes`, `_ms`, `_pct`). Times are int64 nanoseconds on the host's CLOCK_MONOTONIC.
A column that a source cannot fill is null, never 0. Columns may be added, never renamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from aaco.core.errors import BadBundle

INT = pa.int64()
REAL = pa.float64()
FLAG = pa.bool_()
TEXT = pa.string()
NAME = pa.dictionary(pa.int32(), pa.string())
TEXTS = pa.list_(pa.string())


@dataclass(frozen=True)
class TableSpec:
    """A table: its name, file in the bundle, meaning, and each column's Arrow type and meaning."""

    name: str
    file: str
    meaning: str
    columns: Mapping[str, tuple[pa.DataType, str]]
    version: int = 1

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema, stamped with the spec's name and version."""
        stamp = {b"aaco.table": self.name.encode(), b"aaco.version": str(self.version).encode()}
        return pa.schema([(name, kind) for name, (kind, _) in self.columns.items()], metadata=stamp)

    def build(self, **columns: Any) -> pa.Table:
        """A table from whole columns (lists, numpy or Arrow arrays); what is not given is null.

        Raises TypeError on a column the spec does not know.
        """
        unknown = columns.keys() - self.columns.keys()
        if unknown:
            raise TypeError(f"table {self.name}: unknown columns {sorted(unknown)}")
        rows = {len(values) for values in columns.values()}
        if len(rows) > 1:
            raise TypeError(f"table {self.name}: columns of different lengths {sorted(rows)}")
        count = rows.pop() if rows else 0
        arrays = [_array(columns.get(name), kind, count) for name, (kind, _) in self.columns.items()]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def conform(self, table: pa.Table, where: str) -> pa.Table:
        """The table in this spec's column order and types; absent columns become null.

        Raises BadBundle when a column's type cannot be read as the spec's.
        """
        try:
            known = {name: table[name].cast(kind) for name, (kind, _) in self.columns.items()
                     if name in table.column_names}
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise BadBundle(f"{where}: not a {self.name} table: {error}", "aaco info SESSION") from error
        absent = {name: pa.nulls(table.num_rows, kind) for name, (kind, _) in self.columns.items() if name not in known}
        return pa.Table.from_arrays([(known | absent)[name] for name in self.columns], schema=self.schema)


def _array(values: Any, kind: pa.DataType, count: int) -> pa.Array:
    if values is None:
        return pa.nulls(count, kind)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        return values.cast(kind)
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(values, kind)


_WHEN = {
    "t_start_ns": (INT, "start"),
    "t_end_ns": (INT, "end"),
    "dur_ns": (INT, "t_end_ns - t_start_ns"),
}
_WHERE = {
    "device_id": (INT, "device; null when the kernel ran on the host CPU"),
    "queue_id": (INT, "hardware queue"),
    "stream_id": (INT, "stream"),
    "process_id": (INT, "operating-system process"),
    "thread_id": (INT, "operating-system thread"),
    "correlation_id": (INT, "links an API call to the work it launched"),
}

INFERENCE_ITERS = TableSpec("inference_iters", "metrics/inference_iters.parquet", "One row per inference.", {
    "iteration": (INT, "0-based, counted within process and phase"),
    "phase": (NAME, "warmup or measurement"),
    "t_start_ns": (INT, "start"),
    "t_end_ns": (INT, "end"),
    "latency_ms": (REAL, "(t_end_ns - t_start_ns) / 1e6"),
    "batch": (INT, "samples per inference"),
    "process": (INT, "index of the fresh process that ran it"),
    "clean": (FLAG, "no recorded interference inside it; null when nothing watched"),
    "noise_reasons": (TEXTS, "what interfered"),
})
KERNELS = TableSpec("kernels", "profiler/rocprof_kernels.parquet",
                    "One row per kernel execution: a GPU dispatch, or on the CPU one executed graph node.", {
    "kernel_id": (INT, "row key in start order"),
    "kernel_name": (NAME, "kernel symbol; on the CPU provider the operator"),
    "family": (NAME, "kernel family: gemm, conv, softmax, copy, ..."),
    **_WHERE,
    "graph_id": (INT, "captured device graph"),
    "graph_node_id": (INT, "node in the captured device graph"),
    **_WHEN,
    "grid_x": (INT, "work-items"), "grid_y": (INT, "work-items"), "grid_z": (INT, "work-items"),
    "block_x": (INT, "work-items"), "block_y": (INT, "work-items"), "block_z": (INT, "work-items"),
    "vgpr": (INT, "vector registers per work-item"),
    "agpr": (INT, "accumulation registers per work-item"),
    "sgpr": (INT, "scalar registers per wave"),
    "lds_bytes": (INT, "local memory per workgroup"),
    "scratch_bytes": (INT, "private memory per work-item"),
    "iteration": (INT, "inference it belongs to, 0-based in the profiled pass"),
    "rank": (INT, "rank of a distributed run"),
    "source": (NAME, "capture format it was read from"),
    "executed_node": (NAME, "name of the executed graph node, where the source itself says so"),
    "provider": (NAME, "execution provider that ran it"),
    "timed": (NAME, "what dur_ns covers: execution, or dispatch (the host's part of work that a device may do later)"),
})
API_CALLS = TableSpec("api_calls", "profiler/api_calls.parquet", "One row per host-side call or range.", {
    "call_id": (INT, "row key in start order"),
    "name": (NAME, "function or range"),
    "domain": (NAME, "hip, hsa, cuda_runtime, cuda_driver, marker, rccl, cpu_op, python, ort"),
    "process_id": (INT, "operating-system process"),
    "thread_id": (INT, "operating-system thread"),
    "correlation_id": (INT, "links the call to the work it launched"),
    "external_id": (INT, "id given by the framework"),
    **_WHEN,
    "parent_id": (INT, "call_id of the enclosing call"),
    "preorder": (INT, "position in the call tree, depth first"),
    "subtree_size": (INT, "calls inside, itself included"),
})
SYSTEM_EVENTS = TableSpec("system_events", "telemetry/system_events.parquet",
                          "Operating-system events and samples around the measured process.", {
    "t_ns": (INT, "time of the event, or end of the sampled interval"),
    "dur_ns": (INT, "duration of the event, or time accumulated in the sampled interval"),
    "kind": (NAME, "run_queue_wait, switch_voluntary, switch_involuntary, migration, fault_minor, fault_major, ..."),
    "process_id": (INT, "operating-system process"),
    "thread_id": (INT, "operating-system thread; null when summed over the process"),
    "cpu": (INT, "logical CPU"),
    "other_process": (INT, "who preempted"),
    "value": (REAL, "measured value, in `unit`"),
    "unit": (NAME, "unit of value"),
    "tier": (NAME, "T1 procfs, T2 perf events, T3 BPF"),
    "lost_before": (INT, "events known to be lost just before this one"),
})
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
    "flops": (INT, "modelled floating-point operations per inference (a multiply-add counts 2)"),
    "bytes": (INT, "modelled compulsory traffic per inference: inputs, weights and outputs once"),
    "provider": (NAME, "execution provider the runtime assigned"),
    "partition": (INT, "index of the provider partition"),
    "executed_as": (TEXT, "executed (optimised) node that computes this node; null when eliminated"),
    "fate": (NAME, "kept, fused, eliminated (by the runtime's optimiser)"),
})
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
})
OP_TO_KERNEL_MAP = TableSpec("op_to_kernel_map", "attribution/op_to_kernel_map.parquet",
                             "Each kernel's time, shared out over graph nodes.", {
    "node_id": (INT, "graph node; null when unattributed"),
    "kernel_id": (INT, "kernel"),
    "method": (NAME, "exact_span, exact_symbol, sequence, name, modelled, unattributed"),
    "confidence": (REAL, "1 for exact methods; null for unattributed"),
    "share_ns": (INT, "this node's part of the kernel's dur_ns; the parts sum to it exactly"),
})
KERNEL_GROUPS = TableSpec("kernel_groups", "attribution/kernel_groups.parquet", "Kernels summed by name.", {
    "family": (NAME, "kernel family"),
    "kernel_name": (NAME, "kernel"),
    "calls": (INT, "executions"),
    "total_ns": (INT, "sum of durations"),
    "mean_ns": (REAL, "mean duration"),
    "p50_ns": (REAL, "median duration"),
    "p99_ns": (REAL, "99th percentile; null with fewer than 100 calls"),
    "min_ns": (INT, "shortest"),
    "max_ns": (INT, "longest"),
    "std_ns": (REAL, "standard deviation (n - 1); null for one call"),
    "pct_of_kernel_time": (REAL, "share of the sum of all kernel time"),
    "pct_of_window": (REAL, "share of the profiled window's wall time"),
})

ALL = {spec.name: spec for spec in (
    INFERENCE_ITERS, KERNELS, API_CALLS, SYSTEM_EVENTS, GRAPH_NODES, GRAPH_EDGES, EXECUTED_NODES, OP_TO_KERNEL_MAP,
    KERNEL_GROUPS,
)}
