"""Calibration with its watchers: CPUs and the first GPU are measured, kept for a day, and compared with the last time.

A GPU's clocks, power, heat and throttling are recorded while the measuring process runs, so that each ceiling is kept
with the conditions it was found in.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, Literal, cast

from aaco import cooling
from aaco.analytics import heat
from aaco.analytics.roofline.nodes import PEAK
from aaco.calibration import card, cpu, gpu
from aaco.calibration.card import MachineCard
from aaco.calibration.driver import Vendor
from aaco.collectors import amd_sensors, device_watch, machine, nvml
from aaco.core.config import Settings
from aaco.core.errors import AacoError, Missing
from aaco.core.machine import Gpu, Machine
from aaco.core.readings import Absent
from aaco.core.show import SILENT, Show
from aaco.profiler import smi

Devices = Literal["cpu", "gpu", "all"]
COOL_S = 60.0  # how long to wait for a warm device
ONE = "measuring the ceilings of {} (round {} of {})"


def calibrate(settings: Settings, devices: Devices = "all", rounds: int = 1, show: Show = SILENT
              ) -> tuple[MachineCard, list[card.Drift]]:
    """Measure now, and keep it; also what moved since the cards in the cache, however old.

    devices: "all" measures the GPU where there is one; where that fails, the CPUs' card says why. The card of both is
    merged. Raises AacoError.
    """
    cache, host = settings.config.storage.cache_dir.expanduser(), machine.identify()
    moved: list[card.Drift] = []

    def keep(made: list[MachineCard]) -> MachineCard:
        found = card.over_rounds(made)
        before = card.load(cache, found.machine_id, max_age_s=float("inf"))
        moved.extend(card.drift(before, found) if before else ())
        card.save(found, cache)
        return found

    def of_device() -> MachineCard:
        device = _first(host)
        cooling.before(COOL_S, show)
        return keep([_device(host, device, settings, show, number, rounds) for number in range(rounds)])

    if devices == "gpu":
        return of_device(), moved
    cpus = keep([_cpus(host, None, show, number, rounds) for number in range(rounds)])
    if devices == "cpu" or not host.gpus:
        return cpus, moved
    try:
        return card.merged(cpus, of_device()), moved
    except AacoError as reason:
        return cpus.model_copy(update={"absent": {host.gpus[0].name: reason.what}}), moved


def of_run(host: Machine, threads: int | None, on_device: bool, settings: Settings, show: Show) -> MachineCard | None:
    """The card of what a workload runs on, from the cache or, where it has none, measured.

    threads: of the CPUs (None: all). None where it cannot be measured: the run goes on, and readings that need
    ceilings are absent.
    """
    cpus = _kept(host.id, settings, show, lambda: _cpus(host, threads, show), threads or len(os.sched_getaffinity(0)))
    if not on_device:
        return cpus
    try:
        device = _first(host)
    except Missing as reason:
        show.step(f"no ceilings of a GPU: {reason.what}")
        return None
    found = _kept(_identity(host, device), settings, show, lambda: _device(host, device, settings, show))
    return card.for_device(found, cpus) if found else None


def guard(found: MachineCard) -> Iterator[str]:
    """What heat or power did to ceilings of a device, in words, by the samples taken meanwhile."""
    whose: dict[str, list[str]] = {}
    for item in found.ceilings:
        seen = item.conditions
        for said in heat.guard(seen.device_temp_c, seen.device_power_w, seen.device_power_cap_w,
                               seen.device_throttle_reasons):
            whose.setdefault(said, []).append(item.name)
    for said, names in whose.items():
        yield f"{said} ({', '.join(names)})"


def _kept(identity: str, settings: Settings, show: Show, measure: Callable[[], MachineCard],
          threads: int | None = None) -> MachineCard | None:
    """The card in the cache, where it has one of so many threads, else measured and kept."""
    cache = settings.config.storage.cache_dir.expanduser()
    kept = card.load(cache, identity, tell=show.step)
    if kept and (threads is None or any(item.threads == threads for item in kept.ceilings if item.name == PEAK)):
        return kept
    try:
        found = measure()
    except AacoError as reason:
        show.step(f"no ceilings: {reason.what}")
        return None
    card.save(found, cache)
    return found


def _cpus(host: Machine, threads: int | None, show: Show, number: int = 0, rounds: int = 1) -> MachineCard:
    show.step(ONE.format("the CPUs", number + 1, rounds) if rounds > 1 else
              "measuring this machine's ceilings (once a day on a quiet machine)")
    return MachineCard(machine_id=host.id, ceilings=cpu.measure(threads, show=show))


def _device(host: Machine, device: Gpu, settings: Settings, show: Show, number: int = 0, rounds: int = 1
            ) -> MachineCard:
    show.step(ONE.format(device.name, number + 1, rounds))
    cache = settings.config.storage.cache_dir.expanduser() / "kernels"
    with tempfile.TemporaryDirectory() as folder:
        with device_watch.recorded(Path(folder), wanted=[device.vendor.lower()]):
            found = gpu.measure(cast(Vendor, device.vendor), device.arch, cache, show)
        rows = _rows(Path(folder))
    return MachineCard(machine_id=_identity(host, device), ceilings=found.watched(rows), device=found.device,
                       absent=found.absent)


def _first(host: Machine) -> Gpu:
    """The GPU to measure: the first one. Raises Missing with what the drivers say where there is none."""
    if host.gpus:
        return host.gpus[0]
    raise Missing(f"there is no GPU to calibrate: {nvml.why_not()}; {amd_sensors.why_not()}",
                  "aaco calibrate --device cpu, or aaco doctor  # says what a GPU machine lacks")


def _identity(host: Machine, device: Gpu) -> str:
    """Of this kind of device on this machine: how it is connected is part of what is measured."""
    return f"{host.id}-{hashlib.sha256(json.dumps(device.identity).encode()).hexdigest()[:8]}"


def _rows(folder: Path) -> list[dict[str, Any]]:
    """What was recorded of the measured device, in order of time; nothing where nothing watches it."""
    try:
        rows = device_watch.events(folder, smi.gpu_events).to_pylist()
    except Absent:
        return []
    device = visible({row["device_id"] for row in rows}, os.environ.get("CUDA_VISIBLE_DEVICES"))
    return sorted((row for row in rows if row["device_id"] == device and row["t_ns"]), key=lambda row: row["t_ns"])


def visible(devices: Collection[int], named: str | None) -> int | None:
    """The number of the device that CUDA calls device 0; both are in order of their places on PCI. A UUID is not looked
    up: with several devices none counts as watched then."""
    first = (named or "0").split(",")[0].strip()
    if first.isdigit() and int(first) in devices:
        return int(first)
    return min(devices) if len(devices) == 1 else None
