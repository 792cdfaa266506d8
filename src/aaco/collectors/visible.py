"""Which devices of a host a program on CUDA sees, by the variables that it is started with.

CUDA_VISIBLE_DEVICES lists numbers, or UUIDs and what they begin with; what follows the first that names no device does
not count (CUDA C++ Programming Guide, CUDA Environment Variables). A driver's library numbers devices by their place on
PCI; CUDA does so where CUDA_DEVICE_ORDER=PCI_BUS_ID, else the fastest comes first: equal devices keep their places.
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
    """A device as the driver's library tells of it; divided: into instances (MIG)."""

    number: int
    name: str
    uuid: str
    divided: bool


def visible(devices: Sequence[Seen], environment: Mapping[str, str]) -> dict[str, Any]:
    """`devices`: the visible ones by the library's numbers, in CUDA's order where `in_order`; else `why_not`, and
    whether that is because of an `instance`.
    """
    try:
        chosen = _chosen(devices, environment)
    except Absent as reason:
        return {"why_not": str(reason), "instance": False}
    if chosen is None or any(device.divided for device in chosen):
        return {"why_not": OF_INSTANCE, "instance": True}
    return {"devices": [device.number for device in chosen],
            "in_order": VISIBLE in environment or _by_place(devices, environment)}


def _chosen(devices: Sequence[Seen], environment: Mapping[str, str]) -> list[Seen] | None:
    """Those that are visible; None where instances are named. Raises Absent where numbers do not say which."""
    if VISIBLE not in environment:
        return list(devices)
    words = [word.strip() for word in environment[VISIBLE].split(",")]
    if any(word.startswith("MIG-") for word in words):
        return None
    if any(word.isdecimal() for word in words) and not _by_place(devices, environment):
        raise Absent(OF_KINDS)
    return [device for device in takewhile(bool, (_named(word, devices) for word in words)) if device]


def _named(word: str, devices: Sequence[Seen]) -> Seen | None:
    """The device of a number, or the only one whose UUID begins so."""
    if word.isdecimal():
        return devices[int(word)] if int(word) < len(devices) else None
    found = [device for device in devices if device.uuid.startswith(word)] if word.startswith("GPU-") else []
    return found[0] if len(found) == 1 else None


def _by_place(devices: Sequence[Seen], environment: Mapping[str, str]) -> bool:
    """Whether CUDA numbers devices as the library does."""
    return environment.get(ORDER) == "PCI_BUS_ID" or len({device.name for device in devices}) <= 1
