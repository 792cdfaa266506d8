"""One GPU's ceilings, measured in a separate process (bench.py), each with the conditions during its measurement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from msgspec import Struct

from aaco.calibration import child, rounds
from aaco.calibration.card import CalibratedDevice, Ceiling, CeilingConditions
from aaco.calibration.driver import Vendor
from aaco.core.errors import Missing
from aaco.core.show import SILENT, Show

Row = Mapping[str, Any]  # of gpu_events, of the device

LIMIT_S = 240.0  # compiling included; a device that takes longer hangs
WHICH_S = 60.0  # to open the driver's library starts every device of the machine
PART_S = 0.6  # for each ceiling at most, from when it runs
VISIT = 16  # bursts of launches between any two ceilings
NEAR_NS = 250_000_000  # a row this near belongs to a measurement too short to hold one


class GpuCeilings(Struct, frozen=True):
    """A device, its ceilings, when each was measured (start and end, CLOCK_MONOTONIC), and why others are absent."""

    device: CalibratedDevice
    ceilings: list[Ceiling]
    between_ns: list[tuple[int, int]]
    absent: dict[str, str]

    def watched(self, rows: Sequence[Row]) -> list[Ceiling]:
        """Return the ceilings with the conditions that the rows show."""
        return [item.model_copy(update={"conditions": meanwhile(rows, *between)})
                for item, between in zip(self.ceilings, self.between_ns, strict=True)]


class Which(NamedTuple):
    """What distinguishes one kind of device from another, by its driver; and where on PCI this one is."""

    name: str
    compute_units: int
    memory_bytes: int
    bus_id: str


def which(vendor: Vendor, number: int) -> Which:
    """Return the device of a number. Raise Missing if there is none or no answer."""
    answers = list(child.run("aaco.calibration.bench", (vendor, str(number)), {}, WHICH_S))
    if not answers:
        raise Missing(f"the driver does not say what {vendor} GPU {number} is", "aaco doctor")
    return Which(**answers[-1])


def measure(vendor: Vendor, arch: str | None, cache: Path, show: Show = SILENT, number: int = 0) -> GpuCeilings:
    """Return the ceilings of a visible GPU of a vendor.

    arch: AMD's name of the architecture, which its driver library does not report; None: ask the driver. cache: the
    folder for compiled code. number: as CUDA or HIP number devices for programs that this process starts; a backend's
    device_id means the same. Raise Missing if there is no device, no compiler or no answer.
    """
    device: CalibratedDevice | None = None
    ceilings: list[Ceiling] = []
    between: list[tuple[int, int]] = []
    absent: dict[str, str] = {}
    arguments = (vendor, str(number), arch or "", str(cache), str(PART_S), str(VISIT))
    answers = child.run("aaco.calibration.bench", arguments, {}, LIMIT_S)
    for line in child.counted(answers, show):
        if "device" in line:
            device = CalibratedDevice.model_validate(line["device"])
        elif "ceiling" in line:
            ceilings.append(Ceiling.model_validate(line["ceiling"] | {"device": device.name if device else None}))
            between.append((line["between_ns"][0], line["between_ns"][1]))
        elif "absent" in line:
            absent[line["absent"]] = line["why"]
    if device is None or not ceilings:
        why = next(iter(absent.values()), "it reported nothing")
        raise Missing(f"nothing could be measured on the {vendor} GPU: {why}", "aaco doctor")
    return GpuCeilings(device, ceilings, between, absent)


def meanwhile(rows: Sequence[Row], start_ns: int, end_ns: int) -> CeilingConditions:
    """Return the conditions in the rows between two times, or in the nearest row if none is between them."""
    inside = [row for row in rows if start_ns <= row["t_ns"] <= end_ns]
    if not inside and rows:
        nearest = min(rows, key=lambda row: max(start_ns - row["t_ns"], row["t_ns"] - end_ns))
        if max(start_ns - nearest["t_ns"], nearest["t_ns"] - end_ns) <= NEAR_NS:
            inside = [nearest]

    def of(name: str, summary: Callable[[list[float]], float]) -> float | None:
        readings = [float(row[name]) for row in inside if row.get(name) is not None]
        return summary(readings) if readings else None

    reasons = [row["throttle_reasons"] for row in inside if row.get("throttle_reasons") is not None]
    return rounds.UNKNOWN.model_copy(update={
        "device_clock_mhz": of("sclk_mhz", median), "device_memory_clock_mhz": of("mclk_mhz", median),
        "device_power_w": of("power_w", max), "device_power_cap_w": of("power_cap_w", max),
        "device_temp_c": of("temp_c", max), "device_samples": len(inside) or None,
        "device_throttle_reasons": sorted(set().union(*reasons)) if reasons else None})
