"""What devices and hosts did, one row each: kernels, copies, calls, counters."""

from aaco.core.tables.spec import CAPTURE, FLAG, INT, NAME, REAL, TEXT, TEXTS, WHEN, WHERE, TableSpec

LAUNCH = {"launch_id": (INT, "call_id of the call that launched it; null if it is not known, and in older sessions")}
# Execution providers of ONNX Runtime that compute on the CPUs. Any other may return when a node is only queued: CUDA's
# spans are launches, between a sixth and six times of the GPU's time.
CPU_PROVIDERS = frozenset((
    "CPUExecutionProvider", "OpenVINOExecutionProvider", "DnnlExecutionProvider", "XnnpackExecutionProvider"))
KERNELS = TableSpec("kernels", "profiler/rocprof_kernels.parquet",
                    "One row per kernel execution: a GPU dispatch, or on the CPU one executed graph node.", {
    "kernel_id": (INT, "row key in start order"),
    "kernel_name": (NAME, "kernel symbol; on the CPU provider the operator"),
    "family": (NAME, "kernel family: gemm, conv, softmax, copy, ..."),
    **WHERE,
    "graph_id": (INT, "captured device graph"),
    "graph_node_id": (INT, "node in the captured device graph"),
    **WHEN,
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
    "dtypes": (TEXTS, "element types (numpy's names) of the inputs it was handed, in order, where the source says so"),
    "timed": (NAME, "what dur_ns covers: execution, or dispatch (the host's part of work that a device may do later)"),
    "pool_wait_ns": (INT, "of a node on a pool of CPU threads: how long its thread waited for the others of the pool"),
    "external_id": (INT, "id given by the framework to the operation that launched it"),
    "dispatch_id": (INT, "number of the dispatch as the runtime counts them"),
    "occupancy_pct": (REAL, "occupancy as the profiler estimates it"),
    **LAUNCH,
    **CAPTURE,
}, never_null=("kernel_id",))
COPIES = TableSpec("copies", "profiler/copies.parquet", "One row per memory copy or fill that a device did.", {
    "copy_id": (INT, "row key in start order"),
    "kind": (NAME, "h2d, d2h, d2d, p2p, h2h, memset, unknown"),
    "bytes": (INT, "size"),
    "src_device": (INT, "device read from; null for the host"),
    "dst_device": (INT, "device written to; null for the host"),
    "pinned": (FLAG, "whether the host's side is page-locked"),
    **WHERE,
    "graph_id": (INT, "captured device graph"),
    "graph_node_id": (INT, "node in the captured device graph"),
    **WHEN,
    "iteration": (INT, "inference it belongs to"),
    "rank": (INT, "rank of a distributed run"),
    "source": (NAME, "capture format it was read from"),
    **LAUNCH,
    **CAPTURE,
})
API_CALLS = TableSpec("api_calls", "profiler/api_calls.parquet", "One row per host-side call or range.", {
    "call_id": (INT, "row key in start order"),
    "name": (NAME, "function or range"),
    "domain": (NAME, "hip, hsa, cuda_runtime, cuda_driver, marker, gpu_marker, rccl, cpu_op, python, ort, "
               "or the capture's own word"),
    "process_id": (INT, "operating-system process"),
    "thread_id": (INT, "operating-system thread"),
    "correlation_id": (INT, "links the call to the work it launched"),
    "external_id": (INT, "id given by the framework"),
    "device_id": (INT, "device, of a range that lies on a device's stream and on no thread"),
    "stream_id": (INT, "stream of such a range"),
    **WHEN,
    "parent_id": (INT, "call_id of the enclosing call"),
    "preorder": (INT, "position in its thread's call tree, depth first"),
    "subtree_size": (INT, "calls inside, itself included"),
    "rank": (INT, "rank of a distributed run"),
    **CAPTURE,
}, never_null=("call_id",))
CALL_ARGUMENTS = TableSpec("call_arguments", "profiler/call_arguments.parquet",
                           "Arguments of host-side calls, where the capture has them.", {
    "call_id": (INT, "call in api_calls"),
    "arguments": (TEXT, "JSON object of the arguments as captured: shapes, types, pointers"),
})
COUNTERS = TableSpec("counters", "profiler/counters.parquet", "One row per hardware counter of a kernel execution.", {
    "kernel_id": (INT, "kernel"),
    "counter": (NAME, "counter as the tool names it, with its index where it counts per channel: TCC_HIT[3]"),
    "value": (REAL, "counted"),
    "pass": (INT, "replay pass that counted it; counters of different passes are of different executions"),
})
COLLECTIVES = TableSpec("collectives", "profiler/collectives.parquet",
                        "What a communication kernel did, where the capture says it.", {
    "kernel_id": (INT, "kernel"),
    "operation": (NAME, "allreduce, allgather, reduce_scatter, alltoall, broadcast, send, recv, ..."),
    "group": (TEXT, "process group"),
    "group_size": (INT, "ranks in the group"),
    "sequence": (INT, "position among the operations of its group"),
    "bytes_in": (INT, "message read per rank"),
    "bytes_out": (INT, "message written per rank"),
    "dtype": (NAME, "element type"),
})
ALLOCATIONS = TableSpec("allocations", "profiler/allocations.parquet",
                        "One row per allocation or release of device, host or scratch memory.", {
    "t_ns": (INT, "time"),
    "dur_ns": (INT, "how long the call took"),
    "kind": (NAME, "allocate, free, scratch_allocate, scratch_free, ..."),
    "bytes": (INT, "size"),
    "address": (INT, "address"),
    "total_bytes": (INT, "allocated after it, where the capture says so"),
    "device_id": (INT, "device; null for the host"),
    "process_id": (INT, "operating-system process"),
    "thread_id": (INT, "operating-system thread"),
    "correlation_id": (INT, "links it to the call that asked for it"),
    **CAPTURE,
})
