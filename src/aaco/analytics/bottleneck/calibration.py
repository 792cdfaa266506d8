"""Thresholds of the session rules and their reliability, fitted on labelled recordings and kept as data.

Provenance: python -m benchmarks.diagnosis.classify --fit, on 66 recordings of 46 workloads on an NVIDIA H200 and an
H100 (PyTorch 2.11), each with a bottleneck planted by construction and imported with its unprofiled latencies. In
leave-one-workload-out cross-validation each fold fits its own thresholds; those here are fitted on all. 13 of the
recordings were made when the rules were final; without them the thresholds are the same.
"""

from __future__ import annotations

from msgspec import Struct

from aaco.core.readings import Verdict


class Thresholds(Struct, frozen=True):
    """Shares of the wall in per cent.

    device: below it the device is not the limit. majority: of the device's time; a limit that takes less is one of
    several. host: from here on the device waits too long for the host (the line is drawn at 0.7 of GPU
    active). transfer: time in which only transfers run. launch_stretch: by how much, at most, a profiler makes
    launching longer (1.5 to 6.5 times; 6.4 is the most of 70 steps timed with and without it).
    """

    device_pct: float = 70.0
    majority_pct: float = 60.0
    host_pct: float = 30.0
    transfer_pct: float = 40.0
    launch_stretch: float = 6.5


class ReliabilityBin(Struct, frozen=True):
    """Verdicts with a margin from `margin` up to the next bin: how many, and how many of them were right."""

    margin: float
    judged: int
    right: int

    @property
    def probability(self) -> float:
        """The probability that a verdict of this bin is right."""
        return (self.right + 1) / (self.judged + 2)


FITTED = Thresholds()
# Classes that at least two workloads of the labelled recordings have and were diagnosed with; others are not covered.
COVERED = frozenset({"compute_bound", "memory_bound", "memory_latency_bound", "launch_bound", "cpu_bound",
                     "transfer_bound", "sync_bound"})
RELIABILITY = (ReliabilityBin(0.0, 1, 1), ReliabilityBin(10.0, 10, 10), ReliabilityBin(25.0, 55, 54))
# Of runs on CPUs: python -m benchmarks.diagnosis --only cpu_runs on 2 virtual CPUs of an EPYC, ONNX Runtime 1.31. Only
# the ten models count that were written after the rules' last change, idle and beside a busy program on each CPU.
CPU_COVERED = frozenset({"compute_bound", "memory_bound", "overhead_bound", "threads_bound", "contended"})
CPU_RELIABILITY = (ReliabilityBin(0.0, 20, 20),)


def of_verdict(verdict: Verdict) -> tuple[frozenset[str], tuple[ReliabilityBin, ...]]:
    """Return the classes that are covered, and their reliability, on recordings of the verdict's kind: of devices, or
    of runs on CPUs.
    """
    on_cpus = any("cpu_budget" in evidence.reading.source for evidence in verdict.evidence)
    return (CPU_COVERED, CPU_RELIABILITY) if on_cpus else (COVERED, RELIABILITY)
