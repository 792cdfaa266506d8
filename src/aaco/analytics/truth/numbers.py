"""Numbers that a runtime gives out one after the other have no holes, unless records are missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from aaco.analytics.streaming.id_bitmap import IdBitmap, holes
from aaco.analytics.streaming.stream_ids import NameIds
from aaco.analytics.truth.finding import Finding, Records, Slice, Weight, weigh
from aaco.core import distinct
from aaco.core.arrays import Ints
from aaco.core.words import plural

# A longer hole in a framework's numbers is another window of recording: real traces have up to 5 of those.
HOLE = 20
THERE, ASKED = 1, 2  # marks of a number: a record has it, another record names it
AROUND, OUTSIDE = 4, 8  # of a number that a call names: of the operation around that call; no operation is around it
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
                              f"process {process}: {missing:,} of {of:,} dispatch numbers are missing: kernels were "
                              "lost, or filtered when the trace was recorded",
                              "check the profiler's kernel filter; if it had none, record it again")
            if twice:
                yield Finding("dispatch_numbers_twice", "wrong", twice, of,
                              f"process {process}: {plural(twice, 'dispatch number')} used more than once",
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
    """Holes in the framework's numbering of its operations, and calls that belong to an operation that is not there.

    With an execution-trace observer, PyTorch 2.0 and 2.1 number operations and calls by different counters under one
    name. So a number is believed only if the operations that bear the calls' numbers are around these calls in time.
    """

    def __init__(self) -> None:
        self.numbers = IdBitmap()
        self._running = np.zeros((3, 0), np.int64)  # calls that reach beyond their slice: id, operation, end

    def add(self, piece: Slice) -> None:
        """Collect the numbers of operations and of the calls that name them."""
        calls, numbers = piece.calls, piece.calls["external_id"]
        asks = np.flatnonzero((numbers > 0) & (calls["correlation_id"] > 0))
        around = self._around(calls)[asks]
        self.numbers.mark(numbers[(numbers > 0) & (calls["correlation_id"] <= 0)], THERE)
        marks = ASKED + np.where(around == numbers[asks], AROUND, 0) + np.where(around == 0, OUTSIDE, 0)
        self.numbers.mark(numbers[asks], marks.astype(np.uint8))

    def _around(self, calls: Records) -> Ints:
        """Return the number of the innermost operation around each call, 0 where there is none. Operations of earlier
        slices that are not over count."""
        known = np.append(self._running[0], calls["call_id"])
        is_operation = (calls["external_id"] > 0) & (calls["correlation_id"] <= 0)
        own = np.concatenate((self._running[1], np.where(is_operation, calls["external_id"], 0), [0]))
        at = np.searchsorted(known, calls["parent_id"])
        at[known[np.minimum(at, len(known) - 1)] != calls["parent_id"]] = len(known)  # the place of no call
        above = np.concatenate((np.full(self._running.shape[1], len(known)), at, [len(known)]))
        around = own[above]
        while (above < len(known)).any():  # each pass looks twice as far up
            around, above = np.where(around > 0, around, around[above]), above[above]
        ends = np.append(self._running[2], calls["t_end_ns"])
        goes_on = ends > int(calls["t_start_ns"].max(initial=0))
        self._running = np.array([known, np.where(own > 0, own, around)[:-1], ends])[:, goes_on]
        return around[len(known) - len(calls):-1]

    def findings(self) -> Iterator[Finding]:
        """Operations that were numbered but are not there."""
        missing, there = holes(self.numbers, THERE, HOLE)
        if not there:
            return
        of = missing + there
        if missing:
            yield Finding("missing_operations", _weight(missing, of), missing, of,
                          f"{missing:,} of {of:,} operation numbers are missing: host operations were lost")
        marks = np.concatenate([found for _, found in self.numbers.pieces()])
        named = marks[marks & ASKED > 0]
        one_space = 2 * (named & AROUND > 0).sum() >= (named & THERE > 0).sum()
        gone = int((named & THERE == 0 if one_space else named & OUTSIDE > 0).sum())
        if gone and one_space:
            yield Finding("calls_of_missing_operations", weigh(gone, len(named), "lost"), gone, len(named),
                          f"{gone} operations launched work but are not in the trace themselves")
        elif 0 < gone < len(named):
            yield Finding("calls_of_missing_operations", "doubt", gone, len(named),
                          f"{gone:,} of {len(named):,} calls that name an operation are inside none; operations and "
                          "calls are numbered by different counters, so no number says which is missing")
