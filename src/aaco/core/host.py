"""The two ways to look at a host: its files, and its tools."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from msgspec import Struct

from aaco.core.readings import Absent

OUTPUT_LIMIT = 1 << 20


class NoAnswer(Absent):
    """A tool took longer than its time limit."""


class Host(Struct, frozen=True):
    """Where to look: the real system, or a copy of one under `root`."""

    root: Path = Path("/")
    python_path: tuple[str, ...] | None = None  # folders of Python packages; None: sys.path

    @property
    def proc(self) -> Path:
        """The proc(5) tree."""
        return self.root / "proc"

    @property
    def sys(self) -> Path:
        """The sysfs(5) tree."""
        return self.root / "sys"

    @property
    def cpus(self) -> Path:
        """Documentation/ABI/testing/sysfs-devices-system-cpu."""
        return self.sys / "devices/system/cpu"


def text(path: Path) -> str:
    """The file's text, stripped. Raises Absent with the reason."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError as error:
        raise Absent(f"{path}: {error.strerror}") from error


def matched(path: Path, pattern: str, lacks: str, flags: int = 0) -> re.Match[str]:
    """Where a file matches a pattern. Raises Absent with the reason for a file without a match."""
    if match := re.search(pattern, text(path), flags):
        return match
    raise Absent(f"{path}: {lacks}")


def number(path: Path) -> int:
    """The whole number a file holds. Raises Absent."""
    content = text(path)
    try:
        return int(content, 0)
    except ValueError:
        raise Absent(f"{path}: {content[:40]!r} is not a number") from None


def ask(command: Sequence[str], timeout_s: float = 5.0, most_bytes: int = OUTPUT_LIMIT, any_code: bool = False) -> str:
    """What a tool prints (both streams). Raises Absent when it is not there, fails, hangs or floods.

    A tool that does not answer is killed with all it started. any_code: take the answer with any exit code.
    """
    code, answer = run(command, timeout_s, most_bytes)
    if code and not (any_code and code > 0):
        ending = "exits with" if code > 0 else "was killed by signal"
        raise Absent(f"{command[0]} {ending} {abs(code)}: {first_printable(answer)}")
    return answer


def run(command: Sequence[str], timeout_s: float, most_bytes: int = OUTPUT_LIMIT, stdin: IO[bytes] | None = None,
        stderr: IO[bytes] | None = None) -> tuple[int, str]:
    """Return a tool's exit code and what it prints: both streams, unless a file takes its errors. A signal is a
    negative code.

    Raise Absent when it is not there, hangs or floods; it is then killed with all it started.
    """
    path = shutil.which(command[0])
    if path is None:
        raise Absent(f"{command[0]} is not on PATH")
    environment = os.environ | {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}
    try:
        process = subprocess.Popen([path, *command[1:]], stdin=stdin or subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=stderr or subprocess.STDOUT, start_new_session=True, env=environment)
    except OSError as error:
        raise Absent(f"{path}: {error.strerror}") from error
    with process:
        output = _listen(process, command[0], timeout_s, most_bytes)
    return process.returncode, output.decode(errors="replace")


def _listen(process: subprocess.Popen[bytes], name: str, timeout_s: float, most_bytes: int) -> bytes:
    """All it prints until it has closed its output and ended; else it is killed."""
    assert process.stdout
    deadline = time.monotonic() + timeout_s
    output, poll = bytearray(), select.poll()
    poll.register(process.stdout)
    try:
        while poll.poll(max(0.0, 1000 * (deadline - time.monotonic()))):
            block = os.read(process.stdout.fileno(), 1 << 16)
            output += block
            if not block:
                process.wait(max(0.0, deadline - time.monotonic()))
                return bytes(output)
            if len(output) > most_bytes:
                raise Absent(f"{name} printed more than {most_bytes >> 20} MiB")
        raise NoAnswer(f"{name} gave no answer in {timeout_s:g} s")
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"{name} gave no answer in {timeout_s:g} s") from None
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)


def first_printable(answer: str) -> str:
    """The first line of a tool's answer that says anything, without control characters."""
    lines = ("".join(filter(str.isprintable, line)).strip() for line in answer.splitlines())
    return next(filter(None, lines), "no message")[:120]


def cpu_list(listed: str) -> list[int]:
    """The numbers of a kernel CPU list: "0-2,8" is 0, 1, 2, 8 (Documentation/admin-guide/cputopology.rst)."""
    spans = [part.split("-") for part in listed.split(",") if part]
    return [cpu for span in spans for cpu in range(int(span[0]), int(span[-1]) + 1)]
