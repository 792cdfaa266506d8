"""Watches the operating system around a process: the best tier that this host allows, and /proc in parallel.

T3 (BPF) and T2 (perf events) record single events, and only one of them runs; T1 samples what neither of them sees:
pressure, steal, clocks, memory. If the requested tier is not available, the next one is used, and the recording says
so. Events of GPU drivers are recorded with T3 if there are any. Sources of other packages (entry points of the group
aaco.collectors, each a Rung) run in parallel.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from msgspec import Struct

from aaco.collectors.host import bpf_gpu, bpf_scheduler, perf_switches, process_sampler, user_markers
from aaco.collectors.host.tiers import TIERS
from aaco.core.errors import Missing
from aaco.core.host import Host
from aaco.core.readings import Absent

MARKERS = "markers"  # how the files begin that the measured program itself writes (aaco.markers)
SHORTEST = 16  # bytes of the shortest header; a file of fewer was begun by a process that was killed there


class HostSource(Protocol):
    """A live source of operating-system events."""

    def start(self) -> None:
        """Begin. Raise Missing if this host does not allow it."""

    def stop(self) -> pa.Table:
        """End, and return its system_events."""

    @property
    def overhead(self) -> dict[str, Any]:
        """Return its overhead, and what it lost."""


class Rung(Struct, frozen=True):
    """A tier: the prefix of its raw files, its source, and its parser."""

    prefix: str
    source: Callable[..., HostSource]
    parse: Callable[[Path], pa.Table]


RUNGS = {"T3": Rung("bpf", bpf_scheduler.SchedulerTracer, bpf_scheduler.parse),
         "T2": Rung("perf", perf_switches.PerfSwitchSampler, perf_switches.parse),
         "T1": Rung("procfs", process_sampler.ProcessSampler, process_sampler.parse)}
GPU = Rung("gpu", bpf_gpu.GpuTracer, bpf_gpu.parse)


def plugins() -> dict[str, Rung]:
    """Return the sources of other packages, by the name of their entry point."""
    return {point.name: point.load() for point in entry_points(group="aaco.collectors")}


class HostRecording(Struct, frozen=True):
    """A running recording. achieved: the best tier that runs; why_not: the reason of each better one."""

    asked: str
    achieved: str
    why_not: dict[str, str]
    sources: dict[str, HostSource]
    running: ExitStack

    def stop(self) -> None:
        """End all sources. Raise StorageError if the disk refused what one of them recorded."""
        self.running.close()

    @property
    def shortfall(self) -> str:
        """Return what was requested and is missing, and why; empty if nothing is."""
        if self.asked == self.achieved:
            return ""
        reasons = "; ".join(f"{tier} ({TIERS.get(tier, 'plug-in')}): {why}" for tier, why in self.why_not.items())
        return f"recorded with {self.achieved} ({TIERS[self.achieved]}), because {reasons}"

    def document(self) -> dict[str, Any]:
        """Return, for the session, the requested and the achieved tier, the reasons, and each tier's overhead."""
        return {"asked": self.asked, "achieved": self.achieved, "why_not": self.why_not,
                "tiers": {tier: source.overhead for tier, source in self.sources.items()}}


def climb(pid: int, folder: Path, process: int, asked: str) -> HostRecording:
    """Record a process with the best tier from `asked` down, and with T1 in parallel. Raise StorageError."""
    sources: dict[str, HostSource] = {}
    why_not: dict[str, str] = {}
    tiers = list(RUNGS)
    rungs = {tier: RUNGS[tier] for tier in tiers[tiers.index(asked):]} | plugins()
    if asked == "T3" and bpf_gpu.why_not(Host()) is None:
        rungs["GPU"] = GPU
    with ExitStack() as running:
        for tier, rung in rungs.items():
            if tier == "T2" and sources:
                continue  # the events are recorded once
            source = rung.source(pid, raw=folder / f"{rung.prefix}-{process:03d}.bin")
            try:
                source.start()
            except Missing as reason:
                why_not[tier] = reason.what
                continue
            sources[tier] = source
            running.callback(source.stop)
        return HostRecording(asked, next(iter(sources)), why_not, sources, running.pop_all())


def parse(folder: Path) -> pa.Table:
    """Return the system_events of all raw files of a session, in order of time. Raise Absent, BadCapture."""
    readers = {rung.prefix: rung.parse for rung in (*RUNGS.values(), GPU, *plugins().values())}
    readers[MARKERS] = user_markers.parse
    tables = [read(raw) for prefix, read in readers.items() for raw in sorted(folder.glob(f"{prefix}-*.bin"))
              if raw.stat().st_size >= SHORTEST]
    if not tables:
        raise Absent(f"{folder}: nothing was recorded")
    return pa.concat_tables(tables).unify_dictionaries().sort_by("t_ns")
