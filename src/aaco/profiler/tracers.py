"""Tracers of a process of ours that runs a model, one for each vendor: what starts them, and what they leave."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from aaco.core.errors import Missing
from aaco.profiler import cupti, formats, installed, rocprofv3_csv
from aaco.profiler.capture import gathered, members
from aaco.profiler.launchers import cupti as cupti_launcher
from aaco.profiler.launchers import rocprofv3

Found = tuple[dict[str, list[pa.Table]], list[str]]  # parts of tables by name, and what is said to be lost


@dataclass(frozen=True)
class Around:
    """What makes a process be traced: variables of its environment, and words before its command."""

    environment: Mapping[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()


class Tracer(Protocol):
    """NAME: as sessions have it. CLOCK: of its times, as ClockOffsets.ahead_ns calls it."""

    @property
    def NAME(self) -> str: ...
    @property
    def CLOCK(self) -> str: ...

    def around(self, passes: Sequence[tuple[Path, bool]]) -> list[Around]:
        """What makes a process of each pass be traced into its folder: kernels and copies, with the calls that put them
        on the device or without. Raises Missing, UsageError for a folder that the tool does not take.
        """

    def processes(self, folder: Path) -> Iterator[Found]:
        """What each traced process left there. Raises BadCapture."""


class Cupti:
    """NVIDIA's devices, by our own tracer inside the process."""

    NAME = cupti_launcher.NAME
    CLOCK = "realtime"

    def around(self, passes: Sequence[tuple[Path, bool]]) -> list[Around]:
        """See Tracer. Where CUPTI cannot trace, the capture says so."""
        return [Around(cupti_launcher.environment(folder.resolve(), "all" if calls else "kernels"))
                for folder, calls in passes]

    def processes(self, folder: Path) -> Iterator[Found]:
        """See Tracer."""
        yield from (cupti.read(path) for path in sorted(folder.glob("*.cupti")))


class Rocprofv3:
    """AMD's devices, by ROCm's tracer, which starts the process."""

    NAME = rocprofv3.NAME
    CLOCK = rocprofv3_csv.CLOCK

    def around(self, passes: Sequence[tuple[Path, bool]]) -> list[Around]:
        """See Tracer. rocprofv3 becomes the process (execvpe), so that its number and its input are as without it."""
        path = shutil.which(rocprofv3.NAME)
        if path is None:
            raise Missing(f"{rocprofv3.NAME} is not installed, or not on the PATH", rocprofv3.INSTALL)
        tool = installed.asked(rocprofv3, path)
        return [Around(before=rocprofv3.before(tool, folder.resolve(), calls)) for folder, calls in passes]

    def processes(self, folder: Path) -> Iterator[Found]:
        """See Tracer."""
        seen = set[Path]()
        for path in sorted(folder.rglob("*.csv")):
            if path in seen or formats.recognise(path) is not rocprofv3_csv:
                continue
            seen.update(members(rocprofv3_csv, path))
            yield gathered(rocprofv3_csv.parse(path))


TRACERS: dict[str, Tracer] = {one.NAME: one for one in (Cupti(), Rocprofv3())}
