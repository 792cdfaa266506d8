"""A trace's life in a program that is unaware of it: from the program's start to any kind of end."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from . import library, tracer
from .library import CuptiError
from .spool import CuptiSpool

EVERY_S = 1.0  # a program that is killed loses no more than its last second
ENDING = ("SIGTERM", "SIGHUP", "SIGXCPU")  # they end a program without its exit handlers; SIGINT raises
RTLD_NOLOAD = 4
DEVICES = "CUDA_VISIBLE_DEVICES"  # read once, when CUDA is initialised, which the tracer does at the start


class TracedProcess:
    """This process under trace."""

    def __init__(self, running: tracer.CuptiTracer) -> None:
        self._tracer: tracer.CuptiTracer | None = running
        self._process, self._over = os.getpid(), threading.Event()
        self._devices = os.environ.get(DEVICES)

    def attend(self) -> None:
        """Install a handler for every way in which the process may end."""
        threading.Thread(target=self._flush, name="aaco-cupti", daemon=True).start()
        atexit.register(self.end, "exit", orderly=True)
        os.register_at_fork(before=self._forking, after_in_child=self._forked)
        for name in ("_exit", "execv", "execve"):
            setattr(os, name, self._before(name, getattr(os, name)))
        if threading.current_thread() is threading.main_thread():
            for name in ENDING:
                number = getattr(signal, name)
                if signal.getsignal(number) == signal.SIG_DFL:
                    signal.signal(number, self._on_signal)

    def end(self, why: str, orderly: bool = False) -> None:
        """Write everything, once. orderly: first let the device finish, whose work has no times before, and detach."""
        running, self._tracer = self._tracer, None
        if running is None or os.getpid() != self._process:
            return
        self._over.set()
        if orderly:
            _synchronise()
        running.spool.state["chose_devices"] = os.environ.get(DEVICES) != self._devices
        try:
            running.stop(why, orderly)
        except (CuptiError, OSError, ValueError) as error:
            _print_error(str(error))

    def _flush(self) -> None:
        while not self._over.wait(EVERY_S):
            running = self._tracer
            if running is None:
                return
            try:
                running.flush()
            except (CuptiError, OSError, ValueError) as error:
                _print_error(str(error))
                return

    def _on_signal(self, number: int, _: Any) -> None:
        """Write everything, then end as if the signal had no handler."""
        self.end(signal.Signals(number).name)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _before(self, name: str, function: Any) -> Any:
        def leave(*arguments: Any) -> Any:
            self.end("os." + name)
            return function(*arguments)

        return leave

    def _forking(self) -> None:
        if self._tracer is not None:
            self._tracer.spool.state["forks"] += 1

    def _forked(self) -> None:
        """Stop tracing in a forked child: it has CUPTI's memory and none of its threads."""
        self._tracer = None


def trace(folder: str, mode: str) -> None:
    """Trace this process into a file of its own. Without CUPTI the file states why, and the program continues."""
    path = str(Path(folder) / f"{os.getpid()}-{time.monotonic_ns()}.cupti")
    try:
        cupti = library.load(os.environ, sys.path)
    except CuptiError as error:
        _write_refusal(path, error)
        return
    try:
        TracedProcess(tracer.begin(cupti, path, mode)).attend()
    except (CuptiError, OSError) as error:
        _print_error(str(error))


def _write_refusal(path: str, error: CuptiError) -> None:
    try:
        spool = CuptiSpool(path)
        spool.state.update(ended="never began", error={"what": error.what, "fix": error.fix})
        spool.write_state()
        spool.close()
    except OSError as refused:
        _print_error(str(refused))


def _synchronise() -> None:
    """Call cuCtxSynchronize(3) on this thread's context, if the program uses CUDA at all."""
    try:
        ctypes.CDLL("libcuda.so.1", mode=RTLD_NOLOAD | ctypes.DEFAULT_MODE).cuCtxSynchronize()
    except (OSError, AttributeError):
        return


def _print_error(what: str) -> None:
    print(f"aaco: this process is not traced: {what}", file=sys.stderr)
