"""What is recorded beside a workload while it runs: the operating system around a process, and the devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from aaco import markers
from aaco.collectors import device_watch, ladder
from aaco.collectors.ladder import Recording
from aaco.core.clocks import ClockOffsets
from aaco.core.readings import Absent
from aaco.core.session import Session
from aaco.core.show import SILENT, Show
from aaco.core.tables import replaced
from aaco.profiler import smi
from aaco.tracelake import layout


@dataclass
class Watch:
    """The recording of the operating system around one process, once it has begun."""

    begin: Callable[[int], None]  # with the process's id
    recording: Recording | None = None

    @property
    def told(self) -> dict[str, Any] | None:
        """What it says of itself, for the session."""
        return self.recording.document() if self.recording else None


@contextmanager
def system(session: Session, tier: str | None, process: int = 0, show: Show = SILENT) -> Iterator[Watch]:
    """A block until whose end the process that it is told of is recorded, by this tier at best; None: it is not."""

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


def said(told: Iterable[dict[str, Any] | None]) -> Iterator[str]:
    """By which tiers the operating system was recorded, why not by a better one, and what was lost.

    told: what the recordings say of themselves.
    """
    known = [one for one in told if one and "achieved" in one]
    if not known:
        return
    tiers = dict.fromkeys(tier for one in known for tier in one["tiers"])
    best = " and ".join(f"{tier} ({ladder.NAMES.get(tier, tier)})" for tier in tiers)
    reasons = dict.fromkeys(f"{tier} was asked for: {why}" for one in known for tier, why in one["why_not"].items())
    lost = sum(tier.get("lost") or 0 for one in known for tier in one["tiers"].values())
    yield "; ".join((f"the operating system was recorded by {best}", *reasons,
                     *([f"{lost:,} events were lost"] if lost else []))) + "."


def devices(session: Session, tier: str | None) -> AbstractContextManager[None]:
    """A block in which the devices that there are get recorded, where anything is to be."""
    return device_watch.recorded(session.folder / layout.DEVICE_RAW) if tier else nullcontext()


def marks(session: Session, process: int = 0) -> dict[str, str]:
    """What tells a process where its marks go (aaco.markers)."""
    path = session.folder / layout.SYSTEM_RAW / f"{ladder.MARKERS}-{process:03d}.bin"
    return {markers.PATH: str(path.resolve())}


def beside(session: Session, clock: str | None) -> Iterator[pa.Table]:
    """The tables of what was recorded beside a traced program, their times on the clock of its trace.

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
