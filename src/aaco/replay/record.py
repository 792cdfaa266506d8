"""Captures a launch of a program: runs it unchanged, as the tracer does, and makes the capture of what it leaves."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from aaco.core.errors import AacoError, Missing, UsageError
from aaco.profiler.launchers import cupti
from aaco.replay import spool
from aaco.replay.capture import MOST_BYTES

EXTENSION = ".launch"


def record(path: Path, command: Sequence[str], pattern: str, number: int = 0, most_bytes: int = MOST_BYTES) -> int:
    """Run the command and write the capture; return the program's exit code.

    pattern: a POSIX extended regular expression, searched for in the kernel's symbol and in its C++ name. number: which
    of its launches, from 0. Raise UsageError for what cannot be captured, Missing without CUPTI, BadCapture,
    StorageError.
    """
    if os.path.lexists(path):
        raise UsageError(f"{path}: exists already", "choose another name, or remove it")
    with tempfile.TemporaryDirectory(prefix=".aaco-launch-", dir=_folder(path)) as folder:
        try:
            code = subprocess.run(command,
                                  env=os.environ | cupti.launch_environment(Path(folder), pattern, number, most_bytes),
                                  check=False).returncode
        except OSError as error:
            raise UsageError(f"{command[0]}: {error.strerror}", "aaco replay capture ... -- python PROGRAM") from error
        _keep(Path(folder), path, pattern, number, most_bytes, code)
        return code


def _folder(path: Path) -> Path:
    folder = Path.cwd().joinpath(path).parent
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder", "make it first")
    return folder


def _keep(folder: Path, path: Path, pattern: str, number: int, most_bytes: int, code: int) -> None:
    """Make the capture of the first process that has the launch. Raise what says why there is none."""
    left = {file: file.stat().st_size for file in sorted(folder.glob(f"*{EXTENSION}"))}
    spools = [file for file, size in left.items() if size]
    if spools:
        about = json.loads(Path(f"{spools[0]}.about").read_text())
        spool.write(spool.read(spools[0]), path, most_bytes, str(about["cupti"]))
        return
    for file in sorted(folder.glob("*.failed")):
        failure = json.loads(file.read_text())
        raise Missing(f"CUPTI does not capture here: {failure['what']}", failure["fix"])
    if code:
        raise AacoError(f"the program ended with status {code} before the launch", "run it alone first")
    if not left:
        raise UsageError("no Python process of the command could be captured",
                         "aaco replay capture ... -- python PROGRAM  # not -I, -E or -S")
    raise UsageError(f"no launch {number} of a kernel that matches {pattern!r}", _hint(pattern))


def _hint(pattern: str) -> str:
    if re.search(r"\\[dDsSbB]", pattern):
        return "POSIX extended regular expressions have [0-9] for \\d and [[:space:]] for \\s"
    return "aaco trace -- PROGRAM  # lists the program's kernels"
