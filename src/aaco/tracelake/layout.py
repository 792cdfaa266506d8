"""Where each thing is inside a session's folder: the bundle contract, in one place. Tables name their own file."""

from __future__ import annotations

MANIFEST = "manifest.json"
ENVIRONMENT = "env.json"
MODEL_META = "model/model_meta.json"
SERVED_MODEL = "model/served_model.json"  # of an import: the shape of the model that a serving engine ran
SOURCE_GRAPH = "model/source.onnx"
STAGE_GRAPHS = {"extended": "model/optimized_extended.onnx", "all": "model/optimized_all.onnx"}
OFFERED_GRAPH = "model/offered.onnx"  # what a provider that compiles subgraphs chose from
ORT_CONFIG = "runtime/ort_config.json"
CAPSULE = "runtime/capsule.json"  # under --lab: what was asked of the machine, and what held
DUET = "runtime/duet.json"  # of a comparison in turns: its plan, and what it met
COMMAND = "runtime/command.json"  # in its place, when a command was run
LOAD = "runtime/load.json"  # in its place, when an endpoint of a language model was asked
READS = "runtime/load.reads"  # and every read of the answers
LOAD_STEPS = "runtime/load_steps.json"  # of the last of several loads that rose: what each measured
MIGRAPHX_PARTITION = "runtime/migraphx_partition.json"
ORT_PROFILE = "profiler/raw/ort_profile.json.gz"
# What a device did, in three passes: beside the runtime's profile, with kernels alone, and with the calls.
CUPTI_NAMES, CUPTI_TIMES, CUPTI_CALLS = (f"profiler/raw/cupti-{name}" for name in ("names", "times", "calls"))
ROCPROF_RAW = "profiler/rocprof_raw"
DEVICE_PASSES = {"cupti": (CUPTI_NAMES, CUPTI_TIMES, CUPTI_CALLS),
                 "rocprofv3": tuple(f"{ROCPROF_RAW}/{name}" for name in ("names", "times", "calls"))}
# What further executions counted of it, each in a folder of its own.
DEVICE_COUNTERS = {"ncu": "profiler/raw/ncu", "rocprofv3": ROCPROF_RAW}
RAW = "profiler/raw"
EXECUTIONS = "profiler/executions.json"  # of a traced command: how each execution under the profiler went
CAPTURES = "profiler/captures.json"  # what an import read: files, facts, and the account of every record
GPU_EVENTS = "telemetry/gpu_events.parquet"
SYSTEM_RAW = "telemetry/raw"
DEVICE_RAW = "telemetry/devices"
SUMMARY = "metrics/inference_summary.json"
DERIVED_METRICS = "metrics/derived_metrics.json"
BOTTLENECK = "metrics/bottleneck.json"
TRACE_CHECK = "metrics/trace_check.json"
GIVEN_LATENCY = "runtime/given_latency.json"  # of an import: how long a step takes without a profiler
# What an examination of a trace found, by part; those it has nothing to say about are not there.
TRACE = {name: f"metrics/{name}.json" for name in
         ("timeline", "idle", "launches", "queues", "collectives", "steady_state")}
MACHINE_GAINS = "metrics/machine_gains.json"  # by advice, where it was tried on the machine of the session
LEDGER = "optimize/trials.jsonl"  # what was tried on the session, a line for each step
BASELINE_REF = "regress/baseline_ref.json"
DIFF = "regress/diff.json"
VERDICT = "regress/verdict.json"
HTML_REPORT = "report/report.html"
PLOTS = "report/plots"


def finding(name: str) -> str:
    """Return the file of a finding's document."""
    return f"metrics/{name}.json"
