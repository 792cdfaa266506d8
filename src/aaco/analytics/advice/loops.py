"""Loops in a step: the same few operators again and again, and then one that stacks what they made.

The layers of a model repeat as well, but nothing stacks what each of them makes. One operator cannot take the place of
turns that need the result of the one before. A trace does not say which tensor an operator reads; so a loop is left out
where a turn may need the last one, and is of a kind that usually does: it looks something up, or it has gates, or it
only updates values. A result may be needed if it has the shape of something that an earlier operator of the turn reads
and that nothing in the turn has made by then.

Rows of a batch that are worked on one by one are loops that end in a read of the host. There it is evident that no turn
needs the one before: nothing comes from the host in a turn, no weights are updated, and nothing of the size of what a
turn reads from outside was made in it or in the one before; but rows of a tensor that has one for each turn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from aaco.analytics.advice.least import PRODUCTS
from aaco.analytics.advice.work import BACKWARD, ONE_NUMBER, OPTIMIZER, StepOperator, StepWork
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
LONGEST_ROW = 2000  # operators of a whole model, in a turn that ends in a read
MOST_READS = 4  # of single numbers in such a turn
READ = -2  # among numbers of operators: a read of the host
# Operators whose other tensors are weights, by the start of the outermost one's name.
WITH_WEIGHTS = ("aten::linear", "aten::conv", "aten::embedding", "aten::layer_norm", "aten::group_norm",
                "aten::rms_norm", "aten::batch_norm")
CHOOSING = ("arg", "topk", "sort", "multinomial", "max", "min")  # of operators that also make integers
WRITES = ("aten::copy_", "aten::fill_", "aten::zero_")  # whatever the tensor held before
FLOATING = ("float", "double", "c10::Half", "c10::BFloat16")
Shape = tuple[int, ...]
Size = tuple[int, bool]  # of a tensor: its elements, and whether they are floating-point numbers


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


def rows_in_turn(work: StepWork) -> Reals:
    """Return of each row how many turns the loop has that it is in, of loops that work on the rows of a batch one by
    one and read a number of each; 1 of all other rows.
    """
    turns = np.ones(len(work.ns))
    read = work.copies("d2h") & (work.copied > 0) & (work.copied <= ONE_NUMBER)
    if np.count_nonzero(read) < TURNS * max(1, work.steps):
        return turns
    rows = np.flatnonzero((work.operator >= 0) | read)
    numbers = np.where(read, READ, work.operator_name)[rows]
    starts, calls = rows[changed := np.diff(numbers, prepend=-1) != 0], numbers[changed]
    ends, first_of_loop = np.flatnonzero(calls == READ) + 1, len(calls) + 1
    for end in ends[::-1][:MOST_STACKS].tolist():
        length = _row_length(calls[:end]) if end < first_of_loop else 0
        if length:
            first_of_loop = end - _periodic(calls[:end], length)
            count = min((end - first_of_loop) // length, round(np.count_nonzero(read) / work.steps))
            loop = slice(int(starts[end - count * length]), int(starts[end - 1]) + 1)
            two_turns = [slice(int(starts[last - length]), int(starts[last - 1])) for last in (end - length, end)]
            if count >= TURNS and _independent(work, loop, two_turns, count):
                turns[loop] = count
    return turns


def _row_length(calls: Ints) -> int:
    """Return how many operators and reads a turn has of the loop that these calls end in; 0 if they end in no loop."""
    lengths = 1 + np.flatnonzero(calls[-2:-LONGEST_ROW - 2:-1] == READ)[:MOST_READS]
    return next((length for length in lengths.tolist()
                 if length > 1 and _periodic(calls[-TURNS * length:], length) == TURNS * length), 0)


def _independent(work: StepWork, loop: slice, two_turns: Sequence[slice], turns: int) -> bool:
    """Return whether it is evident that no turn of a loop needs the one before, by the rows of its last two turns."""
    one_before, last = (_operators(work, turn) for turn in two_turns)
    if work.copies("h2d")[loop].any() or any(operator.phase in (BACKWARD, OPTIMIZER) for operator in last):
        return False
    outside, made = _from_outside(last)
    made |= _from_outside(one_before)[1]
    before = {_size(shape, floating) for number in np.unique(work.operator[:loop.start]).tolist() if number >= 0
              for shape, floating in _tensors(work.operators[number])}
    return all((elements * turns, floating) in before for elements, floating in outside & made)


def _operators(work: StepWork, turn: slice) -> list[StepOperator]:
    """Return the operators of a turn, each once for its kernels."""
    numbers = work.operator[turn][work.operator[turn] >= 0]
    return [work.operators[number] for number in numbers[np.diff(numbers, prepend=-1) != 0]]


def _from_outside(turn: Sequence[StepOperator]) -> tuple[set[Size], set[Size]]:
    """Return the sizes that a turn reads before anything in it made them, and those that it makes.

    What an operator with a result of unknown size makes is the next that is read and was not made.
    """
    outside, made, unknown = set[Size](), set[Size](), 0
    for operator in turn:
        for size in _read(operator):
            if size not in made and unknown:
                unknown -= 1
                made.add(size)
            elif size not in made:
                outside.add(size)
        results = _made(operator)
        made |= results
        unknown += not results
    return outside, made


def _read(operator: StepOperator) -> Iterator[Size]:
    """Yield the sizes of what an operator reads, without weights."""
    tensors = _tensors(operator)
    if operator.outermost.startswith(WITH_WEIGHTS):
        place = int(operator.name == "aten::addmm")
        tensors = [tensor for tensor in tensors if not tensor[1]] if "embedding" in operator.outermost else tensors[
            place:place + 1]
    yield from (_size(*tensor) for tensor in (tensors[1:] if operator.name in WRITES else tensors))


def _made(operator: StepOperator) -> set[Size]:
    """Return the sizes of what an operator makes, of integers or of others as its inputs are; nothing if unknown."""
    tensors = _tensors(operator)
    floating = any(is_floating for _, is_floating in tensors)
    if operator.name.endswith("_") and tensors:
        return {_size(*tensors[0])}
    shape = _result(operator)
    if shape is None:
        return set()
    sizes = {_size(shape, floating)}
    return sizes | {_size(shape, False)} if any(word in operator.name for word in CHOOSING) else sizes


def _tensors(operator: StepOperator) -> list[tuple[Shape, bool]]:
    """Return the shapes of the tensors that an operator takes, those of lists not, and whether they are floating."""
    taken = operator.arguments
    return [] if taken is None else [
        (tuple(shape), kind in FLOATING) for shape, kind in zip(taken.shapes, taken.types, strict=False)
        if isinstance(shape, list) and all(isinstance(size, int) for size in shape)
        and kind not in ("", "Scalar", "ScalarList")]


def _size(shape: Shape, floating: bool) -> Size:
    return math.prod(shape), floating
