"""compute-sanitizer round a trial, where it is on PATH: how it is called, and what its log says.

Its options and its log are those of NVIDIA's manual: each line begins with `=========`, and the last one sums up.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from msgspec import Struct

from aaco.core import host
from aaco.core.readings import Absent

PROGRAM = "compute-sanitizer"
# By tool: what refuses a candidate, and the line that counts.
TOOLS = {"memcheck": ("out_of_bounds", re.compile(r"^=+ ERROR SUMMARY: (\d+) error", re.MULTILINE)),
         "racecheck": ("shared_memory_race", re.compile(r"^=+ RACECHECK SUMMARY: (\d+) hazard", re.MULTILINE))}
_FINDING = re.compile(r"^=+ (?!COMPUTE-SANITIZER|ERROR SUMMARY|RACECHECK SUMMARY)(\S.*)", re.MULTILINE)


class SanitizerReport(Struct, frozen=True):
    """What a tool reported: how much, and the first of it."""

    count: int
    first: str


def words(tool: str, log: Path) -> tuple[str, ...]:
    """Return what comes before the command that a tool shall watch. Raise Absent where it is not on PATH.

    Errors that a driver's function returns are no findings: a replay asks for what may not be there.
    """
    program = shutil.which(PROGRAM)
    if program is None:
        raise Absent(f"{PROGRAM} is not on PATH")
    api = ("--report-api-errors", "no") if tool == "memcheck" else ()
    return (program, "--tool", tool, *api, "--target-processes", "all", "--log-file", str(log))


def read(tool: str, log: Path) -> SanitizerReport:
    """Return what a log says. Raise Absent where it does not sum up."""
    text = host.text(log)
    counted = TOOLS[tool][1].findall(text)
    if not counted:
        raise Absent(f"{PROGRAM} wrote no summary: {host.first_printable(text.replace('=========', ''))}")
    first = _FINDING.search(text)
    return SanitizerReport(sum(map(int, counted)), host.first_printable(first[1]) if first else "no detail")
