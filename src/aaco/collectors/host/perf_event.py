"""perf_event_open(2) by ctypes; light enough for `aaco doctor`. Constants: include/uapi/linux/perf_event.h."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import time

from msgspec import Struct

from aaco.core.host import Host, number
from aaco.core.readings import Absent, known

FIX = "sudo sysctl kernel.perf_event_paranoid=2; in a container, allow perf_event_open in the seccomp profile"
NOT_OF_THE_KERNEL = "page faults taken inside system calls are not recorded: that needs CAP_PERFMON"
HARDWARE = {"cycles": 0, "instructions": 1, "llc_misses": 3}  # PERF_COUNT_HW_*, the last from its last-level cache
_SYSCALL = {"x86_64": 298, "aarch64": 241, "riscv64": 241}
_ATTRIBUTES = struct.Struct("<IIQQQQQIIQQQQIiQIHH")  # PERF_ATTR_SIZE_VER5
_TYPE_HARDWARE, _TYPE_SOFTWARE = 0, 1
_FAULTS_MINOR, _FAULTS_MAJOR = 5, 6
_TID, _TIME, _CPU, _IDENTIFIER = 1 << 1, 1 << 2, 1 << 7, 1 << 16
_FORMAT_TIMES, _FORMAT_LOST = 0b11, 1 << 4  # the latter since Linux 6.0
_INHERIT, _WITHOUT_KERNEL, _WATERMARK = 1 << 1, 1 << 5 | 1 << 6, 1 << 14
_SAMPLE_ID_ALL, _USE_CLOCKID, _CONTEXT_SWITCH = 1 << 18, 1 << 25, 1 << 26
_CLOSE_ON_EXEC = 8
_LIBC = ctypes.CDLL(None, use_errno=True)


class PerfEvent(Struct, frozen=True):
    """What to open: type and config of perf_event_attr; whether each occurrence is recorded, and switches too."""

    type: int
    config: int
    recorded: bool = False
    switches: bool = False
    read_format: int = 0


MINOR_FAULTS_AND_SWITCHES = PerfEvent(_TYPE_SOFTWARE, _FAULTS_MINOR, recorded=True, switches=True)
MAJOR_FAULTS = PerfEvent(_TYPE_SOFTWARE, _FAULTS_MAJOR, recorded=True)
CHEAPEST = PerfEvent(_TYPE_SOFTWARE, _FAULTS_MINOR)
COUNTERS = {name: PerfEvent(_TYPE_HARDWARE, config, read_format=_FORMAT_TIMES) for name, config in HARDWARE.items()}


def open_event(event: PerfEvent, thread_id: int, cpu: int = -1, ring_bytes: int = 0) -> tuple[int, bool]:
    """Return a descriptor for a thread and all it will start, and whether the kernel's part had to be left out.

    cpu -1: any CPU it runs on. Raise OSError.
    """
    try:
        return _open(event, thread_id, cpu, ring_bytes, 0), False
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES):
            raise
        return _open(event, thread_id, cpu, ring_bytes, _WITHOUT_KERNEL), True


def _open(event: PerfEvent, thread_id: int, cpu: int, ring_bytes: int, flags: int) -> int:
    try:
        return _call(event, thread_id, cpu, ring_bytes, flags, event.read_format | _FORMAT_LOST)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return _call(event, thread_id, cpu, ring_bytes, flags, event.read_format)


def _call(event: PerfEvent, thread_id: int, cpu: int, ring_bytes: int, flags: int, read_format: int) -> int:
    flags |= _INHERIT | _SAMPLE_ID_ALL | _USE_CLOCKID
    flags |= _WATERMARK * event.recorded | _CONTEXT_SWITCH * event.switches
    sample = (_TID | _TIME | _CPU | _IDENTIFIER) * event.recorded
    packed = _ATTRIBUTES.pack(event.type, _ATTRIBUTES.size, event.config, int(event.recorded), sample, read_format,
                              flags, ring_bytes // 4, 0, 0, 0, 0, 0, 0, time.CLOCK_MONOTONIC, 0, 0, 0, 0)
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"its number is not known for {platform.machine()}")
    handle = int(_LIBC.syscall(number, ctypes.create_string_buffer(packed, len(packed)), thread_id, cpu, -1,
                               _CLOSE_ON_EXEC))
    if handle < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return handle


def probe(host: Host | None = None) -> str:
    """Return what tier T2 records here. Raise Absent with the reason if the kernel refuses."""
    host = host or Host()
    try:
        handle, without_kernel = open_event(CHEAPEST, 0)
    except OSError as error:
        level = known(number, host.proc / "sys/kernel/perf_event_paranoid")
        raise Absent(f"perf_event_open: {error.strerror} (kernel.perf_event_paranoid is {level})") from error
    os.close(handle)
    return "switches and page faults" + (f"; {NOT_OF_THE_KERNEL}" if without_kernel else "")
