"""Numbers that a runtime gives out one after the other have no holes, unless records are missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from aaco.analytics.streaming.id_bitmap import IdBitmap, holes
from aaco.analytics.streaming.stream_ids import NameIds
from aaco.analytics.truth.finding import Finding, Slice, Weight, weigh
from aaco.core import distinct

# A longer hole in a framework's numbers is another window of recording: real traces have up to 5 of those.
HOLE = 20
THERE, ASKED = 1, 2  # marks of a number: a record has it, another record names it
FILTERED = 0.2  # where more are missing, some kind of record was filtered out, or takes numbers unseen


def _weight(missing: int, of: int) -> Weight:
    return weigh(missing, of, "lost") if missing <= FILTERED * of else "doubt"


class DispatchCheck:
    """Holes in the numbers of dispatches, per process."""

    def __init__(self) -> None:
        self.numbers: dict[int, IdBitmap] = {}
        self.count: Counter[int] = Counter()

    def add(self, piece: Slice) -> None:
        """Collect the numbers of the slice."""
        known = piece.kernels["dispatch_id"] >= 0
        process = piece.kernels["process_id"][known]
        for one in distinct.values(process).tolist():
            numbers = piece.kernels["dispatch_id"][known][process == one]
            self.numbers.setdefault(one, IdBitmap()).mark(numbers, THERE)
            self.count[one] += len(numbers)

    def findings(self) -> Iterator[Finding]:
        """Dispatches that were numbered but are not there, or are there twice."""
        for process, numbers in self.numbers.items():
            missing, there = holes(numbers, THERE, np.iinfo(np.int64).max - 1)
            of, twice = missing + there, self.count[process] - there
            if missing:
                yield Finding("missing_dispatch_numbers", _weight(missing, of), missing, of,
                              f"process {process}: {missing} of {of} dispatch numbers are missing: kernels were lost, "
                              "or filtered when the trace was recorded",
                              "check the profiler's kernel filter; if it had none, record it again")
            if twice:
                yield Finding("dispatch_numbers_twice", "wrong", twice, of,
                              f"process {process}: {twice} dispatch numbers occur more than once",
                              "runs or replay passes were merged: import them as separate files")


class IterationCheck:
    """Iterations in which a kernel ran less often than in most others: each runs the same program."""

    def __init__(self) -> None:
        self._names = NameIds()
        self._counts: Counter[tuple[int, int]] = Counter()  # by kernel name and iteration

    def add(self, piece: Slice) -> None:
        """Count the executions of each kernel in each iteration that the capture itself numbers."""
        iteration = piece.kernels["iteration"]
        known = iteration >= 0
        if known.any():
            name = self._names.numbers(piece.kernels.table["kernel_name"])[known]
            pairs, times = np.unique(np.stack([name, iteration[known]]), axis=1, return_counts=True)
            self._counts.update(dict(zip(zip(*pairs.tolist(), strict=True), times.tolist(), strict=True)))

    def findings(self) -> Iterator[Finding]:
        """Executions that are missing from what an iteration usually has, for kernels whose number is steady."""
        if not self._counts:
            return
        iterations = 1 + max(iteration for _, iteration in self._counts)
        missing = of = 0
        for name in {name for name, _ in self._counts}:
            counts = np.array([self._counts.get((name, iteration), 0) for iteration in range(iterations)])
            sizes, times = np.unique(counts, return_counts=True)
            usual = int(sizes[len(times) - 1 - times[::-1].argmax()])  # of the most frequent the largest
            if 2 * times.max() >= iterations > 2:
                missing, of = missing + int(np.maximum(usual - counts, 0).sum()), of + usual * iterations
        if missing:
            yield Finding("short_iterations", _weight(missing, of), missing, of,
                          f"{missing} executions are missing of the {of} that {iterations} iterations usually have")


class OperationCheck:
    """Holes in the framework's numbering of its operations, and calls that belong to an operation that is not there."""

    def __init__(self) -> None:
        self.numbers = IdBitmap()

    def add(self, piece: Slice) -> None:
        """Collect the numbers of operations and of the calls that name them."""
        calls = piece.calls
        numbered = calls["external_id"] > 0
        called = calls["correlation_id"] > 0
        self.numbers.mark(calls["external_id"][numbered & ~called], THERE)
        self.numbers.mark(calls["external_id"][numbered & called], ASKED)

    def findings(self) -> Iterator[Finding]:
        """Operations that were numbered but are not there."""
        missing, there = holes(self.numbers, THERE, HOLE)
        if not there:
            return
        of = missing + there
        if missing:
            yield Finding("missing_operations", _weight(missing, of), missing, of,
                          f"{missing} of {of} operation numbers are missing: host operations were lost")
        flags = [found & (THERE | ASKED) for _, found in self.numbers.pieces()]
        asked = sum(int((found & ASKED > 0).sum()) for found in flags)
        gone = sum(int((found == ASKED).sum()) for found in flags)
        if gone:
            yield Finding("calls_of_missing_operations", weigh(gone, asked, "lost"), gone, asked,
                          f"{gone} operations launched work but are not in the trace themselves")
