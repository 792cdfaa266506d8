"""Kernel time shared out: over graph nodes and operators, and summed by name; and what each kernel did in it."""

import pyarrow as pa

from aaco.core.tables.spec import CAPTURE, INT, NAME, REAL, TEXT, TEXTS, TableSpec

OP_TO_KERNEL_MAP = TableSpec("op_to_kernel_map", "attribution/op_to_kernel_map.parquet",
                             "Each kernel's time, shared out over graph nodes or a framework's operators.", {
    "node_id": (INT, "graph node; null when unattributed, and where no graph is known"),
    "kernel_id": (INT, "kernel"),
    "method": (NAME, "exact_span, exact_symbol, exact_sequence, sequence, name, modelled, unattributed"),
    "confidence": (REAL, "1 for exact methods; null for unattributed"),
    "share_ns": (INT, "this node's part of the kernel's dur_ns; the parts sum to it exactly"),
    "operator_id": (INT, "row of operators; null in a session without them"),
}, never_null=("kernel_id", "share_ns"))
OPERATORS = TableSpec("operators", "attribution/operators.parquet",
                      "Operators of a traced framework or a model's graph: a row per operator, place and "
                      "signature. Kernels of no operator have rows too: device_ns sums to the time of all kernels, in "
                      "a run to that of the kernels of measured inferences.", {
    "operator_id": (INT, "row key in order of appearance"),
    "operator": (NAME, "innermost operator around the launch, as aten::addmm; of a model's graph what the executed "
                       "node is, if it fuses several as Conv + Relu; null where there is none"),
    "outermost": (NAME, "outermost operator around that call, as aten::linear"),
    "module": (NAME, "path of the modules around it, outermost first: nn.Module, or what a graph node's name says, "
                     "of a fused node the one with most FLOPs"),
    "provider": (NAME, "execution provider, of a model's graph"),
    "partition": (INT, "index of the provider's partition of a model's graph"),
    "annotation": (NAME, "innermost range around it that the user named; a profiler's own steps are none"),
    "frame": (NAME, "of launches outside any operator the innermost Python function around it, without those of "
                    "PyTorch and Triton; null where the trace has no stacks"),
    "phase": (NAME, "forward, backward, optimizer, recompute: forward operators computed again on the way back, or "
              "no_grad: those of which no gradient is recorded, as inside of torch.no_grad; null in a trace without a "
              "way back"),
    "shapes": (TEXT, "JSON of the inputs' shapes; null where not recorded, and for calls that launched nothing"),
    "dtypes": (TEXT, "JSON of the inputs' types, as captured"),
    "inputs": (TEXT, "JSON of the inputs' values where they are numbers or lists of them, as captured"),
    "calls": (INT, "calls; null where there is no operator"),
    "kernels": (INT, "kernels launched by the operator itself, not by operators inside it"),
    "device_ns": (INT, "sum of those kernels' dur_ns"),
    "host_ns": (INT, "host time of the calls, less that of operators inside them; null where there is no operator"),
    "family": (NAME, "family of the kernels that took most of device_ns; null where they have none"),
    "method": (NAME, "how the kernels were found, as in op_to_kernel_map; null where there are none"),
    "source": (NAME, "what tells of operator, module and shapes: the launch, or of a replayed graph its capture or an "
                     "eager step, with the file; null where nothing does, and in a run"),
    "why_unattributed": (NAME, "why there is no operator; null where there is one"),
    "flops": (INT, "modelled floating-point operations of all its calls (a multiply-add counts 2)"),
    "bytes": (INT, "modelled compulsory traffic of all its calls: inputs and outputs once, of a fused node what "
                   "crosses its border"),
    "why_no_cost": (TEXT, "why flops or bytes are null; null where they are not"),
    "limit": (NAME, "what limits the kernels that took most of device_ns (kernel_groups)"),
    **CAPTURE,
}, never_null=("operator_id", "kernels", "device_ns"))
GRAPH_CAPTURE, EAGER_STEP = "graph capture", "eager step"  # kinds of reference traces
REFERENCE_LAUNCHES = TableSpec(
    "reference_launches", "attribution/reference_launches.parquet",
    "What reference traces say of the launches of a graph: its capture, or the same step without a graph. Their "
    "kernels are in no other table.", {
        "kind": (NAME, f"{GRAPH_CAPTURE} or {EAGER_STEP}"),
        "source": (NAME, "the kind with the file's name"),
        "graph": (INT, "graph or step, over all reference traces"),
        "batch": (INT, "batch that it was captured for or ran with; null where the trace does not say"),
        "kernel_name": (NAME, "kernel; null in the capture of a CUDA graph, which does not name it"),
        "operator": (NAME, "innermost operator around the launch"),
        "outermost": (NAME, "outermost operator around that call"),
        "module": (NAME, "path of the modules around it"),
        "annotation": (NAME, "innermost range around it that the user named"),
        "frame": (NAME, "of launches outside any operator the innermost Python function"),
        "shapes": (TEXT, "JSON of the inputs' shapes"),
        "dtypes": (TEXT, "JSON of the inputs' types"),
        "inputs": (TEXT, "JSON of the inputs' values where they are numbers or lists of them"),
        "call": (INT, "call of the operator: launches with one number are of one call; null where there is none"),
    }, never_null=("kind", "source", "graph"))
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
    "calls_per_iteration": (REAL, "executions per inference; null where not every kernel is known to be of one"),
    "ns_per_iteration": (REAL, "sum of durations per inference, likewise"),
    "limit": (NAME, "what limits it: its class in kernel_classes; null in sessions of older versions"),
    "limit_by": (NAME, "what tells: counters, shapes, name"),
    "budget_part": (NAME, "part of the time budget that its time counts in"),
    "skew_ns": (INT, "of total_ns, first collectives that waited for a rank that had not started; null where none did"),
}, never_null=("calls",))
KERNEL_NAMES = TableSpec("kernel_names", "attribution/kernel_names.parquet",
                         "One row per distinct kernel name: what the name says. What it does not say is null.", {
    "kernel_name": (TEXT, "kernel, as captured"),
    "normalised": (TEXT, "short name, the same in every run and build"),
    "family": (NAME, "kernel family; unknown where the name does not tell"),
    "library": (NAME, "library whose rule decided; null where the name's words did"),
    "dtypes": (TEXTS, "element types, operands first"),
    "layout": (NAME, "of a GEMM NN, NT, TN, TT (N as stored, T transposed, first operand first); nchw, nhwc"),
    "tile": (TEXT, "output per workgroup x step along the summed dimension"),
    "ops": (TEXTS, "operators fused in it, as the generator lists them"),
    "split": (NAME, "how workgroups share the summed dimension: none, split_k, stream_k"),
    "split_count": (INT, "among how many"),
    "direction": (NAME, "forward or backward"),
    "rule": (TEXT, "library and expression that decided the family"),
}, never_null=("kernel_name", "normalised", "family"))
KERNEL_ROOFLINE = TableSpec(
    "kernel_roofline", "attribution/kernel_roofline.parquet",
    "One row per kernel of a device: its work by counters, and its place under the device's ceilings.", {
        "kernel_id": (INT, "kernel"),
        "kernel_name": (NAME, "kernel symbol"),
        "device_id": (INT, "device"),
        "dur_ns": (INT, "duration in the trace that the kernels table holds"),
        **{f"vector_{kind}_flops": (REAL, f"{kind} operations of the vector unit") for kind in ("f64", "f32", "f16")},
        **{f"matrix_{kind}_flops": (REAL, f"{kind} operations of the matrix unit; f6f4: of 6 and of 4 bits")
           for kind in ("f64", "f32", "tf32", "f16", "bf16", "f8", "f6f4")},
        "vector_int_ops": (REAL, "integer operations of the vector unit, addresses included"),
        "matrix_i8_ops": (REAL, "8-bit integer operations of the matrix unit"),
        "flops": (REAL, "floating-point operations of the types that were counted; null where vector f32 was not"),
        "uncounted": (NAME, "types that were not counted, so that flops is a lower bound; null where all were"),
        "dominant": (NAME, "the unit and type that needs most of the compute time"),
        "dram_read_bytes": (REAL, "bytes read from beyond the L2"),
        "dram_written_bytes": (REAL, "bytes written beyond the L2"),
        "l2_bytes": (REAL, "bytes looked up in the L2"),
        "l1_bytes": (REAL, "bytes looked up in the vector L1"),
        "lds_bytes": (REAL, "bytes moved to and from local (shared) memory"),
        **{f"{level}_intensity": (REAL, f"flops per byte of {level}") for level in ("dram", "l2", "l1", "lds")},
        "flops_per_s": (REAL, "flops / duration"),
        "dram_bytes_per_s": (REAL, "bytes read and written beyond the L2 / duration"),
        **{f"{ceiling}_share": (REAL, f"time that the theoretical ceiling of {ceiling} alone would need / duration")
           for ceiling in ("compute", "dram", "l2", "l1", "lds")},
        "bound": (NAME, "the theoretical ceiling that needs most time: compute, dram, l2, l1, lds"),
        "roof_share": (REAL, "its share: how much of the theoretical roof was reached"),
        "measured_bound": (NAME, "the same by measured ceilings"),
        "measured_roof_share": (REAL, "how much of the measured roof was reached"),
        "region": (NAME, "optimal, compute_bound, memory_bound, latency_bound; by measured ceilings where known"),
        "memory_wait_share": (REAL, "waits of its warps for memory, of those for memory and for its own instructions"),
        "occupancy_limit_pct": (REAL, "waves that fit on a compute unit by its resources, of the most there can be"),
        "occupancy_limited_by": (NAME, "resources that allow no more; null where the most is reached"),
        "why_absent": (NAME, "why it has no place"),
        "error": (NAME, "which theoretical ceiling its counters and its time exceed: one of them is wrong"),
        **CAPTURE,
    }, never_null=("kernel_id",))
FINGERPRINTS = TableSpec("fingerprints", "attribution/fingerprints.parquet",
                         "One row per kernel and launch geometry: what makes it the same one elsewhere, and how it "
                         "behaved here.", {
    "fingerprint": (TEXT, "id: of short name, grid and block alone, so the same in every recording"),
    "normalised": (TEXT, "short name (kernel_names); empty where the kernel has none"),
    "family": (NAME, "kernel family"),
    **{f"{what}_{axis}": (INT, "work-items") for what in ("grid", "block") for axis in "xyz"},
    "calls": (INT, "executions"),
    "total_ns": (INT, "sum of durations"),
    **{f"p{share:02}_ns": (REAL, "quantile of the durations, to 1.1 %") for share in (5, 25, 50, 75, 95)},
    "per_s": (REAL, "launches per second of the time from the first kernel's start to the last one's end"),
    "gap_p50_ns": (REAL, "median time its stream had been without a kernel before it, to 1.1 %"),
    "counters": (TEXT, "JSON: mean of each hardware counter"),
    "log_bins": (pa.list_(INT), "bins of the durations: floor(64 log2 ns); -1: of 0 ns"),
    "bin_counts": (pa.list_(INT), "executions in each"),
}, never_null=("fingerprint", "normalised", "calls"))
