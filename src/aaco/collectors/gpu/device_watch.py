"""Records this machine's devices while a block runs, by a process per vendor, and reads the recordings.

A driver's call may hang, and then nothing ends the process that made it. So the wait for the recorder has a limit at
its begin and at its end. A recorder without an answer is abandoned; its account says so, and from when on readings are
missing.
"""

from __future__ import annotations

import ctypes
import re
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from aaco.collectors.gpu import amd_library, amd_sensors, amd_sysfs, amd_tools, device_samples, nvml
from aaco.collectors.gpu.device_recorder import RecorderAccount
from aaco.collectors.gpu.own_processes import marked
from aaco.core.host import Host, number
from aaco.core.readings import Absent, known
from aaco.core.tables import replaced

PERIOD_S = 0.1
READY_S, END_S = 20.0, 5.0  # to open a library starts devices that nobody else uses, which takes up to seconds


def makers(host: Host | None = None) -> list[str]:
    """Return the vendors of devices that leave any sign here; no driver is called."""
    host = host or Host()
    vendors = []
    with suppress(OSError):
        ctypes.CDLL(nvml.LIBRARY)
        vendors.append("nvidia")
    cards = [path / "device/vendor" for path in (host.sys / "class/drm").glob("card*")
             if re.fullmatch(r"card\d+", path.name)]
    if ((host.root / "dev/kfd").exists() or any(known(number, path) == amd_sensors.VENDOR for path in cards)
            or PathFinder.find_spec("amdsmi") or any(map(shutil.which, amd_tools.COMMANDS))):
        vendors.append("amd")
    return vendors


@contextmanager
def recorded(folder: Path, period_s: float = PERIOD_S, vendors: list[str] | None = None) -> Iterator[None]:
    """Record the devices into the folder until the end of the block; start nothing if there are none.

    Processes that this process starts in the block count as ours on the devices (collectors/gpu/own_processes.py).
    """
    with marked(), ExitStack() as running:
        recorders = [Recorder(vendor, folder, period_s) for vendor in (makers() if vendors is None else vendors)]
        for recorder in recorders:
            running.callback(recorder.stop)
        for recorder in recorders:
            recorder.wait()
        yield


class Recorder:
    """One recording process. It lives as long as its stdin is open."""

    def __init__(self, vendor: str, folder: Path, period_s: float) -> None:
        self.vendor, self.account, self._given_up = vendor, folder / f"{vendor}.jsonl", False
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-P", "-m", "aaco.collectors.gpu.device_recorder", vendor, str(folder),
                   str(period_s)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=subprocess.DEVNULL, start_new_session=True)

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    def wait(self) -> None:
        """Wait until it records, reports that there is nothing to record, or is given up."""
        assert self._process.stdout
        if not select.select([self._process.stdout], [], [], READY_S)[0]:
            self._give_up(f"did not begin within {READY_S:g} s: a call of the driver hangs")

    def stop(self) -> None:
        """End it. If it does not end, abandon it and note that in its account."""
        assert self._process.stdin
        if self._given_up:
            return
        with suppress(OSError):
            self._process.stdin.close()
        try:
            code = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._give_up(f"gave no answer for {END_S:g} s: a call of the driver hangs")
            return
        if code:
            ending = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
            RecorderAccount(self.account).note("silent", vendor=self.vendor, why=ending)

    def _give_up(self, why: str) -> None:
        """Kill the process without a long wait: inside a driver's call it may not even die of a kill."""
        self._given_up = True
        RecorderAccount(self.account).note("silent", vendor=self.vendor, why=why)
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)


def events(folder: Path, asked: Callable[[Path], pa.Table]) -> pa.Table:
    """Return the gpu_events of all recordings in a folder. Raise Absent if there are none, BadCapture.

    asked: reads an answer of amd-smi or rocm-smi into a gpu_events table without times. On a machine with devices of
    both vendors, AMD's numbers follow NVIDIA's: no number is of two devices.
    """
    nvidia = [nvml.parse(raw) for raw in sorted(folder.glob("nvml-*.bin"))]
    readers: dict[str, Callable[[Path], pa.Table]] = {
        "amdgpu": amd_sysfs.parse, "amdsmi": partial(amd_sysfs.parse, source=amd_library.SOURCE)}
    amd = [read(raw) for name, read in readers.items() for raw in sorted(folder.glob(f"{name}-*.bin"))]
    for t_ns, path in amd_tools.answers(folder):
        table = asked(path)
        amd.append(replaced(table, "t_ns", pa.array([t_ns] * table.num_rows, pa.int64())))
    if not nvidia and not amd:
        raise Absent("no NVIDIA or AMD device could be recorded (aaco doctor)")
    return pa.concat_tables([*nvidia, *(_renumber(table, _count_devices(nvidia)) for table in amd)])


def samples(folder: Path) -> pa.Table:
    """Return the finer samples of all recordings in a folder. Raise Absent if there are none, BadCapture."""
    files = sorted(folder.glob(f"{device_samples.PREFIX}*.bin"))
    if not files:
        raise Absent("no device reports more than ten samples a second")
    before = _count_devices([nvml.parse(raw) for raw in sorted(folder.glob("nvml-*.bin"))])
    parsed = [(path.name.startswith(f"{device_samples.PREFIX}nvml-"), device_samples.parse(path)) for path in files]
    tables = [table if nvidia else _renumber(table, before) for nvidia, table in parsed]
    return pa.concat_tables(tables).unify_dictionaries()


def _count_devices(tables: list[pa.Table]) -> int:
    """Return how many device numbers the tables take, from 0 on."""
    return 1 + max((pc.max(table["device_id"]).as_py() for table in tables if table.num_rows), default=-1)


def _renumber(table: pa.Table, first: int) -> pa.Table:
    """Return the table with its devices numbered from `first` on."""
    return replaced(table, "device_id", pc.add(table["device_id"], first))
