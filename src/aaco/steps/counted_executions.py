"""The executions of a program in one capture: those that a profiler counted, and those that it only timed.

A profiler that counts runs kernels one by one, so its times are not the program's. One file may hold executions of both
kinds: the processes of databases that were merged, replays of the same dispatches, a process of which some dispatches
were counted. An execution is the kernels of a process with different dispatch numbers; it counted if any has a counter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from aaco.core import distinct
from aaco.core.arrays import Flags, Ints
from aaco.core.tables import COUNTERS, KERNELS, replaced
from aaco.profiler.capture import CaptureFacts, Parser, Subtotal
from aaco.profiler.io.record_accounting import ABSENT, integers, total
from aaco.tracelake.ingest.impossible import TIMES
from aaco.tracelake.ingest.lake import REFERENCES, ROW_KEYS, spec_of

Key = tuple[int, int]  # process (ABSENT: not stated), and which of those with the same dispatch numbers
OF_COUNTED = "kernel: of executions for counters, which are not the program's own"
RAN_ALONE = "kernel: times of kernels that ran alone for counters, where others of their name did not"
NO_TRACE = ("no tracer is installed: this is a session of counters only, and durations are those of kernels run alone "
            "under ncu; with nsys on the PATH times are of a run of their own")
LOST = 0.1  # of the kernels of a name: up to so many without counters ran alone too, and their counters are lost
COLUMNS = ("kernel_id", "process_id", "device_id", "dispatch_id", "dur_ns", "kernel_name")


class ProgramExecution(Struct, frozen=True):
    """An execution. counted: its kernels with counters; counters: their names."""

    key: Key
    kernels: int
    counted: int
    counters: frozenset[str]


def find(parser: Parser, path: Path) -> list[ProgramExecution]:
    """Return the executions in a capture. Raise BadCapture."""
    return _CaptureKernels(parser, path).executions()


def pieces(parser: Parser, path: Path, only: Sequence[Key]) -> Iterator[pa.Table | CaptureFacts]:
    """Yield what the parser does, of these executions only.

    What belongs to no process, or to one without kernels, stays. In an execution of which some kernels were counted,
    these lose their times if others have the same name, unless those are so few that their counters must be lost. Raise
    BadCapture.
    """
    kernels = _CaptureKernels(parser, path)
    choice = _ExecutionRows(kernels, only)
    for piece in parser.parse(path):
        yield choice.facts(piece) if isinstance(piece, CaptureFacts) else choice.rows(piece)


class _CaptureKernels:
    """Every kernel of a capture, in the order of the file."""

    def __init__(self, parser: Parser, path: Path) -> None:
        rows, counters = [KERNELS.build().select(COLUMNS)], [COUNTERS.build().select(("kernel_id", "counter"))]
        for piece in parser.parse(path):
            if isinstance(piece, CaptureFacts):
                continue
            if (spec := spec_of(piece)) is KERNELS:
                rows.append(piece.select(COLUMNS))
            elif spec is COUNTERS:
                counters.append(piece.select(("kernel_id", "counter")))
        table = pa.concat_tables(rows).unify_dictionaries().combine_chunks()
        self.ids, self.process, self.device, self.dispatch, self.ns = (integers(table[name]) for name in COLUMNS[:5])
        self.name = integers(table["kernel_name"].combine_chunks().indices)
        self.counters = pa.concat_tables(counters).unify_dictionaries()
        self.counted: Flags = np.isin(self.ids, integers(self.counters["kernel_id"]))

    @cached_property
    def repeat(self) -> Ints:
        """Return how many kernels of its process and device have its dispatch number and come before, those without
        counters first; 0 where there is no such number.
        """
        place = distinct.coded(self.process, self.device, self.dispatch)[0]
        order = np.lexsort((self.counted, place))
        begins = np.flatnonzero(np.diff(place[order], prepend=-1))
        repeat = np.zeros(len(order), np.int64)
        repeat[order] = np.arange(len(order)) - np.repeat(begins, np.diff(begins, append=len(order)))
        return np.where(self.dispatch == ABSENT, 0, repeat)

    def executions(self) -> list[ProgramExecution]:
        """Return the executions in order of appearance."""
        keys, place = distinct.combinations(self.process, self.repeat) if len(self.ids) else ([], self.ids)
        names = self._counters(place)
        return [ProgramExecution((key[0], key[1]), int((place == at).sum()), int(self.counted[place == at].sum()),
                          frozenset(names[at])) for at, key in enumerate(keys)]

    def _counters(self, place: Ints) -> dict[int, set[str]]:
        """Return the names of the counters of each execution."""
        order = np.argsort(self.ids)
        kernel = integers(self.counters["kernel_id"])
        there = np.isin(kernel, self.ids)
        of = place[order][np.searchsorted(self.ids[order], kernel[there])]
        pairs = pa.table({"of": of, "counter": self.counters["counter"].filter(pa.array(there)).cast(pa.string())})
        names = defaultdict[int, set[str]](set)
        for at, name in zip(*pairs.group_by(["of", "counter"]).aggregate([]).to_pydict().values(), strict=True):
            names[at].add(name)
        return names


class _ExecutionRows:
    """The rows of some executions."""

    def __init__(self, kernels: _CaptureKernels, only: Sequence[Key]) -> None:
        kept = np.zeros(len(kernels.ids), bool)
        for process, repeat in only:
            kept |= (kernels.process == process) & (kernels.repeat == repeat)
        alone = kept & kernels.counted & self._has_timed(kernels, kept)
        self.alone = kernels.ids[alone]
        self.left = {KERNELS.name: kernels.ids[~kept]}  # keys of rows that are left out, by table
        self.processes = np.setdiff1d(kernels.process[~kept], kernels.process[kept])
        self.subtotals = {OF_COUNTED: Subtotal(int((~kept).sum()), total(_known(kernels.ns[~kept]))),
                          RAN_ALONE: Subtotal(0, total(_known(kernels.ns[alone])))}  # they stay rows

    @staticmethod
    def _has_timed(kernels: _CaptureKernels, kept: Flags) -> Flags:
        """Return of each kernel whether enough of its name have no counters for these to be more than lost."""
        names, code = np.unique(kernels.name, return_inverse=True)
        timed, whole = (np.bincount(code[rows], minlength=len(names)) for rows in (kept & ~kernels.counted, kept))
        return (timed > LOST * whole)[code]

    def facts(self, facts: CaptureFacts) -> CaptureFacts:
        """Return the facts with what was left out."""
        left = {why: part for why, part in self.subtotals.items() if part != Subtotal(0, 0)}
        return replace(facts, left_out=facts.left_out | left)

    def rows(self, piece: pa.Table) -> pa.Table:
        """Return the rows of the executions."""
        name = spec_of(piece).name
        piece = piece.filter(pa.array(self._kept(name, piece)))
        if name == KERNELS.name and len(self.alone):
            timed = pa.array(~np.isin(integers(piece["kernel_id"]), self.alone))
            for column in TIMES:
                piece = replaced(piece, column, pc.if_else(timed, piece[column], None))
        return piece

    def _kept(self, name: str, piece: pa.Table) -> Flags:
        if name == KERNELS.name:
            return ~np.isin(integers(piece["kernel_id"]), self.left[name])
        if name in REFERENCES:
            column, target = REFERENCES[name]
            return ~np.isin(integers(piece[column]), self.left.get(target, np.zeros(0, np.int64)))
        if "process_id" not in piece.column_names:
            return np.ones(piece.num_rows, bool)
        kept = ~np.isin(integers(piece["process_id"]), self.processes)
        if name in ROW_KEYS:
            ids = integers(piece[ROW_KEYS[name]])[~kept]
            self.left[name] = np.concatenate([self.left.get(name, ids[:0]), ids])
        return kept


def _known(values: Ints) -> Ints:
    """Return the values that are not absent."""
    return values[values != ABSENT]
