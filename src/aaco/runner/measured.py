"""Runs measured processes from outside: starts them, sends their job, waits; returns their outcome, or how they died.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from msgspec import Struct, field

from aaco.core import files
from aaco.core.errors import BY_EXIT_CODE, AacoError
from aaco.runner import command, surroundings

POLL_S = 0.05


class MeasuredProcess(Struct, frozen=True):
    """A process to start: its module, the job it gets on stdin, the files for its outcome and its output.

    environment is added to ours; before precedes its command; inherits are file descriptors that it gets under the same
    numbers.
    """

    module: str
    job: Mapping[str, Any]
    outcome: Path
    says: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    inherits: tuple[int, ...] = ()
    before: tuple[str, ...] = ()


def run(processes: Sequence[MeasuredProcess], poll: Callable[[], None] = lambda: None,
        started: Callable[[int], None] = lambda pid: None, limit_s: float | None = None) -> list[dict[str, Any]]:
    """Run these processes in parallel to their ends; return the outcome of each. `poll` is called while they run.

    If one fails the others are killed, and its error is raised: its AacoError, or one that says how it died, or that it
    had not ended after limit_s.
    """
    end = None if limit_s is None else time.monotonic() + limit_s

    def look() -> None:
        poll()
        if end is not None and time.monotonic() > end:
            raise AacoError(f"the measured process had not ended after {limit_s:g} s",
                            "run it again when nothing else uses the machine; if it hangs again, leave it out")

    with ExitStack() as stack:
        outputs = [stack.enter_context(planned.says.open("w+b")) for planned in processes]
        running: list[subprocess.Popen[bytes]] = []
        try:
            for planned, output in zip(processes, outputs, strict=True):
                running.append(_start(planned, output))
                started(running[-1].pid)
                _send_job(running[-1], planned.job)
            failed = _wait_all(running, look)
        finally:
            for process in running:
                process.kill()
                process.wait()
        for number in [*failed, *range(len(running))]:
            _check_outcome(running[number].returncode, processes[number].outcome, outputs[number])
        return [files.read_json(planned.outcome) for planned in processes]


def _start(process: MeasuredProcess, output: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*surroundings.now().launcher, *process.before, sys.executable, "-P", "-m", process.module],
                            stdin=subprocess.PIPE, stdout=output, stderr=output, env=os.environ | process.environment,
                            pass_fds=process.inherits)


def _send_job(process: subprocess.Popen[bytes], job: Mapping[str, Any]) -> None:
    assert process.stdin is not None
    try:
        with process.stdin:
            process.stdin.write(json.dumps(dict(job)).encode())
    except BrokenPipeError:
        pass  # it died before it listened; its exit status says more than the broken pipe


def _wait_all(running: Sequence[subprocess.Popen[bytes]], poll: Callable[[], None]) -> list[int]:
    """Wait until all have ended, or one has failed. Return the numbers of those that failed."""
    for process in running:
        while process.returncode is None:
            try:
                process.wait(POLL_S)
            except subprocess.TimeoutExpired:
                poll()
            if failed := [number for number, sibling in enumerate(running) if sibling.poll()]:
                return failed
    poll()
    return []


def _check_outcome(code: int, path: Path, output: IO[bytes]) -> None:
    """Raise what kept the process from its outcome, if anything did."""
    outcome: dict[str, Any] = files.read_json(path) if path.is_file() else {}
    if code == 0 and outcome:
        return
    if "error" in outcome:
        raise BY_EXIT_CODE.get(code, AacoError)(outcome["error"]["what"], outcome["error"]["fix"])
    output.seek(0)
    lines = output.read().decode(errors="replace").strip().splitlines()
    raise AacoError(f"the measured process {command.ending(code)}" + (f": {lines[-1]}" if lines else ""),
                    "run it again; if it was killed, look for the kernel's out-of-memory killer in dmesg")
