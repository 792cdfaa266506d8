"""Take names from one run and times from another: a profiled run names a kernel's node, a clean one times it.

Profiling a runtime node by node slows it up to three times if kernels are short. The sequence of kernels of an
inference does not change. So the node of the n-th kernel of the profiled run is that of the n-th kernel of any
inference with the same sequence, and of any replay of a graph captured from it.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
from msgspec import Struct

from aaco.analytics.streaming.alignment import align
from aaco.analytics.streaming.stream_ids import NONE, NameIds, integers
from aaco.core.arrays import Ints
from aaco.core.readings import Absent
from aaco.core.tables import replaced

EXACT, ALIGNED = "exact_sequence", "sequence"


class Transferred(Struct, frozen=True):
    """The clean run's kernels with `executed_node` filled in, and how each was found.

    method: `exact_sequence` in an inference with the profiled sequence, or for a graph node known from one; `sequence`
    if it was aligned; else null. identical, aligned: inferences of either kind. differences: for an aligned inference,
    by its number, the first place where the sequences differ.
    """

    kernels: pa.Table
    method: pa.Array
    identical: int
    aligned: int
    differences: dict[int, int]


def by_position(profiled: pa.Table, clean: pa.Table) -> Transferred:
    """Return the clean run's kernels joined to the profiled ones by their position in the inference.

    Both have kernel_name and iteration, in start order; profiled has executed_node too. Kernels of no iteration stay as
    they are. Raise Absent if the profiled run contradicts itself.
    """
    names, nodes = NameIds(), NameIds()
    profiled_runs = _iterations(names.numbers(_coded(profiled, "kernel_name")), integers(profiled["iteration"]))
    clean_runs = _iterations(names.numbers(_coded(clean, "kernel_name")), integers(clean["iteration"]))
    of_node = nodes.numbers(_coded(profiled, "executed_node"))
    sequence, serves = _reference(profiled_runs, of_node)
    node_of_row = np.full(clean.num_rows, NONE)
    how = np.zeros(clean.num_rows, np.int64)
    identical, differences = 0, {}
    for iteration, (codes, rows) in clean_runs.items():
        if len(codes) == len(sequence) and (codes == sequence).all():
            node_of_row[rows], how[rows] = serves, 1
            identical += 1
        else:
            places, clean_places = _aligned(sequence, codes)
            node_of_row[rows[clean_places]], how[rows[clean_places]] = serves[places], 2
            differences[iteration] = _first_difference(sequence, codes)
    _by_graph_node(clean, node_of_row, how)
    how[node_of_row == NONE] = 0
    column = pa.array(nodes.known, pa.string()).take(pa.array(np.maximum(node_of_row, 0), mask=node_of_row == NONE))
    return Transferred(replaced(clean, "executed_node", column.dictionary_encode()),
                       pa.array([None, EXACT, ALIGNED]).take(pa.array(how)), identical, len(differences), differences)


def _coded(table: pa.Table, column: str) -> pa.ChunkedArray:
    return table[column].unify_dictionaries()


def _iterations(codes: Ints, iteration: Ints) -> dict[int, tuple[Ints, Ints]]:
    """Return the codes of the kernels of each iteration, and their rows."""
    rows = np.flatnonzero(iteration != NONE)
    if not len(rows):
        return {}
    rows = rows[np.argsort(iteration[rows], kind="stable")]
    iterations, first = np.unique(iteration[rows], return_index=True)
    parts = np.split(rows, first[1:])
    return {int(number): (codes[part], part) for number, part in zip(iterations, parts, strict=True)}


def _reference(runs: dict[int, tuple[Ints, Ints]], of_node: Ints) -> tuple[Ints, Ints]:
    """Return the most frequent sequence of the profiled inferences, and the node of each place. Raise Absent."""
    if not runs:
        raise Absent("the profiled run has no inferences")
    by_sequence: dict[bytes, list[Ints]] = {}
    for codes, rows in runs.values():
        by_sequence.setdefault(codes.tobytes(), []).append(of_node[rows])
    usual = Counter({key: len(nodes) for key, nodes in by_sequence.items()}).most_common(1)[0][0]
    serves = by_sequence[usual]
    differing = sum(bool((nodes != serves[0]).any()) for nodes in serves)
    if differing:
        raise Absent(f"in {differing} of {len(serves)} profiled inferences with one sequence of kernels other nodes "
                     "launched them: position does not tell the node")
    return np.frombuffer(usual, np.int64), serves[0]


def _aligned(sequence: Ints, codes: Ints) -> tuple[Ints, Ints]:
    """Return the places, in both sequences, of a longest common subsequence."""
    same = [stretch for stretch in align(sequence, codes) if stretch.same]
    none = [np.zeros(0, np.int64)]
    return (np.concatenate(none + [np.arange(stretch.a0, stretch.a1) for stretch in same]),
            np.concatenate(none + [np.arange(stretch.b0, stretch.b1) for stretch in same]))


def _first_difference(sequence: Ints, codes: Ints) -> int:
    common = min(len(sequence), len(codes))
    differs = np.flatnonzero(sequence[:common] != codes[:common])
    return int(differs[0]) if len(differs) else common


def _by_graph_node(clean: pa.Table, node_of_row: Ints, how: Ints) -> None:
    """Fill in kernels by graph node: it is one kernel of the capture in every replay, whatever the order of streams."""
    key = np.stack([integers(clean["graph_id"]), integers(clean["graph_node_id"])], axis=1)
    is_exact = (how == 1) & (key[:, 1] != NONE)
    if not is_exact.any():
        return
    graph_nodes, first = np.unique(key[is_exact], axis=0, return_index=True)
    serves = dict(zip(map(tuple, graph_nodes.tolist()), node_of_row[is_exact][first].tolist(), strict=True))
    for row in np.flatnonzero((how != 1) & (key[:, 1] != NONE)).tolist():
        if (node := serves.get(tuple(key[row].tolist()))) is not None:
            node_of_row[row], how[row] = node, 1
