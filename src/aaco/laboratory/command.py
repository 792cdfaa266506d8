"""Runs one command in a laboratory: the terminal is the command's, signals reach it, its exit code is ours."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence

from aaco.core.errors import Missing
from aaco.laboratory.lab import Lab

PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
FROM_KERNEL = 0x80  # si_code SI_KERNEL (sigaction(2)): a key of the terminal, which the command got as well


def find(name: str) -> None:
    """Raises Missing unless a shell would find the command."""
    if shutil.which(name) is None:
        raise Missing(f"{name}: no such command, or not executable", f"command -v {name}; a path needs its ./")


def run(lab: Lab, command: Sequence[str]) -> int:
    """Run the command and wait for it. Its exit code, or 128 + N when signal N ended it, as a shell says it."""
    waited = {signal.SIGCHLD, *PASSED_ON}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    try:
        process = subprocess.Popen([*lab.launch(os.getpid()), *command])
        while process.poll() is None:
            found = signal.sigwaitinfo(waited)
            if found.si_signo in PASSED_ON and found.si_code != FROM_KERNEL:
                process.send_signal(found.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    code: int = process.returncode
    return code if code >= 0 else 128 - code
