"""Loops that call a recurrent cell, or a layer, for one moment after another, where one call could take all moments.

Each turn needs the state that the one before has left, and a library's layer keeps that. What it cannot take is a cell
whose input comes from the turn before, as where a decoder reads what it wrote, or attends with its state. So a loop
counts only if nothing in a turn but its cells may read what turns make, and nothing that follows them has the size of
what they read. Inputs may come from the host where it reads nothing in a turn: then they depend on no state.

Cells are PyTorch's own, a library's layers that are called with one moment, or written out: as many gates and products
as an LSTM or a GRU has, and nothing else (Hochreiter and Schmidhuber 1997; Cho et al. 2014).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import takewhile

import numpy as np

from aaco.analytics.advice.loops import TURNS, operators_of, repeats
from aaco.analytics.advice.turn_flow import (
    MOVES,
    Size,
    TurnFlow,
    made_sizes,
    result_shape,
    size_of,
    tensors_of,
)
from aaco.analytics.advice.views import Shape
from aaco.analytics.advice.work import BACKWARD, OPTIMIZER, StepOperator, StepWork
from aaco.analytics.costs.torch import call
from aaco.core.arrays import Flags, Ints32

CELLS = ("aten::lstm_cell", "aten::gru_cell", "aten::rnn_tanh_cell", "aten::rnn_relu_cell")
LAYERS = ("aten::_cudnn_rnn", "aten::miopen_rnn")
WEIGHING = ("aten::mm", "aten::addmm", "aten::matmul", "aten::linear")
WRITTEN = ("aten::add", "aten::sub", "aten::rsub", "aten::mul", "aten::sigmoid", "aten::tanh", "aten::lerp",
           "aten::addcmul", "aten::cat")
# Of written cells: sigmoids and tanhs, and how many products they are made of: of both inputs, joined, or of each gate.
GATES_OF_CELLS = (((2, 1), (2, 6)), ((3, 2), (1, 2, 4, 8)))


def cells_in_turn(work: StepWork) -> Ints32:
    """Return of each row how many turns the loop over moments has that it is in; 1 of all other rows."""
    turns = np.ones(len(work.ns), np.int32)
    of_operator = np.ones(len(work.operators) + 1, np.int32)  # the last is of rows of no known operator
    read = work.copies("d2h")
    for rows, moments in (*_cells(work), *_layers_in_a_row(work)):
        if not read[rows].any():
            turns[rows] = np.maximum(turns[rows], moments)
            called = work.operator[rows]  # elsewhere, too: the first turn may differ
            of_operator[called] = np.maximum(of_operator[called], moments)
    of_operator[-1] = 1
    return np.maximum(turns, of_operator[work.operator])


def _cells(work: StepWork) -> Iterator[tuple[slice, int]]:
    """Yield the rows of each loop of cells, and how many moments it takes."""
    for loop in work.once(repeats):
        if loop.is_loop and loop.phase not in (BACKWARD, OPTIMIZER) and _is_layer(work, loop.ends[1]):
            yield loop.rows, loop.turns


def _layers_in_a_row(work: StepWork) -> Iterator[tuple[slice, int]]:
    """Yield the rows in which nothing but one layer is called for moment after moment, and how many moments it takes.
    """
    shares, rows = work.call_shares, np.flatnonzero(
        (work.operator >= 0) & ~work.operated(lambda operator: operator.name in MOVES))
    starts = np.flatnonzero(np.diff(work.operator[rows], prepend=-1))
    stops, meant = np.r_[starts[1:], len(rows)], work.operated(_takes_a_moment)[rows[starts]]
    for start, stop in zip(starts[meant].tolist(), stops[meant].tolist(), strict=True):
        called = work.operator_calls[work.operator[rows[start]]] / work.steps
        if (moments := round(min(shares[rows[start:stop]].sum(), called))) >= TURNS:
            yield slice(int(rows[start]), int(rows[stop - 1]) + 1), moments


def _takes_a_moment(operator: StepOperator) -> bool:
    """Return whether a call of a library's layer takes one moment, one way: as many rows as its state has."""
    formed = call(operator.name, operator.arguments) if operator.name in LAYERS else None
    return bool(formed and formed.attributes["ways"] == 1 and (states := _states_of_layer(operator))
                and math.prod(formed.shape()[:-1]) == states[0][1])


def _states_of_layer(layer: StepOperator) -> list[Shape]:
    """Return the shapes of the states that a layer takes: layers, rows, width."""
    return [shape for shape, _ in tensors_of(layer)[1:] if len(shape) == 3]


def stays_in_order(work: StepWork) -> Flags:
    """Return which rows are products with weights, or a library's cells or layers: what is computed turn by turn, too.
    """
    return work.operated(lambda operator: operator.name in (*WEIGHING, *LAYERS) or "_cell" in operator.name)


def _is_layer(work: StepWork, last: slice) -> bool:
    """Return whether a loop may be one call of recurrent layers, by the rows of its last turn."""
    turn = operators_of(work, last)
    if any(map(_is_cell, turn)):
        return not _feeds_back(turn)
    return _is_written(work, last)


def _feeds_back(turn: Sequence[StepOperator]) -> bool:
    """Return whether what lies beside a turn's cells may read what an earlier turn made: the state, too, before its
    first cell.
    """
    cells = list(filter(_is_cell, turn))
    flow = TurnFlow()
    if not all(map(flow.follow, takewhile(lambda operator: not _is_cell(operator), turn))):
        return True
    flow.make({size for cell in cells for size in _states(cell)})
    beside = [operator for operator in turn if operator not in cells]
    return not all(map(flow.follow, beside)) or flow.may_carry(set()) or _writes_inputs(turn)


def _writes_inputs(turn: Sequence[StepOperator]) -> bool:
    """Return whether what follows the cells of a turn may be what the cells of the next one read."""
    products = [operator for operator in turn if operator.outermost in CELLS and operator.name in WEIGHING]
    taken = {size_of(*tensor) for product in products
             for tensor in tensors_of(product)[product.name == "aten::addmm":][:1]}
    for layer in filter(_takes_a_moment, turn):
        taken |= {size_of(*tensors_of(layer)[0]), *_states(layer)}
    after = takewhile(lambda operator: not _is_cell(operator), reversed(turn))
    return any(not (made := made_sizes(operator)) or made & taken for operator in after)


def _states(cell: StepOperator) -> set[Size]:
    """Return the sizes of what an operator of a cell makes; a layer's result is as a layer of its state, too."""
    layered = [part for shape in _states_of_layer(cell) for part in (shape, shape[1:])] if cell.name in LAYERS else []
    return made_sizes(cell) | {size_of(shape, True) for shape in layered}


def _is_cell(operator: StepOperator) -> bool:
    return operator.outermost in CELLS or _takes_a_moment(operator)


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
