"""Calibration with its watchers: CPUs and a GPU are measured, kept for a day, and compared with the last time.

A run is compared with the ceilings of the device that it uses, by the vendor of its backend and the number that CUDA or
HIP give the device. Where a machine has several of a vendor's devices, the driver says which one that is, and each has
a card of its own: two of one kind may differ in clocks, heat and links.

A GPU's clocks, power, heat and throttling are recorded while the measuring process runs, so that each ceiling is kept
with the conditions it was found in.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from aaco.analytics.quality import thermal
from aaco.analytics.roofline.nodes import PEAK
from aaco.calibration import card, cpu, gpu
from aaco.calibration.card import MachineCard
from aaco.calibration.driver import Vendor
from aaco.collectors.gpu import amd_sensors, device_watch, nvml
from aaco.collectors.inventory import machine
from aaco.core.config import Settings
from aaco.core.errors import AacoError, Missing
from aaco.core.host import Host
from aaco.core.machine import Gpu, Machine
from aaco.core.readings import Absent
from aaco.core.show import SILENT, Show
from aaco.profiler.formats.system import smi
from aaco.steps.device import cooldown

COOL_S = 60.0  # how long to wait for a warm device
NO_GPU = "aaco calibrate --device cpu, or aaco doctor  # says what a GPU machine lacks"
ONE = "measuring the ceilings of {} (round {} of {})"


class DeviceAddress(Struct, frozen=True):
    """A device as a backend names it: its vendor, and its number for programs that this process starts."""

    vendor: Vendor
    number: int = 0


class _ChosenDevice(Struct, frozen=True):
    """A device of this machine: its kind, the name of its card, and whether the vendor has others here."""

    kind: Gpu
    identity: str
    has_twins: bool


def calibrate(settings: Settings, devices: str = "all", rounds: int = 1, show: Show = SILENT
              ) -> tuple[MachineCard, list[card.CeilingDrift]]:
    """Measure now, and keep it; also what moved since the cards in the cache, however old.

    devices: "cpu"; "gpu", the first one, or "gpu:N"; "all" measures the CPUs and every GPU, and the card says why one
    could not be. Each has a card of its own in the cache; they are merged in what is returned. Raise AacoError.
    """
    cache, host = settings.config.storage.cache_dir.expanduser(), machine.identify()
    moved: list[card.CeilingDrift] = []

    def keep(made: list[MachineCard]) -> MachineCard:
        found = card.over_rounds(made)
        before = card.load(cache, found.machine_id, max_age_s=float("inf"))
        moved.extend(card.drift(before, found) if before else ())
        card.save(found, cache)
        return found

    def of_device(place: DeviceAddress) -> MachineCard:
        device = _chosen(host, place)
        cooldown.before(COOL_S, show)
        return keep([_device(device, place, settings, show, number, rounds) for number in range(rounds)])

    if devices.startswith("gpu"):
        return of_device(DeviceAddress(_first(host).vendor, int(devices.partition(":")[2] or 0))), moved
    whole = keep([_cpus(host, None, show, number, rounds) for number in range(rounds)])
    for place in _places(host) if devices == "all" else ():
        try:
            whole = card.merged(whole, of_device(place))
        except AacoError as reason:
            name = host.gpus[0].name if len(host.gpus) == 1 else f"{place.vendor} GPU {place.number}"
            whole = whole.model_copy(update={"absent": whole.absent | {name: reason.what}})
    return whole, moved


def of_run(host: Machine, threads: int | None, place: DeviceAddress | None, settings: Settings, show: Show
           ) -> MachineCard | None:
    """The card of what a workload runs on, from the cache or, where it has none, measured.

    threads: of the CPUs (None: all). place: the device; None: the CPUs. None where it cannot be measured: the run goes
    on, and readings that need ceilings are absent.
    """
    cpus = _kept(host.id, settings, show, lambda: _cpus(host, threads, show), threads or len(os.sched_getaffinity(0)))
    if place is None:
        return cpus
    try:
        device = _chosen(host, place)
    except AacoError as reason:
        show.step(f"no ceilings of a GPU: {reason.what}")
        return None
    measured_card = _kept(device.identity, settings, show, lambda: _device(device, place, settings, show))
    return card.for_device(measured_card, cpus) if measured_card else None


def guard(card: MachineCard) -> Iterator[str]:
    """Yield the effect of heat or power on a device's ceilings, in words, from the samples during the measurement."""
    whose: dict[str, list[str]] = {}
    for item in card.ceilings:
        seen = item.conditions
        for sentence in thermal.guard(seen.device_temp_c, seen.device_power_w, seen.device_power_cap_w,
                                      seen.device_throttle_reasons):
            whose.setdefault(sentence, []).append(item.name)
    for sentence, names in whose.items():
        yield f"{sentence} ({', '.join(names)})"


def _kept(identity: str, settings: Settings, show: Show, measure: Callable[[], MachineCard],
          threads: int | None = None) -> MachineCard | None:
    """The card in the cache, where it has one of so many threads, else measured and kept."""
    cache = settings.config.storage.cache_dir.expanduser()
    kept = card.load(cache, identity, tell=show.step)
    if kept and (threads is None or any(item.threads == threads for item in kept.ceilings if item.name == PEAK)):
        return kept
    try:
        measured = measure()
    except AacoError as reason:
        show.step(f"no ceilings: {reason.what}")
        return None
    card.save(measured, cache)
    return measured


def _cpus(host: Machine, threads: int | None, show: Show, number: int = 0, rounds: int = 1) -> MachineCard:
    show.step(ONE.format("the CPUs", number + 1, rounds) if rounds > 1 else
              "measuring this machine's ceilings (once a day on a quiet machine)")
    ceilings = cpu.measure(threads, show=show)
    return MachineCard(machine_id=host.id, ceilings=ceilings.ceilings, absent=ceilings.absent)


def _device(device: _ChosenDevice, place: DeviceAddress, settings: Settings, show: Show, number: int = 0,
            rounds: int = 1) -> MachineCard:
    show.step(ONE.format(device.kind.name, number + 1, rounds))
    cache = settings.config.storage.cache_dir.expanduser() / "kernels"
    with tempfile.TemporaryDirectory() as folder:
        with device_watch.recorded(Path(folder), vendors=[place.vendor.lower()]):
            ceilings = gpu.measure(place.vendor, device.kind.arch, cache, show, place.number)
        rows = _rows(Path(folder), place.vendor, ceilings.device.bus_id)
    owner = f"{ceilings.device.name} at {ceilings.device.bus_id}" if device.has_twins else ceilings.device.name
    return MachineCard(machine_id=device.identity, device=ceilings.device, absent=ceilings.absent,
                       ceilings=[item.model_copy(update={"device": owner}) for item in ceilings.watched(rows)])


def _first(host: Machine) -> DeviceAddress:
    """The first GPU. Raises Missing with what the drivers say where there is none."""
    if host.gpus:
        return DeviceAddress(cast(Vendor, host.gpus[0].vendor))
    raise Missing(f"there is no GPU to calibrate: {nvml.why_not()}; {amd_sensors.why_not()}", NO_GPU)


def _places(host: Machine) -> list[DeviceAddress]:
    """Return the address of every GPU, those of a vendor by their numbers."""
    counts = Counter(device.vendor for device in host.gpus)
    return [DeviceAddress(cast(Vendor, vendor), number) for vendor, count in counts.items() for number in range(count)]


def _chosen(host: Machine, place: DeviceAddress) -> _ChosenDevice:
    """Return the device at an address. The driver, which takes a second to start, is asked only where a vendor has
    several here. Raise AacoError.
    """
    devices = [device for device in host.gpus if device.vendor == place.vendor]
    if not devices:
        why = amd_sensors.why_not() if place.vendor == "AMD" else nvml.why_not()
        raise Missing(f"there is no {place.vendor} GPU to calibrate: {why}", NO_GPU)
    if len(devices) == 1:
        return _ChosenDevice(devices[0], _identity(host, devices[0]), has_twins=False)
    number_of_driver = gpu.which(place.vendor, place.number)
    devices = [device for device in devices if device.model == number_of_driver.name] or devices
    devices = [device for device in devices if device.compute_units == number_of_driver.compute_units] or devices
    nearest = min(abs((device.vram_bytes or 0) - number_of_driver.memory_bytes) for device in devices)
    devices = [device for device in devices if abs((device.vram_bytes or 0) - number_of_driver.memory_bytes) == nearest]
    if not _alike(devices):
        raise Missing(f"{place.vendor} GPU {place.number} is {number_of_driver.name} by its driver, and several kinds "
                      "here may be",
                      "aaco env diff shows gpu.amd and gpu.nvidia")
    return _ChosenDevice(devices[0], _identity(host, devices[0], number_of_driver.bus_id), has_twins=True)


def _alike(devices: Collection[Gpu]) -> bool:
    return len({json.dumps(device.identity) for device in devices}) == 1


def _identity(host: Machine, device: Gpu, *bus_id: str) -> str:
    """Return the name of the card of this very device of this machine: how it is connected is part of what is measured.

    bus_id: where on PCI it is, if the machine has several; its number there stays whatever is visible.
    """
    return f"{host.id}-{hashlib.sha256(json.dumps([*device.identity, *bus_id]).encode()).hexdigest()[:8]}"


def _rows(folder: Path, vendor: Vendor, bus_id: str) -> list[dict[str, Any]]:
    """What was recorded of the measured device, in order of time; nothing where nothing watches it."""
    try:
        rows = device_watch.events(folder, smi.gpu_events).to_pylist()
    except Absent:
        return []
    device = watched({row["device_id"] for row in rows}, number_at(vendor, bus_id))
    return sorted((row for row in rows if row["device_id"] == device and row["t_ns"]), key=lambda row: row["t_ns"])


def watched(devices: Collection[int], number: int | None) -> int | None:
    """Which of the recorded devices is the one of this number; without a number an only one, else none."""
    if number in devices:
        return number
    return min(devices) if number is None and len(devices) == 1 else None


def number_at(vendor: Vendor, bus_id: str, host: Host | None = None, library: str = nvml.LIBRARY) -> int | None:
    """Return the number that the telemetry library gives a device on PCI; None if it is unknown."""
    try:
        if vendor == "NVIDIA":
            return nvml.number_at(bus_id, library)
        places = {device.folder.resolve().name: device.index for device in amd_sensors.devices(host or Host())}
    except Absent:
        return None
    board = f"{bus_id.lower().rpartition('.')[0]}.0"  # a partition's function is its number on the board
    return places.get(bus_id.lower(), places.get(board))
