"""Runs one command in a laboratory: it has the terminal, signals reach it, its exit code is ours."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from aaco.laboratory.lab import Lab

PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
WAITED_FOR = {signal.SIGCHLD, *PASSED_ON}
FROM_KERNEL = 0x80  # si_code SI_KERNEL (sigaction(2)): a key of the terminal, which the command got as well


@contextmanager
def signals_held() -> Iterator[None]:
    """Block the signals that `run` waits for, in this thread and in those that start in the block, which keep it so.

    The kernel gives a signal to any thread that does not block it. One of NumPy's would let SIGCHLD pass, so that
    `run` waits for ever, or die of SIGTERM, while the main thread is between two waits.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, WAITED_FOR)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run(lab: Lab, command: Sequence[str]) -> int:
    """Run the command and wait for it. Return its exit code, or 128 + N if signal N ended it, as a shell does.

    Threads that run already must have been started under `signals_held`.
    """
    with signals_held():
        process = subprocess.Popen([*lab.launch(os.getpid()), *command])
        while process.poll() is None:
            received = signal.sigwaitinfo(WAITED_FOR)
            if received.si_signo in PASSED_ON and received.si_code != FROM_KERNEL:
                process.send_signal(received.si_signo)
    code: int = process.returncode
    return code if code >= 0 else 128 - code
