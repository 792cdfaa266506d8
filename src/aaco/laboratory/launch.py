"""Turns the knobs of a process on itself, reports the results, and becomes the command: `-m aaco.laboratory.launch`."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from aaco.core.readings import Absent
from aaco.laboratory.knobs import knob
from aaco.laboratory.knobs.process import FAIR, RealTime

PR_SET_PDEATHSIG = 1  # prctl(2)
NOT_STARTED = 126  # as a shell says it


def main() -> None:
    """Run the job in argv: the job as JSON, then the command. The job's settings are [knob, target, value]."""
    job, command = json.loads(sys.argv[1]), sys.argv[2:]
    if job["parent"]:
        _end_with(job["parent"])
    outcomes = _turn_knobs(job["settings"])
    with Path(job["report"]).open("a") as report:
        report.write(json.dumps(outcomes) + "\n")
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and what is ignored stays so
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(NOT_STARTED)


def _end_with(parent: int) -> None:
    """Die with the parent, also after becoming the command; at once if the parent has gone already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _turn_knobs(settings: list[list[str]]) -> dict[str, Any]:
    """Return per knob: whether it holds, the earlier values, and why not."""
    outcomes: dict[str, Any] = {}
    for name, target, value in settings:
        entry = outcomes.setdefault(name, {"held": True, "before": {}, "why_not": ""})
        try:
            entry["before"][target] = _set_target(name, target, value)
        except Absent as reason:
            entry |= {"held": False, "why_not": str(reason)}
    return outcomes


def _set_target(name: str, target: str, value: str) -> str:
    """Set and read back; return the earlier value. Real time is only tried: `bursts` assigns it. Raise Absent."""
    setting = knob(name)
    before = setting.read(target)
    setting.write(target, value)
    now = setting.read(target)
    if name == RealTime.name:
        setting.write(target, FAIR)
    if now != value:
        raise Absent(f"asked for {value}, it is {now}")
    return before


if __name__ == "__main__":
    main()
