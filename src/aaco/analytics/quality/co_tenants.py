"""Which devices of a host a run used, and what other processes compute on them, as their driver reports it.

On a host of several devices, work of others on another device does not matter to a run. The best evidence decides:
where the run's processes worked, else which devices they used memory of, else the devices that CUDA numbers in the run,
else those that the run sees.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from aaco.core.readings import Absent
from aaco.core.tables import replaced
from aaco.core.tables.spec import rows_where

OWN, OTHERS, HELD = "own_sm_pct", "others_sm_pct", "own_processes"  # of the samples table
NVIDIA = "nvml"  # the source of its rows of gpu_events


class RunDevices(Struct, frozen=True):
    """The devices that a run used, as its telemetry numbers them, their telemetry, and how that is known."""

    numbers: tuple[int, ...]
    events: pa.Table
    known_by: str

    def of(self, busy: Sequence[int]) -> str:
        """Return which of them a number is of, in words."""
        return f"of device{'s' * (len(busy) > 1)} {', '.join(map(str, busy))}: {self.known_by}"


def run_devices(gpu_events: pa.Table, samples: pa.Table | None = None,
                visible_devices: Mapping[str, Any] | None = None,
                cuda_numbers: Collection[int] | None = None) -> RunDevices:
    """Return the devices of the telemetry that the run used. Raise Absent if it had an instance of one, or none is
    known.

    visible_devices: what the recorder says of them (collectors/gpu/visible.py), or why the run used none (`unused`).
    cuda_numbers: of those that the run worked on, as CUDA numbers them.
    """
    numbers, known_by = _devices_of_run(gpu_events, samples, visible_devices or {}, cuda_numbers or ())
    return RunDevices(numbers, gpu_events.filter(pc.is_in(gpu_events["device_id"], pa.array(numbers, pa.int64()))),
                      known_by)


def as_numbered(gpu_events: pa.Table, kernel_devices: Collection[int], samples: pa.Table | None = None,
                visible_devices: Mapping[str, Any] | None = None) -> pa.Table | None:
    """Return the telemetry of the devices that kernels ran on, under the numbers that the kernels have for them: a
    program numbers the devices that it sees, the driver's library all. None if which is which is not known."""
    try:
        used = run_devices(gpu_events, samples, visible_devices, kernel_devices)
    except Absent:
        return None
    visible, cuda_numbers = visible_devices or {}, sorted(kernel_devices)
    if visible.get("in_order") and cuda_numbers and cuda_numbers[-1] < len(visible.get("devices", ())):
        called = {visible["devices"][number]: number for number in cuda_numbers}
    elif len(used.numbers) == len(cuda_numbers) == 1 or list(used.numbers) == cuda_numbers:
        called = dict(zip(used.numbers, cuda_numbers, strict=True))
    else:
        return None
    rows = gpu_events.filter(pc.is_in(gpu_events["device_id"], pa.array(called, pa.int64())))
    numbers = pa.array([called[device] for device in rows["device_id"].to_pylist()], pa.int64())
    return replaced(rows, "device_id", numbers)


def _devices_of_run(gpu_events: pa.Table, samples: pa.Table | None, visible: Mapping[str, Any],
                    cuda_numbers: Collection[int]) -> tuple[tuple[int, ...], str]:
    """Return the numbers of the devices, and how they are known."""
    devices = sorted(gpu_events["device_id"].drop_null().unique().to_pylist())
    if unused := visible.get("unused"):
        raise Absent(unused)
    if visible.get("instance"):
        raise Absent(visible["why_not"])
    if used := devices_by_processes(samples):
        return used
    if len(devices) == 1:
        return tuple(devices), "there is no other"
    if why_not := visible.get("why_not"):
        raise Absent(f"which of {len(devices)} devices the run used is not known: {why_not}")
    if "devices" not in visible:
        return tuple(devices), "which of them the run used is not known"
    return _visible_devices(gpu_events, devices, visible, cuda_numbers)


def others(samples: pa.Table) -> pa.Table:
    """Return the samples of other processes' share, of devices on which the run's processes worked.

    A process on another device is no co-tenant. Raise Absent if the driver does not separate the two shares: then all
    of it may be the run's.
    """
    own_samples = rows_where(samples, "name", OWN)
    if not own_samples.num_rows:
        raise Absent("the driver does not tell whose work the device does")
    worked = own_samples.filter(pc.greater(own_samples["value"], 0))
    if not worked.num_rows:
        raise Absent("none of the processes that the driver lists belongs to this run: it was too short, or this "
                     "container has process numbers of its own")
    others_samples = rows_where(samples, "name", OTHERS)
    return others_samples.filter(pc.is_in(others_samples["device_id"], worked["device_id"].unique()))


def devices_by_processes(samples: pa.Table | None) -> tuple[tuple[int, ...], str] | None:
    """Return the devices on which samples show the run's processes, and how they do; None if they show none."""
    for name, meaning in ((OWN, "the run's processes worked there"), (HELD, "the run's processes held it")):
        if devices := _devices_above_zero(samples, name):
            return devices, meaning
    return None


def _devices_above_zero(samples: pa.Table | None, name: str) -> tuple[int, ...]:
    """Return the devices of which a sample of that name is above zero."""
    if samples is None:
        return ()
    named_samples = rows_where(samples, "name", name)
    return tuple(sorted(named_samples.filter(pc.greater(named_samples["value"], 0))["device_id"].unique().to_pylist()))


def _visible_devices(gpu_events: pa.Table, devices: list[int], visible: Mapping[str, Any],
                     cuda_numbers: Collection[int]) -> tuple[tuple[int, ...], str]:
    """Return the devices by CUDA's numbers if their order is known, else all that are visible and all that are not
    NVIDIA's."""
    nvidia = gpu_events.filter(pc.equal(gpu_events["source"].cast(pa.string()), NVIDIA))["device_id"].unique()
    listed, hidden = visible["devices"], set(nvidia.to_pylist()) - set(visible["devices"])
    if cuda_numbers and visible.get("in_order") and len(nvidia) == len(devices) and max(cuda_numbers) < len(listed):
        called = ", ".join(map(str, sorted(cuda_numbers)))
        return tuple(sorted(listed[number] for number in cuda_numbers)), f"what CUDA calls {called} in the run"
    if not (seen := tuple(number for number in devices if number not in hidden)):
        raise Absent("CUDA_VISIBLE_DEVICES hides every device from the run")
    return seen, "what the run sees"
