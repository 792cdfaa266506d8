"""Loops that call a recurrent cell for one moment after another, where one call of a layer could take all moments.

Each turn needs the state that the one before has left, and a library's layer keeps that. What it cannot take is a cell
whose input comes from the turn before, as where a decoder reads what it wrote, or attends with its state. So a loop
counts only if nothing in a turn but its cells may read what turns make, and nothing that follows them has the size of
what they read. Cells are PyTorch's own, or written out: as many gates and products as an LSTM or a GRU has, and nothing
else (Hochreiter and Schmidhuber 1997; Cho et al. 2014).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import takewhile

import numpy as np

from aaco.analytics.advice.loops import operators_of, repeats
from aaco.analytics.advice.turn_flow import MOVES, Size, TurnFlow, made_sizes, result_shape, size_of, tensors_of
from aaco.analytics.advice.work import BACKWARD, OPTIMIZER, StepOperator, StepWork
from aaco.core.arrays import Flags, Ints32

CELLS = ("aten::lstm_cell", "aten::gru_cell", "aten::rnn_tanh_cell", "aten::rnn_relu_cell")
WEIGHING = ("aten::mm", "aten::addmm", "aten::matmul", "aten::linear")
WRITTEN = ("aten::add", "aten::sub", "aten::rsub", "aten::mul", "aten::sigmoid", "aten::tanh", "aten::lerp",
           "aten::addcmul", "aten::cat")
# Of written cells: sigmoids and tanhs, and how many products they are made of: of both inputs, joined, or of each gate.
GATES_OF_CELLS = (((2, 1), (2, 6)), ((3, 2), (1, 2, 4, 8)))


def cells_in_turn(work: StepWork) -> Ints32:
    """Return of each row how many turns the loop over moments has that it is in; 1 of all other rows."""
    turns = np.ones(len(work.ns), np.int32)
    of_operator = np.ones(len(work.operators) + 1, np.int32)  # the last is of rows of no known operator
    moved = work.copies("h2d", "d2h")
    for loop in work.once(repeats):
        if loop.is_loop and loop.phase not in (BACKWARD, OPTIMIZER) and not moved[loop.rows].any() and _is_layer(
                work, loop.ends[1]):
            turns[loop.rows] = np.maximum(turns[loop.rows], loop.turns)
            called = work.operator[loop.rows]  # elsewhere, too: the first turn may differ
            of_operator[called] = np.maximum(of_operator[called], loop.turns)
    of_operator[-1] = 1
    return np.maximum(turns, of_operator[work.operator])


def stays_in_order(work: StepWork) -> Flags:
    """Return which rows are products with weights, or PyTorch's own cells: what a layer computes turn by turn, too."""
    return work.operated(lambda operator: operator.name in WEIGHING or "_cell" in operator.name)


def _is_layer(work: StepWork, last: slice) -> bool:
    """Return whether a loop may be one call of recurrent layers, by the rows of its last turn."""
    turn = operators_of(work, last)
    if any(operator.outermost in CELLS for operator in turn):
        return not _feeds_back(turn)
    return _is_written(work, last)


def _feeds_back(turn: Sequence[StepOperator]) -> bool:
    """Return whether what lies beside a turn's cells may read what an earlier turn made: the state, too, before its
    first cell.
    """
    cells = [operator for operator in turn if operator.outermost in CELLS]
    flow = TurnFlow(frozenset())
    if not all(map(flow.follow, takewhile(lambda operator: operator.outermost not in CELLS, turn))):
        return True
    flow.make({size for cell in cells for size in _states(cell)})
    beside = [operator for operator in turn if operator.outermost not in CELLS]
    return not all(map(flow.follow, beside)) or flow.may_carry(set()) or _writes_inputs(turn)


def _writes_inputs(turn: Sequence[StepOperator]) -> bool:
    """Return whether what follows the cells of a turn may be what the cells of the next one read."""
    products = [operator for operator in turn if operator.outermost in CELLS and operator.name in WEIGHING]
    taken = {size_of(*tensor) for product in products
             for tensor in tensors_of(product)[product.name == "aten::addmm":][:1]}
    after = takewhile(lambda operator: operator.outermost not in CELLS, reversed(turn))
    return any(not (made := made_sizes(operator)) or made & taken for operator in after)


def _states(cell: StepOperator) -> set[Size]:
    """Return the sizes of what an operator of a cell makes; of a kernel for a whole cell its states are as it reads."""
    fused = tensors_of(cell) if "_cell" in cell.name else []
    return made_sizes(cell) | {size_of(*tensor) for tensor in fused}


def _is_written(work: StepWork, turn: slice) -> bool:
    """Return whether a turn is nothing but cells that are written out. A number for each row resets their states."""
    operators, calls = operators_of(work, turn), Counter[str]()
    for number, share in zip(work.operator[turn].tolist(), work.call_shares[turn].tolist(), strict=True):
        name = work.operators[number].name if number >= 0 else MOVES[0]
        calls[name if name in MOVES else name.rstrip("_")] += share
    shapes = {result_shape(operator) for operator in operators if operator.name in WEIGHING}
    if not calls.keys() <= {*WEIGHING, *WRITTEN, *MOVES} or len(shapes) != 1 or any(map(_by_row, operators)):
        return False
    sigmoids, tanhs, products = (round(sum(calls[name] for name in names))
                                 for names in (("aten::sigmoid",), ("aten::tanh",), WEIGHING))
    return any(cells and (sigmoids, tanhs) == (cells * gates[0], cells * gates[1])
               and products in (cells * count for count in counts)
               for gates, counts in GATES_OF_CELLS for cells in (tanhs // gates[1],))


def _by_row(operator: StepOperator) -> bool:
    """Return whether an operator takes a number for each row of another tensor, as a mask of rows is."""
    return any(len(shape) > 1 and shape[-1] == 1 < math.prod(shape) for shape, _ in tensors_of(operator))
