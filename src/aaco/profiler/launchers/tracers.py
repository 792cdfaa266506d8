"""Tracers of our own process that runs a model, one for each vendor: how to start them, and their output."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from msgspec import Struct, field

from aaco.core.errors import Missing
from aaco.profiler.capture import gathered, members
from aaco.profiler.formats import registry
from aaco.profiler.formats.nvidia import cupti
from aaco.profiler.formats.rocprofv3 import rocprofv3_csv
from aaco.profiler.launchers import cupti as cupti_launcher
from aaco.profiler.launchers import installed, rocprofv3

ProcessTrace = tuple[dict[str, list[pa.Table]], list[str]]  # parts of tables by name, and reports of losses


class TraceSetup(Struct, frozen=True):
    """What traces a process: variables of its environment, and words before its command."""

    environment: Mapping[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()


class DeviceTracer(Protocol):
    """NAME: as sessions have it. CLOCK: of its times, as ClockOffsets.ahead_ns calls it."""

    @property
    def NAME(self) -> str: ...
    @property
    def CLOCK(self) -> str: ...

    def around(self, passes: Sequence[tuple[Path, bool]]) -> list[TraceSetup]:
        """Return the setup that traces a process of each pass into its folder: kernels and copies, with the calls that
        launch them or without. Raise Missing, and UsageError for a folder that the tool does not take.
        """

    def processes(self, folder: Path) -> Iterator[ProcessTrace]:
        """Yield the trace of each process in the folder. Raise BadCapture."""


class Cupti:
    """NVIDIA's devices, by our own tracer inside the process."""

    NAME = cupti_launcher.NAME
    CLOCK = "realtime"

    def around(self, passes: Sequence[tuple[Path, bool]]) -> list[TraceSetup]:
        """See DeviceTracer. If CUPTI cannot trace, the capture states why."""
        return [TraceSetup(cupti_launcher.environment(folder.resolve(), "all" if calls else "kernels"))
                for folder, calls in passes]

    def processes(self, folder: Path) -> Iterator[ProcessTrace]:
        """See DeviceTracer."""
        yield from (cupti.read(path) for path in sorted(folder.glob("*.cupti")))


class Rocprofv3:
    """AMD's devices, by ROCm's tracer, which starts the process."""

    NAME = rocprofv3.NAME
    CLOCK = rocprofv3_csv.CLOCK

    def around(self, passes: Sequence[tuple[Path, bool]]) -> list[TraceSetup]:
        """See DeviceTracer. rocprofv3 becomes the process (execvpe), which keeps its process id and its input."""
        path = shutil.which(rocprofv3.NAME)
        if path is None:
            raise Missing(f"{rocprofv3.NAME} is not installed, or not on the PATH", rocprofv3.INSTALL)
        tool = installed.asked(rocprofv3, path)
        return [TraceSetup(before=rocprofv3.before(tool, folder.resolve(), calls)) for folder, calls in passes]

    def processes(self, folder: Path) -> Iterator[ProcessTrace]:
        """See DeviceTracer."""
        seen = set[Path]()
        for path in sorted(folder.rglob("*.csv")):
            if path in seen or registry.recognise(path) is not rocprofv3_csv:
                continue
            seen.update(members(rocprofv3_csv, path))
            yield gathered(rocprofv3_csv.parse(path))


TRACERS: dict[str, DeviceTracer] = {tracer.NAME: tracer for tracer in (Cupti(), Rocprofv3())}
