"""Which devices of a host a run used, and what processes that are not ours compute on them, as their driver tells it.

On a host of several devices work of others on another device is nothing to a run. What is best known decides: where the
run's processes worked, else what they hold, else what CUDA calls the devices that it was to work on, else what it sees.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from aaco.core.readings import Absent
from aaco.core.tables import replaced

OWN, OTHERS, HELD = "own_sm_pct", "others_sm_pct", "own_processes"  # of the samples table
NVIDIA = "nvml"  # the source of its rows of gpu_events


@dataclass(frozen=True)
class RunDevices:
    """The devices that a run used, as its telemetry numbers them, their telemetry, and how that is known."""

    numbers: tuple[int, ...]
    events: pa.Table
    known_by: str

    def of(self, busy: Sequence[int]) -> str:
        """Which of them a number is of, in words."""
        return f"of device{'s' * (len(busy) > 1)} {', '.join(map(str, busy))}: {self.known_by}"


def run_devices(gpu_events: pa.Table, samples: pa.Table | None = None,
                visible_devices: Mapping[str, Any] | None = None,
                cuda_numbers: Collection[int] | None = None) -> RunDevices:
    """The devices of the telemetry that the run used. Raises Absent where it had an instance of one, or none is known.

    visible_devices: what the recorder says of them (collectors/visible.py), or why the run used none (`unused`).
    cuda_numbers: of those that the run worked on, as CUDA numbers them.
    """
    numbers, known_by = _used(gpu_events, samples, visible_devices or {}, cuda_numbers or ())
    return RunDevices(numbers, gpu_events.filter(pc.is_in(gpu_events["device_id"], pa.array(numbers, pa.int64()))),
                      known_by)


def as_numbered(gpu_events: pa.Table, kernel_devices: Collection[int], samples: pa.Table | None = None,
                visible_devices: Mapping[str, Any] | None = None) -> pa.Table | None:
    """The telemetry of the devices that kernels ran on, under the numbers that the kernels have for them: a program
    numbers the devices that it sees, the driver's library all. None where which is which is not known.
    """
    try:
        used = run_devices(gpu_events, samples, visible_devices, kernel_devices)
    except Absent:
        return None
    visible, wanted = visible_devices or {}, sorted(kernel_devices)
    if visible.get("in_order") and wanted and wanted[-1] < len(visible.get("devices", ())):
        called = {visible["devices"][number]: number for number in wanted}
    elif len(used.numbers) == len(wanted) == 1 or list(used.numbers) == wanted:
        called = dict(zip(used.numbers, wanted, strict=True))
    else:
        return None
    rows = gpu_events.filter(pc.is_in(gpu_events["device_id"], pa.array(called, pa.int64())))
    numbers = pa.array([called[each] for each in rows["device_id"].to_pylist()], pa.int64())
    return replaced(rows, "device_id", numbers)


def _used(gpu_events: pa.Table, samples: pa.Table | None, visible: Mapping[str, Any],
          cuda_numbers: Collection[int]) -> tuple[tuple[int, ...], str]:
    """Their numbers, and how they are known."""
    known = sorted(gpu_events["device_id"].drop_null().unique().to_pylist())
    if unused := visible.get("unused"):
        raise Absent(unused)
    if visible.get("instance"):
        raise Absent(visible["why_not"])
    for name, meaning in ((OWN, "the run's processes worked there"), (HELD, "the run's processes held it")):
        if found := _where(samples, name):
            return found, meaning
    if len(known) == 1:
        return tuple(known), "there is no other"
    if why_not := visible.get("why_not"):
        raise Absent(f"which of {len(known)} devices the run used is not known: {why_not}")
    if "devices" not in visible:
        return tuple(known), "which of them the run used is not known"
    return _seen(gpu_events, known, visible, cuda_numbers)


def others(samples: pa.Table) -> pa.Table:
    """The samples of others' share, of devices on which ours worked: who else has another device is no neighbour.

    Raises Absent where ours is not told from it: then all of it may be ours.
    """
    own = _of(samples, OWN)
    if not own.num_rows:
        raise Absent("the driver does not tell whose work the device does")
    worked = own.filter(pc.greater(own["value"], 0))
    if not worked.num_rows:
        raise Absent("none of the processes that the driver tells of is seen to be ours: it was too short, or this "
                     "container has process numbers of its own")
    found = _of(samples, OTHERS)
    return found.filter(pc.is_in(found["device_id"], worked["device_id"].unique()))


def _where(samples: pa.Table | None, name: str) -> tuple[int, ...]:
    """The devices of which a sample of that name is above zero."""
    if samples is None:
        return ()
    found = _of(samples, name)
    return tuple(sorted(found.filter(pc.greater(found["value"], 0))["device_id"].unique().to_pylist()))


def _of(samples: pa.Table, name: str) -> pa.Table:
    return samples.filter(pc.equal(samples["name"].cast(pa.string()), name))


def _seen(gpu_events: pa.Table, known: list[int], visible: Mapping[str, Any],
          cuda_numbers: Collection[int]) -> tuple[tuple[int, ...], str]:
    """By CUDA's numbers where their order is known, else all that is visible, and what is none of NVIDIA's."""
    nvidia = gpu_events.filter(pc.equal(gpu_events["source"].cast(pa.string()), NVIDIA))["device_id"].unique()
    listed, hidden = visible["devices"], set(nvidia.to_pylist()) - set(visible["devices"])
    if cuda_numbers and visible.get("in_order") and len(nvidia) == len(known) and max(cuda_numbers) < len(listed):
        called = ", ".join(map(str, sorted(cuda_numbers)))
        return tuple(sorted(listed[number] for number in cuda_numbers)), f"what CUDA calls {called} in the run"
    if not (seen := tuple(number for number in known if number not in hidden)):
        raise Absent("CUDA_VISIBLE_DEVICES hides every device from the run")
    return seen, "what the run sees"
