"""The tables a session may hold: the contract between writers and readers, the same for every vendor.

Units live in column names (`_ns`, `_bytes`, `_ms`, `_pct`). Times are int64 nanoseconds on the host's CLOCK_MONOTONIC.
A column that a source cannot fill is null, never 0. Columns may be added, never renamed.
"""

from aaco.core.tables.attribution import (
    EAGER_STEP,
    FINGERPRINTS,
    GRAPH_CAPTURE,
    KERNEL_GROUPS,
    KERNEL_NAMES,
    KERNEL_ROOFLINE,
    OP_TO_KERNEL_MAP,
    OPERATORS,
    REFERENCE_LAUNCHES,
)
from aaco.core.tables.critical_path import CRITICAL_KERNELS, CRITICAL_PATH, KERNEL_SLACK
from aaco.core.tables.inference import ACCOUNT, INFERENCE_ITERS, ITERATION_FEATURES, ITERATION_OVERLAP, PAIRS
from aaco.core.tables.llm import ENGINE_STEPS, LLM_EVENTS, REQUESTS
from aaco.core.tables.model import EXECUTED_NODES, GRAPH_EDGES, GRAPH_NODES
from aaco.core.tables.serving import SERVING_KERNELS, SERVING_STEPS
from aaco.core.tables.spec import FLAG, INT, NAME, REAL, TEXT, TEXTS, TableSpec, replaced, sampled, started_in
from aaco.core.tables.telemetry import DEVICE_FACTS, DEVICE_LINKS, GPU_EVENTS, SAMPLES, SYSTEM_EVENTS
from aaco.core.tables.trace import (
    ALLOCATIONS,
    API_CALLS,
    CALL_ARGUMENTS,
    COLLECTIVES,
    COPIES,
    COUNTERS,
    CPU_PROVIDERS,
    KERNELS,
)
from aaco.core.tables.waves import (
    OCCUPANCY,
    SHADER_CLOCKS,
    WAVE_INSTRUCTIONS,
    WAVE_STATE_COUNTS,
    WAVE_STATES,
    WAVE_TRACE,
    WAVE_WAITS,
    WAVES,
)

__all__ = ["ACCOUNT", "ALL", "ALLOCATIONS", "API_CALLS", "CALL_ARGUMENTS", "COLLECTIVES", "COPIES", "COUNTERS",
           "CPU_PROVIDERS", "CRITICAL_KERNELS", "CRITICAL_PATH", "DEVICE_FACTS", "DEVICE_LINKS", "EAGER_STEP",
           "ENGINE_STEPS", "EXECUTED_NODES", "FINGERPRINTS", "FLAG", "GPU_EVENTS", "GRAPH_CAPTURE", "GRAPH_EDGES",
           "GRAPH_NODES", "INFERENCE_ITERS", "INT", "ITERATION_FEATURES", "ITERATION_OVERLAP", "KERNELS",
           "KERNEL_GROUPS", "KERNEL_NAMES", "KERNEL_ROOFLINE", "KERNEL_SLACK", "LLM_EVENTS", "NAME", "OCCUPANCY",
           "OF_INFERENCES", "OPERATORS", "OP_TO_KERNEL_MAP", "PAIRS", "REAL", "REFERENCE_LAUNCHES", "REQUESTS",
           "SAMPLES", "SERVING_KERNELS", "SERVING_STEPS", "SHADER_CLOCKS", "SYSTEM_EVENTS", "TEXT", "TEXTS", "WAVES",
           "WAVE_INSTRUCTIONS", "WAVE_STATES", "WAVE_STATE_COUNTS", "WAVE_TRACE", "WAVE_WAITS", "TableSpec", "replaced",
           "sampled", "started_in"]

OF_INFERENCES = (KERNELS.name, COPIES.name, API_CALLS.name)  # they begin before the first measured inference
ALL = {spec.name: spec for spec in (
    INFERENCE_ITERS, ITERATION_FEATURES, ITERATION_OVERLAP, ACCOUNT, PAIRS, KERNELS, COPIES, API_CALLS, CALL_ARGUMENTS,
    COUNTERS, COLLECTIVES, ALLOCATIONS, SAMPLES, SYSTEM_EVENTS, GPU_EVENTS, DEVICE_FACTS, DEVICE_LINKS,
    WAVE_INSTRUCTIONS, WAVES,
    WAVE_TRACE, WAVE_STATES, WAVE_WAITS, OCCUPANCY, WAVE_STATE_COUNTS, SHADER_CLOCKS, GRAPH_NODES, GRAPH_EDGES,
    EXECUTED_NODES, OP_TO_KERNEL_MAP, OPERATORS, REFERENCE_LAUNCHES, KERNEL_GROUPS, KERNEL_NAMES, FINGERPRINTS,
    KERNEL_ROOFLINE, CRITICAL_PATH, CRITICAL_KERNELS, KERNEL_SLACK, SERVING_STEPS, SERVING_KERNELS,
    REQUESTS, LLM_EVENTS, ENGINE_STEPS,
)}
