"""Which captures the files and folders that were named hold, and which files are left."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from aaco.analytics.serving.annotations import read_capture
from aaco.core import files
from aaco.core.errors import BadCapture, UsageError
from aaco.core.tables import KERNELS
from aaco.core.words import plural
from aaco.profiler.capture import COUNTED, MIXED, TIMED, CaptureFacts, Parser, kernel_pass, members
from aaco.profiler.formats import registry
from aaco.profiler.formats.rocprof_legacy import rocprof_csv
from aaco.profiler.formats.rocprofv3 import rocprofv3_layout
from aaco.steps import counted_executions
from aaco.steps.counted_executions import Key, ProgramExecution
from aaco.tracelake import raw
from aaco.tracelake.ingest.lake import spec_of

ENDINGS = re.compile(r"(?:\.(?:[a-z_]+|\d{10,}))+$", re.IGNORECASE)  # .1699999999999.pt.trace.json.gz
RANK = re.compile(r"(?:^|[^a-z])(?:rank|worker)[-_.]?(\d{1,6})(?=\D|$)", re.IGNORECASE)
PROCESS = re.compile(r"^\d+(?=_)")  # before the name of a file of rocprofv3
UNRELATED = 0.5  # how similar executions of different programs may be, where all of them counted
NOT_TEXT = "a part of its path is not UTF-8: no document could name it"
GRAPH_FOLDERS = ("capture_traces", "graph_capture_profile")  # where SGLang writes the traces of its captures
# The formats in which a tool saves one run, the one that says most first, and what names a run of it.
SAVED_AS = ((("rocpd", "rocprofv3_json", "rocprofv3_csv", "pftrace"), rocprofv3_layout.run_of),
            (("rocprof_db", "rocprof_json", "rocprof_csv"), rocprof_csv.run_of))


class CaptureFiles(Struct, frozen=True):
    """A capture: the file to parse, every file of it, and what parses it. only: the executions that are meant."""

    path: Path
    files: tuple[Path, ...]
    parser: Parser
    only: tuple[Key, ...] = ()

    def pieces(self) -> Iterator[pa.Table | CaptureFacts]:
        """Yield what the parser does. Raise BadCapture."""
        return counted_executions.pieces(self.parser, self.path, self.only) if self.only else (
            self.parser.parse(self.path))


class SkippedFile(Struct, frozen=True):
    """A file that is not imported, and why."""

    path: Path
    why: str


class CaptureSelection(Struct, frozen=True):
    """What an import reads, in the order of the captures' indices, and what it leaves.

    counted: per further execution of the same program its captures, of which only the counters are taken
    (steps/device/join_counters.py). unrelated: an execution with no greater similarity to the captures is of another
    program, and a capture itself; None if all are of one program. notes: what a reader
    must know of how they were recorded. graphs: traces of the capture of device graphs, which tell what the others
    replay (steps/references.py).
    """

    captures: tuple[CaptureFiles, ...]
    left: tuple[SkippedFile, ...]
    asked: tuple[Path, ...] = ()
    counted: tuple[tuple[CaptureFiles, ...], ...] = ()
    unrelated: float | None = None
    notes: tuple[str, ...] = ()
    graphs: tuple[CaptureFiles, ...] = ()

    @property
    def name(self) -> str:
        """Return the default name: the only capture's stem, or the name of its folder."""
        first = self.captures[0].path
        stem = ENDINGS.sub("", first.name) or first.name
        if len(self.captures) == 1:
            return stem
        folder = next((path for path in self.asked if path.is_dir()), first.parent)
        return folder.resolve().name or stem


def discover(paths: Sequence[Path], form: str | None = None, keep: bool = False) -> CaptureSelection:
    """The captures that the paths name or hold. Raises BadCapture where one is no capture, or none is found, UsageError
    where one cannot be kept.

    form: the format of every file, instead of recognising each. keep: whether copies of them are to be kept.
    """
    captures: list[CaptureFiles] = []
    left: list[SkippedFile] = []
    taken: set[Path] = set()
    for path in paths:
        for file in _walk(path) if path.is_dir() else (path,):
            if file.resolve() in taken:
                continue
            capture = _recognise(file, form) if path.is_dir() else required(file, form)
            if isinstance(capture, SkippedFile):
                left.append(capture)
            else:
                captures.append(capture)
                taken |= {member.resolve() for member in capture.files}
    left = [capture for capture in left if capture.path.resolve() not in taken]
    if not captures:
        raise _nothing(paths, left)
    named = {path.resolve() for path in paths}
    again = {} if form else _saved_again([capture for capture in captures if capture.path.resolve() not in named])
    left += [SkippedFile(capture.path, f"{kept.path.name} holds the same run") for capture, kept in again.items()]
    kept_captures = [capture for capture in captures if capture not in again]
    if keep:
        refuse_binary(kept_captures)
    shown, counted, alike = _arranged(kept_captures)
    graphs = _of_graphs(shown)
    return CaptureSelection(tuple(capture for capture in shown if capture not in graphs), tuple(left), tuple(paths),
                            tuple(counted), alike, graphs=graphs)


def refuse_binary(captures: Sequence[CaptureFiles]) -> None:
    """Raise UsageError where a file cannot be kept because its credentials could not be found. Raises BadCapture."""
    for file in (file for capture in captures for file in capture.files):
        if not raw.is_text(file):
            raise UsageError(f"--keep: {file} is binary and cannot be redacted",
                             "import it without --keep: it is referenced then, and stays where it is")


def _of_graphs(captures: Sequence[CaptureFiles]) -> tuple[CaptureFiles, ...]:
    """Return the traces of the capture of device graphs, by the names of their files and folders. Where there is
    nothing else, they are what the user wants to see."""
    graphs = tuple(capture for capture in captures
                   if read_capture(capture.path.name) or capture.path.parent.name in GRAPH_FOLDERS)
    return graphs if len(graphs) < len(captures) else ()


def _arranged(captures: Sequence[CaptureFiles]
              ) -> tuple[list[CaptureFiles], list[tuple[CaptureFiles, ...]], float | None]:
    """Return the captures that are the work; of each further execution, which counted, its captures; `unrelated`.

    Kernels that were run again for counters are no more work. If no execution was timed without counters, one of them
    is the work: the one with fewest counters, the first of them.
    """
    kinds = {capture: kernel_pass(capture.parser, capture.path) for capture in captures}
    counted = [capture for capture, kind in kinds.items() if kind == MIXED or (kind == COUNTED and len(captures) > 1)]
    held = {capture: executions for capture in counted
            if (executions := counted_executions.find(capture.parser, capture.path))}
    shown = {capture: capture for capture in captures if capture not in held}
    for capture, executions in held.items():
        if timed := [execution for execution in executions if not execution.counted]:
            shown[capture] = _only(capture, executions, timed)
    passes = _passes(held)
    # Without passes nothing is compared with the work, and nobody need know whether it has times.
    has_times = not passes or any(capture in held or _has_times(capture, kinds[capture]) for capture in shown)
    if not has_times:
        shown |= {replace(capture, only=()): capture for capture in passes.pop(0)}
    return [shown[capture] for capture in captures if capture in shown], passes, 0.0 if has_times else UNRELATED


def _has_times(capture: CaptureFiles, kind: str | None) -> bool:
    """Return whether a capture has kernels of a device; where its parser does not say it, it is read up to the first.
    """
    return kind == TIMED or any(spec_of(piece) is KERNELS and piece["device_id"].null_count < piece.num_rows
               for piece in capture.pieces() if not isinstance(piece, CaptureFacts))


def _passes(held: dict[CaptureFiles, list[ProgramExecution]]) -> list[tuple[CaptureFiles, ...]]:
    """Return the captures of each execution that counted, those with fewest counters first.

    Processes of one execution have the same counters, and are in one file, or in files with the same name but for the
    number of their process or rank.
    """
    passes = defaultdict[tuple[str, int, frozenset[str]], dict[CaptureFiles, list[ProgramExecution]]](dict)
    for capture, executions in held.items():
        place = RANK.sub("#", str(capture.path.with_name(PROCESS.sub("", capture.path.name))))
        for execution in executions:
            if execution.counted:
                parts = passes[place, execution.key[1], execution.counters]
                parts.setdefault(capture, []).append(execution)
    return [tuple(_only(capture, held[capture], part) for capture, part in parts.items())
            for (_, _, counters), parts in sorted(passes.items(), key=lambda entry: len(entry[0][2]))]


def _only(capture: CaptureFiles, executions: list[ProgramExecution], part: list[ProgramExecution]) -> CaptureFiles:
    """Return the capture with these of its executions; whole if they are all, and counters have all kernels or none."""
    uniform = all(execution.counted in (0, execution.kernels) for execution in part)
    return capture if len(part) == len(executions) and uniform else replace(
        capture, only=tuple(execution.key for execution in part))


def _saved_again(captures: Sequence[CaptureFiles]) -> dict[CaptureFiles, CaptureFiles]:
    """Return the captures of runs that are also there in a richer format: rocprof and rocprofv3 write several."""
    again: dict[CaptureFiles, CaptureFiles] = {}
    for formats, run_of in SAVED_AS:
        fullest: dict[tuple[Path, str | None], CaptureFiles] = {}
        runs = [(run, capture) for capture in captures if capture.parser.FORMAT in formats
                and (run := run_of(capture.path))]
        for run, capture in sorted(runs, key=lambda pair: formats.index(pair[1].parser.FORMAT)):
            fullest.setdefault(run, capture)
        again |= {capture: fullest[run] for run, capture in runs
                  if capture.parser.FORMAT != fullest[run].parser.FORMAT}
    return again


def _walk(folder: Path) -> Iterator[Path]:
    """Every file below, in the order of their names; hidden ones are left out."""
    for name, folders, names in os.walk(folder, onerror=_unreadable):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        yield from (Path(name, each) for each in sorted(names) if not each.startswith("."))


def _unreadable(error: OSError) -> None:
    raise BadCapture(f"{error.filename}: {error.strerror}", "check the folder's permissions") from error


def _recognise(file: Path, form: str | None) -> CaptureFiles | SkippedFile:
    """A file of a folder, which may be anything."""
    if not file.is_file():
        return SkippedFile(file, "not a regular file")
    if not files.is_text(str(file.resolve())):
        return SkippedFile(file, NOT_TEXT)
    try:
        parser = registry.read(file, form) if form else registry.recognise(file)
    except BadCapture as error:
        return SkippedFile(file, error.what.removeprefix(f"{file}: "))
    return SkippedFile(file, "not of a format this version reads") if parser is None else _found(file, parser)


def required(file: Path, form: str | None) -> CaptureFiles:
    """The capture that a file is which was named. Raises BadCapture."""
    if file.exists() and not file.is_file():
        raise BadCapture(f"{file}: not a regular file", "save the capture in a file first")
    if not file.exists():
        raise BadCapture(f"{file}: no such file", "check the path")
    if not files.is_text(str(file.resolve())):
        raise BadCapture(f"{file}: {NOT_TEXT}", "give it another name")
    return _found(file, registry.read(file, form))


def _found(file: Path, parser: Parser) -> CaptureFiles:
    member_files = tuple(members(parser, file))
    return CaptureFiles(member_files[0], member_files, parser)


def _nothing(paths: Sequence[Path], left: Sequence[SkippedFile]) -> BadCapture:
    where = ", ".join(map(str, paths[:3]))
    seen = "; ".join(f"{skipped.path.name}: {skipped.why}" for skipped in left[:3])
    among = plural(len(left), "file")
    return BadCapture(f"{where}: no capture of a known format among {among}" + (f" ({seen})" if seen else ""),
                      registry.instead_of(skipped.path for skipped in left))
