"""The causes that can be answered: what each is, what must be seen of it, what to do, and how it is ranked.

ease and actionability are judgements from 0 to 1, not measurements: how little work the step is, and how far it is in
the hands of whoever runs the workload.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

SOUND, UNKNOWN = "no_fault", "unknown"


class Cause(Struct, frozen=True):
    """kind: what it takes away or changes; part: the symptom that tells how much of the slowdown it took, where one
    does; reverts: the field of the plan that takes it back; empty where this tool cannot, and then why_not_reverted."""

    name: str
    kind: str
    title: str
    step: str
    ease: float
    actionability: float
    part: str = ""
    reverts: str = ""
    why_not_reverted: str = ""


OF_OTHERS = "the disturbance belongs to somebody else on the machine"
OF_THE_PROGRAM = "it is work of the program itself, or how it was started"
_ALL = (
    Cause("cpu_contention", "processor", "other tasks run on its CPUs",
          "move them away, or measure with `aaco run --lab standard`", 0.7, 0.7, "waiting_part",
          why_not_reverted=OF_OTHERS),
    Cause("core_pinning", "processor", "it may use fewer CPUs than before",
          "widen its CPU affinity (taskset -c, cpuset)", 0.9, 0.9, "waiting_part", why_not_reverted=OF_THE_PROGRAM),
    Cause("cpu_quota", "processor", "a CPU quota of its control group stops it",
          "raise cpu.max, or ask for fewer threads", 0.7, 0.8, why_not_reverted="the quota is set from outside"),
    Cause("threads", "processor", "more threads than CPUs", "set intra_op_threads to the number of CPUs", 1.0, 1.0,
          reverts="backend"),
    Cause("timer_interrupts", "processor", "interrupts take its CPUs' time",
          "find their source in /proc/interrupts; steer them to other CPUs", 0.4, 0.5, why_not_reverted=OF_OTHERS),
    Cause("memory_bandwidth", "bandwidth", "others use up the memory's bandwidth",
          "move them to another socket or time", 0.5, 0.5, why_not_reverted=OF_OTHERS),
    Cause("page_faults", "host", "the host touches new memory between inferences",
          "reuse buffers instead of making new ones", 0.6, 0.9, "kernel_time", why_not_reverted=OF_THE_PROGRAM),
    Cause("host_work", "host", "the host computes between inferences",
          "profile the host code; move it off the critical path", 0.5, 0.9, "between_inferences",
          why_not_reverted=OF_THE_PROGRAM),
    Cause("disk_reads", "host", "it waits for reads from a disk between inferences",
          "read ahead, or keep the data in memory", 0.6, 0.9, "between_inferences", why_not_reverted=OF_THE_PROGRAM),
    Cause("synced_writes", "host", "it waits for writes to reach a disk",
          "write in the background; sync less often", 0.8, 0.9, "between_inferences", why_not_reverted=OF_THE_PROGRAM),
    Cause("allocator", "allocation", "each inference requests its memory from the kernel again",
          "leave ONNX Runtime's memory arena and patterns on; raise malloc's thresholds", 0.9, 0.9,
          why_not_reverted=OF_THE_PROGRAM),
    Cause("graph_optimization", "runtime", "the runtime optimises the graph less",
          "set graph_optimization to all in the backend", 1.0, 1.0, reverts="backend"),
    Cause("extra_nodes", "model", "the model has nodes that it did not have",
          "compare the exports of the two models", 0.6, 0.9, reverts="model"),
    Cause("precision", "model", "the model computes in another element type",
          "compare the exports of the two models", 0.6, 0.9, reverts="model"),
    Cause("batch", "input", "more is fed to an inference: batch or sequence",
          "compare per sample, or feed as much as before", 1.0, 1.0, reverts="batch"),
    Cause("shape_churn", "input", "shapes change from inference to inference", "pad to a few shapes", 0.6, 0.9,
          reverts="shapes"),
    Cause(UNKNOWN, "none", "a cause that nobody has planted yet",
          "look at the evidence that no known cause explains: --level deep-dive", 0.2, 0.2,
          why_not_reverted="nobody knows what to take back"),
    Cause(SOUND, "none", "nothing wrong was found", "nothing", 1.0, 0.0,
          why_not_reverted="there is nothing to take back"),
)
CAUSES: Mapping[str, Cause] = MappingProxyType({cause.name: cause for cause in _ALL})
# The symptoms that a cause moves by what it is: where one was recorded and did not move, the cause is not there.
SIGNS: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "cpu_contention": ("others_at_work",), "core_pinning": ("cpus_allowed",), "cpu_quota": ("throttled",),
    "threads": ("threads",), "timer_interrupts": ("interrupts",), "memory_bandwidth": ("memory_copy",),
    "page_faults": ("page_faults", "between_inferences"), "host_work": ("between_inferences",),
    "disk_reads": ("reads",), "synced_writes": ("writes",), "allocator": ("page_faults",),
    "graph_optimization": ("operators_executed",), "extra_nodes": ("nodes_given",), "precision": ("element_types",),
    "batch": ("elements",), "shape_churn": ("shapes",)})
FALLING = frozenset({"cpus_allowed"})  # signs that fall; the others rise


def of(name: str) -> Cause:
    """Return the cause of this name; one that only a user has named is described by its name."""
    return CAUSES.get(name) or Cause(name, name, name.replace("_", " "), "as when it was confirmed before", 0.5, 0.5,
                                     why_not_reverted="nothing is known of it but its name")
