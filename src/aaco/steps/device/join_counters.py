"""Counters of a further execution of a program, joined to the kernels of the one with the valid times.

Counters change times: rocprofv3 runs kernels one by one while it counts. So a program is traced once, and run again for
each group of counters; the n-th dispatch is then the same work in each. That is checked, not assumed: a dispatch's
number must name the same kernel in both, else none of that execution's counters is taken. Where dispatches have no
number, as on NVIDIA, kernels are joined by the order in which each process launched them: those whose function was
counted must be as many in the trace, of the same functions and, where both know it, as large, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from aaco.analytics.kernels.families import symbols
from aaco.core import distinct
from aaco.core.arrays import Ints
from aaco.core.readings import Absent
from aaco.core.records import as_dict
from aaco.core.tables import COUNTERS, KERNELS
from aaco.profiler.capture import CaptureFacts
from aaco.tracelake.ingest.lake import spec_of

KEPT = ("process_id", "dispatch_id", "kernel_id", "kernel_name", "correlation_id", "t_start_ns")


class CounterJoin(Struct, frozen=True):
    """What became of an execution's counters: how many of its dispatches are kernels of the trace, or why none is.

    similarity: of the kernels of the functions it counted, those in both executions over those in either, 0 to 1.
    """

    dispatches: int
    joined: int
    why_not: str | None = None
    similarity: float = 1.0

    def document(self) -> dict[str, int | str | None]:
        """As captures.json holds it."""
        return {name: value for name, value in as_dict(self).items() if name != "similarity"}


class TracedKernels:
    """The kernels of a trace by the number of their dispatch, or their order. Costs about 64 bytes a kernel."""

    def __init__(self) -> None:
        self._kernels: list[pa.Table] = []
        self._capture: list[Ints] = []

    def saw(self, capture: int, piece: pa.Table) -> None:
        """Remember a piece of the trace, if it is of kernels."""
        if spec_of(piece) is KERNELS and piece.num_rows:
            self._kernels.append(_kept(piece))
            self._capture.append(np.full(piece.num_rows, capture, np.int64))

    def join(self, captures: Sequence[Iterator[pa.Table | CaptureFacts]], number: int,
             by_order: bool = False) -> tuple[list[tuple[int, pa.Table]], CounterJoin]:
        """The counters of an execution's captures as those of the trace's kernels, each with its capture; the account.

        captures: as they are parsed. number: of the execution, kept in the counters' column `pass`. by_order: what the
        captures number are not dispatches; a trace without any such number is joined by order too. An execution that is
        not that of all processes of the trace may be that of one capture. Raises BadCapture.
        """
        kernels, counters = list[pa.Table](), list[pa.Table]()
        for index, pieces in enumerate(captures):
            for piece in pieces:
                spec = None if isinstance(piece, CaptureFacts) or not piece.num_rows else spec_of(piece)
                if spec is KERNELS:
                    kernels.append(_kept(_keyed(piece, index)))
                elif spec is COUNTERS:
                    counters.append(_keyed(piece, index))
        count = sum(piece.num_rows for piece in kernels)
        traced, capture = _one(self._kernels), np.concatenate([*self._capture, NO_ROWS])
        counted = _one(kernels)
        try:
            joined_kernels = _joined(counted, traced, capture, by_order)
        except Absent as reason:
            return [], CounterJoin(count, 0, str(reason), _similarity(counted, traced))
        return [moved for piece in counters
                for moved in _moved(piece, joined_kernels, number)], CounterJoin(count, joined_kernels.num_rows)


def _joined(counted: pa.Table, traced: pa.Table, capture: Ints, by_order: bool) -> pa.Table:
    """Return the counted kernels with their like in the whole trace, else in the first capture that has it.

    Raises Absent: why not in the whole trace.
    """
    failure: Absent | None = None
    functions = cache(lambda: _functions(counted, traced))  # once for all captures, of which a folder may have hundreds
    several = distinct.values(capture).tolist()
    for rows in (np.ones(len(capture), bool), *(capture == index for index in several if len(several) > 1)):
        part = traced.filter(pa.array(rows))
        ordered = by_order or (part.num_rows > 0 and part["dispatch_id"].null_count == part.num_rows)
        try:
            if not ordered:
                return _same_kernels(counted, part, capture[rows])
            (mine, theirs), names = functions()
            return _same_order(counted, part, capture[rows], (mine, theirs[rows]), names)
        except Absent as reason:
            failure = failure or reason
    assert failure is not None
    raise failure


def _similarity(counted: pa.Table, traced: pa.Table) -> float:
    """Return how many kernels of each function both have, by how many either has, over the functions counted."""
    mine, theirs = (np.bincount(codes, minlength=1) for codes in _functions(counted, traced)[0])
    size = max(len(mine), len(theirs))
    mine, theirs = (np.pad(counts, (0, size - len(counts))) for counts in (mine, theirs))
    most = np.maximum(mine, theirs)[mine > 0].sum()
    return float(np.minimum(mine, theirs).sum() / most) if most else 0.0


def _functions(*tables: pa.Table) -> tuple[list[Ints], list[str]]:
    """Return the function of each kernel of each table, as a number in the list of functions."""
    coded, names = _coded(*(table["kernel_name"] for table in tables))
    functions, codes = np.unique([symbols.read(name).base.rpartition("::")[2] for name in names], return_inverse=True)
    return [codes[names_of] for names_of in coded], functions.tolist()


NO_ROWS = np.zeros(0, np.int64)
PER_CAPTURE = 1 << 40  # keys of kernels are unique within their capture only


def _keyed(piece: pa.Table, index: int) -> pa.Table:
    """The piece with keys of kernels that are unique over the captures of an execution."""
    at = piece.schema.get_field_index("kernel_id")
    return piece.set_column(at, "kernel_id", pc.add(piece["kernel_id"], index * PER_CAPTURE))


def _kept(piece: pa.Table) -> pa.Table:
    """What a join needs of kernels. size: work-items; null where that is not known."""
    sizes = [piece[f"grid_{axis}"] for axis in "xyz"]
    size = pc.multiply(sizes[0], pc.multiply(*(pc.fill_null(size_axis, 1) for size_axis in sizes[1:])))
    return piece.select(KEPT).append_column("size", size)


def _one(pieces: list[pa.Table]) -> pa.Table:
    """Return the pieces as one table with one dictionary of names."""
    whole = pa.concat_tables(pieces) if pieces else _kept(KERNELS.build())
    return whole.unify_dictionaries().combine_chunks()


def _same_kernels(counted: pa.Table, traced: pa.Table, capture: Ints) -> pa.Table:
    """The key of each counted kernel (`kernel_id`), and of its like in the trace (`kernel`, `capture`).

    Raises Absent.
    """
    for table, what in ((counted, "its kernels"), (traced, "the kernels of the trace")):
        if not table.num_rows:
            raise Absent(f"{what} are none")
        if table["dispatch_id"].null_count:
            raise Absent(f"{what} have no dispatch numbers")
    codes, names = _coded(counted["kernel_name"], traced["kernel_name"])
    counted_in = _capture(counted)
    left = pa.table({"process": _nth_process(counted, counted_in), "dispatch": counted["dispatch_id"],
                     "kernel_id": counted["kernel_id"], "name": codes[0]})
    right = pa.table({"process": _nth_process(traced, capture), "dispatch": traced["dispatch_id"],
                      "kernel": traced["kernel_id"], "traced_name": codes[1], "capture": capture})
    paired = left.join(right, keys=["process", "dispatch"], join_type="inner")
    if not paired.num_rows:
        raise Absent("the trace has none of its dispatches")
    if paired.num_rows > left.num_rows:
        raise Absent("dispatch numbers of the trace are there more than once")
    renamed = paired.filter(pc.not_equal(paired["name"], paired["traced_name"])).sort_by("dispatch")
    if renamed.num_rows:
        first = renamed.slice(0, 1).to_pylist()[0]
        raise Absent(f"{renamed.num_rows} of its {left.num_rows} dispatches are other kernels than in the trace; the "
                     f"first, number {first['dispatch']}, is {names[first['name']]} and was "
                     f"{names[first['traced_name']]}: the program does not do the same each time")
    return paired


def _same_order(counted: pa.Table, traced: pa.Table, capture: Ints, codes: tuple[Ints, Ints],
                functions: list[str]) -> pa.Table:
    """As `_same_kernels`, by the order of launches in each process. codes: of both tables' kernels, their function's
    place in the list. Raises Absent."""
    mine, theirs = codes
    for table, what in ((counted, "its kernels"), (traced, "the kernels of the trace")):
        if not table.num_rows:
            raise Absent(f"{what} are none")
    of_those = np.isin(theirs, mine)
    traced, theirs, capture = traced.filter(pa.array(of_those)), theirs[of_those], capture[of_those]
    left = np.lexsort((counted["kernel_id"].to_numpy(), first := _nth_process(counted, _capture(counted))))
    right = np.lexsort((*_launched(traced), second := _nth_process(traced, capture)))
    if len(left) != len(right):
        raise Absent(f"it has {len(left)} kernels of the functions that were counted, and the trace has {len(right)}: "
                     "the program does not do the same each time")
    sizes = [table["size"].take(pa.array(order)) for table, order in ((counted, left), (traced, right))]
    other_size = pc.fill_null(pc.not_equal(*sizes), False).to_numpy()
    mismatched = np.flatnonzero((mine[left] != theirs[right]) | (first[left] != second[right]) | other_size)
    if len(mismatched):
        at = int(mismatched[0])
        was, became = (f"{functions[code]} of {size.as_py()} work-items" for code, size in (
            (theirs[right[at]], sizes[1][at]), (mine[left[at]], sizes[0][at])))
        raise Absent(f"{len(mismatched)} of its {len(left)} kernels are other launches than in the trace; the first, "
                     f"number {at}, is {became} and was {was}: the program does not do the same each time")
    return pa.table({"kernel_id": counted["kernel_id"].take(pa.array(left)), "capture": capture[right],
                     "kernel": traced["kernel_id"].take(pa.array(right))})


def _launched(traced: pa.Table) -> tuple[Ints, Ints]:
    """What orders kernels by their launch, the weightier last: the start, and the call, which graphs' kernels share."""
    start, call = (pc.fill_null(traced[name], 0).to_numpy() for name in ("t_start_ns", "correlation_id"))
    return start, start if traced["correlation_id"].null_count else call


def _capture(kernels: pa.Table) -> Ints:
    """The capture of each kernel that `_keyed` gave a key."""
    return kernels["kernel_id"].to_numpy() // PER_CAPTURE


def _coded(*columns: pa.ChunkedArray) -> tuple[list[Ints], list[str]]:
    """The names of each column as numbers of one list."""
    chunks = [column.combine_chunks() for column in columns]
    names = pc.unique(pa.concat_arrays([chunk.dictionary.cast(pa.string()) for chunk in chunks]))
    places = [pc.index_in(chunk.dictionary.cast(pa.string()), names).to_numpy() for chunk in chunks]
    coded = [place[chunk.indices.to_numpy()].astype(np.int64) for place, chunk in zip(places, chunks, strict=True)]
    return coded, names.to_pylist()


def _nth_process(kernels: pa.Table, capture: Ints) -> Ints:
    """Of each kernel the position of its process among those with kernels, by capture and number: the numbers
    themselves are other ones in every execution, and not every form of file has them."""
    process = (capture << 32) + pc.fill_null(kernels["process_id"], 0).to_numpy()
    return np.searchsorted(distinct.values(process), process)


def _moved(counters: pa.Table, joined_kernels: pa.Table, number: int) -> Iterator[tuple[int, pa.Table]]:
    """The counters of kernels that were found, by the trace's keys, a piece per capture of it."""
    order = np.argsort(joined_kernels["kernel_id"].to_numpy())
    mine, theirs, capture = (joined_kernels[name].to_numpy()[order] for name in ("kernel_id", "kernel", "capture"))
    kernel_ids = counters["kernel_id"].to_numpy()
    at = np.minimum(np.searchsorted(mine, kernel_ids), len(mine) - 1)
    there = mine[at] == kernel_ids
    for capture_id in np.unique(capture[at[there]]).tolist():
        capture_rows = np.flatnonzero(there & (capture[at] == capture_id))
        rows = counters.take(pa.array(capture_rows))
        yield capture_id, COUNTERS.build(kernel_id=theirs[at[capture_rows]], counter=rows["counter"],
                                         value=rows["value"], **{"pass": np.full(len(capture_rows), number, np.int64)})
