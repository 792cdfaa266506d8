"""The machine a measurement was made on: what it is, and what it was measured to be capable of."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

GIB = 1 << 30
# Words of a CPU's or GPU's marketing name that tell nothing the label does not already say.
_NOISE = re.compile(r"\((R|TM|r|tm)\)|\s+@ [\d.]+GHz|\s+\d+-Core Processor|\bCPU\b|\s+Processor$")
_MAKER = re.compile(r"^(NVIDIA|AMD)\s+(Instinct\s+)?")


class Gpu(Struct, frozen=True):
    """One device, as the driver presents it (a partition of a partitioned GPU is a device). Unknown is None."""

    vendor: str
    model: str | None
    arch: str | None
    compute_units: int | None
    vram_bytes: int | None

    @property
    def identity(self) -> list[str | int | None]:
        """Return what distinguishes it from other hardware: the architecture if the driver gives it, else the model.

        AMD's model name comes from files that an update may add, so it is only used where nothing steadier exists.
        """
        return [self.vendor, self.arch or self.model, self.compute_units, _gib(self.vram_bytes)]

    @property
    def name(self) -> str:
        """The shortest name that people use for it."""
        return _MAKER.sub("", self.model) if self.model else self.arch or f"{self.vendor} GPU"


class Machine(Struct, frozen=True):
    """A machine's identity and measured ceilings. Unknown is None.

    `id` depends on hardware alone, so it survives reboots, load and software updates. `threads` counts the logical
    CPUs that are present, whether online or not. `ceilings` is None until this machine has been calibrated.
    """

    id: str
    label: str
    cpu_model: str | None
    sockets: int | None
    cores: int | None
    threads: int | None
    memory_bytes: int | None
    gpus: tuple[Gpu, ...] = ()
    ceilings: Mapping[str, float] | None = None

    @classmethod
    def of(cls, cpu_model: str | None, sockets: int | None, cores: int | None, threads: int | None,
           memory_bytes: int | None, gpus: tuple[Gpu, ...] = ()) -> Machine:
        """The machine with these parts; its id is the first 12 hex digits of a SHA-256 over them."""
        parts = [cpu_model, sockets, cores, threads, _gib(memory_bytes), sorted(map(json.dumps, _identities(gpus)))]
        digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        return cls(digest[:12], _label(cpu_model, cores, memory_bytes, gpus), cpu_model, sockets, cores, threads,
                   memory_bytes, gpus)


def _identities(gpus: tuple[Gpu, ...]) -> list[list[str | int | None]]:
    return [gpu.identity for gpu in gpus]


def _gib(size: int | None) -> int | None:
    """Rounded, because the kernel keeps a part of the memory for itself that varies with its version."""
    return None if size is None else round(size / GIB)


def _label(cpu_model: str | None, cores: int | None, memory_bytes: int | None, gpus: tuple[Gpu, ...]) -> str:
    """For people: "AMD EPYC 9654, 96 cores, 1 TiB, 8x MI300X"."""
    parts = [" ".join(_NOISE.sub(" ", cpu_model).split()) if cpu_model else "unknown CPU"]
    if cores:
        parts.append(f"{cores} core{'s' if cores > 1 else ''}")
    if memory_bytes:
        parts.append(_size(round(memory_bytes / GIB)))
    parts += [f"{count}x {name}" for name, count in Counter(gpu.name for gpu in gpus).items()]
    return ", ".join(parts)


def _size(gib: int) -> str:
    return f"{gib / 1024:.2g} TiB" if gib >= 1000 else f"{gib} GiB"
