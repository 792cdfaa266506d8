"""Samples AMD devices by calling amd-smi or rocm-smi repeatedly, if no better source can be read.

Each answer is kept unchanged, in a file with the time in its name; the importer of such files reads them
(profiler/formats/system/smi.py). A call takes a large part of a second, so there is one per second.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

from aaco.collectors.gpu import amd_sysfs
from aaco.collectors.gpu.device_accounts import EVERY
from aaco.collectors.gpu.device_sampler import DeviceSampler
from aaco.core import files
from aaco.core.host import ask
from aaco.core.readings import Absent

PERIOD_S, TIMEOUT_S = 1.0, 5.0
MOST_BYTES = 4 << 20
COMMANDS = {"amd-smi": ("amd-smi", "metric", "--json"), "rocm-smi": ("rocm-smi", "-a", "--json")}
_NAME = re.compile(r"(amd-smi|rocm-smi)-(\d{1,19})\.json")


def why_not(tool: str) -> str | None:
    """Return why the tool cannot be used; None if it answers with JSON."""
    try:
        answer = ask(COMMANDS[tool], TIMEOUT_S, MOST_BYTES)
    except Absent as reason:
        return str(reason)
    return None if answer.lstrip()[:1] in ("{", "[") else f"{tool} does not answer in JSON"


class AmdToolSampler(DeviceSampler):
    """Calls one tool until `stop`; if it fails, all devices are lost."""

    def __init__(self, tool: str, *, raw: Path) -> None:
        super().__init__(tool, amd_sysfs.FORMAT, PERIOD_S, raw)

    def rows(self) -> Sequence[tuple[int, ...]]:
        """Return no rows: an answer is kept whole, next to the (empty) file of rows."""
        if EVERY in self.lost:
            return ()
        began = time.monotonic_ns()
        try:
            answer = ask(COMMANDS[self.source], TIMEOUT_S, MOST_BYTES)
        except Absent as reason:
            self.lose(EVERY, str(reason))
            return ()
        middle = (began + time.monotonic_ns()) // 2
        files.write_atomically(self.raw.with_name(f"{self.source}-{middle}.json"),
                               lambda file: file.write(answer.encode()))
        return ()

    def close(self) -> None:
        """Do nothing: no file stays open."""


def answers(folder: Path) -> list[tuple[int, Path]]:
    """Return the answers in a folder, with their times, in order."""
    names = [(_NAME.fullmatch(path.name), path) for path in folder.glob("*-smi-*.json")]
    return sorted((int(name[2]), path) for name, path in names if name)
