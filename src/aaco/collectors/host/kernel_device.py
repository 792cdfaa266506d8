"""/dev/aaco, the optional kernel module of native/kmod: its commands, and whether it is there and works.

Nothing needs it. The layout and the numbers mirror native/kmod/aaco_abi.h; a test has a compiler compare the two.
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

from msgspec import Struct

from aaco.core.errors import Missing, UsageError
from aaco.core.host import Host
from aaco.core.readings import Absent, or_why

DEVICE = Path("/dev/aaco")
FIX = "make -C native/kmod, then sudo insmod native/kmod/aaco.ko; nothing else needs it"
ABI_VERSION = 1
EVENT_BYTES, LABEL_BYTES = 48, 16
CAPACITY = 8192  # events between two looks of the reader: minutes of samples
SELF_TESTS = {1: "layout", 2: "clock", 4: "order of the queue", 8: "account of losses"}
START, STATS, MARK, NUMBER = struct.Struct("=iIII"), struct.Struct("=QQQQII"), struct.Struct("16s"), struct.Struct("=I")
_READ, _WRITE = 2, 1


def _command(direction: int, number: int, content: struct.Struct | None = None) -> int:
    """Return the number of an ioctl by include/uapi/asm-generic/ioctl.h, which x86 and Arm use."""
    return direction << 30 | (content.size if content else 0) << 16 | 0xAA << 8 | number


COMMANDS = {
    "VERSION": _command(_READ, 0, NUMBER), "START": _command(_WRITE, 1, START), "STOP": _command(0, 2),
    "STATS": _command(_READ, 3, STATS), "MARK": _command(_WRITE, 4, MARK), "SELF_TEST": _command(_READ, 5, NUMBER),
    "FENCE": _command(_WRITE, 6, NUMBER),
}


class Stats(Struct, frozen=True):
    """The module's account of one session: emitted = read + queued + lost, always."""

    emitted: int
    lost: int
    samples: int
    sampling_ns: int
    queued: int
    running: bool


class KernelModuleConnection:
    """The device, opened once: one session of the module, which ends when it is closed. Raises Missing."""

    def __init__(self, device: Path = DEVICE) -> None:
        try:
            self.handle = os.open(device, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise Missing(f"{device}: {error.strerror}", FIX) from error
        try:
            self._check_version(device)
        except Missing:
            self.close()
            raise

    def self_test(self) -> list[str]:
        """Return the faults that the module finds in itself."""
        failed = self._number("SELF_TEST")
        return [name for bit, name in SELF_TESTS.items() if failed & bit]

    def start(self, pid: int, period_ms: int, capacity: int = CAPACITY) -> None:
        """Watch a process; period 0 takes no samples. Raise OSError."""
        self._ask("START", START.pack(pid, period_ms, capacity, 0))

    def stop(self) -> None:
        """Take the last sample and end the session; queued events can still be read."""
        self._ask("STOP", b"")

    def stats(self) -> Stats:
        """Return the account so far."""
        emitted, lost, samples, sampling_ns, queued, running = STATS.unpack(self._ask("STATS", bytes(STATS.size)))
        return Stats(emitted, lost, samples, sampling_ns, queued, bool(running))

    def mark(self, label: str) -> None:
        """Put a marker into the session. Raise UsageError on a label too long, OSError if none is running."""
        self._ask("MARK", MARK.pack(_label(label)))

    def fence(self, count: int) -> None:
        """Create and signal dma_fences, if the module was loaded with fixture=1. Raise OSError."""
        self._ask("FENCE", NUMBER.pack(count))

    def read(self, most: int = 1024) -> bytes:
        """Return the next events, EVENT_BYTES each. Block while there are none; return b"" when the session is over."""
        return os.read(self.handle, most * EVENT_BYTES)

    def close(self) -> None:
        """End the session."""
        os.close(self.handle)

    def _check_version(self, device: Path) -> None:
        try:
            version = self._number("VERSION")
        except OSError as error:
            raise Missing(f"{device}: not the device of aaco's kernel module: {error.strerror}", FIX) from error
        if version != ABI_VERSION:
            raise Missing(f"{device}: the module speaks version {version}, this aaco {ABI_VERSION}",
                          "build and load the module that came with this aaco")

    def _number(self, command: str) -> int:
        return int(NUMBER.unpack(self._ask(command, bytes(NUMBER.size)))[0])

    def _ask(self, command: str, content: bytes) -> bytes:
        return fcntl.ioctl(self.handle, COMMANDS[command], content)


def why_not(host: Host | None = None) -> str | None:
    """Return why the module cannot be used here; None if it can."""
    return or_why(lambda: probe(host or Host()))[1] or None


def probe(host: Host) -> str:
    """Return the module's version and the result of its self-test. Raise Absent with the reason."""
    try:
        connection = KernelModuleConnection(host.root / "dev/aaco")
    except Missing as error:
        raise Absent(error.what) from error
    try:
        failed = connection.self_test()
    finally:
        connection.close()
    if failed:
        raise Absent(f"the module's self-test failed: {', '.join(failed)}")
    return f"ABI version {ABI_VERSION}, self-test passed"


def _label(label: str) -> bytes:
    content = label.encode()
    if len(content) > LABEL_BYTES:
        raise UsageError(f"marker {label!r}: longer than {LABEL_BYTES} bytes", "use a shorter name")
    return content
