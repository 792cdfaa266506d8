"""The life of a trace in a program that knows nothing of it: from its start to whatever end it takes."""

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
from .spool import Spool

EVERY_S = 1.0  # a program that is killed loses no more than its last second
ENDING = ("SIGTERM", "SIGHUP", "SIGXCPU")  # they end a program before it could say goodbye; SIGINT raises
RTLD_NOLOAD = 4
DEVICES = "CUDA_VISIBLE_DEVICES"  # read once, when CUDA is initialised, which the tracer does at the start


class Traced:
    """This process under trace."""

    def __init__(self, running: tracer.Tracer) -> None:
        self._tracer: tracer.Tracer | None = running
        self._process, self._over = os.getpid(), threading.Event()
        self._devices = os.environ.get(DEVICES)

    def attend(self) -> None:
        """See to every way out that there is."""
        threading.Thread(target=self._flush, name="aaco-cupti", daemon=True).start()
        atexit.register(self.end, "exit", orderly=True)
        os.register_at_fork(before=self._forking, after_in_child=self._forked)
        for name in ("_exit", "execv", "execve"):
            setattr(os, name, self._before(name, getattr(os, name)))
        if threading.current_thread() is threading.main_thread():
            for name in ENDING:
                number = getattr(signal, name)
                if signal.getsignal(number) == signal.SIG_DFL:
                    signal.signal(number, self._signalled)

    def end(self, why: str, orderly: bool = False) -> None:
        """Write everything, once. orderly: let the device finish first, whose work has no times before, and detach."""
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
            _complain(str(error))

    def _flush(self) -> None:
        while not self._over.wait(EVERY_S):
            running = self._tracer
            if running is None:
                return
            try:
                running.flush()
            except (CuptiError, OSError, ValueError) as error:
                _complain(str(error))
                return

    def _signalled(self, number: int, _: Any) -> None:
        """As if nobody had listened, but for what was written."""
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
        """A forked child has CUPTI's memory and none of its threads: it is not traced."""
        self._tracer = None


def trace(folder: str, mode: str) -> None:
    """Trace this process into a file of its own. Without CUPTI the file says why, and the program goes on."""
    path = str(Path(folder) / f"{os.getpid()}-{time.monotonic_ns()}.cupti")
    try:
        found = library.load(os.environ, sys.path)
    except CuptiError as error:
        _leave_word(path, error)
        return
    try:
        Traced(tracer.begin(found, path, mode)).attend()
    except (CuptiError, OSError) as error:
        _complain(str(error))


def _leave_word(path: str, error: CuptiError) -> None:
    try:
        spool = Spool(path)
        spool.state.update(ended="never began", error={"what": error.what, "fix": error.fix})
        spool.tell()
        spool.close()
    except OSError as refused:
        _complain(str(refused))


def _synchronise() -> None:
    """cuCtxSynchronize(3) of this thread's context, if the program uses CUDA at all."""
    try:
        ctypes.CDLL("libcuda.so.1", mode=RTLD_NOLOAD | ctypes.DEFAULT_MODE).cuCtxSynchronize()
    except (OSError, AttributeError):
        return


def _complain(what: str) -> None:
    print(f"aaco: this process is not traced: {what}", file=sys.stderr)
