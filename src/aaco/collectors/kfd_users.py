"""Which of an AMD device's users are the measured processes, by KFD, the compute driver: how many, and their memory.

In /sys/class/kfd/kfd/proc/PID (amdkfd/kfd_process.c) a file queues/QUEUE/gpuid names the device of each queue, from
Linux 5.8 on, and vram_ID tells the bytes of a device's memory that the process holds. The runtime opens every device
that it sees and works by queues, so that a queue says which one is used; of an older kernel, which lists none, memory
does. Processes are the host's: within a container with numbers of its own none is known to be ours.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from aaco.collectors.amd_sensors import Device
from aaco.collectors.device_samples import CODES, Record
from aaco.collectors.ours import Ours
from aaco.core.host import known, number

EVERY_NS = 200_000_000


class Users:
    """Ours among those that hold devices."""

    def __init__(self, devices: Sequence[Device], ours: Ours) -> None:
        self._ids = {device.index: device.kfd_id for device in devices if device.kfd_id is not None}
        self._folders = {device.kfd for device in devices if device.kfd is not None}
        self._ours, self._at = ours, 0

    def samples(self) -> Iterator[Record]:
        """How many of ours use each device, and the bytes of it that they hold, about five times a second."""
        now = time.monotonic_ns()
        if now - self._at < EVERY_NS:
            return
        self._at = now
        processes = [path for folder in self._folders for path in folder.glob("*")
                     if path.name.isdecimal() and self._ours.has(int(path.name))]
        for index, kfd_id in self._ids.items():
            held = [vram for process in processes if (vram := _used(process, kfd_id)) is not None]
            if held:
                yield now, index, CODES["own_processes"], float(len(held))
                yield now, index, CODES["own_vram_bytes"], float(sum(held))


def _used(process: Path, kfd_id: int) -> int | None:
    """The bytes of the device's memory that a process holds; None where it does not use the device."""
    held = known(number, process / f"vram_{kfd_id}") or 0
    queues = process / "queues"
    if not queues.is_dir():
        return held or None
    return held if any(known(number, path) == kfd_id for path in queues.glob("*/gpuid")) else None
