"""Telemetry during a workload: the operating system around a process, and the devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from aaco import markers
from aaco.collectors.gpu import device_accounts, device_watch
from aaco.collectors.host import ladder
from aaco.collectors.host.ladder import HostRecording
from aaco.core.clocks import ClockOffsets
from aaco.core.readings import Absent
from aaco.core.session import Session
from aaco.core.show import SILENT, Show
from aaco.core.tables import GPU_EVENTS, SAMPLES, replaced
from aaco.profiler.formats.system import smi
from aaco.tracelake import layout


class Watch(Struct):
    """The recording of the operating system around one process, once it has begun."""

    begin: Callable[[int], None]  # with the process's id
    recording: HostRecording | None = None

    @property
    def told(self) -> dict[str, Any] | None:
        """What it says of itself, for the session."""
        return self.recording.document() if self.recording else None


@contextmanager
def system(session: Session, tier: str | None, process: int = 0, show: Show = SILENT) -> Iterator[Watch]:
    """Record the process that the block names until the block ends, by this tier at best; None: do not record."""

    def begin(pid: int) -> None:
        if tier:
            watch.recording = ladder.climb(pid, session.folder / layout.SYSTEM_RAW, process, tier)
            if watch.recording.shortfall and not process:
                show.step(f"operating system: {watch.recording.shortfall}")

    watch = Watch(begin)
    try:
        yield watch
    finally:
        if watch.recording:
            watch.recording.stop()


def devices(session: Session, tier: str | None) -> AbstractContextManager[None]:
    """A block in which the devices that there are get recorded, where anything is to be."""
    return device_watch.recorded(session.folder / layout.DEVICE_RAW) if tier else nullcontext()


def devices_and_packages(session: Session, asked: bool) -> AbstractContextManager[None]:
    """A block in which the devices and the processor's packages get recorded, if the user wants it."""
    return device_watch.recorded(session.folder / layout.DEVICE_RAW, vendors=[*device_watch.makers(),
                                 device_accounts.PACKAGES]) if asked else nullcontext()


def of_devices(session: Session) -> dict[str, Callable[[], pa.Table]]:
    """Return by name what reads each table of the devices' telemetry. These raise Absent, BadCapture."""
    folder = session.folder / layout.DEVICE_RAW
    return {GPU_EVENTS.name: lambda: device_watch.events(folder, smi.gpu_events),
            SAMPLES.name: lambda: device_watch.samples(folder)}


def marks(session: Session, process: int = 0) -> dict[str, str]:
    """Return the variable that gives a process the file of its marks (aaco.markers)."""
    path = session.folder / layout.SYSTEM_RAW / f"{ladder.MARKERS}-{process:03d}.bin"
    return {markers.PATH: str(path.resolve())}


def beside(session: Session, clock: str | None) -> Iterator[pa.Table]:
    """Yield the tables of the telemetry of a traced program, with times on the clock of its trace.

    clock: as `ClockOffsets.ahead_ns` names it. Nothing where that is none of this host's. Raises BadCapture.
    """
    clocks = session.record.clocks
    ahead_ns = ClockOffsets(**clocks).ahead_ns(clock) if clocks else None
    if ahead_ns is None:
        return
    readers: dict[str, Callable[[Path], pa.Table]] = {
        layout.SYSTEM_RAW: ladder.parse, layout.DEVICE_RAW: partial(device_watch.events, asked=smi.gpu_events)}
    for folder, read in (*readers.items(), (layout.DEVICE_RAW, device_watch.samples)):
        try:
            table = read(session.folder / folder)
        except Absent:
            continue
        table = replaced(table, "t_ns", pc.add(table["t_ns"], ahead_ns))
        if "clock" in table.column_names:
            table = replaced(table, "clock", pa.array([clock] * table.num_rows).dictionary_encode())
        yield table
