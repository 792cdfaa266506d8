"""Loops in a step: the same few operators again and again, and then one that stacks what they made.

The layers of a model repeat as well, but nothing stacks what each of them makes. One operator cannot take the place of
turns that need the result of the one before. A trace does not say which tensor an operator reads; so a loop is left out
where a turn may need the last one, and is of a kind that usually does: it looks something up, or it has gates, or it
only updates values. A result may be needed if it has the shape of something that an earlier operator of the turn reads
and that nothing in the turn has made by then.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aaco.analytics.advice.least import PRODUCTS
from aaco.analytics.advice.work import StepOperator, StepWork
from aaco.analytics.costs.terms import UnknownShape
from aaco.analytics.costs.torch import call
from aaco.core.arrays import Ints, Reals

TURNS = 8  # fewer are no loop
LONGEST_TURN = 32  # operators; a longer turn is a model's
STACKS = ("aten::stack", "aten::cat")
LOOKUPS = ("embedding", "index", "gather")  # what they read next may be what was chosen last
MASKED = "aten::nonzero"  # what a mask of a turn looks up is not what was looked up last
COMPARISONS = ("aten::eq", "aten::ne", "aten::lt", "aten::le", "aten::gt", "aten::ge")
TRUTH = -1  # before the sizes of truth values, which nothing reads in place of numbers
GATES = ("tanh", "sigmoid")  # of recurrent layers
MOST_STACKS = 1000  # of a step that are looked at
Shape = tuple[int, ...]


def stacked_turns(work: StepWork) -> Reals:
    """Return of each row how many turns the loop has that it is in, of loops that end in a stack of their results; 1 of
    all other rows.
    """
    turns = np.ones(len(work.ns))
    stacks = np.array([*(operator.outermost in STACKS for operator in work.operators), False])
    if not stacks.any():
        return turns
    rows = np.flatnonzero(work.operator >= 0)
    starts = rows[np.diff(work.operator_name[rows], prepend=-1) != 0]  # one for kernels of a name one after another
    calls = work.operator_name[starts]
    for end in np.flatnonzero(stacks[work.operator[starts]])[:MOST_STACKS].tolist():
        length = _turn_length(calls[:end])
        if length and not _usually_needs_the_one_before(work, work.operator[starts[end - length:end]]):
            repeated = _periodic(calls[:end], length)
            turns[starts[end - repeated]:starts[end]] = repeated // length
    return turns


def _turn_length(calls: Ints) -> int:
    """Return how many operators a turn of the loop has that these calls end in; 0 if they end in no loop."""
    lengths = 1 + np.flatnonzero(calls[-2:-LONGEST_TURN - 2:-1] == calls[-1:])  # back to a call like the last one
    return next((length for length in lengths.tolist()
                 if length > 1 and _periodic(calls[-TURNS * length:], length) == TURNS * length), 0)


def _periodic(calls: Ints, length: int) -> int:
    """Return how many of the last calls repeat with this period."""
    broken = np.flatnonzero(calls[length:] != calls[:-length])
    return len(calls) - (int(broken[-1]) + 1 if len(broken) else 0)


def _usually_needs_the_one_before(work: StepWork, turn: Ints) -> bool:
    operators = [work.operators[number] for number in turn]
    masks = any(operator.name == MASKED for operator in operators)
    if not masks and any(word in operator.name for operator in operators for word in LOOKUPS):
        return True
    has_gates = any(gate in operator.name for operator in operators for gate in GATES)
    multiplies = any(name.family in PRODUCTS for number in turn for name in work.names_by_operator.get(number, ()))
    return (has_gates or not multiplies) and _may_need_the_one_before(operators)


def _may_need_the_one_before(turn: Sequence[StepOperator]) -> bool:
    results = [_result(operator) for operator in turn]
    return any((_shapes_read(operator) - set(results[:number])) & set(results[number:])
               for number, operator in enumerate(turn))


def _result(operator: StepOperator) -> Shape | None:
    """Return the shape of what an operator makes, of truth values after TRUTH; None where it is not known."""
    try:
        formed = call(operator.name, operator.arguments)
        shape = tuple(formed.result()) if formed else None
    except (UnknownShape, ValueError, LookupError, TypeError):
        return None
    return (TRUTH, *shape) if shape is not None and operator.name in COMPARISONS else shape


def _shapes_read(operator: StepOperator) -> set[Shape | None]:
    """Return the shapes of the tensors that an operator reads, those of lists too; of truth values after TRUTH."""
    taken = operator.arguments
    shapes = [(shape, kind) for shape, kind in zip(taken.shapes, taken.types, strict=False)
              if isinstance(shape, list)] if taken else []
    each = [(part, kind) for shape, kind in shapes
            for part in (shape if any(isinstance(size, list) for size in shape) else [shape])]
    return {(TRUTH, *shape) if kind == "bool" else tuple(shape) for shape, kind in each
            if isinstance(shape, list) and shape}
