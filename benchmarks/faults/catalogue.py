"""The faults that can be planted here, each at three strengths, and why others cannot be."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import onnx
from msgspec import Struct, field
from onnx import TensorProto

from benchmarks.faults import models

STRENGTHS = (1, 2, 3)
READY_S = 20.0
CONTROL = "no_fault"
QUOTA_PERIOD_US = 10_000


class Place(Struct, frozen=True):
    """The CPUs of the measured process, and those of others."""

    target: tuple[int, ...]
    others: tuple[int, ...]

    @classmethod
    def here(cls) -> Place:
        """A quarter of the CPUs is measured on, four at most and one at least."""
        cpus = sorted(os.sched_getaffinity(0))
        count = max(1, min(4, len(cpus) // 4))
        return cls(tuple(cpus[:count]), tuple(cpus[count:]))


class Plant(Struct, frozen=True):
    """What is done to a run. share: of a sound iteration's time, that the host's work adds to it."""

    cause: str
    strength: int
    variant: str = "plain"
    batch: float = 1.0
    level: str = "all"
    cpus: int = 0  # that the process may use; 0: all that are meant for it
    threads: float = 1.0  # for each CPU
    options: Mapping[str, int] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    hogs: tuple[tuple[str, int, float], ...] = ()  # kind, CPU, amount
    work: str = ""
    share: float = 0.0
    shapes: tuple[float, ...] = ()
    quota: float = 0.0  # CPUs' worth of time, as a ratio of those it has; 0: none


def catalogue(place: Place, model: str) -> dict[tuple[str, int], Plant]:
    """Every plant for a model, by cause and strength."""
    found = [Plant(CONTROL, 0)]
    for strength in STRENGTHS:
        one = strength - 1
        share = (0.15, 0.4, 1.0)[one]
        many = place.others[:max(1, len(place.others) * (1, 2, 4)[one] // 4)]
        found += [
            Plant("cpu_contention", strength,
                  hogs=tuple(("busy", cpu, (0.3, 0.6, 1.0)[one]) for cpu in place.target)),
            Plant("core_pinning", strength, cpus=max(1, len(place.target) * (3, 2, 1)[one] // 4)),
            Plant("cpu_quota", strength, quota=(0.8, 0.6, 0.4)[one]),
            Plant("memory_bandwidth", strength, hogs=tuple(("copying", cpu, 1.0) for cpu in many)),
            Plant("timer_interrupts", strength,
                  hogs=tuple(("timers", cpu, (20.0, 10.0, 5.0)[one]) for cpu in place.target)),
            Plant("page_faults", strength, work="pages", share=share),
            Plant("host_work", strength, work="python", share=share),
            Plant("disk_reads", strength, work="reads", share=share),
            Plant("synced_writes", strength, work="syncs", share=share),
            Plant("allocator", strength, options={"enable_cpu_mem_arena": 0, "enable_mem_pattern": 0},
                  environment={"MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_TOP_PAD_": "0",
                               "MALLOC_MMAP_THRESHOLD_": ("131072", "32768", "4096")[one]}),
            Plant("graph_optimization", strength, level=("extended", "basic", "disable")[one]),
            Plant("extra_nodes", strength, variant=("extra-4-1", "extra-2-1", "extra-1-2")[one]),
            Plant("batch", strength, batch=(1.5, 2.0, 4.0)[one] if models.BATCHES[model] > 1 else strength + 1.0),
            Plant("threads", strength, threads=(1.5, 2.0, 4.0)[one] if len(place.target) > 1 else strength + 1.0),
            Plant("shape_churn", strength, shapes=tuple(1 + step * (0.5, 1.0, 2.0)[one] / 3 for step in range(4))),
            Plant("precision", strength, variant=("float16", "float16", "float64")[one]),
        ]
    return {(plant.cause, plant.strength): plant for plant in found}


# What of a plant only one of a pair may set: the host has one piece of work, a process one set of threads and CPUs.
EXCLUSIVE = ("variant", "batch", "level", "cpus", "threads", "options", "hogs", "work", "shapes", "quota")
SCHEDULER = {"cpu_contention", "core_pinning", "cpu_quota", "threads", "timer_interrupts"}


def both(first: Plant, second: Plant) -> Plant | None:
    """Two plants at once; None where they set the same thing, or both take the processor away."""
    plain, chosen = Plant("", 0), {}
    for name in EXCLUSIVE:
        mine, other, neutral = (getattr(plant, name) for plant in (first, second, plain))
        if mine != neutral and other != neutral:
            return None
        chosen[name] = mine if mine != neutral else other
    causes = {first.cause, second.cause}
    if causes <= SCHEDULER or causes == {"batch", "shape_churn"}:
        return None
    return Plant(f"{first.cause}+{second.cause}", first.strength, share=max(first.share, second.share),
                 environment={**first.environment, **second.environment}, **chosen)


def pairs(plants: Sequence[Plant], count: int, chance: random.Random) -> list[Plant]:
    """So many different pairs of plants of the second strength."""
    found: dict[str, Plant] = {}
    medium = [plant for plant in plants if plant.strength == 2]
    for _ in range(20 * count):
        first, second = sorted(chance.sample(medium, 2), key=lambda plant: plant.cause)
        if len(found) < count and (pair := both(first, second)):
            found[pair.cause] = pair
    return list(found.values())


def why_not(plant: Plant, place: Place, model: str, disk: str) -> str:
    """Why this plant cannot be planted here; empty where it can."""
    if plant.cause == "core_pinning" and plant.cpus >= len(place.target):
        return f"the measured process has {len(place.target)} CPU(s): fewer is none, or no other"
    if plant.cause == "memory_bandwidth" and not place.others:
        return "no CPU beside those measured on"
    if plant.variant == "float64" and model in ("convnet", "mobilenet"):
        return "ONNX Runtime has no convolution of float64 for the CPU"
    if plant.cause == "shape_churn" and models.BATCHES[model] == 1:
        return "its batch is 1"
    if plant.quota:
        return _why_no_group()
    return _why_no_direct_reads(disk) if plant.work == "reads" else ""


NOT_PLANTED = {
    "provider_fallback": "needs a second execution provider",
    "memory_limit": "without swap a limit below the resident set ends the process, and one above it does nothing",
}


def changed(model: onnx.ModelProto, variant: str) -> onnx.ModelProto:
    """The model with the plant's change in it."""
    kind, *numbers = variant.split("-")
    if kind == "extra":
        return models.with_extra_nodes(model, *map(int, numbers))
    if kind in ("float16", "float64"):
        return models.with_precision(model, TensorProto.FLOAT16 if kind == "float16" else TensorProto.DOUBLE)
    return model


@contextmanager
def hogs(plant: Plant) -> Iterator[None]:
    """The plant's programs at work. Raises OSError where one does not start."""
    running = [subprocess.Popen([sys.executable, "-m", "benchmarks.faults.hogs", kind, str(cpu), str(amount),
                                 str(os.getpid())], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
               for kind, cpu, amount in plant.hogs]
    try:
        for hog in running:
            assert hog.stdout
            if hog.stdout.readline().strip() != b"ready":
                raise OSError(f"the program {plant.hogs[0][0]} did not start")
        yield
    finally:
        for hog in running:
            hog.kill()
            hog.wait()
            assert hog.stdout
            hog.stdout.close()


@contextmanager
def quota(plant: Plant, cpus: int) -> Iterator[str]:
    """Folder of a control group with the plant's quota; empty where it has none."""
    if not plant.quota:
        yield ""
        return
    folder = _group_root() / f"aaco-faults-{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    try:
        amount = int(plant.quota * cpus * QUOTA_PERIOD_US)
        if (folder / "cpu.max").exists():
            (folder / "cpu.max").write_text(f"{amount} {QUOTA_PERIOD_US}")
        else:
            (folder / "cpu.cfs_period_us").write_text(str(QUOTA_PERIOD_US))
            (folder / "cpu.cfs_quota_us").write_text(str(amount))
        yield str(folder)
    finally:
        with suppress(OSError):
            folder.rmdir()


def _group_root() -> Path:
    """Where groups with a CPU quota can be made. Raises OSError where there is no such place."""
    for mount in ("cpu", "cpu,cpuacct"):
        if Path("/sys/fs/cgroup", mount, "tasks").exists():
            return Path("/sys/fs/cgroup", mount)
    unified = Path("/sys/fs/cgroup")
    (unified / "cgroup.subtree_control").write_text("+cpu")
    return unified


def _why_no_group() -> str:
    try:
        folder = _group_root() / f"aaco-faults-{uuid.uuid4().hex[:8]}"
        folder.mkdir()
    except OSError as error:
        return f"no control group can be made: {error}"
    there = (folder / "cpu.max").exists() or (folder / "cpu.cfs_quota_us").exists()
    folder.rmdir()
    return "" if there else "control groups have no CPU quota here"


def _why_no_direct_reads(disk: str) -> str:
    try:
        with tempfile.NamedTemporaryFile(dir=disk or None) as file:
            os.close(os.open(file.name, os.O_RDONLY | os.O_DIRECT))
    except OSError as error:
        return f"no direct reads: {error}"
    return ""
