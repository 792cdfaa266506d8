"""A measurement in a process of its own: its answers, line by line, and how its end becomes an error.

A fresh process measures without the caller's threads, memory and contexts. If a driver kills it or never answers, the
caller continues. It writes one JSON object per line; other lines are output of libraries.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from aaco.core.errors import BY_EXIT_CODE, AacoError, Missing
from aaco.core.show import Show

Line = dict[str, Any]
MOST_BYTES = 1 << 24


@contextmanager
def answer() -> Iterator[Callable[..., None]]:
    """Yield the function that writes one line. An AacoError of the block becomes the last line and the exit code."""

    def tell(**line: Any) -> None:
        print(json.dumps(line), flush=True)

    try:
        yield tell
    except AacoError as error:
        tell(what=error.what, fix=error.fix)
        sys.exit(int(error.exit_code))


def run(module: str, arguments: Sequence[str], environment: Mapping[str, str], limit_s: float,
        work: str = "calibration", under: Sequence[str] = ()) -> Iterator[Line]:
    """Yield the objects that the module writes, as they come. work: what errors call it. under: a program with its
    options that starts the process, to watch it.

    Raise the error that the process ended with; Missing if a signal or the time limit ended it.
    """
    with tempfile.TemporaryFile() as errors, subprocess.Popen(
            [*under, sys.executable, "-P", "-m", module, *arguments], env=os.environ | dict(environment),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, start_new_session=True) as process:
        try:
            last: Line = {}
            for last in _read_lines(process, limit_s, work):
                if "what" not in last:
                    yield last
            _raise_failure(process.wait(), last, errors, f"{sys.executable} -m {module} {' '.join(arguments)}", work)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def counted(lines: Iterable[Line], show: Show) -> Iterator[Line]:
    """Yield the same lines, and show how many of the planned ceilings are done."""
    total = done = 0
    for line in lines:
        total = len(line.get("plan", ())) or total
        done += "ceiling" in line or "absent" in line
        if total:
            show.progress(done, total)
        yield line


def _read_lines(process: subprocess.Popen[bytes], limit_s: float, work: str) -> Iterator[Line]:
    assert process.stdout
    poll, unfinished, size, deadline = select.poll(), b"", 0, time.monotonic() + limit_s
    poll.register(process.stdout)
    while True:
        if not poll.poll(max(0.0, 1000 * (deadline - time.monotonic()))):
            raise Missing(f"the {work} gave no answer in {limit_s:g} s",
                          "aaco doctor  # says whether the device answers")
        block = os.read(process.stdout.fileno(), 1 << 16)
        *whole, unfinished = (unfinished + block).split(b"\n")
        size += len(block)
        if size > MOST_BYTES:
            raise AacoError(f"the {work} printed more than {MOST_BYTES >> 20} MiB")
        yield from filter(None, map(_parse_line, whole))
        if not block:
            return


def _parse_line(line: bytes) -> Line | None:
    try:
        document = json.loads(line)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _raise_failure(code: int, last: Line, errors: Any, again: str, work: str) -> None:
    """Raise the error that the process reported last, or Missing if it died without one."""
    if code < 0:
        name = signal.Signals(-code).name
        raise Missing(f"the {work} was killed by {name}", "free some memory: SIGKILL can mean there was none")
    if code and "what" in last and code in BY_EXIT_CODE:
        raise BY_EXIT_CODE[code](last["what"], last.get("fix", ""))
    if code:
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines() or ["it printed nothing"]
        raise AacoError(f"the {work} ended with status {code}: {lines[-1]}", f"{again}  # shows all it says")
