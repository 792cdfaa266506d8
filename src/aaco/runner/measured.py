"""Measured processes, seen from outside: started, told their job, waited for; their outcome, or how they died."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from aaco.core import files
from aaco.core.errors import BY_EXIT_CODE, AacoError
from aaco.runner import command, surroundings

POLL_S = 0.05


@dataclass(frozen=True)
class Measured:
    """A process to start: its module, the job it gets on stdin, the file for its outcome and for what it says.

    environment comes over ours; before stands before its command; inherits are file descriptors that it gets under the
    same numbers.
    """

    module: str
    job: Mapping[str, Any]
    outcome: Path
    says: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    inherits: tuple[int, ...] = ()
    before: tuple[str, ...] = ()


def run(processes: Sequence[Measured], poll: Callable[[], None] = lambda: None,
        started: Callable[[int], None] = lambda pid: None) -> list[dict[str, Any]]:
    """Run these processes side by side to their ends; the outcome of each. `poll` is called while they run.

    Where one fails the others are killed, and its error is raised: the AacoError it met, or one that says how it died.
    """
    with ExitStack() as stack:
        outputs = [stack.enter_context(each.says.open("w+b")) for each in processes]
        running: list[subprocess.Popen[bytes]] = []
        try:
            for each, output in zip(processes, outputs, strict=True):
                running.append(_start(each, output))
                started(running[-1].pid)
                _tell(running[-1], each.job)
            failed = _wait(running, poll)
        finally:
            for process in running:
                process.kill()
                process.wait()
        for number in [*failed, *range(len(running))]:
            _outcome(running[number].returncode, processes[number].outcome, outputs[number])
        return [files.read_json(each.outcome) for each in processes]


def _start(each: Measured, output: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*surroundings.now().launcher, *each.before, sys.executable, "-P", "-m", each.module],
                            stdin=subprocess.PIPE, stdout=output, stderr=output, env=os.environ | each.environment,
                            pass_fds=each.inherits)


def _tell(process: subprocess.Popen[bytes], job: Mapping[str, Any]) -> None:
    assert process.stdin is not None
    try:
        with process.stdin:
            process.stdin.write(json.dumps(dict(job)).encode())
    except BrokenPipeError:
        pass  # it died before it listened; its exit status says more than the broken pipe


def _wait(running: Sequence[subprocess.Popen[bytes]], poll: Callable[[], None]) -> list[int]:
    """Until all have ended, or one has failed: which."""
    for process in running:
        while process.returncode is None:
            try:
                process.wait(POLL_S)
            except subprocess.TimeoutExpired:
                poll()
            if failed := [number for number, other in enumerate(running) if other.poll()]:
                return failed
    poll()
    return []


def _outcome(code: int, path: Path, output: IO[bytes]) -> None:
    """Raise what kept the process from its outcome, if anything did."""
    found: dict[str, Any] = files.read_json(path) if path.is_file() else {}
    if code == 0 and found:
        return
    if "error" in found:
        raise BY_EXIT_CODE.get(code, AacoError)(found["error"]["what"], found["error"]["fix"])
    output.seek(0)
    said = output.read().decode(errors="replace").strip().splitlines()
    raise AacoError(f"the measured process {command.ending(code)}" + (f": {said[-1]}" if said else ""),
                    "run it again; if it was killed, look for the kernel's out-of-memory killer in dmesg")
