"""The common part of knobs: a name, a way to read and to set it, and the reason if it is not available."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Literal

from msgspec import Struct

from aaco.core.host import Host, text
from aaco.core.readings import Absent

Scope = Literal["process", "host"]
SELF = "self"  # the target of every knob of the calling process


class NotHere(Absent):
    """This machine has nothing that the knob could turn, so leaving it is no failure."""


class Want(Struct, frozen=True):
    """The requested laboratory. Sizes in bytes, power in W, clocks in MHz; None: leave as it is."""

    cpus: tuple[int, ...]
    group: str = "aaco"  # name of its control group
    memory_high: int | None = None
    memory_max: int | None = None
    cpu_max_pct: int | None = None
    io_max: tuple[str, ...] = ()  # lines of io.max: "259:0 rbps=1048576"
    gpu_power_w: int | None = None
    gpu_clock_mhz: int | None = None
    gpu_memory_clock_mhz: int | None = None
    gpu_level: str | None = None  # of AMD's: auto, low, high, manual, profile_peak, ...
    drop_caches: bool = False


class Knob(ABC):
    """One setting of the machine or of a process. Values are text, in the one spelling that `read` returns."""

    name: ClassVar[str]
    scope: ClassVar[Scope]
    meaning: ClassVar[str]
    vanishes: ClassVar[bool] = False  # with the control group it is a setting of, so that nothing is to be undone

    def __init__(self, host: Host | None = None) -> None:
        self.host = host or Host()

    @abstractmethod
    def wishes(self, want: Want) -> dict[str, str]:
        """Return target -> the value it should have. Raise NotHere or Absent with the reason."""

    @abstractmethod
    def read(self, target: str) -> str:
        """Return the value now. Raise Absent."""

    @abstractmethod
    def write(self, target: str, value: str) -> None:
        """Set the value. Raise Absent with the reason."""

    def command(self, target: str, value: str) -> str:
        """Return the shell command of the same effect."""
        return f"echo {value} | sudo tee {target}"

    def excused(self, reason: Absent) -> bool:
        """Return whether one target of several may refuse, so that the knob still counts."""
        return False

    def note(self) -> str:
        """Return what else a reader should know of this knob here."""
        return ""


class FileKnob(Knob):
    """A knob whose targets are files of the kernel."""

    scope = "host"

    def read(self, target: str) -> str:
        return text(Path(target))

    def write(self, target: str, value: str) -> None:
        write_text(Path(target), value)


def write_text(path: Path, value: str) -> None:
    """Write a value to a kernel file in one write. Raise Absent with the kernel's reason; the file is never created."""
    with refusal(str(path)):
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(descriptor, value.encode())
        finally:
            os.close(descriptor)


@contextmanager
def refusal(what: str) -> Iterator[None]:
    """Raise the kernel's refusal inside the block as Absent, with its errno as cause."""
    try:
        yield
    except OSError as error:
        reason = Absent(f"{what}: {error.strerror or error}")
        reason.__cause__ = error
        raise reason from error


def listed(cpus: set[int] | tuple[int, ...] | list[int]) -> str:
    """Return numbers as the kernel lists them: {0, 1, 2, 8} is "0-2,8"."""
    ordered = sorted(cpus)
    starts = [number for number in ordered if number - 1 not in cpus]
    ends = [number for number in ordered if number + 1 not in cpus]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))
