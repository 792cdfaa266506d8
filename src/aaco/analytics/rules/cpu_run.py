"""What limits a run on CPUs: the largest part of the time that the run itself had, and what others took beside it."""

from __future__ import annotations

from collections.abc import Iterator

from aaco.analytics.rules import roof
from aaco.core.readings import Evidence, Reading
from aaco.core.registry import rule

SOURCE = roof.SOURCE + "; docs/concepts/diagnosis.md"


@rule(label="overhead_bound", source=SOURCE, advice=(
    "let the runtime fuse more: graph_optimization all, onnxruntime.transformers.optimizer",
    "raise the batch so that each node does more",
    "export the model with fewer, larger nodes: the report lists which could be one"))
def overhead_bound(runtime_overhead_pct: Reading, node_compute_pct: Reading, node_memory_pct: Reading,
                   thread_wait_pct: Reading, node_unplaced_pct: Reading, unexplained_pct: Reading,
                   contended_pct: Reading, quota_pct: Reading) -> Iterator[Evidence]:
    """The runtime takes longer to run the nodes than their work takes: too many small ones."""
    yield from roof.of_cpu_run(runtime_overhead_pct, "the runtime takes most of the run's own time to run its nodes",
                               (node_compute_pct, node_memory_pct, thread_wait_pct, node_unplaced_pct, unexplained_pct),
                               contended_pct, quota_pct)


@rule(label="threads_bound", source=SOURCE, advice=(
    "use as many threads as the run has CPUs, or fewer: intra_op_threads in configs/backends.yaml",
    "give each thread more: a larger batch, larger nodes"))
def threads_bound(thread_wait_pct: Reading, node_compute_pct: Reading, node_memory_pct: Reading,
                  runtime_overhead_pct: Reading, node_unplaced_pct: Reading, unexplained_pct: Reading,
                  contended_pct: Reading, quota_pct: Reading, threads_per_cpu: Reading) -> Iterator[Evidence]:
    """The run's own threads wait for each other: more of them than CPUs, or unequal work."""
    yield from roof.of_cpu_run(thread_wait_pct, "its threads wait for each other most of the run's own time",
                               (node_compute_pct, node_memory_pct, runtime_overhead_pct, node_unplaced_pct,
                                unexplained_pct), contended_pct, quota_pct)
    if thread_wait_pct.value is not None:
        yield threads_per_cpu.above(1.01, "there are more threads than CPUs", 0.05)


@rule(label="contended", source=SOURCE, advice=(
    "raise the quota of the run's control group (cpu.max), or use no more threads than it pays for",
    "keep other processes off its CPUs (aaco run --lab standard), or measure when they are idle"))
def contended(quota_pct: Reading, contended_pct: Reading, node_compute_pct: Reading) -> Iterator[Evidence]:
    """A quota, which stays, takes most of the time; or so much is taken that nothing is left to judge the run by."""
    if node_compute_pct.value is None:
        return
    if quota_pct.value is not None and quota_pct.value >= roof.QUOTA_PCT:
        yield quota_pct.above(roof.QUOTA_PCT, "a quota keeps it from its CPUs", 1.0, essential=True)
    else:
        yield contended_pct.above(roof.NOTHING_LEFT_PCT, "others leave nothing to judge it by", 1.0, essential=True)


@rule(label="contended_cpus", kind="condition", source=SOURCE, advice=(
    "keep other processes off its CPUs (aaco run --lab standard), pin the run to idle ones, or measure when they are "
    "idle",))
def contended_cpus(contended_pct: Reading) -> Iterator[Evidence]:
    """Others took a good part of the clean inferences: the class is of the rest, the run's own time."""
    yield contended_pct.above(10, "waits for a CPU, steal and quotas", essential=True)


@rule(label="over_subscribed", kind="condition", source=SOURCE, advice=(
    "use as many threads as the run may use CPUs: intra_op_threads in configs/backends.yaml; ONNX Runtime counts the "
    "machine's cores, not those that an affinity or a quota leaves",))
def over_subscribed(threads_per_cpu: Reading) -> Iterator[Evidence]:
    """The run has more working threads than CPUs that it may use."""
    yield threads_per_cpu.above(1.01, "working threads per CPU", essential=True)
