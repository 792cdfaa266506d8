"""Marks of a program about itself: phases, iterations, prefill and decode, seen beside what was recorded of it.

    from aaco import markers

    with markers.phase("load"):
        model = load()
    for number, request in enumerate(requests):
        with markers.iteration(number):
            with markers.prefill(len(request)):
                state = prompt(request)
            with markers.decode():
                answer(state)

Under `aaco profile -- CMD` each mark is one write(2) of a fixed-size record, when the range ends: kill -9 loses the
open ranges only. Outside a session nothing is written. Where a ROCm or NVIDIA profiler is attached, and inside a
session, ranges are handed on to roctx or NVTX, if their library is installed. Imports the standard library only.
"""

from __future__ import annotations

import ctypes
import os
import struct
from _thread import _local, get_native_id
from os import write
from time import monotonic_ns
from types import TracebackType

PATH = "AACO_MARKERS"  # environment: the file that marks are appended to
LIBRARIES = "AACO_MARKER_LIBRARIES"  # environment: names of libraries in place of those below, separated by colons
# Times are CLOCK_MONOTONIC; number -1: none. The text is UTF-8, cut to its bytes.
RECORD = struct.Struct("<4siqqiiq56s")  # magic, kind, t_ns, dur_ns, process, thread, number, text
pack, MAGIC = RECORD.pack, b"AMK1"
KINDS = ("mark", "phase", "iteration", "prefill", "decode", "span")
TEXT_BYTES = 56
MARK, PHASE, ITERATION, PREFILL, DECODE, SPAN = range(len(KINDS))
# roctx of ROCm 7 and before, NVTX version 2.
_KNOWN = "librocprofiler-sdk-roctx.so:libroctx64.so.4:libroctx64.so:libnvToolsExt.so.1"
_PROFILERS = ("ROCP_TOOL_LIBRARIES", "NVTX_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID")


def heard() -> bool:
    """Whether anybody takes marks: a session, or a vendor's profiler. Asked once before a loop that is to be tight."""
    return _sink.open


def mark(text: str, number: int = -1) -> None:
    """One moment, with a text (its first 56 bytes are kept) and a number, if one is given."""
    if _sink.open:
        _sink.mark(text, number)


class span:
    """A range of the running thread, as a `with` block; with a text and a number, if one is given."""

    __slots__ = ("_began", "_kind", "_number", "_text")

    def __init__(self, text: str, number: int = -1, kind: int = SPAN) -> None:
        self._text, self._number, self._kind = text, number, kind

    def __enter__(self) -> None:
        if _sink.vendor is not None:
            _sink.vendor.push(_label(self._kind, self._number, self._text))
        self._began = monotonic_ns()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if _sink.open:
            _sink.write(self._kind, self._began, monotonic_ns() - self._began, self._number, self._text)
            if _sink.vendor is not None:
                _sink.vendor.pop()


def phase(name: str) -> span:
    """A part of the program: load, warmup, measurement, ..."""
    return span(name, -1, PHASE)


def iteration(number: int) -> span:
    """One turn of the program's main loop."""
    return span("", number, ITERATION)


def prefill(tokens: int = -1) -> span:
    """Reading the prompt of a language model, of so many tokens."""
    return span("", tokens, PREFILL)


def decode(tokens: int = -1) -> span:
    """Writing tokens of the answer."""
    return span("", tokens, DECODE)


class _Sink:
    """Where marks go: the session's file, and the vendor's library."""

    def __init__(self) -> None:
        path = os.environ.get(PATH)
        self._file = _appending(path) if path else -1
        attached = path or any(os.environ.get(name) for name in _PROFILERS)
        self.vendor = _vendor(os.environ.get(LIBRARIES, _KNOWN)) if attached else None
        self.open = self._file >= 0 or self.vendor is not None
        self._forked()
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self._process = os.getpid()
        self._own = _local()  # the thread's number, kept because asking costs a system call

    def mark(self, text: str, number: int) -> None:
        if self.vendor is not None:
            self.vendor.mark(_label(MARK, number, text))
        self.write(MARK, monotonic_ns(), 0, number, text)

    def write(self, kind: int, began: int, length: int, number: int, text: str) -> None:
        """One record of this thread, of times in ns; nothing where no file is open."""
        if self._file < 0:
            return
        try:
            thread = self._own.thread
        except AttributeError:
            thread = self._own.thread = get_native_id()
        try:
            write(self._file, pack(MAGIC, kind, began, length, self._process, thread, number,
                                   text.encode("utf-8", "replace")))
        except OSError:  # a full disk must not end the program that is watched: its marks end, as the file shows
            self._file = -1


def _label(kind: int, number: int, text: str) -> bytes:
    """In words, for the vendor's library: "iteration 3", "load"."""
    words = (text or KINDS[kind], *((str(number),) if number >= 0 else ()))
    return " ".join(words).encode(errors="replace")


def _appending(path: str) -> int:
    """The file, made if it is not there; -1 where it cannot be written: marks are no reason to fail."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120 - pathlib is not light
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError:
        return -1


class _Vendor:
    """Push, pop and mark of roctx or of NVTX version 2 (libnvToolsExt)."""

    def __init__(self, library: ctypes.CDLL, prefix: str) -> None:
        self.push, self.pop, self.mark = (
            getattr(library, prefix + name) for name in ("RangePushA", "RangePop", "MarkA"))


def _vendor(names: str) -> _Vendor | None:
    """The first of the libraries that is installed and has the functions."""
    for name in filter(None, names.split(":")):
        for prefix in ("roctx", "nvtx"):
            try:
                return _Vendor(ctypes.CDLL(name), prefix)
            except (OSError, AttributeError):
                continue
    return None


_sink = _Sink()
