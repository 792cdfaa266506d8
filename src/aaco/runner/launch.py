"""Starts one command, waits for it, and reports its cost; run as a file by runner.command.

It is a separate process, with the standard library's lightest part only, because Linux counts the size of the process
that starts a command into the command's largest resident set (exec_mmap in fs/exec.c): started by aaco itself, `true`
would seem to need a hundred megabytes. It lives as long as one command does, and kills it when aaco is killed.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress

TYPE_CHECKING = False  # typing's own is not light
if TYPE_CHECKING:
    from resource import struct_rusage
    from types import FrameType
    from typing import Any

PR_SET_PDEATHSIG = 1  # prctl(2)
BLOCK = 1 << 16
LAST_WORDS_S = 1.0  # for what the pipes still hold once the command has ended


class Drain(threading.Thread):
    """Reads one output of the command to its end, so that it never blocks; keeps the beginning, counts all, and copies
    it to a file descriptor if there is one.
    """

    def __init__(self, keep: int, copy_fd: int | None) -> None:
        super().__init__(daemon=True)
        self.copy_fd = copy_fd
        self.source, self.target = os.pipe()
        self.keep, self.head, self.total = keep, bytearray(), 0

    def run(self) -> None:
        """Read until the last writer has closed its end."""
        while block := os.read(self.source, BLOCK):
            self.head += block[:self.keep - len(self.head)]
            self.total += len(block)
            self._copy(block)

    def _copy(self, block: bytes) -> None:
        """Write it all, or stop copying when nobody reads any more."""
        try:
            while self.copy_fd is not None and block:
                block = block[os.write(self.copy_fd, block):]
        except OSError:
            self.copy_fd = None


def main() -> None:
    """Do the job on stdin; print the command's process id, then, when it has ended, its cost: a JSON line each."""
    job = json.loads(sys.stdin.readline())
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    _end_with(job["parent"])
    if job["copy_fd"] is not None:
        os.set_inheritable(job["copy_fd"], False)
    outputs = Drain(job["keep"], job["copy_fd"]), Drain(job["keep"], job["copy_fd"])
    start_ns = time.monotonic_ns()
    try:
        pid = _spawn(job, outputs)
    except OSError as error:
        _print_json({"refused": error.strerror})
        return
    _take_along(pid)
    for output in outputs:
        os.close(output.target)
        output.start()
    _print_json({"pid": pid})
    floor = own_peak_rss_bytes()
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    end_ns = time.monotonic_ns()
    _kill(pid)  # what it left running would disturb the next run; not reaped yet, so the number is still its own
    _, status, usage = os.wait4(pid, 0)
    for output in outputs:
        output.join(LAST_WORDS_S)
    _print_json({"start_ns": start_ns, "end_ns": end_ns, "code": os.waitstatus_to_exitcode(status),
                 **_account(usage, floor), **_output_fields("stdout", outputs[0]),
                 **_output_fields("stderr", outputs[1])})


def _end_with(parent: int) -> None:
    """Request SIGTERM when aaco is gone, however it ended; exit at once if it has gone already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)


def _spawn(job: dict[str, Any], outputs: tuple[Drain, Drain]) -> int:
    """Start the command in its own session, with nothing to read, and signals as a shell leaves them."""
    actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
               *((os.POSIX_SPAWN_DUP2, output.target, number) for number, output in enumerate(outputs, 1))]
    return os.posix_spawn(job["program"], job["argv"], os.environ, file_actions=actions, setsid=True, setsigmask=[],
                          setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT])


def _take_along(pid: int) -> None:
    """End the command when this process is ended; a SIGTERM since the beginning is handled here."""
    def end(number: int, frame: FrameType | None) -> None:
        _kill(pid)
        os._exit(1)

    signal.signal(signal.SIGTERM, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _kill(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _account(usage: struct_rusage, floor: int) -> dict[str, Any]:
    """Return the kernel's accounting of the command and of those of its children that it waited for (getrusage(2))."""
    size = usage.ru_maxrss * 1024
    return {"user_ns": round(usage.ru_utime * 1e9), "system_ns": round(usage.ru_stime * 1e9),
            "max_rss_bytes": size if size > floor else None, "max_rss_floor_bytes": floor,
            "faults_minor": usage.ru_minflt, "faults_major": usage.ru_majflt,
            "switches_voluntary": usage.ru_nvcsw, "switches_involuntary": usage.ru_nivcsw}


def own_peak_rss_bytes() -> int:
    """Return our largest resident set in bytes: a command's smaller one cannot be distinguished from it."""
    with open("/proc/self/status") as status:  # noqa: PTH123 - pathlib is not light
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def _output_fields(name: str, output: Drain) -> dict[str, Any]:
    return {name: output.head.decode("latin-1"), f"{name}_bytes": output.total}


def _print_json(document: dict[str, Any]) -> None:
    print(json.dumps(document), flush=True)


if __name__ == "__main__":
    main()
