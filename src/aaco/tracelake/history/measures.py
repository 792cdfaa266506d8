"""What is judged of sessions, by name, without pydantic, which holds the samples and takes time to import."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from aaco.tracelake.history.replicates import Replicate


class Measure(Struct, frozen=True):
    """What is judged of a session, and its value in each process; empty where a process has none."""

    unit: str
    direction: Literal["lower_is_better", "higher_is_better"]
    what: str
    of: Callable[[Replicate], tuple[float, ...]]
    why_absent: str = "not measured"


def _all(values: Iterable[float | None]) -> tuple[float, ...]:
    """The values, or nothing where one of them is missing."""
    listed = tuple(values)
    return tuple(value for value in listed if value is not None) if None not in listed else ()


def _kernel_time(replicate: Replicate) -> tuple[float, ...]:
    profile = replicate.profile
    busy = profile.window_ns - profile.gaps_ns if profile else 0
    return (busy / profile.inferences / 1e6,) if profile and busy else ()


LATENCY = "latency_ms"
# Tails are compared at session level: the quantile of each process, then Student's t over processes.
MEASURES: Mapping[str, Measure] = {
    LATENCY: Measure("ms", "lower_is_better", "median latency",
                     lambda replicate: tuple(process.median_ms for process in replicate.processes)),
    "latency_p90_ms": Measure("ms", "lower_is_better", "90th percentile of latency",
                              lambda replicate: _all(process.p90_ms for process in replicate.processes),
                              "a process has fewer than the 10 iterations that p90 needs"),
    "latency_p99_ms": Measure("ms", "lower_is_better", "99th percentile of latency",
                              lambda replicate: _all(process.p99_ms for process in replicate.processes),
                              "a process has fewer than the 100 iterations that p99 needs"),
    "throughput_per_s": Measure("1/s", "higher_is_better", "samples per second, by the mean latency",
                                lambda replicate: tuple(1e3 * (replicate.batch or 1) / process.mean_ms
                                                   for process in replicate.processes)),
    "kernel_time_ms": Measure("ms", "lower_is_better", "time with a kernel running per inference, profiled",
                              _kernel_time, "no kernels of measured inferences recorded"),
}
