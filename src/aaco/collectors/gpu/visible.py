"""The devices of a host that a program on CUDA sees, by its environment variables.

CUDA_VISIBLE_DEVICES lists numbers, or UUIDs and prefixes of them; entries after the first that names no device do not
count (CUDA C++ Programming Guide, CUDA Environment Variables). A driver's library numbers devices by their place on
PCI. CUDA does so if CUDA_DEVICE_ORDER=PCI_BUS_ID, else the fastest comes first: equal devices keep their places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from aaco.core.readings import Absent

VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
OF_INSTANCE = ("the run has an instance of a device (MIG), and the driver tells of whole devices: what of that is the "
               "instance's is not known")
OF_KINDS = (f"{VISIBLE} has numbers, devices here are of several kinds, and CUDA numbers the fastest first: set "
            f"{ORDER}=PCI_BUS_ID, or name them by UUID")


class Seen(NamedTuple):
    """A device as the driver's library reports it; divided: into instances (MIG)."""

    number: int
    name: str
    uuid: str
    divided: bool


def visible(devices: Sequence[Seen], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return `devices`: the visible ones by the library's numbers, in CUDA's order if `in_order`; else `why_not`, and
    whether an `instance` is the reason.
    """
    try:
        visible_devices = _select_devices(devices, environment)
    except Absent as reason:
        return {"why_not": str(reason), "instance": False}
    if visible_devices is None or any(device.divided for device in visible_devices):
        return {"why_not": OF_INSTANCE, "instance": True}
    return {"devices": [device.number for device in visible_devices],
            "in_order": VISIBLE in environment or _is_in_pci_order(devices, environment)}


def _select_devices(devices: Sequence[Seen], environment: Mapping[str, str]) -> list[Seen] | None:
    """Return the visible devices; None if instances are named. Raise Absent if numbers are ambiguous."""
    if VISIBLE not in environment:
        return list(devices)
    words = [word.strip() for word in environment[VISIBLE].split(",")]
    if any(word.startswith("MIG-") for word in words):
        return None
    if any(word.isdecimal() for word in words) and not _is_in_pci_order(devices, environment):
        raise Absent(OF_KINDS)
    return [device for device in takewhile(bool, (_find_device(word, devices) for word in words)) if device]


def _find_device(word: str, devices: Sequence[Seen]) -> Seen | None:
    """Return the device of a number, or the only one with this UUID prefix."""
    if word.isdecimal():
        return devices[int(word)] if int(word) < len(devices) else None
    matches = [device for device in devices if device.uuid.startswith(word)] if word.startswith("GPU-") else []
    return matches[0] if len(matches) == 1 else None


def _is_in_pci_order(devices: Sequence[Seen], environment: Mapping[str, str]) -> bool:
    """Return whether CUDA numbers devices as the library does."""
    return environment.get(ORDER) == "PCI_BUS_ID" or len({device.name for device in devices}) <= 1
