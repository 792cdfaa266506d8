"""What tier T2 and markers cost: CPU time per switch and per fault with and without a recorder, alternated in one run.

    python -m benchmarks.switches [--rounds N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from aaco.collectors.host.perf_switches import PerfSwitchSampler

# Echoes bytes through a pipe, so that each turn is two switches; then tells the CPU time that it took.
PARTNER = """
import os, sys, time
while True:
    byte = os.read(0, 1)
    if byte == b"e": break
    os.write(1, byte)
"""
TURNS, PAGES = 3_000, 4_096
MARKS = """
import time
from aaco import markers
def cost(turn, count=20_000):
    best = float("inf")
    for _ in range(7):
        began = time.thread_time_ns()
        for number in range(count): turn(number)
        best = min(best, (time.thread_time_ns() - began) / count)
    return best
def turn(number):
    with markers.iteration(number): pass
print(cost(turn), cost(lambda number: markers.mark("token", number)))
"""


def main() -> None:
    """Print the table, and write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {name: compare(work, options.rounds)
                             for name, work in (("switch", switches), ("minor fault", faults))}
    found |= marks()
    print(f"{'':<20}{'without':>10}{'with T2':>10}{'extra':>10}{'reader':>10}{'lost':>6}   "
          f"ns of CPU time an event, medians of {options.rounds} pairs")
    for name in ("switch", "minor fault"):
        row = found[name]
        print(f"{name:<20}{row['without_ns']:>10.0f}{row['with_ns']:>10.0f}{row['extra_ns']:>10.0f}"
              f"{row['reader_ns']:>10.0f}{row['lost']:>6}")
    for name in ("range in a session", "mark in a session", "range outside"):
        print(f"{name:<20}{found[name]:>10.0f}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


def compare(work: Callable[[], float], rounds: int) -> dict[str, float]:
    """Median CPU ns per event of alternated rounds, and of the differences of neighbours."""
    plain, watched, lost, reader, events = [], [], 0, 0.0, 0
    work()
    for _ in range(rounds):
        plain.append(work())
        with tempfile.TemporaryDirectory() as folder:
            sampler = PerfSwitchSampler(os.getpid(), raw=Path(folder) / "raw.bin")
            sampler.start()
            watched.append(work())
            sampler.stop()
            lost += sampler.overhead["lost"]
            reader += sampler.overhead["cpu_s"]
            events += sampler.overhead["records"]
    return {"without_ns": median(plain), "with_ns": median(watched), "lost": lost, "reader_ns": 1e9 * reader / events,
            "extra_ns": median(b - a for a, b in zip(plain, watched, strict=True))}


def switches() -> float:
    """CPU ns of this thread per switch of its own, in a dialogue on one CPU."""
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cpus)})
    partner = subprocess.Popen([sys.executable, "-S", "-c", PARTNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert partner.stdin and partner.stdout
    into, out = partner.stdin.fileno(), partner.stdout.fileno()
    try:
        for _ in range(100):
            os.write(into, b"x"), os.read(out, 1)
        began = time.thread_time_ns()
        for _ in range(TURNS):
            os.write(into, b"x"), os.read(out, 1)
        return (time.thread_time_ns() - began) / TURNS
    finally:
        os.write(into, b"e")
        partner.communicate()
        os.sched_setaffinity(0, cpus)


def faults() -> float:
    """CPU ns per first touch of a page."""
    memory = mmap.mmap(-1, PAGES * mmap.PAGESIZE)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    began = time.thread_time_ns()
    for at in range(0, len(memory), mmap.PAGESIZE):
        memory[at] = 1
    spent = time.thread_time_ns() - began
    memory.close()
    return spent / PAGES


def marks() -> dict[str, float]:
    """CPU ns of a marker inside a session and outside."""
    with tempfile.TemporaryDirectory() as folder:
        inside, outside = (
            list(map(float, subprocess.run([sys.executable, "-c", MARKS], env=os.environ | extra, check=True, text=True,
                                           capture_output=True).stdout.split()))
            for extra in ({"AACO_MARKERS": f"{folder}/markers.bin"}, {"AACO_MARKERS": ""}))
    return {"range in a session": inside[0], "mark in a session": inside[1], "range outside": outside[0]}


if __name__ == "__main__":
    main()
