"""Measures any command: one fresh process, its wall time, and the kernel's accounting of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from aaco.core import files
from aaco.core.errors import AacoError, Missing
from aaco.runner import iterations, surroundings

KEEP_BYTES = 1 << 20  # of each output; the rest is counted
LAUNCHER = Path(__file__).with_name("launch.py")


class Ran(Struct, frozen=True):
    """One run of a command. Times are CLOCK_MONOTONIC, just before it was spawned and just after it had ended.

    CPU times, faults and switches are those of the command and of the children it waited for. max_rss_bytes is the
    largest single one of them; None if it is not above the floor, below which it cannot be determined.
    """

    start_ns: int
    end_ns: int
    code: int  # exit code; -N when signal N killed it
    user_ns: int
    system_ns: int
    max_rss_bytes: int | None
    max_rss_floor_bytes: int
    faults_minor: int
    faults_major: int
    switches_voluntary: int
    switches_involuntary: int
    stdout: bytes  # its first bytes, KEEP_BYTES by default
    stdout_bytes: int  # all of it
    stderr: bytes
    stderr_bytes: int

    @property
    def wall_ns(self) -> int:
        """Return the time from just before the spawn to just after the end."""
        return self.end_ns - self.start_ns

    @property
    def last_words(self) -> str:
        """Return the last line of the kept stderr; empty if there is none."""
        return self.stderr.decode(errors="backslashreplace").strip().rpartition("\n")[2]


def find(name: str) -> Path:
    """Return the executable that a shell would run for this name. Raise Missing."""
    path = shutil.which(name)
    if path is None:
        raise Missing(f"{name}: no such command, or not executable", f"command -v {name}; a path needs its ./")
    return Path(path)


def run(argv: Sequence[str], timeout_s: float | None = None, started: Callable[[int], None] = lambda pid: None,
        environment: Mapping[str, str] | None = None, keep_bytes: int = KEEP_BYTES,
        copy_fd: int | None = None) -> Ran:
    """Run a command once, without a shell and with nothing on its stdin; `started` gets its process id.

    environment: additions to ours. keep_bytes: of each output. copy_fd: the file descriptor to which both outputs are
    copied as they come.

    It has its own session and process group. The group is killed at its end, at the timeout, and when this process ends
    in any way; a descendant that left the group, or SIGKILL to the launcher only, escapes that. Raise Missing for a
    command that cannot be started, AacoError at the timeout; the result has the command's exit code.
    """
    copy_fd = None if copy_fd is None else os.dup(copy_fd)  # the launcher has pipes in the places of ours
    job = {"parent": os.getpid(), "program": str(find(argv[0])), "argv": list(argv), "keep": keep_bytes,
           "copy_fd": copy_fd}
    argv_of_launcher = [*surroundings.now().launcher, sys.executable, "-I", "-S", str(LAUNCHER)]
    with subprocess.Popen(argv_of_launcher, bufsize=0, start_new_session=True, env=os.environ | (environment or {}),
                          pass_fds=[] if copy_fd is None else [copy_fd],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as launcher:
        try:
            answer = _converse(launcher, job, timeout_s, started)
        except subprocess.TimeoutExpired:
            raise AacoError(f"{argv[0]} ran for more than {timeout_s:g} s", "give it more: --timeout SECONDS") from None
        finally:
            launcher.terminate()
            if copy_fd is not None:
                os.close(copy_fd)
    return Ran(**answer | {name: answer[name].encode("latin-1") for name in ("stdout", "stderr")})


def _converse(launcher: subprocess.Popen[bytes], job: dict[str, Any], timeout_s: float | None,
              started: Callable[[int], None]) -> dict[str, Any]:
    assert launcher.stdin and launcher.stdout
    with suppress(BrokenPipeError):  # it died before it listened; the code below reports how
        launcher.stdin.write(json.dumps(job).encode() + b"\n")
    first = json.loads(launcher.stdout.readline() or "{}")
    if "refused" in first:
        raise Missing(f"{job['program']}: {first['refused']}", "check that it is a program for this machine")
    if "pid" in first:
        started(first["pid"])
    output, errors = launcher.communicate(timeout=timeout_s)
    if not output:
        last = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise AacoError(f"the process that starts the command {ending(launcher.returncode)}: {last or 'no word'}",
                        "run it again; if it was killed, look for the kernel's out-of-memory killer in dmesg")
    answer: dict[str, Any] = json.loads(output)
    return answer


def ending(code: int) -> str:
    """Return how a process ended, in words; -N is signal N."""
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
    return f"was killed by {name}"


def keep(folder: Path, process: int, phase: str, ran: Ran) -> None:
    """Write a run into a session folder: its row, and the beginnings of its outputs. Raise StorageError."""
    rows = iterations.path_of(folder, process)
    with files.storage(rows):
        rows.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(rows, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            iterations.append(descriptor, 0, iterations.PHASES.index(phase), ran.start_ns, ran.end_ns)
        finally:
            os.close(descriptor)
    for suffix, content in (("out", ran.stdout), ("err", ran.stderr)):
        path = rows.parent / f"command-{process:03d}.{suffix}"
        with files.storage(path):
            path.write_bytes(content)
