"""The process that records the devices of one vendor, or the processor's packages; device_watch starts and ends it.

python -m aaco.collectors.gpu.device_recorder nvidia|amd|packages FOLDER PERIOD_S

It takes the first source that works, writes on stdout that it records, and ends when its stdin does, even if the
process that started it was killed. A driver that hangs, hangs here, and no other process waits for it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from aaco.collectors.gpu import amd_library, amd_sensors, amd_sysfs, amd_tools, nvml, package_sampler
from aaco.collectors.gpu.device_sampler import DeviceSampler
from aaco.core.errors import StorageError
from aaco.core.readings import Absent


class DeviceSource(NamedTuple):
    """One way to read a vendor's devices: its name, why it cannot be used, and its sampler."""

    name: str
    why_not: Callable[[], str | None]
    sampler: Callable[[float, Path], DeviceSampler]


# The better first: the lowest cost and the most readings.
SOURCES: dict[str, tuple[DeviceSource, ...]] = {
    "nvidia": (DeviceSource("nvml", nvml.why_not, lambda period, raw: nvml.NvmlSampler(period, raw=raw)),),
    "amd": (
        DeviceSource("amdgpu", amd_sensors.why_not, lambda period, raw: amd_sysfs.AmdSysfsSampler(period, raw=raw)),
        DeviceSource("amdsmi", amd_library.why_not, lambda period, raw: amd_library.AmdSmiSampler(period, raw=raw)),
        *(DeviceSource(tool, partial(amd_tools.why_not, tool),
                       lambda period, raw, tool=tool: amd_tools.AmdToolSampler(tool, raw=raw))  # type: ignore[misc]
          for tool in amd_tools.COMMANDS)),
    "packages": (DeviceSource(package_sampler.SOURCE, package_sampler.why_not,
                              lambda period, raw: package_sampler.PackageSampler(period, raw=raw)),),
}


class RecorderAccount:
    """The events of a recording, a JSON object per line; each line is on disk when `note` returns."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)

    def note(self, event: str, **facts: Any) -> None:
        """Write an event with the present time, unless one is given."""
        line = {"event": event, "t_ns": time.monotonic_ns(), **facts}
        self._file.write(json.dumps(line).encode() + b"\n")


def choose(vendor: str, folder: Path, period_s: float) -> tuple[DeviceSampler | None, dict[str, str]]:
    """Return the sampler of the first source that works, if any, and why each source before it does not."""
    refused: dict[str, str] = {}
    for source in SOURCES[vendor]:
        try:
            if why := source.why_not():
                raise Absent(why)
            return source.sampler(period_s, folder / f"{source.name}-000.bin"), refused
        except Absent as reason:
            refused[source.name] = str(reason)
    return None, refused


def main(vendor: str, folder: Path, period_s: float) -> None:
    """Record until stdin ends."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print on the way is no answer
    account = RecorderAccount(folder / f"{vendor}.jsonl")
    with nvml.kept_open() if vendor == "nvidia" else nullcontext():
        sampler, refused = choose(vendor, folder, period_s)
        if sampler is None:
            account.note("none", vendor=vendor, why_not=refused)
            print("none", file=answer, flush=True)
            return
        sampler.tell = lambda device, t_ns, why: account.note("lost", t_ns=t_ns, device=device, why=why)
        account.note("recording", vendor=vendor, source=sampler.source, why_not=refused,
                     unread=list(sampler.unread.items()), **sampler.facts)
        try:
            sampler.start()
            print("recording", file=answer, flush=True)
            sys.stdin.buffer.read()
            sampler.stop()
        except StorageError as error:
            account.note("failed", why=error.what)
            return
        account.note("ended", source=sampler.source, process_cpu_s=time.process_time(), **sampler.overhead)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
