"""Programs that are traced, by a benchmark or a test: each says "ready", and waits for a line on its standard input."""

from __future__ import annotations

import contextlib
import inspect
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path


def settle(process: int | str, besides: int = 0) -> None:
    """Return when all threads of the process but one sleep, and none has switched since the look before.

    However slow the machine is: what is counted then stays as it is. (One that waits for the interpreter's lock sleeps,
    too, but wakes every 5 ms.)
    """
    before: list[str] = []
    while True:
        threads = [path for path in Path(f"/proc/{process}/task").iterdir() if path.name != str(besides)]
        lines = [line for path in threads for line in (path / "status").read_text().splitlines()
                 if line.startswith(("State", "voluntary", "nonvoluntary"))]
        if lines == before and all("sleeping" in line for line in lines if line.startswith("State")):
            return
        before = lines
        time.sleep(0.05)


# Programs can call it with "self" and threading.get_native_id().
SETTLE = "import time\nfrom pathlib import Path\n" + inspect.getsource(settle)
# Three threads lock, sleep and fault. What getrusage(2) counts is told, and their end waits for another line, so that
# the account is of just what a tracer sees.
_BUSY = """
import mmap, resource, sys, threading
def rusage():
    r = resource.getrusage(resource.RUSAGE_SELF)
    return [r.ru_nvcsw, r.ru_nivcsw, r.ru_minflt, r.ru_majflt]
lock, done, gate = threading.Lock(), threading.Semaphore(0), threading.Event()
def work():
    for _ in range({sleeps}):
        with lock:
            time.sleep({sleep_s})
    memory = mmap.mmap(-1, {pages} << 12)
    for page in range(0, {pages} << 12, 4096):
        memory[page] = 1
    end = time.monotonic() + {spin_s}
    while time.monotonic() < end:
        pass
    done.release()
    gate.wait()
threads = [threading.Thread(target=work) for _ in range(3)]
print("ready", flush=True); sys.stdin.readline()
before = rusage()
for thread in threads:
    thread.start()
for thread in threads:
    done.acquire()
settle("self", threading.get_native_id())
print(*(b - a for a, b in zip(before, rusage())), flush=True)
sys.stdin.readline()
gate.set()
"""
# Two processes hand each other a byte on one CPU, so that every byte is two switches; then the CPU seconds and the
# switches of both are told.
PING_PONG = """
import os, resource, sys
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
def play(take, give, rounds):
    for _ in range(rounds):
        os.read(take, 1)
        os.write(give, b"x")
def used():
    both = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return [sum(r.ru_utime + r.ru_stime for r in both), sum(r.ru_nvcsw + r.ru_nivcsw for r in both)]
(a, b), (c, d), rounds = os.pipe(), os.pipe(), int(sys.argv[1])
print("ready", flush=True); sys.stdin.readline()
before = used()
if os.fork() == 0:
    play(a, d, rounds)
    os._exit(0)
os.write(b, b"x")
play(c, b, rounds)
os.wait()
print(*(b - a for a, b in zip(before, used())), flush=True)
"""
# Two processes hand each other a byte on one CPU, as often as the argument says whenever a line comes, in a burst under
# SCHED_FIFO where they may; then the CPU ns and the switches of both are told, but those of the first few.
PARTNERS = """
import contextlib, os, resource, sys, time
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
(a, b), (c, d), turns = os.pipe(), os.pipe(), int(sys.argv[1])
print("ready", flush=True); sys.stdin.readline()
partner = os.fork()
if not partner:
    while os.read(a, 1) == b"x":
        os.write(d, b"x")
    os._exit(0)
clock = ~partner << 3 | 2  # the partner's CPU time, as clock_getcpuclockid(3) numbers it
def prefer(process, policy, priority):
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(process, policy, os.sched_param(priority))
def play(turns):
    for _ in range(turns):
        os.write(b, b"x")
        os.read(c, 1)
def used():
    return time.process_time_ns() + time.clock_gettime_ns(clock), 2 * resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
prefer(partner, os.SCHED_FIFO, 1)
print("forked", flush=True)
for _ in sys.stdin:
    prefer(0, os.SCHED_FIFO, 1)
    play(turns // 10)
    before = used()
    play(turns)
    after = used()
    prefer(0, os.SCHED_OTHER, 0)
    print(*(b - a for a, b in zip(before, after)), flush=True)
os.write(b, b"e")
os.wait()
"""
IDLE = "import sys; print('ready', flush=True); sys.stdin.readline()"
# Has a child from the moment it is told to go on.
PARENT = """
import subprocess, sys
print("ready", flush=True); sys.stdin.readline()
child = subprocess.Popen([sys.executable, "-S", "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
print("forked", flush=True); sys.stdin.readline()
child.communicate()
"""


def busy(sleeps: int = 150, sleep_s: float = 0.0005, pages: int = 2048, spin_s: float = 0.0) -> str:
    """What each of the three threads does: sleeps with the lock held, first touches of pages, spinning."""
    return SETTLE + _BUSY.format(sleeps=sleeps, sleep_s=sleep_s, pages=pages, spin_s=spin_s)


@contextlib.contextmanager
def waiting(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python program that is ready; at the end it is let go on and waited for, or killed if something failed."""
    with subprocess.Popen([sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as process:
        try:
            assert process.stdout
            process.stdout.readline()
            yield process
            process.communicate("\n")
        except BaseException:
            process.kill()
            raise


def go(process: subprocess.Popen[str]) -> None:
    """Let a waiting program go on."""
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()


def tell(process: subprocess.Popen[str]) -> str:
    """Let the program go on, and what it says then."""
    go(process)
    assert process.stdout
    return process.stdout.readline()
