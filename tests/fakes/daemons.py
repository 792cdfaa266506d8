"""A process that left its parents: it forks twice, has a session of its own, and belongs to nobody above this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

PROGRAM = """
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
sys.stdout.write(f"{os.getpid()}\\n")
sys.stdout.flush()
os.close(1)
time.sleep(60)
"""


@contextmanager
def daemon(environment: Mapping[str, str] | None = None) -> Iterator[int]:
    """Its number, until the end of the block; its parents have ended."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, check=True, env=environment)
    pid = int(done.stdout)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
