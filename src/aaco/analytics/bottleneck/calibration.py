"""Thresholds of the session rules and how often they are right: fitted on labelled recordings, kept as data.

Provenance: python -m benchmarks.diagnosis.classify --fit, on 66 recordings of 46 workloads on an NVIDIA H200 and an
H100 (PyTorch 2.11), each with a bottleneck planted by construction and imported with its unprofiled latencies. Leaving
one workload out, each fold fits its own thresholds; those here are fitted on all. 13 of the recordings were made when
the rules were final; without them the thresholds are the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from aaco.analytics.bottleneck.confidence import Bin


@dataclass(frozen=True)
class Thresholds:
    """Shares of the wall in per cent. device: below it the device is not what limits. majority: of the device's time, a
    limit that takes less is one of several. host: from here on the device waits for the host more than can be
    overlooked (METHODS section 1 draws the line at 0.7 of GPU active). transfer: time in transfers alone."""

    device_pct: float = 70.0
    majority_pct: float = 60.0
    host_pct: float = 30.0
    transfer_pct: float = 40.0


FITTED = Thresholds()
# Classes that at least two workloads of the labelled recordings have and were found in; of others nothing is known.
COVERED = frozenset({"compute_bound", "memory_bound", "memory_latency_bound", "launch_bound", "cpu_bound",
                     "transfer_bound", "sync_bound"})
RELIABILITY = (Bin(0.0, 3, 3), Bin(10.0, 11, 11), Bin(25.0, 52, 51))
