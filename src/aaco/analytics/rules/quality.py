"""Conditions of the measurement itself, shown beside the class: they do not name a bottleneck."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from aaco.core.advice import Step, fact_is
from aaco.core.readings import Evidence, Reading
from aaco.core.registry import rule

SOURCE = "docs/concepts/measuring.md"


@rule(label="warmup_instability", kind="condition", source=SOURCE,
      advice=("give it more warm-up: aaco run --warmup N, with N at least warmup_iterations_needed",))
def warmup_instability(warmup_shortfall: Reading) -> Iterator[Evidence]:
    """The first measured iterations still belong to the warm-up."""
    yield warmup_shortfall.above(1, "measured iterations before the steady state", essential=True)


@rule(label="noisy_latency", kind="condition", source=SOURCE,
      advice=("quiet the machine, or measure in more fresh processes: aaco run --processes 5, or of a command "
              "aaco profile --runs 20",))
def noisy_latency(latency_cov_pct: Reading) -> Iterator[Evidence]:
    """Latency varies so much that small changes cannot be seen."""
    yield latency_cov_pct.above(10, "coefficient of variation", essential=True)


@rule(label="drifting_latency", kind="condition", source=SOURCE,
      advice=("give it more warm-up, or let the device cool; a trend that goes on is a leak or a falling clock",))
def drifting_latency(latency_drift_pct: Reading, latency_drift_p: Reading) -> Iterator[Evidence]:
    """The latency rose or fell over the run, by 5 % or more and not by chance."""
    yield latency_drift_p.below(0.01, "probability of such a trend by chance", essential=True)
    drift = latency_drift_pct.value
    size = replace(latency_drift_pct, value=None if drift is None else abs(drift))
    way = "" if not drift else ", slower towards the end" if drift > 0 else ", faster towards the end"
    yield size.above(5, f"change from the first to the last inference{way}", essential=True)


@rule(label="several_modes", kind="condition", source=SOURCE,
      advice=("look for what alternates: CPUs of two kinds, clocks, memory placement, a cache that just holds it",))
def several_modes(latency_modes: Reading) -> Iterator[Evidence]:
    """The latencies have several modes, and a median describes none of them."""
    yield latency_modes.above(2, "modes of the latencies", essential=True)


@rule(label="throttled_clock", kind="condition", source=SOURCE,
      advice=("let the device cool or raise its power limit, and compare only runs that were held back alike",))
def throttled_clock(device_throttled_pct: Reading) -> Iterator[Evidence]:
    """The driver held the device's clock down, for power or for heat."""
    yield device_throttled_pct.above(5, "samples with a throttle reason", essential=True)


@rule(label="shared_device", kind="condition", source=SOURCE,
      advice=(Step("find who else computes on it: nvidia-smi pmon -c 5", (fact_is("vendor", "nvidia"),)),
              Step("find who else computes on it: amd-smi process", (fact_is("vendor", "amd"),)),
              Step("have the device to yourself (CUDA_VISIBLE_DEVICES), or an instance of it (MIG); what must share it "
                   "shares it better under MPS", (fact_is("vendor", "nvidia"),)),
              Step("have the device to yourself (HIP_VISIBLE_DEVICES), or a partition of it",
                   (fact_is("vendor", "amd"),)),
              "until then compare runs that take turns, so that both meet the same load"))
def shared_device(device_others_sm_pct: Reading, device_processes_max: Reading) -> Iterator[Evidence]:
    """Another process computed on the device while it was measured."""
    yield device_others_sm_pct.above(5, "the device's time that others had", 0.7, essential=True)
    yield device_processes_max.above(2, "processes that hold the device", 0.3)


@rule(label="interference", kind="condition", source=SOURCE,
      advice=("find the other load with top, pin the run to idle cores, or stop what competes; aaco run --noise repeat "
              "measures until enough inferences are clean",))
def interference(noise_impact_pct: Reading, scheduler_interference: Reading) -> Iterator[Evidence]:
    """What else ran on the machine slowed the measured inferences, or kept a traced program's threads from a CPU."""
    if noise_impact_pct.value is None and scheduler_interference.value is not None:
        yield scheduler_interference.above(0.05, "waits for a CPU, per time of the trace", essential=True)
        return
    yield noise_impact_pct.above(5, "cost of recorded interference", essential=True)
