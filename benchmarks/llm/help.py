"""How long `aaco llm --help` takes: a process of its own, its imports and the page."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.claims import Claim

RUNS, BAR_S = 20, 0.15


def claims(captures: Path) -> Iterator[Claim]:
    """A claim about the CPU time, and one about the time on the wall."""
    times = [_timed() for _ in range(RUNS)]
    for what, seconds in zip(("CPU", "wall"), map(median, zip(*times, strict=True)), strict=True):
        yield Claim(f"aaco llm --help, {what}, median of {RUNS}", f"<= {BAR_S} s", f"{seconds:.3f} s", seconds <= BAR_S)


def _timed() -> tuple[float, float]:
    """Return the CPU time and the time on the wall of one page, s. Raise CalledProcessError."""
    cpu_s, begin = _cpu_s(), time.perf_counter()
    subprocess.run([sys.executable, "-m", "aaco", "llm", "--help"], check=True, stdout=subprocess.DEVNULL)
    return _cpu_s() - cpu_s, time.perf_counter() - begin


def _cpu_s() -> float:
    """Return the CPU time of all processes that ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
