"""Steps of an engine that serves language models."""

from aaco.core.tables.spec import CAPTURE, INT, NAME, TEXT, WHEN, TableSpec

_SUMS = {"sq": "query tokens", "sk": "keys, those of the query tokens included", "sqsq": "squared query tokens",
         "sqsk": "products of query tokens and keys"}
SERVING_STEPS = TableSpec(
    "serving_steps", "attribution/serving_steps.parquet",
    "One row per step of a serving engine, as its annotations say, or by repetition of what its threads launch. A "
    "kernel is of the step that launched it, whenever it ran. Times are those of the profiled run.", {
        "step": (INT, "row key in start order"),
        "source": (NAME, "annotation, or repetition where the engine annotates no steps"),
        "engine": (NAME, "engine whose form the annotation has"),
        "annotation": (TEXT, "the annotation, of nested ones the outer"),
        "phase": (NAME, "prefill, decode or mixed"),
        "scheduled_tokens": (INT, "tokens computed in the step"),
        "context_requests": (INT, "requests whose prompt is computed"),
        "generation_requests": (INT, "requests that get a token"),
        "batch": (INT, "batch that is executed, padding of a graph included"),
        **{f"{kind}_{name}": (INT, f"sum over {kind} requests of {what}") for kind in ("context", "generation")
           for name, what in _SUMS.items()},
        "speculative": (INT, "1 where a generation request has several query tokens: not all may be accepted"),
        "why_absent": (TEXT, "why its phase, batch or tokens are null where repetition tells of it"),
        "left_out": (NAME, "why it is in no median and no budget of its phase; null where it is"),
        "warning": (TEXT, "what its annotations contradict, or that the trace cuts it"),
        "t_start_ns": (INT, "start of the annotation on the host; by repetition that of its first call"),
        "t_end_ns": (INT, "its end"),
        "device_start_ns": (INT, "start of the first kernel that it launched"),
        "device_end_ns": (INT, "end of the last kernel"),
        "kernels": (INT, "kernels that it launched"),
        "kernel_ns": (INT, "sum of their durations"),
        "busy_ns": (INT, "time in which at least one of its kernels, copies and fills ran"),
        "copies": (INT, "copies and fills that it launched"),
        "copy_ns": (INT, "sum of their durations"),
        "graph_launches": (INT, "launches of a device graph"),
        "graph_launch_ns": (INT, "time of the host in these calls"),
        "graph_kernels": (INT, "kernels that they launched"),
        "graph_ns": (INT, "from the start of the first of these kernels to the end of the last; null without any"),
        "call_ns": (INT, "time of the step in which the host was in a call of the device's runtime, waits included"),
        "wait_ns": (INT, "time of the host in calls that wait for the device"),
        "flops": (INT, "operations of its matrix products and attention on one rank, padding of its graph included"),
        "attention_flops": (INT, "those of attention"),
        "attention_bytes": (INT, "least bytes that attention moves: queries, results, keys and values"),
        "weight_bytes": (INT, "weights that it must read; of experts the fewest that its tokens can go to"),
        "most_weight_bytes": (INT, "weights if its tokens go to as many experts as they can"),
        "kv_bytes": (INT, "keys and values that it must read"),
        "moved_bytes": (INT, "least bytes that it moves: weights, keys and values, activations of products"),
        "work_is_bound": (INT, "1 where a sliding window makes these a bound from above; 0 where they are exact"),
        "why_no_work": (TEXT, "why these are null"),
        "idle_before_ns": (INT, "from the end of its engine's earlier kernels to its first; null of an engine's first, "
                           "and where engines share a device"),
        **CAPTURE,
    }, never_null=("step", "kernels", "kernel_ns"))
SERVING_KERNELS = TableSpec(
    "serving_kernels", "attribution/serving_kernels.parquet",
    "One row per kernel that a step of a serving engine launched: its place in the model, as the repetition of kernels "
    "shows it.", {
        "kernel_id": (INT, "kernel"),
        "step": (INT, "row of serving_steps"),
        "layer": (INT, "number of the layer, 0-based; null before the first, behind the last, and where none repeat"),
        "position": (INT, "place in a layer of this kind; null where such layers have no such kernel"),
        "kind": (INT, "kind of the layer, 0-based by first appearance: layers of one kind hold the same"),
        **WHEN,
        "part": (NAME, "attention, mlp, moe, norm or collective; null where the kernels' families do not tell"),
        **CAPTURE,
    }, never_null=("kernel_id", "step"))
