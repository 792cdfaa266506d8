"""The measured processes among an AMD device's users, by KFD, the compute driver: their number and their memory.

In /sys/class/kfd/kfd/proc/PID (amdkfd/kfd_process.c) a file queues/QUEUE/gpuid names the device of each queue, from
Linux 5.8 on, and vram_ID has the bytes of a device's memory that the process holds. The runtime opens every device that
it sees and works by queues, so a queue shows which device is used; older kernels list no queues, so memory shows it.
Process ids are the host's: inside a container with a PID namespace, none is recognised as ours.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from aaco.collectors.gpu.amd_sensors import AmdDevice
from aaco.collectors.gpu.device_samples import CODES, Record
from aaco.collectors.gpu.own_processes import OwnProcesses
from aaco.core.host import number
from aaco.core.readings import known

EVERY_NS = 200_000_000


class KfdUsers:
    """Our processes among the users of devices."""

    def __init__(self, devices: Sequence[AmdDevice], ours: OwnProcesses) -> None:
        self._ids = {device.index: device.kfd_id for device in devices if device.kfd_id is not None}
        self._folders = {device.kfd for device in devices if device.kfd is not None}
        self._ours, self._at = ours, 0

    def samples(self) -> Iterator[Record]:
        """Yield how many of our processes use each device, and the bytes of it that they hold, about five times a
        second.
        """
        now = time.monotonic_ns()
        if now - self._at < EVERY_NS:
            return
        self._at = now
        processes = [path for folder in self._folders for path in folder.glob("*")
                     if path.name.isdecimal() and self._ours.has(int(path.name))]
        for index, kfd_id in self._ids.items():
            held = [vram for process in processes if (vram := _read_used_bytes(process, kfd_id)) is not None]
            if held:
                yield now, index, CODES["own_processes"], float(len(held))
                yield now, index, CODES["own_vram_bytes"], float(sum(held))


def _read_used_bytes(process: Path, kfd_id: int) -> int | None:
    """Return the bytes of the device's memory that a process holds; None if it does not use the device."""
    held = known(number, process / f"vram_{kfd_id}") or 0
    queues = process / "queues"
    if not queues.is_dir():
        return held or None
    return held if any(known(number, path) == kfd_id for path in queues.glob("*/gpuid")) else None
