"""The captures of an import (steps/find_captures.py), read one after the other."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from aaco.core import files
from aaco.core.errors import BadCapture
from aaco.core.show import SILENT, Show
from aaco.core.tables import COUNTERS, KERNELS
from aaco.profiler.capture import TIMED, CaptureFacts, in_larger_pieces, kernel_pass, part_of
from aaco.profiler.formats.nvidia import ncu
from aaco.profiler.io import emitted_ranges
from aaco.report.format import clean
from aaco.steps.counted_executions import NO_TRACE, RAN_ALONE
from aaco.steps.device.join_counters import CounterJoin, TracedKernels
from aaco.steps.find_captures import CaptureFiles, CaptureSelection
from aaco.steps.named_device import board_named, with_board
from aaco.tracelake.ingest.lake import spec_of

TELL_EVERY_S = 0.2
NAMED = 3
ALONE = "ran one by one to be counted: times are longer than in a run of the program, which nothing timed"
PARTLY = "ran some kernels one by one to be counted: the times of these are in no total"


class CaptureReading:
    """The pieces of all captures, one capture after the other, and the facts of each once it is read.

    What is wrong with the first capture shows in `begin`, before anything is written.
    """

    def __init__(self, selection: CaptureSelection, show: Show = SILENT, device: str = "") -> None:
        self.selection, self._show = selection, show
        self._board = board_named(device) if device else None
        self.sources: list[CaptureFiles] = []  # of each capture; the ranks of a merged file have one in common
        self.facts: list[CaptureFacts] = []
        self._work_on = defaultdict[int, set[int]](set)  # of each capture the devices of its kernels
        self.identities: list[list[dict[str, Any]]] = []
        self.counting: list[CaptureFiles] = []  # of the executions whose counters were taken
        self.counted: list[dict[str, Any]] = []
        self._counts = set[int]()  # captures that have counters themselves
        self._position = _Position(selection, show)
        self._pieces = self._all()
        self._first: list[tuple[int, pa.Table]] = []

    def begin(self) -> None:
        """Read up to the first piece. Raises BadCapture."""
        self._first = [piece for piece in [next(self._pieces, None)] if piece]

    def pieces(self) -> Iterator[tuple[int, pa.Table]]:
        """The index of a capture, and a piece of it. Raises BadCapture."""
        traced, counted = TracedKernels(), self.selection.counted
        for index, piece in chain(self._first, self._pieces):
            if counted:
                traced.saw(index, piece)
            yield index, piece
        for number, execution in enumerate(counted, 1):
            self._show.step(f"joining the counters of execution {number} of {len(counted)}")
            counters, account = traced.join([capture.pieces() for capture in execution], number,
                                            by_order=any(capture.parser.FORMAT == ncu.FORMAT for capture in execution))
            if self.selection.unrelated is None or account.similarity > self.selection.unrelated:
                yield from counters
                self._joined(number, execution, account)
            else:
                for index, piece in (piece for capture in execution for piece in self._read(capture)):
                    traced.saw(index, piece)
                    yield index, piece

    def notes(self) -> list[str]:
        """Return what the selection and the pieces say of how the captures were recorded."""
        counted = [index for index in sorted(self._counts) if NO_TRACE not in self.selection.notes
                   and kernel_pass(self.sources[index].parser, self.sources[index].path) != TIMED]
        partly = {index for index in counted if RAN_ALONE in self.facts[index].left_out}
        sentences = [f"{self._names(indices)} {words}" for words, indices in (
            (ALONE, [index for index in counted if index not in partly]), (PARTLY, sorted(partly))) if indices]
        return list(dict.fromkeys([*self.selection.notes, *sentences]))

    def _names(self, indices: Sequence[int]) -> str:
        """Return the names of the files of some captures, a few of them."""
        names = list(dict.fromkeys(clean(self.sources[index].path.name) for index in indices))
        return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")

    def _joined(self, number: int, execution: Sequence[CaptureFiles], account: CounterJoin) -> None:
        """Remember an execution and what became of its counters."""
        named = [{"format": capture.parser.FORMAT, "files": [identity(file) for file in capture.files],
                  "executions": capture.only} for capture in execution]
        self.counting += execution
        self.counted.append({"pass": number, "captures": named, **account.document()})

    def _all(self) -> Iterator[tuple[int, pa.Table]]:
        for index, capture in enumerate(self.selection.captures):
            self._show.step(f"reading {clean(capture.path.name)} ({index + 1} of {len(self.selection.captures)})")
            yield from self._read(capture)

    def _read(self, capture: CaptureFiles) -> Iterator[tuple[int, pa.Table]]:
        before = [_state(file) for file in capture.files]
        first, parts, facts = len(self.facts), dict[str | None, int](), dict[str | None, CaptureFacts]()
        for item in in_larger_pieces(capture.pieces()):
            self._position.tell(capture)
            part = part_of(item)
            number = parts.setdefault(part, first + len(parts))
            if isinstance(item, CaptureFacts):
                facts[part] = item
            else:
                self._look(number, item)
                yield from ((number, piece) for piece in emitted_ranges.name_operators(item))
        self._position.done(capture)
        if parts.keys() != facts.keys():
            raise TypeError(f"the parser of {capture.parser.FORMAT} does not end with Facts")
        self.facts += [with_board(facts[part], self._board, self._work_on[number]) if self._board else facts[part]
                       for part, number in parts.items()]
        self.sources += [capture] * len(parts)
        self.identities += [[identity(file) for file in capture.files]] * len(parts)
        if before != [_state(file) for file in capture.files]:
            raise BadCapture(f"{capture.path}: it changed while it was read", "wait until the profiler is done")

    def _look(self, number: int, piece: pa.Table) -> None:
        """Remember on which devices a capture's kernels ran, and whether they were counted."""
        if self._board:
            self._work_on[number] |= _device_ids(piece)
        if spec_of(piece) is COUNTERS and piece.num_rows:
            self._counts.add(number)


def _device_ids(piece: pa.Table) -> set[int]:
    """Return the devices of a piece of kernels; none of other tables."""
    if spec_of(piece) is not KERNELS:
        return set()
    return {number for number in pc.unique(piece["device_id"]).to_pylist() if number is not None}


class _Position:
    """The progress of the reading, in MB of files, shown as often as a person can follow.

    Parsers do not report progress; the kernel knows the offsets of their file descriptors (proc_pid_fdinfo(5)).
    """

    def __init__(self, selection: CaptureSelection, show: Show) -> None:
        self._show, self._done, self._told = show, 0, 0.0
        self._total = sum(_state(file)[0] for capture in selection.captures for file in capture.files)

    def tell(self, capture: CaptureFiles) -> None:
        now = time.monotonic()
        if now - self._told >= TELL_EVERY_S:
            self._told = now
            here = self._done + sum(map(_offset, capture.files))
            self._show.progress(here >> 20, self._total >> 20)

    def done(self, capture: CaptureFiles) -> None:
        self._done += sum(_state(file)[0] for file in capture.files)


def _state(file: Path) -> tuple[int, int]:
    try:
        status = file.stat()
    except OSError as error:
        raise BadCapture(f"{file}: {error.strerror}", "check the file and its permissions") from error
    return status.st_size, status.st_mtime_ns


def identity(file: Path) -> dict[str, Any]:
    """Return path, size and hash of a file. Raise BadCapture."""
    try:
        return {"path": str(file.resolve()), "bytes": file.stat().st_size, "sha256": files.sha256(file)}
    except OSError as error:
        raise BadCapture(f"{file}: {error.strerror}", "check the file and its permissions") from error


def _offset(file: Path) -> int:
    """How far this process has read the file; 0 where that is not to be known."""
    path = str(file.resolve())
    try:
        descriptors = [descriptor.name for descriptor in Path("/proc/self/fd").iterdir() if _target(descriptor) == path]
        texts = [Path(f"/proc/self/fdinfo/{number}").read_text() for number in descriptors]
    except OSError:
        return 0
    return max((int(text.split()[1]) for text in texts), default=0)


def _target(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except OSError:  # the one that lists them is closed by now
        return ""
