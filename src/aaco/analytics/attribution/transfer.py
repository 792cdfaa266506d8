"""Names from one run, times from another: a profiled run says which node a kernel serves, a clean one its length.

Profiling a runtime node by node distorts its times, by up to three times where kernels are short. The sequence of
kernels of an inference does not change, so what the profiled run says of the n-th kernel holds for the n-th of any
inference with the same sequence, and of any replay of a graph captured from it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from aaco.analytics.alignment import align
from aaco.analytics.lanes import NONE, Ints, Names, integers
from aaco.core.readings import Absent
from aaco.core.tables import replaced

EXACT, ALIGNED = "exact_sequence", "sequence"


@dataclass(frozen=True)
class Transferred:
    """The clean run's kernels with `executed_node` filled in, and how each was found.

    method: `exact_sequence` in an inference whose sequence is the profiled one's, or on a graph node known from such;
    `sequence` where it was aligned; else null.
    identical, aligned: inferences of either kind. differences: of an aligned inference the first place where the
    sequences part, by its number.
    """

    kernels: pa.Table
    method: pa.Array
    identical: int
    aligned: int
    differences: dict[int, int]


def by_position(profiled: pa.Table, clean: pa.Table) -> Transferred:
    """Join the kernels of two runs by their position in the inference.

    Both with kernel_name and iteration, in start order; profiled with executed_node. Kernels of no iteration are left
    as they are. Raises Absent where the profiled run contradicts itself.
    """
    names, nodes = Names(), Names()
    known = _iterations(names.numbers(_coded(profiled, "kernel_name")), integers(profiled["iteration"]))
    ran = _iterations(names.numbers(_coded(clean, "kernel_name")), integers(clean["iteration"]))
    of_node = nodes.numbers(_coded(profiled, "executed_node"))
    sequence, serves = _reference(known, of_node)
    found = np.full(clean.num_rows, NONE)
    how = np.zeros(clean.num_rows, np.int64)
    identical, differences = 0, {}
    for iteration, (codes, rows) in ran.items():
        if len(codes) == len(sequence) and (codes == sequence).all():
            found[rows], how[rows] = serves, 1
            identical += 1
        else:
            places, own = _aligned(sequence, codes)
            found[rows[own]], how[rows[own]] = serves[places], 2
            differences[iteration] = _first_difference(sequence, codes)
    _by_graph_node(clean, found, how)
    how[found == NONE] = 0
    column = pa.array(nodes.known, pa.string()).take(pa.array(np.maximum(found, 0), mask=found == NONE))
    return Transferred(replaced(clean, "executed_node", column.dictionary_encode()),
                       pa.array([None, EXACT, ALIGNED]).take(pa.array(how)), identical, len(differences), differences)


def _coded(table: pa.Table, column: str) -> pa.ChunkedArray:
    return table[column].unify_dictionaries()


def _iterations(codes: Ints, iteration: Ints) -> dict[int, tuple[Ints, Ints]]:
    """Of each iteration the codes of its kernels, and their rows."""
    rows = np.flatnonzero(iteration != NONE)
    if not len(rows):
        return {}
    rows = rows[np.argsort(iteration[rows], kind="stable")]
    each, first = np.unique(iteration[rows], return_index=True)
    return {int(number): (codes[some], some) for number, some in zip(each, np.split(rows, first[1:]), strict=True)}


def _reference(known: dict[int, tuple[Ints, Ints]], of_node: Ints) -> tuple[Ints, Ints]:
    """The sequence of most of the profiled inferences, and the node that each place serves."""
    if not known:
        raise Absent("the profiled run has no inferences")
    by_sequence: dict[bytes, list[Ints]] = {}
    for codes, rows in known.values():
        by_sequence.setdefault(codes.tobytes(), []).append(of_node[rows])
    usual = Counter({key: len(found) for key, found in by_sequence.items()}).most_common(1)[0][0]
    serves = by_sequence[usual]
    differing = sum(bool((other != serves[0]).any()) for other in serves)
    if differing:
        raise Absent(f"in {differing} of {len(serves)} profiled inferences with one sequence of kernels other nodes "
                     "launched them: position does not tell the node")
    return np.frombuffer(usual, np.int64), serves[0]


def _aligned(sequence: Ints, codes: Ints) -> tuple[Ints, Ints]:
    """Places of the sequence and of the other one that hold the same kernels in a longest common subsequence."""
    same = [stretch for stretch in align(sequence, codes) if stretch.same]
    none = [np.zeros(0, np.int64)]
    return (np.concatenate(none + [np.arange(one.a0, one.a1) for one in same]),
            np.concatenate(none + [np.arange(one.b0, one.b1) for one in same]))


def _first_difference(sequence: Ints, codes: Ints) -> int:
    common = min(len(sequence), len(codes))
    differs = np.flatnonzero(sequence[:common] != codes[:common])
    return int(differs[0]) if len(differs) else common


def _by_graph_node(clean: pa.Table, found: Ints, how: Ints) -> None:
    """A node of a captured graph is one kernel of the capture in every replay, in whatever order streams ran it."""
    key = np.stack([integers(clean["graph_id"]), integers(clean["graph_node_id"])], axis=1)
    told = (how == 1) & (key[:, 1] != NONE)
    if not told.any():
        return
    known, first = np.unique(key[told], axis=0, return_index=True)
    serves = dict(zip(map(tuple, known.tolist()), found[told][first].tolist(), strict=True))
    for row in np.flatnonzero((how != 1) & (key[:, 1] != NONE)).tolist():
        if (node := serves.get(tuple(key[row].tolist()))) is not None:
            found[row], how[row] = node, 1
